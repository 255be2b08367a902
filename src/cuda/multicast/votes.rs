//! What ranks that have an object in common tell each other at each step.

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::{Exchange, No, Vote};
use crate::refusal::Refusal;

use super::functions::refused;
use super::patience::is_not_ready;

/// What all vote on when they map an object, and those who never will.
pub(super) const MAP: &str = "Multicast::map";

/// Those who have an object in common.
pub(super) struct Party {
    pub(super) exchange: Exchange,
    /// Which object of theirs it is.
    pub(super) number: u64,
}

impl Party {
    /// What is voted on: a yes to something else, or of another object, is none.
    fn matter(&self, operation: &str) -> String {
        format!("{operation} of object {:016x}", self.number)
    }

    /// All come, or have ended, or are late; and what they say.
    pub(super) fn ask(&self, operation: &str, result: &Result<()>) -> Result<Vote> {
        self.exchange.vote_on(&self.matter(operation), ballot(result))
    }
}

/// What a rank says, of how far it has come.
fn ballot(result: &Result<()>) -> Result<(), No> {
    result.as_ref().copied().map_err(|error| {
        let is_not_ready = is_not_ready(error);
        let why = if is_not_ready { format!("not ready: {error}") } else { error.to_string() };
        No { why, is_not_ready }
    })
}

/// Whether all came, and whoever could not go on could later.
pub(super) fn is_worth_another(vote: &Vote) -> bool {
    vote.missing.is_empty() && vote.no.len() == vote.not_ready.len()
}

/// Whether nobody is left who does otherwise: all said yes, or have ended.
pub(super) fn nobody_else(vote: &Vote) -> bool {
    vote.no.is_empty() && vote.late.is_empty()
}

/// All ranks go on, or none: this one has come so far, or not. Before they have an object in common.
pub(super) fn vote(operation: &'static str, exchange: &Exchange, result: Result<()>) -> Result<()> {
    let vote = exchange.vote_on(operation, ballot(&result));
    result?;
    decided(operation, exchange, &vote?)
}

/// What a vote means.
pub(super) fn decided(operation: &'static str, exchange: &Exchange, vote: &Vote) -> Result<()> {
    match vote.missing.first() {
        _ if vote.unanimous() => Ok(()),
        Some((rank, _)) if vote.late.is_empty() => {
            Err(Error::Departed { operation, rank: *rank, how: format!("is missing: {vote}") })
        }
        Some(_) => {
            let missing = if let [(one, _)] = &vote.missing[..] { Some(*one) } else { None };
            let late = Deadline::after(exchange.timeout()).error(operation, vote.to_string());
            Err(late.between((Some(exchange.rank()), missing)))
        }
        None => Err(refused(operation, Refusal::Peer, vote)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_still_use_it() {
        let vote = |no: &[&str], missing: &[&str], late: &[usize]| {
            let list = |all: &[&str]| all.iter().map(|text| (1, (*text).to_owned())).collect();
            let mut vote = Vote::default();
            (vote.no, vote.missing, vote.late) = (list(no), list(missing), late.to_vec());
            nobody_else(&vote)
        };
        assert!(vote(&[], &[], &[]) && vote(&[], &["has died"], &[]));
        assert!(!vote(&["its kernel runs"], &[], &[]) && !vote(&[], &["has died", "has not come"], &[1]));
        assert!(!vote(&["its kernel runs"], &["has died"], &[]));
    }
}
