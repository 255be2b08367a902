//! Votes: all ranks get the same result.

use std::fmt;
use std::time::Duration;

use super::collectives::kind;
use super::handle::Exchange;
use super::store::Swap;
use super::view::{Came, GRACE};
use super::wire::{Reader, Writer};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// The result of a vote. All ranks that voted, late or not, get the same.
///
/// ```
/// # use gpucomm::exchange::{Exchange, Threads};
/// # fn main() -> gpucomm::Result<()> {
/// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
/// let vote = exchange.vote(Ok(()))?;
/// if !vote.unanimous() {
///     eprintln!("not all can go on: {vote}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Vote {
    /// The ranks that said no, and why.
    pub no: Vec<(usize, String)>,
    /// The ranks that did not vote: `has not come` by the deadline, or how the rank ended.
    pub missing: Vec<(usize, String)>,
    /// The ranks of `no` that may vote yes next time.
    pub(crate) not_ready: Vec<usize>,
    /// The ranks that had neither voted nor ended: they may still come.
    pub(crate) late: Vec<usize>,
}

/// Why a rank votes no.
pub(crate) struct No {
    pub(crate) why: String,
    /// Whether the rank may vote yes next time.
    pub(crate) is_not_ready: bool,
}

impl Vote {
    /// Whether all ranks came and said yes.
    pub fn unanimous(&self) -> bool {
        self.no.is_empty() && self.missing.is_empty()
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unanimous() {
            return f.write_str("unanimous");
        }
        let no = self.no.iter().map(|(rank, why)| format!("rank {rank} says no: {why}"));
        let missing = self.missing.iter().map(|(rank, how)| format!("rank {rank} {how}"));
        f.write_str(&no.chain(missing).collect::<Vec<_>>().join("; "))
    }
}

/// The answers of a ballot.
const NO: u8 = 0;
const YES: u8 = 1;
const NOT_READY: u8 = 2;

impl Exchange {
    /// Every rank votes yes (`Ok`) or no (`Err`, with the reason), and all ranks get the same
    /// result.
    ///
    /// The first rank whose deadline passes, or that sees that no other rank can come, decides for
    /// all. A rank that comes later gets the same result, which lists it as missing. A rank that
    /// calls another operation counts as a no. Of a reason the first kilobyte is kept.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// let saved = Err("the disk is full".to_owned());
    /// let vote = exchange.vote(saved)?;
    /// assert!(!vote.unanimous());
    /// assert_eq!(vote.no, [(0, "the disk is full".to_owned())]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of the [store](Self#errors), and [`Error::Timeout`] only if the store
    /// does not answer. A rank that does not come, or votes no, is no error.
    pub fn vote(&self, ballot: Result<(), String>) -> Result<Vote> {
        self.vote_on("", ballot.map_err(|why| No { why, is_not_ready: false }))
    }

    /// As [`Exchange::vote`], on a matter: a yes to another matter counts as a no. A vote of the
    /// program has no matter. If this exchange [refuses](Exchange::unless) before there is a result,
    /// this rank does not wait for the others: its no is the result.
    pub(crate) fn vote_on(&self, matter: &str, ballot: Result<(), No>) -> Result<Vote> {
        let operation = "Exchange::vote";
        let deadline = self.deadline();
        let begun = self.view.round();
        let turn = begun.wait_for_turn(operation, &deadline, || self.refusal().is_some());
        let round = begun.number;
        let ballot = match &ballot {
            Ok(()) => Writer::default().u8(YES).text(clipped(matter)),
            Err(no) => Writer::default().u8(if no.is_not_ready { NOT_READY } else { NO }).text(clipped(&no.why)),
        };
        // A rank that votes shortly before the deadline learns the result, too, even if the store
        // is busy for a moment.
        let patience = Deadline::after(deadline.remaining().max(GRACE));
        let ballot = if turn.is_ok() { ballot } else { Writer::default().u8(NO).text("its turn has not come in time") };
        self.persist(&patience, |within| self.put(round, operation, kind::VOTE, &ballot.0, &Deadline::after(within)))?;
        turn?;
        let keys: Vec<_> = (0..self.size()).map(|rank| (rank, self.round_key(round, rank))).collect();
        let verdict = format!("{}c/{round}/verdict", self.view.path);
        let is_over = |came: &[Came]| Ok(self.refusal().is_some() || !came.contains(&Came::NotYet));
        let bytes = self.decide(&verdict, &keys, &deadline, is_over, |came| {
            let mut vote = count(round, clipped(matter), came);
            if let Some(error) = self.refusal() {
                vote.no = vec![(self.rank(), error.to_string())];
                vote.missing.clear();
            }
            Ok(encode(&vote))
        })?;
        let vote = decode(&bytes).ok_or_else(|| unreadable(operation, &verdict, &bytes))?;
        if self.rank() == 0 {
            self.view.progress().own.push((round, verdict));
        }
        if vote.missing.is_empty() && vote.late.is_empty() {
            self.met(round);
        }
        Ok(vote)
    }
}

