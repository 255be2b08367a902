//! What the ranks of a checked communicator compare, which live in several processes: over an
//! exchange, before each launch.
//!
//! Collectives come in rounds, and so do the points at which ranks do something together. In each
//! round every rank writes a note with the signatures of what it is about to do, the same
//! signatures that the ranks of a clique compare, and waits for the notes of all others. So no rank
//! launches what another one does not, and all ranks see the same and judge alike. A group is one
//! round. A message concerns two ranks: the first to come writes a note and goes on, and the second
//! compares, as in a clique.
//!
//! Processes of one host leave the notes of rounds on a [board](super::board), all others in the store.
//!
//! The rank that finds out how the communicator ends writes that once, and all ranks report it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::ballot::{self, Ballot, HEARING, Verdict};
use super::board::{Board, Posted};
use super::departure::{self, Departure};
use super::history::{self, History};
use super::ledger;
use super::notes::{self, Ending, Leave, Note};
use super::pair::{End, Message, Word};
#[cfg(nccl_ge_2_27)]
use super::points::Points;
use super::regroup::Plan;
use super::signature::Signature;
use super::split::{Choice, Splits};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::{Came, Exchange, farewell};
use crate::lock::Mutex;

/// Rounds whose notes are taken away at once.
const BATCH: u64 = 64;

/// How long it may take to say how a communicator has ended, or that a rank leaves, and until whoever listens
/// notices.
pub(super) const LAST: Duration = Duration::from_secs(1);

/// The key of how all ends.
const END: &str = "end";

/// This rank among the others of its communicator.
#[derive(Debug)]
pub(crate) struct OverExchange {
    rank: usize,
    size: usize,
    /// That of the exchange.
    store_number: usize,
    /// Of these ranks alone, and for nothing else; none once the communicator has ended.
    exchange: Mutex<Option<Exchange>>,
    /// Ends when nobody listens any more.
    listener: Mutex<Option<Receiver<()>>>,
    /// Ends when it has told the others that it leaves.
    leaves: Mutex<Option<Receiver<()>>>,
    /// Rounds that this rank has come to, and collectives that all have.
    rounds: AtomicU64,
    passed: AtomicU64,
    last: Mutex<Option<Signature>>,
    board: Board,
    /// Rounds that all have come to, and the round behind the last of which this rank has left its note in the store.
    agreed: AtomicU64,
    stored: AtomicU64,
    /// Whether it has said that it comes to nothing more.
    has_left: AtomicBool,
    /// Messages that this rank has come to: to each rank, then from each.
    pub(super) messages: Box<[AtomicU64]>,
    history: History,
    /// What this rank shows in its next round, and what all have shown in the last.
    shows: Mutex<Vec<u8>>,
    shown: Mutex<Vec<Vec<u8>>>,
    /// What all have shown, as a clique has it.
    #[cfg(nccl_ge_2_27)]
    pub(crate) points: Points,
    pub(crate) splits: Splits,
    pub(super) attempts: Attempts,
    ballot: Ballot,
    /// Ranks that have died, and how.
    dead: Mutex<Vec<(usize, String)>>,
    /// Ranks that what NCCL does at present goes on without.
    spared: Mutex<Arc<[usize]>>,
}

/// What has come of a round so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RoundState {
    /// All do the same, the first of which has this number among the collectives.
    Agreed(u64),
    /// These have not come.
    Missing(Vec<usize>),
}

