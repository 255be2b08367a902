//! What the ranks of a checked communicator compare that live in several processes: over an exchange, before anything is launched.
//!
//! Collectives, and the points at which ranks do something together, come in rounds. In each, every rank says what it is about to do, in the
//! signatures that the ranks of a clique compare, and waits for what all others say: so nobody launches what another one does not, and all
//! see the same, and judge alike. What is issued as one group is one round. Messages concern two ranks, of which the first to come says
//! what it is about to do and goes on, and the second compares, as in a clique.
//!
//! How the communicator ends is written once, by whoever finds it out; all report that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::choice::Choice;
use super::dispute::{Dispute, Verdict};
use super::ledger;
use super::past::{self, Past};
#[cfg(nccl_ge_2_27)]
use super::points::Points;
use super::presence::{self, Departure};
use super::round::Round;
use super::signature::Signature;
use super::sits::Seats;
use super::splits::Splits;
use super::told::{self, End, Told};
use crate::error::{Error, Result};
use crate::exchange::{Came, Exchange};

/// Rounds whose notes are taken away at once.
const BATCH: u64 = 64;

/// How long it may take to say how a communicator has ended, or that a rank leaves.
pub(super) const LAST: Duration = Duration::from_secs(1);

/// How long the end of a communicator waits for whoever listens to notice: longer than it takes to tell the others.
const NOTICED: Duration = Duration::from_secs(2);

/// The key of how all ends.
const END: &str = "end";

/// This rank among the others of its communicator.
#[derive(Debug)]
pub(crate) struct Checked {
    rank: usize,
    size: usize,
    /// Of these ranks alone, and for nothing else; none once the communicator has ended.
    exchange: Mutex<Option<Exchange>>,
    /// Ends when nobody listens any more.
    listener: Mutex<Option<Receiver<()>>>,
    /// Rounds that this rank has come to, and collectives that all have.
    rounds: AtomicU64,
    passed: AtomicU64,
    last: Mutex<Option<Signature>>,
    /// Whether it has said that it comes to nothing more.
    has_left: AtomicBool,
    /// Messages that this rank has come to: to each rank, then from each.
    pub(super) messages: Box<[AtomicU64]>,
    past: Past,
    /// What this rank shows in its next round, and what all have shown in the last.
    shows: Mutex<Vec<u8>>,
    shown: Mutex<Vec<Vec<u8>>>,
    /// What all have shown, as a clique has it.
    #[cfg(nccl_ge_2_27)]
    pub(crate) points: Points,
    pub(crate) splits: Splits,
    pub(super) seats: Seats,
    dispute: Dispute,
    /// Ranks that have died, and how.
    dead: Mutex<Vec<(usize, String)>>,
    /// Ranks that what NCCL does at present goes on without.
    spared: Mutex<Arc<[usize]>>,
}

