//! Lets ranks of a checked communicator meet outside of the sequence of their collectives, to make
//! another communicator of some of them. Ranks of a clique do this in [`regroup`](crate::nccl::validate::regroup).
//!
//! Each rank has one note. It says with which plan the rank has come, and that it waits. The
//! attempts of the same ranks are counted. The first rank that writes how an attempt ends decides
//! it for all: they go on, or one has given up and the others begin the next attempt, or they
//! disagree.

use std::time::{Duration, Instant};

use super::this_rank::{LAST, OverExchange, unreadable};
use crate::error::{Error, Result};
use crate::exchange::{Came, farewell};
use crate::name::Name;
use crate::nccl::validate::ballot::{HEARING, RanksOf, Verdict};
use crate::nccl::validate::notes::{Decision, Ending, Leave, Note, Party, RegroupNote, decision_key};
use crate::nccl::validate::regroup::{Awaited, Place, Plan};

/// The key of the end of ranks whose communicator is suspended or revoked.
const END: &str = "g/end";

/// This rank in an attempt, with its plan.
#[derive(Debug)]
pub(crate) struct Arrival<'p> {
    plan: &'p Plan,
    place: Place,
    attempt: u64,
    /// Whether the store has confirmed its note.
    confirmed: bool,
    /// The ranks for which it waits, according to the notes that it read last.
    awaited: Awaited,
    /// When this rank first found that others do something else.
    differs: Option<Instant>,
}

impl Arrival<'_> {
    /// The ranks for which it waits. Empty if only the answer of the store is missing.
    pub(crate) fn awaited(&self) -> &Awaited {
        &self.awaited
    }
}

/// The state of an attempt.
#[derive(Debug)]
pub(crate) enum Progress {
    /// This rank goes on together with these ranks.
    Go(Party),
    Wait,
}

/// Why a rank does not take part.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Does {
    Plan(Plan),
    /// It waits in this collective.
    Round(String),
}

impl Does {
    fn against(&self, other: &Self) -> String {
        match (self, other) {
            (Self::Plan(own), Self::Plan(other)) => own.against(other),
            (Self::Plan(own), _) => own.describe(),
            (Self::Round(own), _) => own.clone(),
        }
    }
}

