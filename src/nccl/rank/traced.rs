//! Events of communicators for subscribers of the crate `tracing`. Without the feature `tracing`
//! all of it compiles to nothing.

use super::inner::Inner;
use crate::error::Error;

/// An operation, or a point that ranks come to together.
#[cfg_attr(not(feature = "tracing"), allow(dead_code))]
pub(crate) struct Traced {
    pub(crate) operation: &'static str,
    /// Its [`head`](crate::nccl::validate::operation::head).
    pub(crate) head: u64,
    pub(crate) count: u64,
    /// The serial number of its stream; 0 if it has none.
    pub(crate) stream: u64,
    /// Whether it runs when a graph is launched, not now.
    pub(crate) captured: bool,
}

#[cfg(feature = "tracing")]
mod told {
    use super::*;
    use crate::nccl::validate::operation;
    use crate::panicked;

    /// Emits an event. Subscribers are code of others: a panic of theirs ends here, and only the
    /// panic hook sees it. The caller must go on: NCCL has an operation that is not recorded yet,
    /// or a communicator that no thread can use any more has to be ended.
    fn tell(what: impl FnOnce()) {
        let _ = panicked::caught(what);
    }

    impl Inner {
        /// An operation was enqueued.
        pub(crate) fn trace(&self, what: impl FnOnce() -> Traced) {
            tell(|| {
                if !tracing::enabled!(target: "gpucomm", tracing::Level::TRACE) {
                    return;
                }
                let Traced { operation, head, count, stream, captured } = what();
                let (communicator, name, rank, size) = (self.id, self.name.as_str(), self.rank, self.size);
                // Points and launches of graphs move no elements.
                let element = (!operation::is_point(head)).then(|| operation::element(head).to_string());
                let what = operation::describe(head, count);
                let element = element.as_deref();
                tracing::trace!(target: "gpucomm", operation, communicator, name, rank, size, count, element, stream, captured, what, "enqueued");
            });
        }

        /// The rank has started.
        pub(crate) fn trace_start(&self) {
            let (communicator, name, rank, size) = (self.id, self.name.as_str(), self.rank, self.size);
            let device = self.device.ordinal();
            tell(|| tracing::debug!(target: "gpucomm", communicator, name, rank, size, device, "communicator made"));
        }

        /// The rank is aborted or revoked.
        pub(crate) fn trace_abort(&self, cause: &Error) {
            let (communicator, name, rank, size) = (self.id, self.name.as_str(), self.rank, self.size);
            tell(
                || tracing::warn!(target: "gpucomm", communicator, name, rank, size, cause = %cause, "communicator aborted"),
            );
        }

        /// NCCL has freed the rank.
        pub(crate) fn trace_end(&self) {
            let (communicator, name, rank, size) = (self.id, self.name.as_str(), self.rank, self.size);
            tell(|| tracing::debug!(target: "gpucomm", communicator, name, rank, size, "communicator ended"));
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