impl OverExchange {
    /// Of the ranks of an exchange that is for nothing else, which are `part` ("of color" and so
    /// on) of others perhaps. All of them make one.
    pub(crate) fn new(exchange: Exchange, part: Option<String>) -> Self {
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
            ballot: Ballot::new(part),
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

    /// The number of the store over which the ranks compare.
    pub(super) fn store_number(&self) -> usize {
        self.store_number
    }

    pub(super) fn exchange(&self, operation: &'static str) -> Result<Exchange> {
        let ended = || Error::Aborted { operation, reason: "it has ended, and left the exchange".to_owned() };
        self.exchange.lock().clone().ok_or_else(ended)
    }

    /// Somebody listens, who drops this when that is over, and nothing of the exchange is held
    /// there any more.
    pub(crate) fn is_heard(&self) -> Sender<()> {
        let (sender, receiver) = channel();
        *self.listener.lock() = Some(receiver);
        sender
    }

    /// Leaves the exchange after the communicator has ended and the others have been told. Another
    /// thread does it, because this may be the last use of a store that serves others. The listener
    /// says first why the communicator has ended. Unless this rank was closed, a note then says `how`
    /// it has ended, for ranks that wait for it to make another communicator.
    pub(crate) fn let_go(self: &Arc<Self>, how: String) {
        let this = Arc::clone(self);
        farewell::tell(self.store_number, move || {
            // Nothing ever comes but the end.
            let ends = [this.leaves.lock().take(), this.listener.lock().take()];
            ends.into_iter().flatten().for_each(|end| _ = end.recv_timeout(3 * farewell::PATIENCE));
            if this.size() > 1 && !this.has_left.load(Ordering::Relaxed) {
                this.leave_regroups(Leave::Ended(format!("nothing: it has ended there ({how})")));
            }
            let exchange = this.exchange.lock().take();
            drop(exchange);
        })
        .wait(LAST);
    }

    /// What this rank has done.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// This rank shows the others what it asks for in its next round, a split with this number.
    pub(crate) fn show_split(&self, split: u64, choice: Option<Choice>) {
        *self.shows.lock() = notes::encode_choice(choice.as_ref());
        self.splits.show(self.rank(), split, choice);
    }

    /// Sees what the others have shown in that round, to which all have come.
    pub(crate) fn see_split(&self, operation: &'static str, split: u64) -> Result<()> {
        self.see(operation, notes::decode_choice, |rank, choice| self.splits.show(rank, split, choice))
    }

    /// This rank shows the others which windows it has dropped, and how large that is which it
    /// makes, in its next round.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn show_point(&self, point: u64, dropped: Vec<u64>, bytes: usize) {
        *self.shows.lock() = notes::encode_point(&dropped, bytes);
        self.points.show(self.rank(), point, dropped, bytes);
    }