impl Exchange {
    /// Waits until `is_over` returns true, or until the deadline. The first rank that gets there writes
    /// what `propose` makes of the keys to the key `verdict`, and all ranks return that value. An error
    /// of `is_over` ends the wait without a verdict.
    pub(super) fn decide(
        &self,
        verdict: &str,
        keys: &[(usize, String)],
        deadline: &Deadline,
        mut is_over: impl FnMut(&[Came]) -> Result<bool>,
        propose: impl FnOnce(&[Came]) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let store = &self.view.store;
        let decided = || match store.get(&[verdict], Duration::ZERO) {
            // The store is slow, and is asked again.
            Err(Error::Timeout { .. }) => Ok(None),
            found => found.map(|mut found| found.swap_remove(0)),
        };
        if let Some(bytes) = decided()? {
            return Ok(bytes);
        }
        let mut found = None;
        let came = self.view.await_keys(keys, deadline, |came| {
            found = decided()?;
            Ok(found.is_some() || is_over(came)?)
        })?;
        if let Some(bytes) = found {
            return Ok(bytes);
        }
        let bytes = propose(&came)?;
        let patience = Deadline::after(deadline.remaining().max(GRACE));
        match self.persist(&patience, |within| store.compare_and_set(verdict, None, &bytes, within))? {
            Swap::Done => Ok(bytes),
            Swap::Found(Some(bytes)) => Ok(bytes),
            Swap::Found(None) => Err(unreadable("Exchange::vote", verdict, &[])),
        }
    }
}

/// The error for a verdict that no rank has written.
pub(super) fn unreadable(operation: &'static str, key: &str, bytes: &[u8]) -> Error {
    let reason = format!("expected a verdict, got {} bytes that are none", bytes.len());
    Error::Exchange { operation, key: key.to_owned(), reason }
}

/// Why a member did not vote.
fn absent(came: &Came) -> Option<String> {
    match came {
        Came::Value(_) => None,
        Came::Ended(how) => Some(how.clone()),
        Came::NotYet => Some("has not come".to_owned()),
    }
}

/// Counts the ballots on a matter.
pub(super) fn count(round: u64, matter: &str, came: &[Came]) -> Vote {
    let mut vote = Vote::default();
    for (rank, came) in came.iter().enumerate() {
        if let Some(how) = absent(came) {
            vote.missing.push((rank, how));
        }
        if *came == Came::NotYet {
            vote.late.push(rank);
        }
        let Came::Value(value) = came else { continue };
        let mut reader = Reader(value.get(1..).unwrap_or_default());
        match (value.first(), reader.u8(), reader.text()) {
            (Some(&kind::VOTE), Some(YES), Some(theirs)) if theirs == matter => {}
            (Some(&kind::VOTE), Some(YES), Some(theirs)) => {
                let why = format!("it votes on {}, expected {}", named(theirs), named(matter));
                vote.no.push((rank, why));
            }
            (Some(&kind::VOTE), Some(answer), Some(why)) => {
                vote.no.push((rank, why.to_owned()));
                if answer == NOT_READY {
                    vote.not_ready.push(rank);
                }
            }
            (other, ..) => {
                let why = format!("expected vote as round {round}, got {}", kind::name(other));
                vote.no.push((rank, why));
            }
        }
    }
    vote
}

/// A matter, in words.
fn named(matter: &str) -> &str {
    if matter.is_empty() { "something of the program" } else { matter }
}

/// The first kilobyte of a reason.
fn clipped(why: &str) -> &str {
    let end = (0..=why.len().min(1024)).rev().find(|end| why.is_char_boundary(*end));
    &why[..end.unwrap_or_default()]
}

pub(super) fn encode(vote: &Vote) -> Vec<u8> {
    let list = |writer: Writer, list: &[(usize, String)]| {
        list.iter().fold(writer.count(list.len()), |writer, (rank, why)| writer.count(*rank).text(clipped(why)))
    };
    let ranks = |writer: Writer, ranks: &[usize]| {
        ranks.iter().fold(writer.count(ranks.len()), |writer, rank| writer.count(*rank))
    };
    let writer = list(list(Writer::default(), &vote.no), &vote.missing);
    ranks(ranks(writer, &vote.not_ready), &vote.late).0
}

pub(super) fn decode(bytes: &[u8]) -> Option<Vote> {
    let mut reader = Reader(bytes);
    let mut list = || reader.list(|reader| Some((reader.count()?, reader.text()?.to_owned())));
    let (no, missing) = (list()?, list()?);
    let mut ranks = || reader.list(Reader::count);
    let (not_ready, late) = (ranks()?, ranks()?);
    reader.end(Vote { no, missing, not_ready, late })
}
