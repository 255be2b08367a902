//! How many kernels NCCL launches for a group.
//!
//! A group is not one launch. NCCL fills a kernel's arguments, 4 KiB, with batches of work, 16 bytes for each channel that
//! takes part, and begins another kernel when there is no room for one more operation on all channels. What follows is
//! never less than it launches, by the source of 2.21 to 2.30; older versions launch fewer.

use smallvec::SmallVec;

use crate::cuda::{LAUNCH, MOST_LAUNCHES};
use crate::nccl::calls::call::Call;
use crate::nccl::calls::kind::Kind;
use crate::nccl::rank::inner::Inner;
use crate::nccl::validate::pair::End;

/// Launches that a group may make at once; one that makes more goes in parts.
pub(crate) const MOST: u64 = MOST_LAUNCHES / 2;

/// Channels that an operation takes part in at most.
const CHANNELS: u64 = 64;

/// Batches in a kernel, before one more operation on all channels may not fit.
const BATCHES: u64 = 253 - CHANNELS;

/// Bytes that a channel moves at least before another one takes part.
const PER_CHANNEL: u64 = 16 << 10;

/// Symmetric collectives of one kind that a kernel does.
const SYMMETRIC: u64 = 32;

/// Messages with one peer that a kernel does on all channels; with as many as [`PEERS`] peers they share batches.
const MESSAGES: u64 = BATCHES / CHANNELS + 1;
const PEERS: u64 = 8;

/// The launches of the calls of one communicator, as they are added.
#[derive(Debug)]
pub(crate) struct Weight {
    size: u64,
    batches: u64,
    /// Those that are launches of their own.
    single: u64,
    /// Symmetric collectives of each kind.
    symmetric: SmallVec<[(Kind, u64, u64); 2]>,
    /// Messages with each peer, either way, and the most of them.
    messages: SmallVec<[u64; 16]>,
    rounds: u64,
    exchanges: u64,
}

impl Weight {
    /// Of a communicator of so many ranks.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size: size as u64,
            batches: 0,
            single: 0,
            symmetric: SmallVec::new(),
            messages: SmallVec::from_buf([0; 16]),
            rounds: 0,
            exchanges: 0,
        }
    }

    /// Of the calls of one communicator.
    pub(crate) fn of(calls: &[Call<'_>], inner: &Inner) -> Self {
        let mut weight = Self::new(inner.size);
        calls.iter().filter(|call| call.comm.id == inner.id).for_each(|call| weight.add(call));
        weight
    }

    pub(crate) fn add(&mut self, call: &Call<'_>) {
        if call.count == 0 {
            return;
        }
        if let Some((end, peer)) = call.kind.message() {
            let at = 2 * peer + usize::from(end == End::Receiver);
            if self.messages.len() <= at {
                self.messages.resize(at + 1, 0);
            }
            self.messages[at] += 1;
            self.rounds = self.rounds.max(self.messages[at]);
            return;
        }
        if self.size == 1 {
            self.single += call.operations() as u64;
            return;
        }
        if call.kind.is_exchange() {
            self.exchanges += 1;
        } else {
            let traffic = (call.count * call.element.size()) as u64;
            // The slower protocol moves four times as much, and an all_reduce everything twice.
            let traffic = traffic.saturating_mul(4 * self.size.max(2));
            self.batches += CHANNELS.min(traffic / PER_CHANNEL + 2) * call.operations() as u64;
        }
        // Only what ranks have compared: all of them must come to the same number. Newer versions ask for one window only.
        let windows = [call.send.as_ref(), call.recv.as_ref()];
        if call.kind.symmetric() && windows.into_iter().flatten().any(|region| call.comm.windows.is_window(region)) {
            match call.kind {
                // Copy engines may do these, one by one.
                Kind::AllGather => self.single += 1,
                kind if kind.is_exchange() => self.single += 1,
                kind => self.count_symmetric(kind, call.element as u64),
            }
        }
    }

    fn count_symmetric(&mut self, kind: Kind, element: u64) {
        match self.symmetric.iter_mut().find(|(known, of, _)| (*known, *of) == (kind, element)) {
            Some((.., count)) => *count += 1,
            None => self.symmetric.push((kind, element, 1)),
        }
    }

    /// How many there are at most.
    pub(crate) fn launches(&self) -> u64 {
        let symmetric: u64 = self.symmetric.iter().map(|(.., count)| count.div_ceil(SYMMETRIC)).sum();
        let rounds = self.rounds + self.exchanges;
        let messages = (rounds * self.size.div_ceil(PEERS)).div_ceil(MESSAGES);
        self.single + symmetric + self.batches.div_ceil(BATCHES) + messages
    }

    /// Messages with each peer, either way, that make no more launches than `launches`.
    pub(crate) fn rounds(size: usize, launches: u64) -> u64 {
        (launches * MESSAGES / (size as u64).div_ceil(PEERS)).max(1)
    }
}

/// The launch queue entries that calls take. The first call of each communicator on each stream stands for all of its calls there. NCCL
/// launches on one of the streams, and makes the others wait. Each stream is charged as if it were that one.
pub(crate) type Costs<'c, 'a> = SmallVec<[(&'c Call<'a>, u64); 4]>;

/// Of the calls of a group.
pub(crate) fn costs<'c, 'a>(calls: &'c [Call<'a>]) -> Costs<'c, 'a> {
    let mut costs = Costs::new();
    for call in calls.iter().filter(|call| call.count > 0) {
        if costs.iter().any(|(first, _)| first.comm.id == call.comm.id && first.stream == call.stream) {
            continue;
        }
        let known = costs.iter().find(|(first, _)| first.comm.id == call.comm.id).map(|(_, cost)| *cost);
        let cost = known.unwrap_or_else(|| LAUNCH * Weight::of(calls, call.comm).launches());
        costs.push((call, cost));
    }
    costs
}
