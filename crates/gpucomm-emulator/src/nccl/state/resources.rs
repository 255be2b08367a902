//! What a communicator shares with those that are split off from it, where `splitShare` is set, on one rank.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::abort::AbortFlag;
use super::inside::Visits;
use super::memory::Memory;
use super::mixing::Mixing;
use super::progress::Progress;
use super::proxies::Proxies;
use crate::races::course::Chain;

/// The flag that stops all sharers, the stream on which their operations come one after another, and who is inside them.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    pub(crate) abort: Arc<AbortFlag>,
    pub(crate) progress: Arc<Progress>,
    /// NCCL lets each launch wait for the last one, on whatever streams they are.
    pub(crate) chain: Arc<Chain>,
    pub(crate) mixing: Arc<Mixing>,
    pub(crate) visits: Visits,
    pub(super) proxies: Arc<Proxies>,
    pub(crate) memory: Arc<Memory>,
    /// How many collectives this one has launched.
    pub(crate) collectives: Arc<AtomicU64>,
    /// The same of those that it was split off from, as far as they share.
    above: Vec<Arc<AtomicU64>>,
}

impl Resources {
    /// Those of a communicator that is split off from this one, and shares.
    pub(crate) fn share(&self) -> Self {
        self.memory.share();
        Self {
            abort: self.abort.clone(),
            progress: self.progress.clone(),
            chain: self.chain.clone(),
            mixing: self.mixing.clone(),
            visits: self.visits.clone(),
            proxies: self.proxies.clone(),
            memory: self.memory.clone(),
            collectives: Arc::default(),
            above: self.above.iter().chain([&self.collectives]).cloned().collect(),
        }
    }

    /// A number that the ranks of this communicator have in common where each has launched the same on those above it, if there are any.
    pub(crate) fn order(&self) -> Option<u32> {
        let digest = |digest: u64, count: u64| (digest ^ count).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        let all = self.above.iter().map(|count| count.load(Ordering::Relaxed));
        (!self.above.is_empty()).then(|| all.fold(0, digest) as u32)
    }
}
