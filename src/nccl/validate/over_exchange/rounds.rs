//! Runs the rounds in which every rank says what it is about to do: writes and reads the notes, on the
//! board or in the store.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::round::{Round, RoundState};
use super::this_rank::{OverExchange, unreadable};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::Came;
use crate::nccl::validate::ballot::Verdict;
use crate::nccl::validate::board::Posted;
use crate::nccl::validate::notes::{self, Note};
use crate::nccl::validate::signature::Signature;
use crate::nccl::validate::split::Choice;
use crate::nccl::validate::{history, signature_log};

/// How many rounds pass before their notes are removed, all at once.
const BATCH: u64 = 64;

impl OverExchange {
    /// Publishes the operations that this rank is about to launch together, and beside them those that
    /// NCCL makes messages of.
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

    /// Returns the state of a round of this rank. Waits up to `within` for the other ranks.
    ///
    /// # Errors
    /// Returns [`Error::Disagreement`] if a rank does something else or has left, and [`Error::Departed`] if
    /// one has died.
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
            let how = format!("{how}; {} waits for it in {}", self.in_words(), round.doing());
            return Err(Error::Departed { operation, rank, how });
        }
        if !missing.is_empty() {
            return Ok(RoundState::Missing(missing));
        }
        if let Some(verdict) = self.misplaced(operation, round, &all)? {
            return Err(self.decide(operation, verdict));
        }
        Ok(RoundState::Agreed(self.pass(round, all)))
    }

    /// Returns the error of `operation`, in which this rank waits outside of the rounds, if another rank has closed its
    /// communicator instead. Asks the store once, and ignores one that does not answer.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn closed_by_another(&self, operation: &'static str) -> Option<Error> {
        let others: Vec<_> = (0..self.size()).filter(|rank| *rank != self.rank()).collect();
        let number = self.rounds.load(Ordering::Relaxed);
        let came = self.notes(operation, number, &others, Duration::ZERO).ok()?;
        others.into_iter().zip(came).find_map(|(rank, came)| {
            let Came::Value(bytes) = came else { return None };
            let Note::Left(how) = Note::decode(&bytes)? else { return None };
            Some(self.decide(operation, Verdict::departed(self.rank(), rank, operation.to_owned(), how)))
        })
    }

    /// The ranks for which this one waits in a round, as text.
    pub(crate) fn absent(&self, round: &Round, missing: &[usize]) -> String {
        let passed = self.passed.load(Ordering::Relaxed);
        // They have passed as many collectives as this rank had before the round.
        let where_to = |rank: &usize| signature_log::whereabouts(*rank, passed, || self.last_of());
        let all: Vec<_> = missing.iter().take(4).map(where_to).collect();
        let who = match missing {
            [one] => format!("rank {one}"),
            many => format!("ranks {}", many.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
        };
        format!("{} waits for {who} to come to {}; {}", self.in_words(), round.doing(), all.join("; "))
    }

    /// Publishes, in the next round, the arguments of a split with this number.
    pub(crate) fn show_split(&self, split: u64, choice: Option<Choice>) {
        *self.shows.lock() = notes::encode_choice(choice.as_ref());
        self.splits.show(self.rank(), split, choice);
    }

    /// Reads what the others published in that round. All ranks have come to it.
    pub(crate) fn see_split(&self, operation: &'static str, split: u64) -> Result<()> {
        self.see(operation, notes::decode_choice, |rank, choice| self.splits.show(rank, split, choice))
    }

    /// Publishes, in the next round, which windows this rank has dropped, and the size of the window that it
    /// makes.
    #[cfg(nccl_ge_2_27)]
    pub(crate) fn show_point(&self, point: u64, dropped: Vec<u64>, bytes: usize) {
        *self.shows.lock() = notes::encode_point(&dropped, bytes);
        self.points.show(self.rank(), point, dropped, bytes);
    }

    /// Reads what the others published in that round. All ranks have come to it.
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

    /// The key of the next round of this rank.
    pub(super) fn round_key(&self, rank: usize) -> String {
        Self::key(self.rounds.load(Ordering::Relaxed), rank)
    }

    /// The number of the round for which this rank leaves its next note.
    pub(super) fn next_round(&self) -> u64 {
        let number = self.rounds.load(Ordering::Relaxed);
        if self.agreed.load(Ordering::Relaxed) != number {
            // This rank has given up the last round. Others may still read its notes of that round and of the one before.
            self.board.retire();
        }
        number
    }

    /// Leaves a note of this rank in the store.
    pub(super) fn store(&self, number: u64, note: &[u8], within: Duration) -> Result<()> {
        self.exchange("tell")?.leave_note(&Self::key(number, self.rank), note, within)?;
        self.stored.store(number + 1, Ordering::Relaxed);
        self.board.post_elsewhere(number, self.rank);
        Ok(())
    }

    /// Returns the notes of these ranks for a round. Waits up to `within` for them.
    fn notes(&self, operation: &'static str, number: u64, ranks: &[usize], within: Duration) -> Result<Vec<Came>> {
        let mut came = vec![Came::NotYet; ranks.len()];
        let mut within = within;
        if let Some(board) = self.board.used(number) {
            // The store is read once all ranks have come, and now and then before: each look takes `within`.
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
            // Only the store knows which ranks have died or left.
            within = Duration::ZERO;
        }
        let missing: Vec<_> = (0..ranks.len()).filter(|at| came[*at] == Came::NotYet).collect();
        let keys: Vec<_> = missing.iter().map(|at| (ranks[*at], Self::key(number, ranks[*at]))).collect();
        for (at, found) in missing.into_iter().zip(self.exchange(operation)?.notes(&keys, within)?) {
            came[at] = found;
        }
        Ok(came)
    }

    /// Returns the note of a rank for the next round of this one, if it is on the board.
    pub(super) fn posted(&self, rank: usize) -> Option<Vec<u8>> {
        let number = self.rounds.load(Ordering::Relaxed);
        match self.board.used(number)?.read(number, rank) {
            Posted::Note(note) => Some(note),
            _ => None,
        }
    }

    /// Records that all ranks agree in a round. Returns the number of its first collective.
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
            // A rank that has come to this round has read the notes of all earlier ones.
            let read = format!("c/{}/{}/", self.rank(), batch - 1);
            self.exchange.lock().clone().into_iter().for_each(|exchange| exchange.take_notes(&read));
        }
        self.passed.fetch_add(numbered().count() as u64, Ordering::Relaxed)
    }

    pub(super) fn last_of(&self) -> Option<String> {
        self.last.lock().map(|last| last.describe())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::exchange::{Exchange, Threads};
    use crate::nccl::validate::ballot::RanksOf;
    use crate::nccl::validate::board;

    /// One note is in the store and another is missing: each look asks the store once, after a pause.
    #[test]
    fn each_look_takes_its_time() {
        let place = Threads::new(3);
        let join = |rank| OverExchange::new(Exchange::join(place.store(rank).unwrap()).unwrap(), RanksOf::default());
        let [first, second, third]: [OverExchange; 3] =
            thread::scope(|scope| [0, 1, 2].map(|rank| scope.spawn(move || join(rank))).map(|one| one.join().unwrap()));
        let (long, look) = (Duration::from_secs(60), Duration::from_millis(200));
        let come = |one: &OverExchange, collectives| {
            one.announce(vec![Signature([1, 100, 0, 0, 0, 0]); collectives], Vec::new(), long).unwrap()
        };
        for _ in 0..board::FIRST {
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
}
