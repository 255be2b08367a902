//! What is told of communicators to who listens by the crate `tracing`, with the feature of that name; without it nothing is left of it.

use super::inner::Inner;
use crate::error::Error;

/// An operation, or a point that ranks come to together.
#[cfg_attr(not(feature = "tracing"), allow(dead_code))]
pub(crate) struct Traced {
    pub(crate) operation: &'static str,
    /// Its [`head`](crate::nccl::agree::signature::head).
    pub(crate) head: u64,
    pub(crate) count: u64,
    /// The serial number of its stream; 0 where it has none.
    pub(crate) stream: u64,
    /// Whether it is not done now, but when a graph is launched.
    pub(crate) captured: bool,
}

#[cfg(feature = "tracing")]
mod told {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::nccl::agree::signature;

    /// Tells who listens. That is code of others: a panic of it ends here, and is seen by the hook alone, as what it comes between has to be done
    /// whole: NCCL has an operation that is not written down yet, or somebody is about to end a communicator that nobody can use any more.
    fn tell(what: impl FnOnce()) {
        let _ = catch_unwind(AssertUnwindSafe(what));
    }

    impl Inner {
        /// It was given an operation.
        pub(crate) fn trace(&self, what: impl FnOnce() -> Traced) {
            tell(|| {
                if !tracing::enabled!(target: "gpucomm", tracing::Level::TRACE) {
                    return;
                }
                let Traced { operation, head, count, stream, captured } = what();
                let (communicator, rank, size) = (self.id, self.rank, self.size);
                // Points and launches of graphs move no elements.
                let element = (!signature::is_point(head)).then(|| signature::element(head).to_string());
                let what = signature::describe(head, count);
                let element = element.as_deref();
                tracing::trace!(target: "gpucomm", operation, communicator, rank, size, count, element, stream, captured, what, "enqueued");
            });
        }

        /// It was made.
        pub(crate) fn trace_start(&self) {
            let (communicator, rank, size, device) = (self.id, self.rank, self.size, self.device.ordinal());
            tell(|| tracing::debug!(target: "gpucomm", communicator, rank, size, device, "communicator made"));
        }

        /// It is aborted, or revoked.
        pub(crate) fn trace_abort(&self, cause: &Error) {
            let (communicator, rank, size) = (self.id, self.rank, self.size);
            tell(
                || tracing::warn!(target: "gpucomm", communicator, rank, size, cause = %cause, "communicator aborted"),
            );
        }

        /// NCCL has let go of it.
        pub(crate) fn trace_end(&self) {
            let (communicator, rank, size) = (self.id, self.rank, self.size);
            tell(|| tracing::debug!(target: "gpucomm", communicator, rank, size, "communicator ended"));
        }
    }
}

#[cfg(not(feature = "tracing"))]
impl Inner {
    #[inline(always)]
    pub(crate) fn trace(&self, _: impl FnOnce() -> Traced) {}

    #[inline(always)]
    pub(crate) fn trace_start(&self) {}

    #[inline(always)]
    pub(crate) fn trace_abort(&self, _: &Error) {}

    #[inline(always)]
    pub(crate) fn trace_end(&self) {}
}
