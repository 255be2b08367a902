//! Validates the launch of a graph: by the numbers of what the graph holds, of its collectives and
//! of the messages of each pair.

use smallvec::SmallVec;

use super::messages::launched;
use super::of_checked;
use super::of_clique::{
    behind, contradicted, exchange, far_behind, is_too_late, messages_in_order, point_in_order, too_late,
};
use crate::error::{Error, Result};
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::NOWHERE;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::history::Exchange;
use crate::nccl::validate::in_process::InProcess;
use crate::nccl::validate::pair::{End, Word};
use crate::nccl::validate::sequence::Turn;
use crate::nccl::validate::signature::{Numbers, Signature};
use crate::nccl::wait::patience::Patience;

/// The method that launches.
pub(crate) const OPERATION: &str = "Graph::launch";

/// What a graph holds of one communicator, which is about to launch it.
pub(crate) struct Replay<'a> {
    pub(crate) inner: &'a Inner,
    /// What all ranks compare; `None` if they compare the messages alone.
    pub(crate) signature: Option<Signature>,
    /// The kinds of collectives that NCCL makes messages of.
    pub(crate) exchanges: &'a [Exchange],
    /// The messages to or from each peer.
    pub(crate) pairs: &'a [(usize, End, Numbers)],
}

impl<'a> Replay<'a> {
    /// What the ranks of a clique compare.
    fn comparison(&self) -> Option<(&'a InProcess, Signature)> {
        Some((self.inner.validation.in_process()?, self.signature?))
    }
}

/// Compares a launch with the other ranks. Returns its number in the signatures of each communicator. A
/// thread that drives several ranks does not wait in one of them for another.
pub(crate) fn before_replay(parts: &[Replay<'_>]) -> Result<SmallVec<[u64; 4]>, Failure> {
    let mut agreed: SmallVec<[u64; 4]> = SmallVec::from_elem(NOWHERE, parts.len());
    if !parts.iter().any(|part| part.inner.validation.compares()) {
        return Ok(agreed);
    }
    let members: SmallVec<[&Inner; 4]> = parts.iter().map(|part| part.inner).collect();
    let announced = parts.iter().map(announce).collect::<Result<SmallVec<[_; 4]>>>()?;
    let mut differs = None;
    let mut open: SmallVec<[usize; 4]> = (0..parts.len()).filter(|&at| parts[at].comparison().is_some()).collect();
    let (all, mut patience) = (open.len(), Patience::default());
    loop {
        let before = open.len();
        open.retain(|at| {
            let part = &parts[*at];
            let Some((in_process, signature)) = part.comparison() else { return false };
            match in_process.signatures.collective(part.inner.rank, &signature) {
                Turn::Passed(entry) => {
                    part.inner.issued.compares_no_more();
                    agreed[*at] = entry;
                }
                Turn::Wait => return true,
                Turn::Differs => {
                    differs = Some((part, in_process, in_process.signatures.differ(part.inner.rank, &signature)));
                }
            }
            false
        });
        let Some(&slow) = open.first() else { break };
        if differs.is_some() {
            break;
        }
        if open.len() == before {
            let slow = parts[slow].inner;
            let waited = patience.wait(OPERATION, &members, far_behind(OPERATION), slow, || behind(slow));
            waited.map_err(|error| match error {
                // Ranks in other processes have been told.
                Error::Timeout { .. } | Error::Aborted { .. } | Error::Revoked { .. }
                    if before == all && announced.iter().all(Option::is_none) =>
                {
                    Failure::Retryable(error)
                }
                _ => Failure::Fatal(error),
            })?;
        }
    }
    if let Some((part, in_process, difference)) = differs {
        return Err(contradicted(in_process, part.inner, OPERATION, &difference).into());
    }
    for ((part, announced), agreed) in parts.iter().zip(announced).zip(&mut agreed) {
        if let Some(announced) = announced {
            *agreed = of_checked::wait(&members, announced, OPERATION)?;
        }
        let Some(in_process) = part.inner.validation.in_process() else {
            part.pairs.iter().try_for_each(|pair| of_checked::launched(part.inner, OPERATION, pair))?;
            continue;
        };
        if let Some(signature) = part.signature {
            point_in_order(in_process, part.inner, OPERATION, &signature)?;
            for kind in part.exchanges {
                let what = || format!("{}, all_to_all, gather or scatter among them,", signature.describe());
                exchange(in_process, part.inner, *kind, OPERATION, what)?;
            }
        }
        part.pairs.iter().try_for_each(|pair| message(in_process, part.inner, pair))?;
    }
    Ok(agreed)
}

/// Tells ranks in other processes that a graph is launched, if they compare.
fn announce<'a>(part: &Replay<'a>) -> Result<Option<of_checked::Announced<'a>>> {
    part.signature.map_or(Ok(None), |signature| of_checked::announce_replay(part.inner, &signature, part.exchanges))
}

/// Compares the launch of a graph that holds these messages between a rank and a peer.
fn message(in_process: &InProcess, inner: &Inner, (peer, end, numbers): &(usize, End, Numbers)) -> Result<()> {
    let (rank, peer, end) = (inner.rank, *peer, *end);
    if peer == rank {
        return Ok(());
    }
    messages_in_order(in_process, inner, OPERATION, peer, || "a graph with messages".to_owned())?;
    let message = launched(in_process.signatures.history(rank), (rank, end), peer, numbers);
    let exchanges = message.exchanges;
    match in_process.signatures.message((rank, end), peer, message) {
        Ok(met) if met.first && is_too_late(&in_process.signatures, (rank, end), peer, exchanges, met.number) => {
            Err(too_late(in_process, inner, peer, Word::new(end, message), OPERATION))
        }
        Ok(_) => Ok(()),
        Err(theirs) => {
            Err(in_process.signatures.verdict_on_message((rank, end), peer, theirs, message).error(OPERATION))
        }
    }
}
