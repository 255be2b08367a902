//! What the lock of a rank guards.

use super::works::Works;
use crate::cuda::Stream;
use crate::nccl::validate::regroup::Plan;

/// What the lock guards.
#[derive(Debug, Default)]
pub(crate) struct Guarded {
    pub(crate) streams: Streams,
    pub(crate) works: Works,
    /// How many points this rank has come to at which windows are removed.
    #[cfg(nccl_ge_2_27)]
    pub(crate) points: u64,
    /// How many splits this rank has come to.
    pub(crate) splits: u64,
    /// How often other communicators were made of it outside of that sequence, for each plan.
    pub(crate) regroups: Vec<(Plan, u64)>,
}

impl Guarded {
    /// What [`Guarded::regroup`] would return next.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn times(&self, plan: &Plan) -> u64 {
        let plan = plan.sequence();
        self.regroups.iter().find(|(known, _)| *known == plan).map_or(0, |(_, times)| times + 1)
    }

    /// Counts one more communicator that is made of it by `plan`. Returns how often that was done
    /// before.
    pub(crate) fn regroup(&mut self, plan: &Plan) -> u64 {
        let plan = plan.sequence();
        if let Some((_, times)) = self.regroups.iter_mut().find(|(known, _)| *known == plan) {
            *times += 1;
            return *times;
        }
        self.regroups.push((plan, 0));
        0
    }
}

/// The number of streams from which on idle ones are forgotten.
const MANY: usize = 16;

/// The streams that operations were enqueued on, each once, the last one at the end.
#[derive(Debug, Default)]
pub(crate) struct Streams(Vec<Stream>);

impl Streams {
    /// Keeps a stream that was used: the end of the communicator waits for it.
    #[inline]
    pub(crate) fn remember(&mut self, stream: &Stream) {
        if self.0.last() != Some(stream) {
            self.add(stream);
        }
    }

    #[cold]
    fn add(&mut self, stream: &Stream) {
        match self.0.iter().position(|known| known == stream) {
            Some(at) => {
                let last = self.0.len() - 1;
                self.0.swap(at, last);
            }
            None => {
                if self.0.len() >= MANY {
                    // Nobody has to wait for streams whose work is done.
                    self.0.retain(|known| !known.is_idle().unwrap_or(false));
                }
                self.0.push(stream.clone());
            }
        }
    }

    pub(crate) fn all(&self) -> &[Stream] {
        &self.0
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
