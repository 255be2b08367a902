//! Stream captures of other libraries, which nothing of ours may spoil.
//!
//! A capture in global mode, which is the default of CUDA, is spoilt by any thread that allocates, or asks how far something is, unless
//! that thread is in relaxed mode. Threads of this crate are so for good, those of users as long as such a call takes.

use std::cell::Cell;

use super::check::check;
use super::device::Device;
use crate::error::Result;
use crate::sys;

const RELAXED: sys::cudaStreamCaptureMode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;

thread_local! {
    static SETTLED: Cell<Option<Device>> = const { Cell::new(None) };
}

/// Wraps `cudaSetDevice` and `cudaThreadExchangeStreamCaptureMode`: makes `device` the current one of a thread of this
/// crate, and has its calls spoil no stream capture that another library does meanwhile. Costs a comparison the second time.
pub(crate) fn settle(device: Device) -> Result<()> {
    if SETTLED.get() == Some(device) {
        return Ok(());
    }
    std::mem::forget(device.bind("cudaSetDevice")?);
    exchange(RELAXED)?;
    SETTLED.set(Some(device));
    Ok(())
}

/// Makes a call that may not come while another thread captures, so that it may.
#[inline]
pub(crate) fn undisturbing<R>(call: impl FnOnce() -> Result<R>) -> Result<R> {
    if SETTLED.get().is_some() {
        return call();
    }
    let before = exchange(RELAXED)?;
    let result = call();
    exchange(before)?;
    result
}

/// Wraps `cudaThreadExchangeStreamCaptureMode`: the mode of this thread before.
#[inline]
fn exchange(mut mode: sys::cudaStreamCaptureMode) -> Result<sys::cudaStreamCaptureMode> {
    // SAFETY: reads the mode at the address given, and writes the one before to it.
    let code = unsafe { sys::cudaThreadExchangeStreamCaptureMode(&raw mut mode) };
    check("cudaThreadExchangeStreamCaptureMode", code)?;
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    const GLOBAL: sys::cudaStreamCaptureMode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;

    #[test]
    fn a_settled_thread_spoils_no_capture() {
        if Device::count().is_err() {
            return;
        }
        std::thread::spawn(|| {
            settle(Device::new(0).unwrap()).unwrap();
            assert_eq!(exchange(GLOBAL).unwrap(), RELAXED);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_users_thread_is_as_before() {
        if Device::count().is_err() {
            return;
        }
        std::thread::spawn(|| {
            assert_eq!(undisturbing(|| exchange(RELAXED)).unwrap(), RELAXED);
            assert_eq!(exchange(GLOBAL).unwrap(), GLOBAL);
            undisturbing(|| Err::<(), _>(Error::InvalidUsage { operation: "test", reason: String::new() }))
                .unwrap_err();
            assert_eq!(exchange(GLOBAL).unwrap(), GLOBAL);
        })
        .join()
        .unwrap();
    }
}
