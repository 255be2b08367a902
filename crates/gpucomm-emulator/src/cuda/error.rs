//! Errors: their names, what they mean, and the last one of each thread.

use super::core::device;
use crate::sys::cudaError;
use crate::{settings, visible};
use std::cell::Cell;
use std::ffi::CStr;

thread_local! {
    static LAST: Cell<cudaError> = const { Cell::new(cudaError::cudaSuccess) };
}

/// Remembers what a call of this thread returned, unless that was success.
pub(super) fn remember(error: cudaError) {
    if error != cudaError::cudaSuccess {
        LAST.set(error);
    }
}

/// The last error of this thread, which is forgotten; the error that sticks to the current device never is.
pub(super) fn take_last() -> cudaError {
    match LAST.replace(cudaError::cudaSuccess) {
        cudaError::cudaSuccess => {
            device::current().and_then(|device| device.check()).err().unwrap_or(cudaError::cudaSuccess)
        }
        error => error,
    }
}

/// What an error means, in this process: where the environment is why nothing can start, what is wrong with it.
pub(crate) fn meaning(error: cudaError) -> &'static CStr {
    let cause = match error {
        cudaError::cudaErrorInitializationError => settings::wrong(),
        cudaError::cudaErrorNoDevice => visible::hidden(),
        _ => None,
    };
    cause.unwrap_or_else(|| texts(error).1)
}

macro_rules! texts {
    ($($name:ident $text:literal)*) => {
        /// The name and the meaning of an error.
        pub(super) fn texts(error: cudaError) -> (&'static CStr, &'static CStr) {
            const fn c(text: &'static str) -> &'static CStr {
                match CStr::from_bytes_with_nul(text.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => panic!("a literal ends with its only zero byte"),
                }
            }
            match error {
                $(cudaError::$name => {
                    const TEXTS: (&CStr, &CStr) = (c(concat!(stringify!($name), "\0")), c(concat!($text, "\0")));
                    TEXTS
                })*
                _ => (c"unknown error code", c"the emulator does not know this code"),
            }
        }

        #[cfg(test)]
        const ALL: &[cudaError] = &[$(cudaError::$name),*];
    };
}

texts! {
    cudaSuccess "all is well"
    cudaErrorInvalidValue "an argument is out of range or does not fit the others"
    cudaErrorMemoryAllocation "out of memory"
    cudaErrorInitializationError "the runtime could not be started in this process"
    cudaErrorCudartUnloading "the process is ending"
    cudaErrorStubLibrary "a stub stands where the driver library should be"
    cudaErrorInsufficientDriver "the driver is older than the runtime needs"
    cudaErrorDevicesUnavailable "every device is taken or cannot be used"
    cudaErrorNoDevice "there is no device"
    cudaErrorInvalidDevice "there is no device of this number, or it cannot be used this way"
    cudaErrorDeviceUninitialized "nothing was set up on this device yet"
    cudaErrorPeerAccessUnsupported "these devices cannot reach each other's memory"
    cudaErrorInvalidResourceHandle "a stream, event or pool does not exist or does not belong here"
    cudaErrorIllegalState "the object is in a state that does not allow this"
    cudaErrorSymbolNotFound "nothing of that name was found"
    cudaErrorNotReady "the work is still under way"
    cudaErrorIllegalAddress "work touched memory that was not its to touch; the device is lost to this process"
    cudaErrorPeerAccessAlreadyEnabled "access to that peer was enabled before"
    cudaErrorPeerAccessNotEnabled "access to that peer was never enabled"
    cudaErrorLaunchFailure "work failed while it ran; the device is lost to this process"
    cudaErrorNotPermitted "this is not allowed here"
    cudaErrorNotSupported "this cannot be done here"
    cudaErrorSystemNotReady "a service that the devices need is not running yet"
    cudaErrorSystemDriverMismatch "parts of the driver are of different versions"
    cudaErrorCompatNotSupportedOnDevice "the compatibility driver does not know this device"
    cudaErrorStreamCaptureUnsupported "this cannot be done while a stream is being captured, and has spoilt the capture"
    cudaErrorStreamCaptureInvalidated "the capture was spoilt by an earlier error"
    cudaErrorStreamCaptureMerge "the event is of another capture, and two captures cannot become one"
    cudaErrorStreamCaptureUnmatched "the capture was begun on another stream"
    cudaErrorStreamCaptureUnjoined "what was captured on another stream does not come before the end of the first one"
    cudaErrorStreamCaptureIsolation "what is captured would depend on what is not"
    cudaErrorStreamCaptureImplicit "the legacy default stream would depend on a stream that is being captured"
    cudaErrorCapturedEvent "the event was recorded in a capture, where it never comes"
    cudaErrorStreamCaptureWrongThread "another thread has begun this capture"
    cudaErrorGraphExecUpdateFailure "the graph differs in a way that no update can change"
    cudaErrorUnknown "something went wrong inside the emulator"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_error_has_a_name_and_a_text_of_its_own() {
        let (names, meanings): (HashSet<_>, HashSet<_>) = ALL.iter().map(|&error| texts(error)).unzip();
        assert_eq!((names.len(), meanings.len()), (ALL.len(), ALL.len()));
        assert_eq!(texts(cudaError::cudaErrorNotReady).0, c"cudaErrorNotReady");
        assert_eq!(texts(cudaError(123_456)).0, c"unknown error code");
    }
}
