//! What a rank keeps for one-sided operations.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::lock;
use crate::races::touches::Touches;

/// What a rank keeps for one-sided operations.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// It has come to its first one.
    started: AtomicBool,
    /// How many signals of each rank it has waited for, or will have.
    awaited: Mutex<Vec<u64>>,
    /// Where NCCL keeps the numbers of signals until they are copied: one place for all streams, so puts and signals must be in order.
    pub(crate) staged: Touches,
}

impl Signals {
    /// Whether this is the first one-sided operation.
    pub(crate) fn start(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    /// It was not: the ranks have not met.
    pub(crate) fn forget(&self) {
        self.started.store(false, Ordering::Release);
    }

    /// So many more signals of `peer` are waited for: which one is the last of them.
    pub(crate) fn expect(&self, peer: usize, more: u64) -> u64 {
        let mut awaited = lock(&self.awaited);
        if awaited.len() <= peer {
            awaited.resize(peer + 1, 0);
        }
        awaited[peer] += more;
        awaited[peer]
    }
}
