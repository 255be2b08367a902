//! Waiting for a future on this thread, without an executor.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use crate::callbacks;
use crate::deadline::Deadline;

/// What `future` gives; itself where it gives nothing in time.
pub(super) fn wait_for<F: Future + Unpin>(mut future: F, deadline: Option<Deadline>) -> Result<F::Output, F> {
    let waker = callbacks::this_thread();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut context) {
            return Ok(output);
        }
        match &deadline {
            None => thread::park(),
            Some(deadline) if deadline.expired() => return Err(future),
            Some(deadline) => thread::park_timeout(deadline.remaining()),
        }
    }
}