/// What has come of a round so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// All do the same, the first of which has this number among the collectives.
    Agreed(u64),
    /// These have not come.
    Missing(Vec<usize>),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checked {
    /// Of the ranks of an exchange that is for nothing else, which are `part` ("of color" and so on) of others perhaps. All of them make one.
    pub(crate) fn new(exchange: Exchange, part: Option<String>) -> Self {
        let (rank, size) = (exchange.rank(), exchange.size());
        Self {
            rank,
            size,
            exchange: Mutex::new(Some(exchange)),
            listener: Mutex::default(),
            rounds: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            last: Mutex::default(),
            has_left: AtomicBool::new(false),
            messages: (0..2 * size).map(|_| AtomicU64::new(0)).collect(),
            past: Past::new(size),
            shows: Mutex::default(),
            shown: Mutex::default(),
            #[cfg(nccl_ge_2_27)]
            points: Points::new(size),
            splits: Splits::new(size),
            seats: Seats::default(),
            dispute: Dispute::new(part),
            dead: Mutex::default(),
            spared: Mutex::new(Arc::default()),
        }
    }

    /// That of a child in which these ranks are, in their order there. All of them make one.
    pub(crate) fn child(&self, operation: &'static str, ranks: &[usize], part: String) -> Result<Self> {
        Ok(Self::new(self.exchange(operation)?.subset(ranks)?, Some(part)))
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn exchange(&self, operation: &'static str) -> Result<Exchange> {
        let ended = || Error::Aborted { operation, reason: "it has ended, and left the exchange".to_owned() };
        locked(&self.exchange).clone().ok_or_else(ended)
    }

    /// Somebody listens, who drops this when that is over, and nothing of the exchange is held there any more.
    pub(crate) fn is_heard(&self) -> Sender<()> {
        let (sender, receiver) = channel();
        *locked(&self.listener) = Some(receiver);
        sender
    }

    /// Leaves the exchange, once the communicator has ended and the others have been told: on this thread, which waits where this is the last
    /// use of a store that serves others. Who would wait for it where they make others of it is told that it has ended, and `how`: after whoever
    /// listens has said why, which counts, and unless it has said that it is closed.
    pub(crate) fn let_go(&self, how: &str) {
        let listener = locked(&self.listener).take();
        // Nothing ever comes but the end.
        let _ = listener.map(|listener| listener.recv_timeout(NOTICED));
        if self.size() > 1 && !self.has_left.load(Ordering::Relaxed) {
            self.leave_seat(&format!("nothing: it has ended there ({how})"));
        }
        let exchange = locked(&self.exchange).take();
        drop(exchange);
    }

    /// What this rank has done.
    pub(crate) fn past(&self) -> &Past {
        &self.past
    }

    /// This rank shows the others what it asks for in its next round, a split with this number.
    pub(crate) fn show_split(&self, split: u64, choice: Option<Choice>) {
        *locked(&self.shows) = told::encode_choice(choice.as_ref());
        self.splits.show(self.rank(), split, choice);
    }

    /// Sees what the others have shown in that round, to which all have come.
    pub(crate) fn see_split(&self, operation: &'static str, split: u64) -> Result<()> {
        self.see(operation, told::decode_choice, |rank, choice| self.splits.show(rank, split, choice))
    }

    /// This rank shows the others which windows it has dropped, and how large that is which it makes, in its next round.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn show_point(&self, point: u64, dropped: Vec<u64>, bytes: usize) {
        *locked(&self.shows) = told::encode_point(&dropped, bytes);
        self.points.show(self.rank(), point, dropped, bytes);
    }

    /// Sees what the others have shown in that round, to which all have come.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn see_point(&self, operation: &'static str, point: u64) -> Result<()> {
        self.see(operation, told::decode_point, |rank, (dropped, bytes)| self.points.show(rank, point, dropped, bytes))
    }

    fn see<T>(
        &self,
        operation: &'static str,
        decode: impl Fn(&[u8]) -> Option<T>,
        see: impl Fn(usize, T),
    ) -> Result<()> {
        let shown = std::mem::take(&mut *locked(&self.shown));
        for (rank, bytes) in shown.iter().enumerate().filter(|(rank, _)| *rank != self.rank()) {
            let key = || Self::key(self.rounds.load(Ordering::Relaxed), rank);
            see(rank, decode(bytes).ok_or_else(|| unreadable(operation, key(), bytes.len()))?);
        }
        Ok(())
    }

    fn key(number: u64, rank: usize) -> String {
        format!("c/{rank}/{}/{number}", number / BATCH)
    }

    /// That of the round to which this rank comes next.
    pub(super) fn round_key(&self, rank: usize) -> String {
        Self::key(self.rounds.load(Ordering::Relaxed), rank)
    }

    /// Says what this rank is about to do, together; what of it NCCL makes messages of stands beside.
    pub(crate) fn tell(
        &self,
        told: Vec<Signature>,
        exchanges: Vec<(past::Exchange, String)>,
        within: Duration,
    ) -> Result<Round> {
        let told: Vec<_> = told.into_iter().map(told::as_read).collect();
        let number = self.rounds.load(Ordering::Relaxed);
        let counts = self.messages.iter().map(|count| count.load(Ordering::Relaxed));
        let messages: Vec<u64> = if exchanges.is_empty() { Vec::new() } else { counts.collect() };
        let shown = std::mem::take(&mut *locked(&self.shows));
        let says = Told::Does { signatures: told.clone(), messages: messages.clone(), shown };
        self.exchange("tell")?.leave_note(&Self::key(number, self.rank()), &says.encode(), within)?;
        self.rounds.store(number + 1, Ordering::Relaxed);
        Ok(Round::new(number, told, messages, exchanges))
    }

    /// What the others say of a round that this rank has come to; waits `within` for them.
    ///
    /// # Errors
    /// [`Error::Disagreement`] where a rank does something else, or comes to nothing more; [`Error::Gone`] where one has ended.
    pub(crate) fn hear(&self, operation: &'static str, round: &Round, within: Duration) -> Result<Heard> {
        let others = (0..self.size()).filter(|rank| *rank != self.rank());
        let keys: Vec<_> = others.map(|rank| (rank, Self::key(round.number, rank))).collect();
        let came = self.exchange(operation)?.notes(&keys, within)?;
        let mut all: Vec<Option<Told>> = vec![None; self.size()];
        let (mut missing, mut ended) = (Vec::new(), None);
        for ((rank, key), came) in keys.into_iter().zip(came) {
            match came {
                Came::Value(bytes) => {
                    let told = Told::decode(&bytes);
                    all[rank] = Some(told.ok_or_else(|| unreadable(operation, key, bytes.len()))?);
                }
                Came::Ended(how) => ended = ended.or(Some((rank, how))),
                Came::NotYet => missing.push(rank),
            }
        }
        if let Some(verdict) = round.objection(self.rank(), &all, missing.is_empty()) {
            return Err(self.decide(operation, verdict));
        }
        if let Some((rank, how)) = ended {
            let how = format!("{how}; rank {} waits for it in {}", self.rank(), round.doing());
            return Err(Error::Gone { operation, rank, how });
        }
        if !missing.is_empty() {
            return Ok(Heard::Missing(missing));
        }
        if let Some(verdict) = self.misplaced(operation, round, &all)? {
            return Err(self.decide(operation, verdict));
        }
        Ok(Heard::Agreed(self.pass(round, all)))
    }

    /// All have come to a round, and do the same: the number of its first collective.
    fn pass(&self, round: &Round, told: Vec<Option<Told>>) -> u64 {
        *locked(&self.shown) = told
            .into_iter()
            .map(|told| match told {
                Some(Told::Does { shown, .. }) => shown,
                _ => Vec::new(),
            })
            .collect();
        if let Some(last) = round.told.last() {
            *locked(&self.last) = Some(*last);
        }
        round.exchanges.iter().for_each(|(kind, _)| self.past.exchange(*kind));
        if round.number > 0 && round.number.is_multiple_of(BATCH) {
            // Who has come here has read all before.
            let read = format!("c/{}/{}/", self.rank(), round.number / BATCH - 1);
            locked(&self.exchange).clone().into_iter().for_each(|exchange| exchange.take_notes(&read));
        }
        self.passed.fetch_add(round.told.len() as u64, Ordering::Relaxed)
    }

    /// This rank finds that others disagree: what all report.
    #[cold]
    pub(crate) fn decide(&self, operation: &'static str, verdict: Verdict) -> Error {
        self.end(End::Disagreement(self.verdict(verdict))).error(operation)
    }

    /// The one that holds in this process.
    pub(super) fn verdict(&self, verdict: Verdict) -> Verdict {
        self.dispute.decide(verdict).clone()
    }

    /// Says how all ends, unless somebody has said so before: what holds.
    pub(crate) fn end(&self, end: End) -> End {
        let holds = self.exchange("end").and_then(|exchange| exchange.leave_first("end", END, &end.encode(), LAST));
        holds.ok().and_then(|bytes| End::decode(&bytes)).unwrap_or(end)
    }

    /// How all has ended, if it has; waits `within` for that.
    pub(crate) fn ended(&self, within: Duration) -> Result<Option<End>> {
        Ok(self.exchange("end")?.note_of_any(END, within)?.and_then(|bytes| End::decode(&bytes)))
    }

    /// The first other rank that the store knows to have died, and how: it has ended without having closed its communicator. Leaves out
    /// those in `known`, to which it and all that have closed are added.
    pub(crate) fn departed(&self, known: &mut Vec<usize>, within: Duration) -> Option<(usize, String)> {
        let has_closed = |rank| Ok(self.has_left("wait", rank)?.is_some());
        let dead = self.exchange("wait").ok()?.departed(known, within, has_closed)?;
        known.push(dead.0);
        Some(dead)
    }

    /// That rank has died: whoever waits for it waits in vain from now on.
    pub(crate) fn set_dead(&self, (rank, how): (usize, String)) {
        locked(&self.dead).push((rank, format!("{how}; rank {} waits for it", self.rank())));
    }

    /// Why a wait is in vain that needs the ranks of which `needs` says so.
    pub(crate) fn in_vain(&self, needs: impl Fn(usize) -> bool) -> Option<Error> {
        let dead = locked(&self.dead);
        let (rank, how) = dead.iter().find(|(rank, _)| needs(*rank))?;
        Some(Error::Gone { operation: "wait", rank: *rank, how: how.clone() })
    }

    /// What NCCL does from now on goes on without these ranks.
    pub(crate) fn spare(&self, ranks: Arc<[usize]>) {
        *locked(&self.spared) = ranks;
    }

    /// Whether what NCCL does goes on without that rank.
    pub(crate) fn spares(&self, rank: usize) -> bool {
        locked(&self.spared).contains(&rank)
    }

    /// This rank comes to nothing more, as it is closed.
    pub(crate) fn leave(&self) {
        let (rank, passed) = (self.rank(), self.passed.load(Ordering::Relaxed));
        let how = presence::gone(rank, Departure::Closed, passed, self.last_of());
        let (key, told) = (self.round_key(rank), Told::Left(how.clone()).encode());
        let _ = self.exchange("close").and_then(|exchange| exchange.leave_note(&key, &told, LAST));
        self.leave_seat(&how);
        self.has_left.store(true, Ordering::Relaxed);
        if let Some(verdict) = self.left_behind(&how) {
            let _ = self.decide("close", verdict);
        }
    }

    fn last_of(&self) -> Option<String> {
        locked(&self.last).map(|last| last.describe())
    }

    /// For whom this rank waits in a round, in words.
    pub(crate) fn absent(&self, round: &Round, missing: &[usize]) -> String {
        let passed = self.passed.load(Ordering::Relaxed);
        // They are as far as this rank was before.
        let where_to = |rank: &usize| ledger::whereabouts(*rank, passed, || self.last_of());
        let all: Vec<_> = missing.iter().take(4).map(where_to).collect();
        let who = match missing {
            [one] => format!("rank {one}"),
            many => format!("ranks {}", many.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
        };
        format!("rank {} waits for {who} to come to {}; {}", self.rank(), round.doing(), all.join("; "))
    }
}

/// What stands under a key is nothing that a rank has written.
#[cold]
pub(super) fn unreadable(operation: &'static str, key: String, len: usize) -> Error {
    let reason = format!("expected what a rank is about to do, got {len} bytes that are something else");
    Error::Exchange { operation, key, reason }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::exchange::Threads;

    /// A death is found at once behind any number of ranks that have closed before.
    #[test]
    fn those_that_have_closed_hide_no_death() {
        let place = Threads::new(9);
        let join = |rank| Checked::new(Exchange::join(place.store(rank).unwrap()).unwrap(), None);
        let all: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = (0..9).map(|rank| scope.spawn(move || join(rank))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let mut all = all.into_iter();
        let own = all.next().unwrap();
        // The last one has not closed.
        all.for_each(|one| {
            if one.rank() < 8 {
                one.leave();
            }
        });
        let mut known = Vec::new();
        assert_eq!(own.departed(&mut known, LAST).map(|(rank, _)| rank), Some(8));
        assert_eq!(known, (1..=8).collect::<Vec<_>>());
        assert_eq!(own.departed(&mut known, LAST), None);
    }
}