    /// Sees what the others have shown in that round, to which all have come.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn see_point(&self, operation: &'static str, point: u64) -> Result<()> {
        self.see(operation, notes::decode_point, |rank, (dropped, bytes)| self.points.show(rank, point, dropped, bytes))
    }

    fn see<T>(
        &self,
        operation: &'static str,
        decode: impl Fn(&[u8]) -> Option<T>,
        see: impl Fn(usize, T),
    ) -> Result<()> {
        let shown = std::mem::take(&mut *self.shown.lock());
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

    /// RegroupNote what this rank is about to do, together; what of it NCCL makes messages of
    /// stands beside.
    pub(crate) fn announce(
        &self,
        told: Vec<Signature>,
        exchanges: Vec<(history::Exchange, String)>,
        within: Duration,
    ) -> Result<Round> {
        let told: Vec<_> = told.into_iter().map(notes::as_read).collect();
        let number = self.next_round();
        let counts = self.messages.iter().map(|count| count.load(Ordering::Relaxed));
        let messages: Vec<u64> = if exchanges.is_empty() { Vec::new() } else { counts.collect() };
        let shown = std::mem::take(&mut *self.shows.lock());
        let board = self.board.says(number, (self.rank, self.size));
        let says = Note::Does { signatures: told.clone(), messages: messages.clone(), shown, board }.encode();
        if !self.board.post(number, self.rank, &says) {
            self.store(number, &says, within)?;
        }
        self.rounds.store(number + 1, Ordering::Relaxed);
        Ok(Round::new(number, told, messages, exchanges))
    }

    /// The round of the next note that this rank leaves.
    fn next_round(&self) -> u64 {
        let number = self.rounds.load(Ordering::Relaxed);
        if self.agreed.load(Ordering::Relaxed) != number {
            // It has given up the last round. Others may still read its notes of that and of the one before.
            self.board.retire();
        }
        number
    }

    /// Leaves a note of this rank in the store.
    fn store(&self, number: u64, note: &[u8], within: Duration) -> Result<()> {
        self.exchange("tell")?.leave_note(&Self::key(number, self.rank), note, within)?;
        self.stored.store(number + 1, Ordering::Relaxed);
        self.board.post_elsewhere(number, self.rank);
        Ok(())
    }

    /// The notes of these ranks of a round; waits `within` for them.
    fn notes(&self, operation: &'static str, number: u64, ranks: &[usize], within: Duration) -> Result<Vec<Came>> {
        let mut came = vec![Came::NotYet; ranks.len()];
        let mut within = within;
        if let Some(board) = self.board.used(number) {
            // What is in the store is asked for once all have come, or now and then: each look takes `within`.
            Deadline::after(within).wait(|| {
                let mut all = true;
                for (&rank, came) in ranks.iter().zip(&mut came).filter(|(_, came)| **came == Came::NotYet) {
                    match board.read(number, rank) {
                        Posted::Note(note) => *came = Came::Value(note),
                        Posted::InStore => {}
                        Posted::NotYet => all = false,
                    }
                }
                all
            });
            if !came.contains(&Came::NotYet) {
                return Ok(came);
            }
            // Who has ended or has left stands in the store.
            within = Duration::ZERO;
        }
        let missing: Vec<_> = (0..ranks.len()).filter(|at| came[*at] == Came::NotYet).collect();
        let keys: Vec<_> = missing.iter().map(|at| (ranks[*at], Self::key(number, ranks[*at]))).collect();
        for (at, found) in missing.into_iter().zip(self.exchange(operation)?.notes(&keys, within)?) {
            came[at] = found;
        }
        Ok(came)
    }

    /// The note of a rank of the round to which this rank comes next, if it is on the board.
    pub(super) fn posted(&self, rank: usize) -> Option<Vec<u8>> {
        let number = self.rounds.load(Ordering::Relaxed);
        match self.board.used(number)?.read(number, rank) {
            Posted::Note(note) => Some(note),
            _ => None,
        }
    }

    /// What the others say of a round that this rank has come to; waits `within` for them.
    ///
    /// # Errors
    /// [`Error::Disagreement`] where a rank does something else, or comes to nothing more;
    /// [`Error::Gone`] where one has ended.
    pub(crate) fn collect_round(&self, operation: &'static str, round: &Round, within: Duration) -> Result<RoundState> {
        let others: Vec<_> = (0..self.size()).filter(|rank| *rank != self.rank()).collect();
        let came = self.notes(operation, round.number, &others, within)?;
        let mut all: Vec<Option<Note>> = vec![None; self.size()];
        let (mut missing, mut ended) = (Vec::new(), None);
        for (rank, came) in others.into_iter().zip(came) {
            match came {
                Came::Value(bytes) => {
                    let note = Note::decode(&bytes);
                    let key = || Self::key(round.number, rank);
                    all[rank] = Some(note.ok_or_else(|| unreadable(operation, key(), bytes.len()))?);
                }
                Came::Ended(how) => ended = ended.or(Some((rank, how))),
                Came::NotYet => missing.push(rank),
            }
        }
        let passed = self.passed.load(Ordering::Relaxed);
        if let Some(verdict) = round.objection((self.rank(), passed), &all, missing.is_empty()) {
            return Err(self.decide(operation, verdict));
        }
        if let Some((rank, how)) = ended {
            let how = format!("{how}; rank {} waits for it in {}", self.rank(), round.doing());
            return Err(Error::Gone { operation, rank, how });
        }
        if !missing.is_empty() {
            return Ok(RoundState::Missing(missing));
        }
        if let Some(verdict) = self.misplaced(operation, round, &all)? {
            return Err(self.decide(operation, verdict));
        }
        Ok(RoundState::Agreed(self.pass(round, all)))
    }

    /// All have come to a round, and do the same: the number of its first collective.
    fn pass(&self, round: &Round, told: Vec<Option<Note>>) -> u64 {
        self.agreed.store(round.number + 1, Ordering::Relaxed);
        let boards = told.iter().map(|told| match told {
            Some(Note::Does { board, .. }) => &**board,
            _ => &[],
        });
        self.board.hears(round.number, (self.rank, self.size), boards);
        *self.shown.lock() = told
            .into_iter()
            .map(|told| match told {
                Some(Note::Does { shown, .. }) => shown,
                _ => Vec::new(),
            })
            .collect();
        let numbered = || round.told.iter().filter(|one| one.is_numbered());
        if let Some(last) = numbered().next_back() {
            *self.last.lock() = Some(*last);
        }
        round.exchanges.iter().for_each(|(kind, _)| self.history.exchange(*kind));
        let batch = round.number / BATCH;
        if batch > 0 && round.number.is_multiple_of(BATCH) && self.stored.load(Ordering::Relaxed) > (batch - 1) * BATCH
        {
            // Who has come here has read all before.
            let read = format!("c/{}/{}/", self.rank(), batch - 1);
            self.exchange.lock().clone().into_iter().for_each(|exchange| exchange.take_notes(&read));
        }
        self.passed.fetch_add(numbered().count() as u64, Ordering::Relaxed)
    }

    /// This rank finds that others disagree: what all report.
    #[cold]
    pub(crate) fn decide(&self, operation: &'static str, verdict: Verdict) -> Error {
        self.end(Ending::Disagreement(self.verdict(verdict))).error(operation)
    }

    /// The one that holds in this process.
    pub(super) fn verdict(&self, verdict: Verdict) -> Verdict {
        self.ballot.decide(verdict).clone()
    }

    /// RegroupNote how all ends, unless somebody has said so before: what holds.
    pub(crate) fn end(&self, end: Ending) -> Ending {
        let holds = self.exchange("end").and_then(|exchange| exchange.leave_first("end", END, &end.encode(), LAST));
        holds.ok().and_then(|bytes| Ending::decode(&bytes)).unwrap_or(end)
    }

    /// Tells the others how this rank has ended, for whoever listens. It asks a store again that does
    /// not answer.
    pub(crate) fn tell_end(&self, end: &Ending) {
        // Held here: whoever has ended leaves the exchange meanwhile.
        let Ok(exchange) = self.exchange("end") else { return };
        let _ = farewell::persist(|| exchange.leave_first("end", END, &end.encode(), LAST));
    }

    /// How all has ended, if it has; waits `within` for that.
    pub(crate) fn ended(&self, within: Duration) -> Result<Option<Ending>> {
        Ok(self.exchange("end")?.note_of_any(END, within)?.and_then(|bytes| Ending::decode(&bytes)))
    }

    /// The first other rank that the store knows to have died, and how: it has ended without having
    /// closed its communicator. Leaves out those in `known`, to which it and all that have closed
    /// are added.
    pub(crate) fn departed(&self, known: &mut Vec<usize>, within: Duration) -> Option<(usize, String)> {
        let has_closed = |rank| Ok(self.has_left("wait", rank)?.is_some());
        let dead = self.exchange("wait").ok()?.departed(known, within, has_closed)?;
        known.push(dead.0);
        Some(dead)
    }

    /// That rank has died: whoever waits for it waits in vain from now on.
    pub(crate) fn set_dead(&self, (rank, how): (usize, String)) {
        self.dead.lock().push((rank, format!("{how}; rank {} waits for it", self.rank())));
    }

    /// Returns the error of a wait that needs a rank that has died: `needs` says which ranks it
    /// needs.
    pub(crate) fn death(&self, needs: impl Fn(usize) -> bool) -> Option<Error> {
        let dead = self.dead.lock();
        let (rank, how) = dead.iter().find(|(rank, _)| needs(*rank))?;
        Some(Error::Gone { operation: "wait", rank: *rank, how: how.clone() })
    }

    /// What NCCL does from now on goes on without these ranks.
    pub(crate) fn spare(&self, ranks: Arc<[usize]>) {
        *self.spared.lock() = ranks;
    }

    /// Whether what NCCL does goes on without that rank.
    pub(crate) fn spares(&self, rank: usize) -> bool {
        self.spared.lock().contains(&rank)
    }

    /// This rank comes to nothing more, as it is closed.
    pub(crate) fn leave(self: &Arc<Self>) {
        let (rank, passed) = (self.rank(), self.passed.load(Ordering::Relaxed));
        let how = departure::gone(rank, Departure::Closed, passed, self.last_of());
        let this = Arc::clone(self);
        let (leaves, has_left) = channel();
        *self.leaves.lock() = Some(has_left);
        farewell::tell(self.store_number, move || {
            let _leaves: Sender<()> = leaves;
            let note = Note::Left(how.clone()).encode();
            let _ = farewell::persist(|| this.store(this.next_round(), &note, LAST));
            this.leave_regroups(Leave::Departed(how.clone()));
            this.has_left.store(true, Ordering::Relaxed);
            if let Some(verdict) = this.left_behind(&how) {
                let _ = this.decide("close", verdict);
            }
        })
        .wait(LAST);
    }

    fn last_of(&self) -> Option<String> {
        self.last.lock().map(|last| last.describe())
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

impl OverExchange {
    /// The key of a message by its number among theirs.
    fn message_key(sender: usize, receiver: usize, number: u64) -> String {
        format!("m/{sender}-{receiver}/{number}")
    }

    /// Where collectives that NCCL makes messages of do not come behind the same messages on both
    /// ends: who is behind.
    pub(super) fn misplaced(
        &self,
        operation: &'static str,
        round: &Round,
        told: &[Option<Note>],
    ) -> Result<Option<Verdict>> {
        let (own, size) = (self.rank(), self.size());
        for (kind, what) in &round.exchanges {
            for (peer, theirs) in told.iter().enumerate() {
                let Some(Note::Does { messages, .. }) = theirs else { continue };
                for (sender, receiver) in [(own, peer), (peer, own)] {
                    if !kind.is_between(sender, receiver) {
                        continue;
                    }
                    let (mine, theirs) = match sender == own {
                        true => (round.messages.get(peer), messages.get(size + own)),
                        false => (round.messages.get(size + peer), messages.get(own)),
                    };
                    let (Some(&mine), Some(&theirs)) = (mine, theirs) else { continue };
                    if mine != theirs {
                        let (rank, ahead) = if mine < theirs { (own, peer) } else { (peer, own) };
                        let key = Self::message_key(sender, receiver, mine.min(theirs));
                        let expected = self.word(operation, &key)?.map_or_else(
                            || format!("a message between it and rank {ahead}"),
                            |word| word.mirrored().describe(ahead),
                        );
                        return Ok(Some(Verdict::new(rank, ahead, expected, format!("{what} before that"))));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Compares a message of which this rank is `side` and `peer` the other: its number among
    /// theirs, or what the other end has said, which is something else.
    pub(crate) fn message(
        &self,
        operation: &'static str,
        (side, peer): (End, usize),
        message: Message,
        within: Duration,
    ) -> Result<u64> {
        let (own, size) = (self.rank(), self.size());
        let (count, key) = match side {
            End::Sender => (&self.messages[peer], (own, peer)),
            End::Receiver => (&self.messages[size + peer], (peer, own)),
        };
        let number = count.load(Ordering::Relaxed);
        let key = Self::message_key(key.0, key.1, number);
        let bytes = notes::encode_word(Word::new(side, message));
        let exchange = self.exchange(operation)?;
        let stands = word(operation, &key, &exchange.leave_first(operation, &key, &bytes, within)?)?;
        let mine = word(operation, &key, &bytes)?;
        if stands != mine {
            if stands != mine.mirrored() {
                return Err(self.decide(operation, Verdict::of_message(own, peer, number, stands, mine)));
            }
            exchange.take_note(&key);
        } else if let Some(leave) = self.has_left(operation, peer)? {
            return Err(self.decide(operation, leave.verdict(peer, own, mine.mirrored().describe(own))));
        } else if let Some((rank, how)) = exchange.departed_of(&[peer], within) {
            return Err(Error::Gone { operation, rank, how });
        }
        count.store(number + 1, Ordering::Relaxed);
        Ok(number)
    }

    /// What the first to come has said of a message, if it waits still.
    fn word(&self, operation: &'static str, key: &str) -> Result<Option<Word>> {
        let bytes = self.exchange(operation)?.note_of_any(key, Duration::ZERO)?;
        bytes.map(|bytes| word(operation, key, &bytes)).transpose()
    }

    /// This rank has left, and has said so: whether another has come to a message of which it has
    /// not made the other end. Who comes to one later sees that this rank has left.
    pub(super) fn left_behind(&self, how: &str) -> Option<Verdict> {
        let (own, size) = (self.rank(), self.size());
        let counts = |at: usize| self.messages[at].load(Ordering::Relaxed);
        let of = |peer: usize| {
            let ends = [Self::message_key(own, peer, counts(peer)), Self::message_key(peer, own, counts(size + peer))];
            ends.map(|key| (peer, key))
        };
        let keys: Vec<_> = (0..size).filter(|peer| *peer != own).flat_map(of).collect();
        let came = self.exchange("close").ok()?.notes(&keys, Duration::from_millis(1)).ok()?;
        keys.iter().zip(came).find_map(|((peer, key), came)| {
            let Came::Value(bytes) = came else { return None };
            let expected = word("close", key, &bytes).ok()?.mirrored().describe(*peer);
            Some(Verdict::departed(own, *peer, expected, how.to_owned()))
        })
    }
}

fn word(operation: &'static str, key: &str, bytes: &[u8]) -> Result<Word> {
    notes::decode_word(bytes).ok_or_else(|| unreadable(operation, key.to_owned(), bytes.len()))
}

/// A round that a rank has come to.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) number: u64,
    pub(crate) told: Vec<Signature>,
    /// The messages before it; nothing where they do not matter.
    pub(crate) messages: Vec<u64>,
    /// What of it NCCL makes messages of, and that in words.
    pub(crate) exchanges: Vec<(history::Exchange, String)>,
    /// Since when it is known that others do something else.
    differs: Cell<Option<Instant>>,
}

impl Round {
    pub(crate) fn new(
        number: u64,
        told: Vec<Signature>,
        messages: Vec<u64>,
        exchanges: Vec<(history::Exchange, String)>,
    ) -> Self {
        Self { number, told, messages, exchanges, differs: Cell::new(None) }
    }

    /// What the rank waits in, in words.
    pub(crate) fn doing(&self) -> String {
        self.told.first().map_or_else(|| "nothing".to_owned(), Signature::describe)
    }

    /// What is not the same on all ranks, of what is known to `own`, which has passed so many
    /// collectives: once `all` have come, or will not, or after a short wait for the others. From
    /// what all say every rank finds the same.
    pub(crate) fn objection(&self, (own, passed): (usize, u64), told: &[Option<Note>], all: bool) -> Option<Verdict> {
        let left = told.iter().enumerate().find_map(|(rank, told)| match told {
            Some(Note::Left(how)) => Some((rank, how.clone())),
            _ => None,
        });
        if let Some((rank, how)) = left {
            return Some(Verdict::departed(rank, own, self.doing(), how).at_collective(passed));
        }
        let of = |rank: usize| match &told[rank] {
            _ if rank == own => Some(&self.told),
            Some(Note::Does { signatures, .. }) => Some(signatures),
            _ => None,
        };
        let (rank, other) = (0..told.len()).find_map(|rank| Some((rank, of(rank).filter(|it| **it != self.told)?)))?;
        let since = self.differs.get().unwrap_or_else(Instant::now);
        self.differs.set(Some(since));
        if !all && since.elapsed() < HEARING {
            return None;
        }
        let judged = (0..self.told.len().max(other.len())).find_map(|at| {
            let said: Vec<_> = (0..told.len()).map(|rank| of(rank)?.get(at).copied()).collect();
            // Nobody knows who came first.
            let (first, expected) = said.iter().enumerate().find_map(|(rank, said)| Some((rank, (*said)?)))?;
            Some(ballot::judge(&said, first, &expected)?.at_collective(passed + at as u64))
        });
        let together = |count: usize| match count {
            1 => "1 collective by itself".to_owned(),
            count => format!("{count} collectives together"),
        };
        let (expected, got) = (together(self.told.len()), together(other.len()));
        Some(judged.unwrap_or_else(|| Verdict::new(rank, own, expected, got).at_collective(passed)))
    }
}

/// What one rank of a checked communicator knows of its attempts.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// The next attempt of each plan, whatever its configuration.
    attempts: Mutex<Vec<(Plan, u64)>>,
    /// What was agreed on last.
    last: Mutex<String>,
}

impl Attempts {
    pub(super) fn attempt(&self, plan: &Plan) -> u64 {
        let plan = plan.sequence();
        self.attempts.lock().iter().find(|(known, _)| *known == plan).map_or(0, |(_, next)| *next)
    }

    pub(super) fn set(&self, plan: &Plan, next: u64) {
        let (plan, mut all) = (plan.sequence(), self.attempts.lock());
        match all.iter_mut().find(|(known, _)| *known == plan) {
            Some((_, known)) => *known = next,
            None => all.push((plan, next)),
        }
    }

    /// What was agreed on last.
    pub(super) fn last(&self) -> String {
        self.last.lock().clone()
    }

    pub(super) fn agree(&self, what: String) {
        *self.last.lock() = what;
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::exchange::Threads;
    use crate::nccl::validate::notes::decision_key;
    use crate::nccl::validate::split::Terms;

    /// One note is in the store, another not there yet: the store is asked once for each look, and not without a pause.
    #[test]
    fn each_look_takes_its_time() {
        let place = Threads::new(3);
        let join = |rank| OverExchange::new(Exchange::join(place.store(rank).unwrap()).unwrap(), None);
        let [first, second, third]: [OverExchange; 3] =
            thread::scope(|scope| [0, 1, 2].map(|rank| scope.spawn(move || join(rank))).map(|one| one.join().unwrap()));
        let (long, look) = (Duration::from_secs(60), Duration::from_millis(200));
        let come = |one: &OverExchange, collectives| {
            one.announce(vec![Signature([1, 100, 0, 0, 0, 0]); collectives], Vec::new(), long).unwrap()
        };
        for _ in 0..super::super::board::FIRST {
            let rounds = [&first, &second, &third].map(|one| (one, come(one, 1)));
            for (one, round) in rounds {
                assert!(matches!(one.collect_round("test", &round, long), Ok(RoundState::Agreed(_))));
            }
        }
        let (many, round) = (100, come(&first, 100));
        come(&second, many);
        let start = Instant::now();
        assert_eq!(first.collect_round("test", &round, look).unwrap(), RoundState::Missing(vec![2]));
        assert!(start.elapsed() >= look, "{:?}", start.elapsed());
        come(&third, many);
        assert!(matches!(first.collect_round("test", &round, Duration::ZERO), Ok(RoundState::Agreed(_))));
    }

    /// A death is found at once behind any number of ranks that have closed before.
    #[test]
    fn those_that_have_closed_hide_no_death() {
        let place = Threads::new(9);
        let join = |rank| Arc::new(OverExchange::new(Exchange::join(place.store(rank).unwrap()).unwrap(), None));
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

    fn does(counts: &[u64]) -> Option<Note> {
        let signatures = counts.iter().map(|count| Signature([1, *count, 0, 0, 0, 0])).collect();
        Some(Note::Does { signatures, messages: Vec::new(), shown: Vec::new(), board: Vec::new() })
    }

    /// What rank `own` finds of what all say.
    fn found(own: usize, told: &[Option<Note>], all: bool) -> Option<Verdict> {
        let Some(Note::Does { signatures, .. }) = &told[own] else { panic!("it says something") };
        Round::new(0, signatures.clone(), Vec::new(), Vec::new()).objection((own, 6), told, all)
    }

    #[test]
    fn all_find_the_same() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..1000 {
            let ranks = random.usize(2..7);
            let together = random.usize(1..4);
            let mut counts = vec![vec![100; together]; ranks];
            let wrong = random.usize(..ranks);
            counts[wrong][random.usize(..together)] = 101;
            let told: Vec<_> = counts.iter().map(|counts| does(counts)).collect();
            let verdicts: Vec<_> = (0..ranks).map(|own| found(own, &told, true).unwrap()).collect();
            assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
            // Of two nobody knows which is right.
            assert!(ranks == 2 || verdicts[0].rank == wrong, "{counts:?}: {verdicts:?}");
            let alike = vec![does(&[100]); ranks];
            assert_eq!(found(wrong, &alike, true), None);
        }
    }

    #[test]
    fn the_others_are_waited_for_a_little() {
        let told = [does(&[1]), does(&[2]), None];
        let round = Round::new(0, vec![Signature([1, 1, 0, 0, 0, 0])], Vec::new(), Vec::new());
        assert_eq!(round.objection((0, 0), &told, false), None);
        std::thread::sleep(HEARING);
        assert_eq!(round.objection((0, 0), &told, false).map(|verdict| verdict.rank), Some(1));
        assert!(found(0, &told, true).is_some());
    }

    #[test]
    fn who_leaves_is_told_of_in_place_of_what_it_does() {
        let told = [does(&[5]), Some(Note::Left("nothing: it left".to_owned())), None];
        let verdict = found(0, &told, false).unwrap();
        assert_eq!((verdict.rank, verdict.peer, &*verdict.got), (1, 0, "nothing: it left"));
        assert!(verdict.departed);
        assert!(verdict.expected.starts_with("all_reduce of 5 "), "{verdict:?}");
        assert!(verdict.expected.ends_with(" (collective 7)"), "{verdict:?}");
    }

    #[test]
    fn groups_of_other_lengths_differ() {
        let verdict = found(0, &[does(&[5]), does(&[5, 5])], true).unwrap();
        let told = ("1 collective by itself (collective 7)", "2 collectives together");
        assert_eq!((&*verdict.expected, &*verdict.got), told);
    }

    #[test]
    fn the_collective_that_differs_has_a_number() {
        let verdict = found(0, &[does(&[5, 5]), does(&[5, 6])], true).unwrap();
        assert!(verdict.expected.starts_with("all_reduce of 5 "), "{verdict:?}");
        assert!(verdict.expected.ends_with(" (collective 8)"), "{verdict:?}");
    }

    #[test]
    fn attempts_are_counted_whatever_the_configuration() {
        let attempts = Attempts::default();
        let terms = Terms::default();
        attempts.set(&Plan::Without([1].into(), None), 3);
        let plans = [Plan::Without([1].into(), Some(terms.into())), Plan::Without([2].into(), None), Plan::Split];
        assert_eq!(plans.each_ref().map(|plan| attempts.attempt(plan)), [3, 0, 0]);
        assert_eq!(decision_key(&plans[0], 3), decision_key(&Plan::Without([1].into(), None), 3));
        assert_ne!(decision_key(&plans[0], 3), decision_key(&plans[1], 3));
    }
}
