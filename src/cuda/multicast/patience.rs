//! Calls that may not return, and calls that are to be made again.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Makes calls of the driver that may block until all devices were added, or are idle, on a thread that is left behind at the deadline. An
/// [`Error::Timeout`], which names `what` is waited for, says that they may still run: what they come to is given to `late` then, by that
/// thread. Else it is returned, and `late` is gone by then.
pub(super) fn bounded<T: Send + 'static>(
    operation: &'static str,
    deadline: &Deadline,
    what: &str,
    late: impl FnOnce(T) + Send + 'static,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (tell, told) = channel();
    // Who sees it set was second: either the caller has gone when the calls return, or they have returned when it would go.
    let first = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&first);
    let run = move || {
        let result = call();
        if gone.swap(true, Ordering::AcqRel) {
            late(result);
        } else {
            // Before anybody goes on: nothing is kept by a thread that nobody sees.
            drop(late);
            let _ = tell.send(result);
        }
    };
    let spawned = thread::Builder::new().name("gpucomm-multicast".into()).spawn(run);
    spawned
        .map_err(|error| Error::InvalidUsage { operation, reason: format!("a thread cannot be started: {error}") })?;
    let ended = || Error::InvalidUsage { operation, reason: "the thread of the call has ended".to_owned() };
    match told.recv_timeout(deadline.remaining()) {
        Ok(result) => Ok(result),
        Err(RecvTimeoutError::Timeout) if first.swap(true, Ordering::AcqRel) => told.recv().map_err(|_| ended()),
        Err(RecvTimeoutError::Timeout) => {
            Err(deadline.error(operation, format!("the driver does not return before {what}")))
        }
        Err(RecvTimeoutError::Disconnected) => Err(ended()),
    }
}

/// As [`bounded`], for one call that may have to wait for devices, and uses `keeps`: where it goes well after all, that is never let go of.
pub(super) fn bounded_call(
    operation: &'static str,
    device: Device,
    deadline: &Deadline,
    keeps: Arc<dyn Any + Send + Sync>,
    call: impl FnOnce() -> sys::CUresult + Send + 'static,
) -> Result<sys::CUresult> {
    let late = move |result: Result<sys::CUresult>| {
        if result.is_ok_and(|code| code.0 == 0) {
            // Nobody knows of it who could undo it.
            std::mem::forget(keeps);
        }
    };
    bounded(operation, deadline, "all devices were added", late, move || settle(device).map(|()| call()))?
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
    /// Whoever is second does what is left to do, however close they are.
    #[test]
    fn what_comes_late_is_seen_by_one() {
        for pause in (0..60).map(|number| Duration::from_micros(number * 20)) {
            let (late, was_late) = channel();
            let deadline = Deadline::after(Duration::from_micros(500));
            let result = bounded(
                "test",
                &deadline,
                "it is time",
                move |one| late.send(one).unwrap(),
                move || {
                    thread::sleep(pause);
                    7
                },
            );
            // The other end is gone where nothing was late.
            let late = was_late.recv().ok();
            match result {
                Ok(value) => assert_eq!((value, late), (7, None)),
                Err(error) => {
                    assert!(error.to_string().contains("before it is time"), "{error}");
                    assert_eq!(late, Some(7));
                }
            }
        }
    }
}
