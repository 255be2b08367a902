//! Calls that may never return, made on a thread of their own.

use std::sync::mpsc;
use std::thread;

use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// Runs `call` on a new thread and waits for its result until the deadline.
///
/// A call that does not return in time goes on by itself; its result is dropped when it comes.
pub(crate) fn run<R: Send + 'static>(
    operation: &'static str,
    deadline: &Deadline,
    call: impl FnOnce() -> R + Send + 'static,
) -> Result<R> {
    let receiver = start(operation, call)?;
    receiver
        .recv_timeout(deadline.remaining())
        .map_err(|_| deadline.error(operation, "the call goes on by itself and is not waited for any longer"))
}

/// Starts `call` on a new thread.
pub(crate) fn start<R: Send + 'static>(
    operation: &'static str,
    call: impl FnOnce() -> R + Send + 'static,
) -> Result<mpsc::Receiver<R>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name(operation.to_owned())
        .spawn(move || {
            let _ = sender.send(call());
        })
        .map_err(|error| Error::InvalidUsage { operation, reason: format!("cannot start a thread: {error}") })?;
    Ok(receiver)
}
