//! Events of requests and of the world for the crate `tracing`, with the feature of that name.

#[cfg(feature = "tracing")]
mod events {
    use crate::error::Error;
    use crate::name::Name;
    use crate::world::guarded::guarded;
    use crate::world::task::Meta;

    fn microseconds(meta: &Meta) -> u64 {
        u64::try_from(meta.submitted.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(in crate::world) fn enqueued(meta: &Meta) {
        guarded(|| {
            if tracing::enabled!(target: "gpucomm::world", tracing::Level::TRACE) {
                let (world, rank, generation) = (meta.terms.world.as_str(), meta.terms.rank, meta.terms.generation);
                let (operation, after) = (meta.operation, microseconds(meta));
                tracing::trace!(target: "gpucomm::world", operation, world, rank, generation, after, "request enqueued");
            }
        });
    }

    pub(in crate::world) fn answered(meta: &Meta, error: Option<&Error>) {
        guarded(|| {
            let (operation, world) = (meta.operation, meta.terms.world.as_str());
            let (rank, generation) = (meta.terms.rank, meta.terms.generation);
            match error {
                None if tracing::enabled!(target: "gpucomm::world", tracing::Level::TRACE) => {
                    let after = microseconds(meta);
                    tracing::trace!(target: "gpucomm::world", operation, world, rank, generation, after, "request done");
                }
                None => {}
                Some(error) => {
                    let after = microseconds(meta);
                    tracing::debug!(target: "gpucomm::world", operation, world, rank, generation, after, %error, "request failed");
                }
            }
        });
    }

    pub(in crate::world) fn up(name: &Name, generation: u64, size: usize) {
        guarded(|| tracing::info!(target: "gpucomm::world", world = name.as_str(), generation, size, "world up"));
    }

    pub(in crate::world) fn down(name: &Name, generation: u64, cause: &Error) {
        guarded(|| tracing::warn!(target: "gpucomm::world", world = name.as_str(), generation, %cause, "world down"));
    }

    pub(in crate::world) fn not_rebuilt(name: &Name, generation: u64, attempt: u32, error: &Error) {
        guarded(
            || tracing::warn!(target: "gpucomm::world", world = name.as_str(), generation, attempt, %error, "world not rebuilt"),
        );
    }

    pub(in crate::world) fn closed(name: &Name, generation: u64) {
        guarded(|| tracing::info!(target: "gpucomm::world", world = name.as_str(), generation, "world closed"));
    }
}

#[cfg(not(feature = "tracing"))]
mod events {
    use crate::error::Error;
    use crate::name::Name;
    use crate::world::task::Meta;

    #[inline(always)]
    pub(in crate::world) fn enqueued(_: &Meta) {}

    #[inline(always)]
    pub(in crate::world) fn answered(_: &Meta, _: Option<&Error>) {}

    #[inline(always)]
    pub(in crate::world) fn up(_: &Name, _: u64, _: usize) {}

    #[inline(always)]
    pub(in crate::world) fn down(_: &Name, _: u64, _: &Error) {}

    #[inline(always)]
    pub(in crate::world) fn not_rebuilt(_: &Name, _: u64, _: u32, _: &Error) {}

    #[inline(always)]
    pub(in crate::world) fn closed(_: &Name, _: u64) {}
}

pub(super) use events::*;
