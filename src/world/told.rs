//! What is told of requests and of the world to who listens by the crate `tracing`, with the feature of that name.

#[cfg(feature = "tracing")]
mod listened {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::error::Error;
    use crate::world::task::Meta;

    /// Code of others: a panic of it ends here.
    fn tell(what: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(what)) {
            std::mem::forget(payload);
        }
    }

    fn microseconds(meta: &Meta) -> u64 {
        u64::try_from(meta.submitted.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(in crate::world) fn enqueued(meta: &Meta) {
        tell(|| {
            if tracing::enabled!(target: "gpucomm::world", tracing::Level::TRACE) {
                let (operation, rank, generation, after) =
                    (meta.operation, meta.rank, meta.generation, microseconds(meta));
                tracing::trace!(target: "gpucomm::world", operation, rank, generation, after, "request enqueued");
            }
        });
    }

    pub(in crate::world) fn answered(meta: &Meta, error: Option<&Error>) {
        tell(|| {
            let (operation, rank, generation) = (meta.operation, meta.rank, meta.generation);
            match error {
                None if tracing::enabled!(target: "gpucomm::world", tracing::Level::TRACE) => {
                    let after = microseconds(meta);
                    tracing::trace!(target: "gpucomm::world", operation, rank, generation, after, "request done");
                }
                None => {}
                Some(error) => {
                    let after = microseconds(meta);
                    tracing::debug!(target: "gpucomm::world", operation, rank, generation, after, %error, "request failed");
                }
            }
        });
    }

    pub(in crate::world) fn up(generation: u64, size: usize) {
        tell(|| tracing::info!(target: "gpucomm::world", generation, size, "world up"));
    }

    pub(in crate::world) fn down(generation: u64, cause: &Error) {
        tell(|| tracing::warn!(target: "gpucomm::world", generation, %cause, "world down"));
    }

    pub(in crate::world) fn not_rebuilt(generation: u64, attempt: u32, error: &Error) {
        tell(|| tracing::warn!(target: "gpucomm::world", generation, attempt, %error, "world not rebuilt"));
    }

    pub(in crate::world) fn closed(generation: u64) {
        tell(|| tracing::info!(target: "gpucomm::world", generation, "world closed"));
    }
}

#[cfg(not(feature = "tracing"))]
mod listened {
    use crate::error::Error;
    use crate::world::task::Meta;

    #[inline(always)]
    pub(in crate::world) fn enqueued(_: &Meta) {}

    #[inline(always)]
    pub(in crate::world) fn answered(_: &Meta, _: Option<&Error>) {}

    #[inline(always)]
    pub(in crate::world) fn up(_: u64, _: usize) {}

    #[inline(always)]
    pub(in crate::world) fn down(_: u64, _: &Error) {}

    #[inline(always)]
    pub(in crate::world) fn not_rebuilt(_: u64, _: u32, _: &Error) {}

    #[inline(always)]
    pub(in crate::world) fn closed(_: u64) {}
}

pub(super) use listened::*;
