//! Calls that may not return, and calls that are to be made again.

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::cuda::devices::device::Device;
use crate::cuda::devices::settle::settle;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::refusal::Refusal;
use crate::sys;

/// So often a call is made that says that the system is not ready.
pub(super) const ATTEMPTS: u32 = 8;
/// The pause before the second time; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(10);

/// How long to wait before attempt `number`, from 1.
pub(super) fn pause(number: u32) -> Duration {
    PAUSE * 2u32.pow(number.saturating_sub(1).min(16))
}

/// Whether it is worth to ask again.
pub(super) fn is_not_ready(error: &Error) -> bool {
    matches!(error, Error::Multicast { why: Refusal::NotReady, .. })
}

/// Makes a call again where the system is not ready: [`ATTEMPTS`] times at most, and not after the deadline.
pub(super) fn persist<T>(deadline: &Deadline, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let mut number = 1;
    loop {
        match call() {
            Err(error) if is_not_ready(&error) && number < ATTEMPTS && deadline.remaining() > pause(number) => {
                thread::sleep(pause(number));
                number += 1;
            }
            result => return result,
        }
    }
}

/// Makes a call of the driver that blocks until all devices were added, perhaps for ever, on a thread that is left behind at the deadline;
/// with it `keeps`, which the call uses. An [`Error::Timeout`] says that it may still run.
pub(super) fn bounded(
    operation: &'static str,
    device: Device,
    deadline: &Deadline,
    keeps: Arc<dyn Any + Send + Sync>,
    call: impl FnOnce() -> sys::CUresult + Send + 'static,
) -> Result<sys::CUresult> {
    let (tell, told) = channel();
    let run = move || {
        let result = settle(device).map(|()| call());
        // Before anybody goes on: nothing is kept by a thread that nobody sees.
        drop(keeps);
        let _ = tell.send(result);
    };
    let spawned = thread::Builder::new().name("gpucomm-multicast".into()).spawn(run);
    spawned
        .map_err(|error| Error::InvalidUsage { operation, reason: format!("a thread cannot be started: {error}") })?;
    match told.recv_timeout(deadline.remaining()) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => {
            Err(deadline.error(operation, "the driver does not return before all devices were added".to_owned()))
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(Error::InvalidUsage { operation, reason: "the thread of the call has ended".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ready_is_asked_for_some_times() {
        let not_ready = || Error::Multicast { operation: "test", why: Refusal::NotReady, detail: String::new() };
        let deadline = Deadline::after(Duration::from_millis(100));
        let mut calls = 0;
        let result = persist(&deadline, || {
            calls += 1;
            if calls < 3 { Err(not_ready()) } else { Ok(calls) }
        });
        assert_eq!(result.unwrap(), 3);
        let (mut calls, deadline) = (0, Deadline::after(Duration::from_millis(40)));
        let error = persist(&deadline, || -> Result<()> {
            calls += 1;
            Err(not_ready())
        });
        assert!(is_not_ready(&error.unwrap_err()) && (2..=3).contains(&calls), "{calls}");
    }
}
