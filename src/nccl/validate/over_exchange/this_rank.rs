//! One rank of a checked communicator: the operations it has passed, and its exchange with the other ranks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::attempts::Attempts;
use crate::error::{Error, Result};
use crate::exchange::{Exchange, farewell};
use crate::lock::Mutex;
use crate::name::Name;
use crate::nccl::validate::ballot::{Ballot, RanksOf};
use crate::nccl::validate::board::Board;
use crate::nccl::validate::history::History;
use crate::nccl::validate::notes::Leave;
#[cfg(nccl_ge_2_27)]
use crate::nccl::validate::points::Points;
use crate::nccl::validate::signature::Signature;
use crate::nccl::validate::split::Splits;

/// How long it may take to tell the other ranks how a communicator has ended or that a rank leaves, and for
/// their listeners to notice.
pub(crate) const LAST: Duration = Duration::from_secs(1);

/// One rank of a checked communicator.
#[derive(Debug)]
pub(crate) struct OverExchange {
    pub(super) rank: usize,
    pub(super) size: usize,
    /// The number of the store of the exchange.
    pub(super) store_number: u64,
    /// The exchange of these ranks, used for nothing else. `None` once the communicator has ended.
    pub(super) exchange: Mutex<Option<Exchange>>,
    /// Closed when the listener has ended.
    pub(super) listener: Mutex<Option<Receiver<()>>>,
    /// Closed when the other ranks have been told that this one leaves.
    pub(super) leaves: Mutex<Option<Receiver<()>>>,
    /// The rounds of this rank, and the collectives that all ranks have passed.
    pub(super) rounds: AtomicU64,
    pub(super) passed: AtomicU64,
    pub(super) last: Mutex<Option<Signature>>,
    pub(super) board: Board,
    /// The rounds that all ranks have passed, and the round after the last one for which this rank left a note in the store.
    pub(super) agreed: AtomicU64,
    pub(super) stored: AtomicU64,
    /// Whether it has told the others that it leaves.
    pub(super) has_left: AtomicBool,
    /// The messages that this rank has passed: those to each rank, then those from each.
    pub(super) messages: Box<[AtomicU64]>,
    pub(super) history: History,
    /// What this rank publishes in its next round, and what all ranks published in the last one.
    pub(super) shows: Mutex<Vec<u8>>,
    pub(super) shown: Mutex<Vec<Vec<u8>>>,
    /// What all ranks published, in the form that a clique uses.
    #[cfg(nccl_ge_2_27)]
    pub(crate) points: Points,
    pub(crate) splits: Splits,
    pub(super) attempts: Attempts,
    pub(super) ballot: Ballot,
    /// The ranks that have died, and how.
    pub(super) dead: Mutex<Vec<(usize, String)>>,
    /// The ranks without which NCCL goes on at present.
    pub(super) spared: Mutex<Arc<[usize]>>,
}

impl OverExchange {
    /// Creates the validator of one rank of `exchange`, which is used for nothing else. Every rank creates
    /// one.
    pub(crate) fn new(exchange: Exchange, of: RanksOf) -> Self {
        let (rank, size) = (exchange.rank(), exchange.size());
        Self {
            rank,
            size,
            store_number: exchange.store_number(),
            exchange: Mutex::new(Some(exchange)),
            listener: Mutex::default(),
            leaves: Mutex::default(),
            rounds: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            last: Mutex::default(),
            board: Board::default(),
            agreed: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            has_left: AtomicBool::new(false),
            messages: (0..2 * size).map(|_| AtomicU64::new(0)).collect(),
            history: History::new(size),
            shows: Mutex::default(),
            shown: Mutex::default(),
            #[cfg(nccl_ge_2_27)]
            points: Points::new(size),
            splits: Splits::new(size),
            attempts: Attempts::default(),
            ballot: Ballot::new(of),
            dead: Mutex::default(),
            spared: Mutex::new(Arc::default()),
        }
    }

    /// Creates the validator of a child communicator of these ranks, in their new order. Every one of them creates one.
    pub(crate) fn child(&self, operation: &'static str, ranks: &[usize], name: Name) -> Result<Self> {
        Ok(Self::new(self.exchange(operation)?.subset(ranks)?, RanksOf::part(name)))
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Names this rank in a sentence.
    pub(super) fn in_words(&self) -> String {
        self.ballot.rank_in_words(self.rank)
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The number of the store over which the ranks compare.
    pub(crate) fn store_number(&self) -> u64 {
        self.store_number
    }

    pub(super) fn exchange(&self, operation: &'static str) -> Result<Exchange> {
        let ended = || Error::Aborted { operation, reason: "it has ended, and left the exchange".into() };
        self.exchange.lock().clone().ok_or_else(ended)
    }

    /// The history of this rank.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Records that a listener runs. It drops what this returns when it has ended and has given up the
    /// exchange.
    pub(crate) fn is_heard(&self) -> Sender<()> {
        let (sender, receiver) = channel();
        *self.listener.lock() = Some(receiver);
        sender
    }

    /// Leaves the exchange after the communicator has ended and the others have been told. Another
    /// thread does it, because this may be the last use of a store that serves others. The listener
    /// says first why the communicator has ended. Unless this rank was closed, a note then says `how`
    /// it has ended, for ranks that wait for it to make another communicator. Waits up to a second for
    /// that, and no longer than `within`.
    pub(crate) fn let_go(self: &Arc<Self>, how: String, within: Duration) {
        let this = Arc::clone(self);
        farewell::tell(self.store_number, move || {
            // The listener sends nothing; the channel only closes.
            let ends = [this.leaves.lock().take(), this.listener.lock().take()];
            ends.into_iter().flatten().for_each(|end| _ = end.recv_timeout(3 * farewell::PATIENCE));
            if this.size() > 1 && !this.has_left.load(Ordering::Relaxed) {
                this.leave_regroups(Leave::Ended(format!("nothing: it has ended there ({how})")));
            }
            let exchange = this.exchange.lock().take();
            drop(exchange);
            Ok(())
        })
        .wait(LAST.min(within));
    }
}

/// Returns the error for a value that no rank of this crate has written.
#[cold]
pub(super) fn unreadable(operation: &'static str, key: String, len: usize) -> Error {
    let reason = format!("expected what a rank is about to do, got {len} bytes that are something else");
    Error::Exchange { operation, key, reason }
}
