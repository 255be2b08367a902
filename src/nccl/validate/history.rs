//! What a rank of a clique has done so far, as far as later operations depend on it: which ranks
//! NCCL has connected, and how many collectives NCCL has made messages of.

use std::sync::atomic::{AtomicU64, Ordering};

use super::pair::End;

/// Bits for classes of collectives. Two of them may share one, which then counts as known too early.
const CLASSES: u32 = 1 << 14;

/// A collective that NCCL makes messages of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(nccl_ge_2_28), allow(dead_code))]
pub(crate) enum Exchange {
    AllToAll,
    Gather { root: usize },
    Scatter { root: usize },
}

impl Exchange {
    /// Whether `sender` sends something to `receiver` in it.
    pub(crate) fn is_between(self, sender: usize, receiver: usize) -> bool {
        match self {
            Self::AllToAll => true,
            Self::Gather { root } => receiver == root,
            Self::Scatter { root } => sender == root,
        }
    }
}

/// Written by its rank only, under the lock of its communicator.
#[derive(Debug)]
pub(crate) struct History {
    /// All collectives that are messages to NCCL.
    exchanges: AtomicU64,
    /// Those among them in which every rank sends to every other.
    all_to_alls: AtomicU64,
    /// The gathers with each root, then the scatters.
    rooted: Box<[AtomicU64]>,
    /// The messages that are connected: to each rank, then from each.
    peers: Box<[AtomicU64]>,
    /// The classes of collectives that are connected.
    classes: Box<[AtomicU64]>,
}

fn words(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn bump(word: &AtomicU64) {
    // Who sees it sees also what this rank had come to before.
    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Release);
}

#[inline]
fn bit(words: &[AtomicU64], at: usize) -> (&AtomicU64, u64) {
    (&words[at / 64], 1 << (at % 64))
}

fn set((word, bit): (&AtomicU64, u64)) {
    word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
}

#[inline]
fn is_set((word, bit): (&AtomicU64, u64)) -> bool {
    word.load(Ordering::Relaxed) & bit != 0
}

impl History {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            exchanges: AtomicU64::new(0),
            all_to_alls: AtomicU64::new(0),
            rooted: words(2 * size),
            peers: words((2 * size).div_ceil(64)),
            classes: words(CLASSES as usize / 64),
        }
    }

    /// One that this rank has come to.
    #[cold]
    pub(crate) fn exchange(&self, exchange: Exchange) {
        bump(&self.exchanges);
        match exchange {
            Exchange::AllToAll => bump(&self.all_to_alls),
            Exchange::Gather { root } => bump(&self.rooted[root]),
            Exchange::Scatter { root } => bump(&self.rooted[self.rooted.len() / 2 + root]),
        }
    }

    /// How many such collectives had `sender` send to `receiver`.
    #[inline]
    pub(crate) fn exchanges(&self, sender: usize, receiver: usize) -> u64 {
        if self.exchanges.load(Ordering::Relaxed) == 0 { 0 } else { self.exchanges_between(sender, receiver) }
    }

    fn exchanges_between(&self, sender: usize, receiver: usize) -> u64 {
        let (gathers, scatters) = self.rooted.split_at(self.rooted.len() / 2);
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        load(&self.all_to_alls) + load(&gathers[receiver]) + load(&scatters[sender])
    }

    #[inline]
    fn peer(&self, peer: usize, end: End) -> (&AtomicU64, u64) {
        bit(&self.peers, 2 * peer + usize::from(end == End::Receiver))
    }

    /// Whether messages are connected of which this rank is `end`.
    #[inline]
    pub(crate) fn knows_peer(&self, peer: usize, end: End) -> bool {
        is_set(self.peer(peer, end))
    }

    pub(crate) fn connect_peer(&self, peer: usize, end: End) {
        set(self.peer(peer, end));
    }

    #[inline]
    fn class(&self, class: u64) -> (&AtomicU64, u64) {
        let hash = class.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CLASSES.ilog2());
        bit(&self.classes, hash as usize)
    }

    /// Whether collectives of this class are connected.
    #[inline]
    pub(crate) fn knows_class(&self, class: u64) -> bool {
        is_set(self.class(class))
    }

    pub(crate) fn connect_class(&self, class: u64) {
        set(self.class(class));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_connected_is_known() {
        let history = History::new(40);
        for (peer, end) in [(0, End::Sender), (31, End::Receiver), (32, End::Sender), (39, End::Receiver)] {
            assert!(!history.knows_peer(peer, end));
            history.connect_peer(peer, end);
            assert!(history.knows_peer(peer, end) && !history.knows_peer(peer, end.other()));
        }
        let mut collisions = 0;
        for class in 0..100 {
            collisions += usize::from(history.knows_class(class));
            history.connect_class(class);
            assert!(history.knows_class(class));
        }
        assert!(collisions < 5, "{collisions}");
    }

    #[test]
    fn exchanges_count_between_those_who_exchange() {
        let history = History::new(3);
        assert_eq!(history.exchanges(0, 1), 0);
        history.exchange(Exchange::AllToAll);
        history.exchange(Exchange::Gather { root: 1 });
        history.exchange(Exchange::Scatter { root: 0 });
        history.exchange(Exchange::Scatter { root: 0 });
        let counts = [(0, 1), (1, 0), (2, 1), (1, 2), (0, 2)].map(|(from, to)| history.exchanges(from, to));
        assert_eq!(counts, [4, 1, 2, 1, 3]);
    }
}
