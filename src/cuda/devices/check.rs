//! From result codes of the CUDA runtime to errors.

use std::ffi::{CStr, c_char};

use crate::codes::CudaCode;
use crate::error::{Error, Result};
use crate::sys;

/// `Ok` for `cudaSuccess`; otherwise what `operation` failed with. Clears the thread's last error, so that a later
/// call of this thread, perhaps in another library, does not report it as its own.
#[inline]
pub(crate) fn check(operation: &'static str, code: sys::cudaError) -> Result<()> {
    if code == sys::cudaError::cudaSuccess { Ok(()) } else { Err(failure(operation, None, code)) }
}

/// Like [`check`], for calls that concern the device with this ordinal, be it the current one or not.
#[inline]
pub(crate) fn check_on(device: i32, operation: &'static str, code: sys::cudaError) -> Result<()> {
    if code == sys::cudaError::cudaSuccess { Ok(()) } else { Err(failure(operation, Some(device), code)) }
}

/// Like [`check`], for calls that allocate `bytes` on `place`.
pub(crate) fn check_memory(
    operation: &'static str,
    code: sys::cudaError,
    bytes: usize,
    place: impl FnOnce() -> String,
) -> Result<()> {
    match check(operation, code) {
        Err(Error::OutOfMemory { .. }) => Err(Error::OutOfMemory { operation, bytes, place: place() }),
        other => other,
    }
}

/// Like [`check_on`], for queries: `Ok(false)` for `cudaErrorNotReady`.
#[inline]
pub(crate) fn check_ready(device: i32, operation: &'static str, code: sys::cudaError) -> Result<bool> {
    if code == sys::cudaError::cudaSuccess {
        Ok(true)
    } else if code == sys::cudaError::cudaErrorNotReady {
        clear();
        Ok(false)
    } else {
        Err(failure(operation, Some(device), code))
    }
}

/// What a call of others has left behind as the last error of this thread, which forgets it. Work that is not done is none.
#[inline]
pub(crate) fn check_left(device: i32, operation: &'static str) -> Result<()> {
    // SAFETY: takes nothing and has no precondition.
    match unsafe { sys::cudaGetLastError() } {
        sys::cudaError::cudaErrorNotReady => Ok(()),
        code => check_on(device, operation, code),
    }
}

/// Whether a device that has answered so answers nothing else in this process any more: the codes of which CUDA's
/// documentation says that the process must be ended, and errors of the hardware that were not corrected (214, 220). By
/// number, as the headers of older versions lack some.
fn is_final(code: i32) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 810 | 911)
}

/// The current device of this thread.
fn current() -> i32 {
    let mut device = -1;
    // SAFETY: writes one integer to the address given.
    let _ = unsafe { sys::cudaGetDevice(&raw mut device) };
    device
}

/// Forgets the last error of this thread.
pub(crate) fn clear() {
    // SAFETY: takes nothing and has no precondition.
    let _ = unsafe { sys::cudaGetLastError() };
}

#[cold]
fn failure(operation: &'static str, device: Option<i32>, code: sys::cudaError) -> Error {
    use sys::cudaError as E;
    clear();
    let message = text_of(code);
    match code {
        E::cudaErrorMemoryAllocation => {
            Error::OutOfMemory { operation, bytes: 0, place: String::from("the device or the host") }
        }
        E::cudaErrorNoDevice | E::cudaErrorDevicesUnavailable | E::cudaErrorStubLibrary => {
            Error::NoDevice { operation, reason: message }
        }
        E::cudaErrorInsufficientDriver => match versions() {
            (0, _) => Error::NoDevice { operation, reason: String::from("no NVIDIA driver is installed") },
            (driver, runtime) => {
                Error::DriverTooOld { operation, driver: version_text(driver), runtime: version_text(runtime) }
            }
        },
        _ => {
            let (number, name) = (code.0.cast_signed(), name_of(code));
            if is_final(number) {
                let device = device.unwrap_or_else(current);
                return Error::DeviceLost { operation, device, code: CudaCode(number), name, message };
            }
            Error::Cuda { operation, code: CudaCode(number), name, message }
        }
    }
}

/// The versions of driver and runtime, 0 where they cannot be had.
fn versions() -> (i32, i32) {
    let (mut driver, mut runtime) = (0, 0);
    // SAFETY: both write one integer to the address given.
    unsafe {
        if sys::cudaDriverGetVersion(&raw mut driver) != sys::cudaError::cudaSuccess {
            driver = 0;
        }
        if sys::cudaRuntimeGetVersion(&raw mut runtime) != sys::cudaError::cudaSuccess {
            runtime = 0;
        }
    }
    (driver, runtime)
}

/// `13000` as `13.0`.
fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn name_of(code: sys::cudaError) -> String {
    // SAFETY: accepts any code, and returns null or a string that lives as long as the library.
    unsafe { owned(sys::cudaGetErrorName(code)) }
}

/// Wraps `cudaGetErrorString`: what an error code means, such as that of a call in [`sys`](crate::sys). Codes of the driver mean the same
/// wherever both have one.
///
/// ```
/// use gpucomm::sys::cudaError;
///
/// assert!(!gpucomm::cuda::error_string(cudaError::cudaErrorInvalidValue).is_empty());
/// ```
#[doc(alias = "cudaGetErrorString")]
pub fn error_string(code: sys::cudaError) -> String {
    text_of(code)
}

fn text_of(code: sys::cudaError) -> String {
    // SAFETY: accepts any code, and returns null or a string that lives as long as the library.
    unsafe { owned(sys::cudaGetErrorString(code)) }
}

/// # Safety
/// `text` is null or a C string.
unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::from("unknown error");
    }
    // SAFETY: not null, so a C string, as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(version_text(13000), "13.0");
        assert_eq!(version_text(12080), "12.8");
    }
}
