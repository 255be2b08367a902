//! Results of NCCL calls as errors.

use std::ffi::c_char;
use std::ptr;

use super::handle::Handle;
use crate::cuda::Device;
use crate::error::{Error, Result};
use crate::sys;

/// Turns a result code into an error that says which call failed, and what NCCL said of it.
///
/// `ncclInProgress` is not a failure: a blocking communicator never answers it, and the callers that ask a state compare
/// it themselves.
#[inline]
pub(crate) fn check(operation: &'static str, result: sys::ncclResult_t) -> Result<()> {
    if result == sys::ncclResult_t::ncclSuccess || result == sys::ncclResult_t::ncclInProgress {
        return Ok(());
    }
    Err(error(operation, result))
}

/// The error for a code that is known to be one.
#[cold]
pub(crate) fn error(operation: &'static str, result: sys::ncclResult_t) -> Error {
    Error::Nccl { operation, code: result.0 as i32, message: message(result), last: last_error() }
}

/// The loss of one of `devices` that is behind an error of NCCL, which says no more than that a call of CUDA failed.
pub(crate) fn lost(error: &Error, devices: impl IntoIterator<Item = Device>) -> Option<Error> {
    let Error::Nccl { code, .. } = error else { return None };
    if *code != sys::ncclResult_t::ncclUnhandledCudaError.0 as i32 {
        return None;
    }
    let lost = |device: Device| device.memory_info().err().filter(|error| matches!(error, Error::DeviceLost { .. }));
    devices.into_iter().find_map(lost)
}

/// What `ncclGetErrorString` says of a code; its number where NCCL knows none.
pub(crate) fn message(result: sys::ncclResult_t) -> String {
    // SAFETY: the call takes any number, and returns null or a static string that ends in NUL.
    let text = unsafe { sys::ncclGetErrorString(result) };
    copied(text).unwrap_or_else(|| format!("unknown code {}", result.0))
}

/// A copy of what `ncclGetLastError` says, if it says anything.
///
/// NCCL keeps one buffer for the whole process and overwrites it at any time, so the text may be torn, and may belong to another call.
pub(crate) fn last_error() -> Option<String> {
    last_error_of(Handle(ptr::null_mut()))
}

/// The same with a communicator, null or live. NCCL takes no notice of it; the emulator says what that one waits for.
fn last_error_of(Handle(raw): Handle) -> Option<String> {
    // SAFETY: the argument is ignored by NCCL; the result is null or a buffer of `LONGEST` bytes.
    let text = unsafe { sys::ncclGetLastError(raw) };
    copied(text).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The same, for the error of a wait.
pub(crate) fn said(communicator: Handle) -> Option<String> {
    last_error_of(communicator).map(|text| format!("NCCL says: {text}"))
}

/// Bytes of the buffer in which NCCL keeps its last message.
const LONGEST: usize = 1024;

/// A copy of a text of C, of at most [`LONGEST`] bytes. Others may write to it meanwhile.
fn copied(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    let mut copy = [0; LONGEST];
    for (at, byte) in copy.iter_mut().enumerate() {
        // SAFETY: no byte before this one was NUL, so it is still within the text, or within the buffer of that many bytes. It is read
        // once, and no reference to it is made: NCCL's threads write there.
        *byte = unsafe { text.add(at).cast::<u8>().read_volatile() };
        if *byte == 0 {
            return Some(String::from_utf8_lossy(&copy[..at]).into_owned());
        }
    }
    Some(String::from_utf8_lossy(&copy).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_copied_to_their_ends() {
        assert_eq!(copied(ptr::null()), None);
        assert_eq!(copied(c"".as_ptr()).as_deref(), Some(""));
        assert_eq!(copied(c"a text".as_ptr()).as_deref(), Some("a text"));
        assert_eq!(copied(c"\xff".as_ptr()).as_deref(), Some("\u{fffd}"));
        // As a buffer is that is being written to.
        let torn = [b'x'; LONGEST];
        assert_eq!(copied(torn.as_ptr().cast()).as_deref(), Some(&*"x".repeat(LONGEST)));
    }
}
