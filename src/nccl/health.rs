//! How a communicator is, for those who wait for its work.
//!
//! Every wait asks NCCL for an asynchronous error before it says that all is well. It must not take the communicator's lock
//! for that: a thread that waits inside NCCL for a peer holds it. What `ncclCommGetAsyncError` reads of a blocking
//! communicator is atomic or stays as it is until the end, so it may be asked at any time until then; and for the end there
//! is a count of those who ask. Who is to end the communicator has changed its state before; a reader counts itself, then
//! looks at the state; the ender looks at the count last. So one sees the other. Readers take nanoseconds.

use std::sync::atomic::{AtomicU32, Ordering};

use super::ending;
use super::inner::Inner;
use super::watchdog;
use crate::cuda::Worker;
use crate::deadline::backoff;
use crate::error::{Error, Result};

/// Counts the threads that ask for asynchronous errors at this moment.
#[derive(Debug, Default)]
pub(crate) struct Readers(AtomicU32);

impl Readers {
    /// Runs `ask` as a reader.
    fn read<R>(&self, ask: impl FnOnce() -> R) -> R {
        // Before the state is looked at, in one order for all threads.
        self.0.fetch_add(1, Ordering::SeqCst);
        let answer = ask();
        self.0.fetch_sub(1, Ordering::Release);
        answer
    }

    /// Waits until nobody reads who came before the state was changed.
    pub(crate) fn leave(&self) {
        let mut round = 0;
        while self.0.load(Ordering::SeqCst) != 0 {
            backoff(round);
            round += 1;
        }
    }
}

impl Inner {
    /// Wraps `ncclCommGetAsyncError`, without the lock; `None` if the communicator has come to its end.
    fn ask_async_error(&self) -> Option<Result<()>> {
        self.readers.read(|| {
            if !self.is_active() {
                return None;
            }
            let handle = self.raw()?;
            // The handle stays live: who ends the communicator changes its state first, and then waits for us to leave.
            Some(ending::async_error(handle.raw()))
        })
    }
}

impl Worker for Inner {
    fn health(&self) -> Result<()> {
        match self.ask_async_error() {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                watchdog::end(self, &error);
                Err(error)
            }
            // One that is being closed was asked after its work was done.
            None if self.is_closing() => Ok(()),
            None => Err(self
                .refusal("wait")
                .unwrap_or(Error::Aborted { operation: "wait", reason: String::from("unknown") })),
        }
    }

    fn pending(&self, _number: u64) -> Option<String> {
        None
    }
}
