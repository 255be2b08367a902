//! What ranks that have an object in common tell each other at each step.

use crate::error::{Error, Result};
use crate::exchange::{Exchange, Vote};
use crate::refusal::Refusal;

use super::functions::refused;
use super::patience::is_not_ready;

/// How a reason begins which says that it is worth to ask again.
const AGAIN: &str = "not ready: ";

/// What a rank says, of how far it has come.
pub(super) fn ballot(result: &Result<()>) -> std::result::Result<(), String> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if is_not_ready(error) => Err(format!("{AGAIN}{error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether all came, and whoever could not go on could later.
pub(super) fn is_worth_another(vote: &Vote) -> bool {
    vote.missing.is_empty() && vote.no.iter().all(|(_, why)| why.starts_with(AGAIN))
}

/// All ranks go on, or none: this one has come so far, or not.
pub(super) fn vote(operation: &'static str, party: &Exchange, result: Result<()>) -> Result<()> {
    let vote = party.vote(ballot(&result));
    result?;
    decided(operation, party, &vote?)
}

/// What a vote means.
pub(super) fn decided(operation: &'static str, party: &Exchange, vote: &Vote) -> Result<()> {
    let late = vote.missing.iter().any(|(_, how)| how == "has not come");
    match vote.missing.first() {
        _ if vote.unanimous() => Ok(()),
        Some((rank, _)) if !late => Err(Error::Gone { operation, rank: *rank, how: format!("is missing: {vote}") }),
        Some(_) => Err(Error::Timeout { operation, timeout: party.timeout(), detail: vote.to_string() }),
        None => Err(refused(operation, Refusal::Peer, vote)),
    }
}
