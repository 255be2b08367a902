//! Threads of this crate.

use std::cell::Cell;

use super::check::check;
use super::device::Device;
use crate::error::Result;
use crate::sys;

thread_local! {
    static SETTLED: Cell<Option<Device>> = const { Cell::new(None) };
}

/// Wraps `cudaSetDevice` and `cudaThreadExchangeStreamCaptureMode`: makes `device` the current one of a thread of this
/// crate, and has its calls spoil no stream capture that another library does meanwhile. Costs a comparison the second time.
pub(crate) fn settle(device: Device) -> Result<()> {
    if SETTLED.get() == Some(device) {
        return Ok(());
    }
    std::mem::forget(device.bind()?);
    let mut mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
    // SAFETY: reads the mode at the address given, and writes the one before to it.
    let code = unsafe { sys::cudaThreadExchangeStreamCaptureMode(&raw mut mode) };
    check("cudaThreadExchangeStreamCaptureMode", code)?;
    SETTLED.set(Some(device));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settled_thread_spoils_no_capture() {
        if Device::count().is_err() {
            return;
        }
        std::thread::spawn(|| {
            settle(Device::new(0).unwrap()).unwrap();
            let mut mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;
            // SAFETY: reads the mode at the address given, and writes the one before to it.
            let code = unsafe { sys::cudaThreadExchangeStreamCaptureMode(&raw mut mode) };
            assert_eq!(code, sys::cudaError::cudaSuccess);
            assert_eq!(mode, sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed);
        })
        .join()
        .unwrap();
    }
}