impl OverExchange {
    /// Begins an attempt with a plan that includes this rank. The first look tells the others.
    pub(crate) fn arrive<'p>(&self, plan: &'p Plan, place: Place) -> Arrival<'p> {
        let mut awaited = Awaited::default();
        awaited.look([], plan.others(self.rank(), self.size()).collect());
        Arrival { plan, place, attempt: self.attempts.attempt(plan), confirmed: false, awaited, differs: None }
    }

    fn announce_arrival(&self, operation: &'static str, arrival: &mut Arrival<'_>) -> Result<()> {
        if !arrival.confirmed {
            let says = RegroupNote::Waits {
                plan: arrival.plan.clone(),
                place: arrival.place.clone(),
                attempt: arrival.attempt,
            };
            self.exchange(operation)?.leave_note(&note_key(self.rank()), &says.encode(), LAST)?;
            arrival.confirmed = true;
        }
        Ok(())
    }

    /// Returns the state of the attempt. Waits up to `within` for other ranks. If the communicator is
    /// active, a rank that waits in a collective instead is found too.
    ///
    /// # Errors
    /// Returns [`Error::Timeout`] if the store does not answer in time. The store may have done what it
    /// was asked; the next look asks again. Returns [`Error::Disagreement`] if a rank does something
    /// else or has left, and [`Error::Departed`] if one has died.
    pub(crate) fn poll(
        &self,
        operation: &'static str,
        arrival: &mut Arrival<'_>,
        is_active: bool,
        within: Duration,
    ) -> Result<Progress> {
        self.announce_arrival(operation, arrival)?;
        let (own, exchange) = (self.rank(), self.exchange(operation)?);
        let others: Vec<_> = arrival.plan.others(own, self.size()).collect();
        let keys: Vec<_> = others.iter().map(|&rank| (rank, note_key(rank))).collect();
        let came = exchange.notes(&keys, within)?;
        // Read after the notes: an end is decided before any rank goes on and leaves. If all goes well there are none of these.
        let mut keys = vec![decision_key(arrival.plan, arrival.attempt)];
        if is_active {
            keys.extend(others.iter().map(|&rank| self.round_key(rank)));
        }
        let mut rounds = exchange.notes_now(&keys)?.into_iter();
        if let Some(bytes) = rounds.next().flatten() {
            return self.found(operation, arrival, &bytes);
        }
        let rounds: Vec<_> = rounds.zip(&others).map(|(stored, &rank)| stored.or_else(|| self.posted(rank))).collect();
        let (mut party, mut others_do, mut their_plans) = (vec![(own, arrival.place.clone())], Vec::new(), Vec::new());
        let (mut missing, mut left, mut gone) = (Vec::new(), None, None);
        for (at, (&rank, came)) in others.iter().zip(came).enumerate() {
            match came {
                Came::Value(bytes) => match read(operation, &note_key(rank), &bytes, RegroupNote::decode)? {
                    RegroupNote::Waits { plan, place, attempt }
                        if plan == *arrival.plan && attempt == arrival.attempt =>
                    {
                        party.push((rank, place));
                        continue;
                    }
                    RegroupNote::Waits { plan, attempt, .. }
                        if plan != *arrival.plan && plan.takes(own) && !self.is_over(operation, &plan, attempt)? =>
                    {
                        their_plans.push((plan.clone(), attempt));
                        others_do.push((rank, Does::Plan(plan)));
                        continue;
                    }
                    // It is about to leave, or will join this attempt afterwards.
                    RegroupNote::Waits { .. } => {}
                    RegroupNote::Left(leave) => left = left.or(Some((rank, leave))),
                },
                Came::Ended(how) => gone = gone.or(Some((rank, how))),
                Came::NotYet => {}
            }
            match rounds.get(at) {
                Some(Some(bytes)) => match read(operation, &self.round_key(rank), bytes, Note::decode)? {
                    Note::Does { signatures, .. } => {
                        let what = signatures.first().map_or_else(String::new, |first| first.describe());
                        others_do.push((rank, Does::Round(what)));
                    }
                    Note::Left(how) => left = left.or(Some((rank, Leave::Departed(how)))),
                },
                _ => missing.push(rank),
            }
        }
        arrival.awaited.look(party.iter().map(|(rank, _)| *rank), missing.clone());
        if !others_do.is_empty() {
            let since = *arrival.differs.get_or_insert_with(Instant::now);
            if !missing.is_empty() && since.elapsed() < HEARING {
                return Ok(Progress::Wait);
            }
            others_do.extend(party.iter().map(|(rank, _)| (*rank, Does::Plan(arrival.plan.clone()))));
            return Err(self.conclude(operation, arrival, judge(others_do, own), &their_plans, is_active));
        }
        if let Some((rank, leave)) = left {
            let verdict = leave.verdict(rank, own, arrival.plan.describe());
            return Err(self.conclude(operation, arrival, verdict, &[], is_active));
        }
        if let Some((rank, how)) = gone {
            let how = format!("{how}; {} waits for it in {}", self.in_words(), arrival.plan.describe());
            return Err(Error::Departed { operation, rank, how });
        }
        if !missing.is_empty() {
            return Ok(Progress::Wait);
        }
        party.sort_unstable_by_key(|(rank, _)| *rank);
        let stands = self.first(operation, &decision_key(arrival.plan, arrival.attempt), &Decision::Go(party))?;
        self.found(operation, arrival, &stands)
    }

    fn found(&self, operation: &'static str, arrival: &mut Arrival<'_>, bytes: &[u8]) -> Result<Progress> {
        if let Some(party) = self.decided(operation, arrival, bytes)? {
            return Ok(Progress::Go(party));
        }
        // Others have given up. This rank goes on waiting until its own deadline, for the ranks that are still missing.
        (arrival.attempt, arrival.confirmed) = (arrival.attempt + 1, false);
        Ok(Progress::Wait)
    }

    /// Returns the ranks that go on after an attempt that has ended; `None` if no rank does.
    fn decided(&self, operation: &'static str, arrival: &Arrival<'_>, bytes: &[u8]) -> Result<Option<Party>> {
        let key = decision_key(arrival.plan, arrival.attempt);
        match read(operation, &key, bytes, Decision::decode)? {
            Decision::Go(party) => {
                self.take_arrival(operation, arrival);
                self.attempts.agree(key);
                Ok(Some(party))
            }
            Decision::Again => Ok(None),
            Decision::Ends(end) => Err(end.error(operation, self.rank())),
        }
    }

    /// Gives up the attempt. Returns the ranks with which this one goes on, if that was decided before.
    ///
    /// # Errors
    /// Returns [`Error::Timeout`] if the store does not answer in time: it is unknown whether the other
    /// ranks go on. Returns the cause if the communicator has ended.
    pub(crate) fn withdraw(&self, operation: &'static str, arrival: &Arrival<'_>) -> Result<Option<Party>> {
        let stands = self.first(operation, &decision_key(arrival.plan, arrival.attempt), &Decision::Again)?;
        let party = self.decided(operation, arrival, &stands)?;
        if party.is_none() {
            self.take_arrival(operation, arrival);
        }
        Ok(party)
    }

    fn take_arrival(&self, operation: &'static str, arrival: &Arrival<'_>) {
        self.attempts.set(arrival.plan, arrival.attempt + 1);
        let _ = self.exchange(operation).map(|exchange| exchange.take_note(&note_key(self.rank())));
    }

    fn is_over(&self, operation: &'static str, plan: &Plan, attempt: u64) -> Result<bool> {
        let stands = self.exchange(operation)?.notes_now(&[decision_key(plan, attempt)])?;
        Ok(stands.into_iter().any(|stands| stands.is_some()))
    }

    /// Ends the attempt because plans differ. Returns the error that every waiting rank reports.
    fn conclude(
        &self,
        operation: &'static str,
        arrival: &Arrival<'_>,
        verdict: Verdict,
        others: &[(Plan, u64)],
        is_active: bool,
    ) -> Error {
        let end = Ending::Disagreement(self.verdict(verdict));
        let holds = match is_active {
            true => self.end(end),
            // Every rank has suspended or revoked the communicator, so no rank listens for its end.
            false => {
                let stands =
                    self.exchange(operation).and_then(|all| all.leave_first(operation, END, &end.encode(), LAST));
                stands.ok().and_then(|bytes| Ending::decode(&bytes)).unwrap_or(end)
            }
        };
        for (plan, attempt) in others.iter().map(|(plan, at)| (plan, *at)).chain([(arrival.plan, arrival.attempt)]) {
            let _ = self.first(operation, &decision_key(plan, attempt), &Decision::Ends(holds.clone()));
        }
        holds.error(operation, self.rank())
    }

    fn first(&self, operation: &'static str, key: &str, decision: &Decision) -> Result<Vec<u8>> {
        self.exchange(operation)?.leave_first(operation, key, &decision.encode(), LAST)
    }

    /// Returns how a rank has left, if it has.
    pub(super) fn has_left(&self, operation: &'static str, rank: usize) -> Result<Option<Leave>> {
        let key = note_key(rank);
        let came = self.exchange(operation)?.note_of_any(&key, Duration::ZERO)?;
        Ok(match came.map(|bytes| read(operation, &key, &bytes, RegroupNote::decode)).transpose()? {
            Some(RegroupNote::Left(leave)) => Some(leave),
            _ => None,
        })
    }

    /// Leaves a note that says how this rank has left, for ranks that wait for it to make another
    /// communicator.
    pub(super) fn leave_regroups(&self, leave: Leave) {
        let says = RegroupNote::Left(leave).encode();
        let leave = || self.exchange("close")?.leave_note(&note_key(self.rank()), &says, LAST);
        let _ = farewell::persist(leave);
    }

    /// Creates the validator of this rank in the communicator on which the ranks agreed last. `ranks` are in their new order.
    pub(crate) fn rest(&self, operation: &'static str, ranks: &[usize], called: Name) -> Result<Self> {
        let name = self.attempts.last();
        Ok(Self::new(self.exchange(operation)?.named(name.as_bytes())?.subset(ranks)?, RanksOf::part(called)))
    }
}

/// Returns the rank at fault: the first of the minority. If both sides have the same number of ranks,
/// the side of the lowest rank is right.
fn judge(mut all: Vec<(usize, Does)>, own: usize) -> Verdict {
    all.sort_by_key(|(rank, _)| *rank);
    let votes = |does: &Does| all.iter().filter(|(_, other)| other == does).count();
    let most = all.iter().map(|(_, does)| votes(does)).max().unwrap_or(0);
    let right = all.iter().find(|(_, does)| votes(does) == most);
    let wrong = right.and_then(|(_, right)| all.iter().find(|(_, does)| does != right));
    match (right, wrong) {
        (Some((peer, right)), Some((rank, wrong))) => {
            Verdict::new(*rank, *peer, right.against(wrong), wrong.against(right))
        }
        _ => Verdict::new(own, own, String::new(), String::new()),
    }
}

fn note_key(rank: usize) -> String {
    format!("g/rank_device/{rank}")
}

fn read<T>(operation: &'static str, key: &str, bytes: &[u8], decode: impl Fn(&[u8]) -> Option<T>) -> Result<T> {
    decode(bytes).ok_or_else(|| unreadable(operation, key.to_owned(), bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(excluded: usize) -> Does {
        Does::Plan(Plan::Without([excluded].into(), None))
    }

    #[test]
    fn the_most_are_right_and_the_lowest_rank_where_there_are_none() {
        let round = || Does::Round("all_reduce".to_owned());
        for (all, rank, peer) in [
            (vec![(2, plan(0)), (1, plan(0)), (3, plan(1))], 3, 1),
            (vec![(3, round()), (1, plan(0))], 3, 1),
            (vec![(1, plan(0)), (3, round()), (2, round())], 1, 2),
        ] {
            let verdict = judge(all, 0);
            assert_eq!((verdict.rank, verdict.peer), (rank, peer), "{verdict:?}");
            assert_ne!(verdict.expected, verdict.got);
        }
    }
}
