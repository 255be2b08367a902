//! Validates calls of a clique, whose ranks compare them in shared memory before they launch.

use std::sync::atomic::{Ordering, fence};

use super::messages::{exchanges, message_of};
use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::Record;
use crate::nccl::validate::ballot::{Difference, Verdict};
use crate::nccl::validate::connects::Connects;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::history::Exchange;
use crate::nccl::validate::in_process::InProcess;
use crate::nccl::validate::order::Clash;
use crate::nccl::validate::pair::{End, Word};
use crate::nccl::validate::sequence::Turn;
use crate::nccl::validate::signature::Signature;
use crate::nccl::validate::signature_log::SignatureLog;
use crate::nccl::validate::validator::Validator;
use crate::nccl::wait::explanation;
use crate::nccl::wait::left_ranks;
use crate::nccl::wait::patience::Patience;

impl Validator for InProcess {
    #[inline]
    fn before_launch(&self, call: &Call<'_>) -> Result<Connects, Failure> {
        one(self, call).map_err(Failure::late)
    }

    fn before_point(&self, inner: &Inner, operation: &'static str, signature: &Signature) -> Result<Option<u64>> {
        let entry = collective(self, inner, operation, signature)?;
        point_in_order(self, inner, operation, signature)?;
        Ok(Some(entry))
    }

    fn on_departure(&self, inner: &Inner, end: &mut dyn FnMut(&Inner, &Error)) {
        self.signatures.presence().close(inner.rank);
        for other in inner.clique_ranks() {
            if let Some(error) = left_ranks::of_closed(&other) {
                end(&other, &error);
            }
        }
    }

    fn departure_error(&self, inner: &Inner, _done: u64, last: u64) -> Option<Error> {
        left_ranks::on_device(inner, last)
    }

    fn explain(
        &self,
        inner: &Inner,
        records: &[Record],
        range: &dyn Fn() -> String,
        absent: &[usize],
    ) -> Option<String> {
        explanation::explain(self, inner, records, range, absent)
    }
}

/// Compares a call that is in no group.
#[inline]
fn one(in_process: &InProcess, call: &Call<'_>) -> Result<Connects> {
    if let Some((end, peer)) = call.kind.message() {
        let connects = message(in_process, call, end, peer)?;
        in_order(in_process, call)?;
        return Ok(connects);
    }
    let signature = call.signature(1);
    call.agreed.set(collective(in_process, call.comm, call.operation, &signature)?);
    in_order(in_process, call)?;
    passed(in_process, call)?;
    let history = in_process.signatures.history(call.comm.rank);
    let is_first = call.count > 0 && call.comm.size > 1 && !history.knows_class(signature.class(bytes(call)));
    Ok(Connects::if_first(is_first))
}

/// Compares a collective, or a point, that is in no group. Returns its number in the sequence.
#[inline]
fn collective(in_process: &InProcess, inner: &Inner, operation: &'static str, signature: &Signature) -> Result<u64> {
    let mut patience = Patience::default();
    loop {
        match in_process.signatures.collective(inner.rank, signature) {
            Turn::Passed(entry) => {
                inner.issued.compares_no_more();
                return Ok(entry);
            }
            Turn::Wait => patience.wait(operation, &[inner], far_behind(operation), inner, || behind(inner))?,
            Turn::Differs => {
                let difference = in_process.signatures.differ(inner.rank, signature);
                return Err(contradicted(in_process, inner, operation, &difference));
            }
        }
    }
}

/// Compares where a call, which was agreed on, stands among the calls of the communicators that
/// share resources with this one: all ranks that it concerns must have the same order.
#[inline]
pub(super) fn in_order(in_process: &InProcess, call: &Call<'_>) -> Result<()> {
    if call.comm.shared_lock().is_none() {
        return Ok(());
    }
    let peer = call.kind.message().map(|(_, peer)| peer);
    compare_order(in_process, call.comm, call.operation, peer, || call.signature(1).describe())
}

/// The same for a point, to which all ranks come.
pub(super) fn point_in_order(
    in_process: &InProcess,
    inner: &Inner,
    operation: &'static str,
    signature: &Signature,
) -> Result<()> {
    compare_order(in_process, inner, operation, None, || signature.describe())
}

/// The same for messages between a rank and a peer.
pub(super) fn messages_in_order(
    in_process: &InProcess,
    inner: &Inner,
    operation: &'static str,
    peer: usize,
    what: impl FnOnce() -> String,
) -> Result<()> {
    compare_order(in_process, inner, operation, Some(peer), what)
}

#[cold]
fn compare_order(
    in_process: &InProcess,
    inner: &Inner,
    operation: &'static str,
    peer: Option<usize>,
    what: impl FnOnce() -> String,
) -> Result<()> {
    let Some(sharing) = &in_process.sharing else { return Ok(()) };
    let rank = inner.rank;
    let step = match peer {
        Some(peer) if peer == rank => Ok(()),
        Some(peer) => sharing.message(rank, peer),
        None => sharing.collective(rank),
    };
    let Err(Clash { peer, expected, got }) = step else { return Ok(()) };
    let expected = format!("an operation on {expected}, which shares its resources, as rank {peer} has issued");
    let got = format!("{} on {got}", what());
    Err(in_process.signatures.decide(Verdict::new(rank, peer, expected, got)).error(operation))
}

/// Compares a collective, which was agreed on, with messages if NCCL makes messages of it.
#[inline]
pub(super) fn passed(in_process: &InProcess, call: &Call<'_>) -> Result<()> {
    match call.kind.exchange() {
        Some(kind) if call.count > 0 => {
            exchange(in_process, call.comm, kind, call.operation, || call.signature(1).describe())
        }
        _ => Ok(()),
    }
}

/// One that NCCL makes messages of, which come one after another with the others between the same
/// ranks: so between two ranks the same messages must come before it. Either end of another message
/// sees that this one has come before, or is seen here.
pub(super) fn exchange(
    in_process: &InProcess,
    inner: &Inner,
    kind: Exchange,
    operation: &'static str,
    what: impl Fn() -> String,
) -> Result<()> {
    let (signatures, rank) = (&in_process.signatures, inner.rank);
    let history = signatures.history(rank);
    history.exchange(kind);
    fence(Ordering::SeqCst);
    for peer in (0..inner.size).filter(|&peer| peer != rank) {
        for (end, exchanges) in
            [(End::Sender, history.exchanges(rank, peer)), (End::Receiver, history.exchanges(peer, rank))]
        {
            let theirs = signatures.pair(rank, end, peer).waiting(end);
            if let Some(theirs) = theirs.filter(|theirs| theirs.is_before(exchanges)) {
                let (expected, got) = (theirs.mirrored().describe(peer), format!("{} before that", what()));
                return Err(signatures.decide(Verdict::new(rank, peer, expected, got)).error(operation));
            }
        }
    }
    Ok(())
}

/// What counts for the class of a collective: how messages are connected does not depend on their
/// size.
#[inline]
pub(crate) fn bytes(call: &Call<'_>) -> u64 {
    if call.kind.is_exchange() { 0 } else { (call.count * call.element.size()) as u64 }
}

/// Compares a message.
#[inline]
pub(super) fn message(in_process: &InProcess, call: &Call<'_>, end: End, peer: usize) -> Result<Connects> {
    let rank = call.comm.rank;
    if peer == rank {
        // Both ends are in this group, which was looked at before.
        return Ok(Connects::Nothing);
    }
    let history = in_process.signatures.history(rank);
    let message = message_of(call, history, end, peer);
    match in_process.signatures.message((rank, end), peer, message) {
        Ok(met)
            if met.first && is_too_late(&in_process.signatures, (rank, end), peer, message.exchanges, met.number) =>
        {
            Err(too_late(in_process, call.comm, peer, Word::new(end, message), call.operation))
        }
        Ok(met) => {
            call.agreed.set(met.number);
            Ok(Connects::if_first(call.count > 0 && !history.knows_peer(peer, end)))
        }
        Err(theirs) => {
            Err(in_process.signatures.verdict_on_message((rank, end), peer, theirs, message).error(call.operation))
        }
    }
}

/// Whether message `number`, to which its rank was the first to come after so many exchanges, comes
/// behind an exchange that the other end has come to without this message. If it has come to the
/// message meanwhile, it has compared that.
#[inline]
pub(super) fn is_too_late(
    signatures: &SignatureLog,
    (rank, end): (usize, End),
    peer: usize,
    after: u64,
    number: u64,
) -> bool {
    exchanges(signatures.history(peer), (rank, end), peer) > after
        && signatures.pair(rank, end, peer).passed(end.other()) <= number
}

#[cold]
pub(super) fn too_late(
    in_process: &InProcess,
    inner: &Inner,
    peer: usize,
    mine: Word,
    operation: &'static str,
) -> Error {
    let expected = "all_to_all, gather or scatter before that".to_owned();
    in_process.signatures.decide(Verdict::new(inner.rank, peer, expected, mine.describe(peer))).error(operation)
}

#[cold]
pub(super) fn contradicted(
    in_process: &InProcess,
    inner: &Inner,
    operation: &'static str,
    difference: &Difference,
) -> Error {
    match in_process.signatures.verdict_on(difference, || inner.refusal(operation)) {
        Ok(verdict) => verdict.error(operation),
        Err(error) => error,
    }
}

/// The class of a collective in a group of so many, which move `all` bytes together: NCCL merges
/// them before it chooses how to do them.
pub(crate) fn class(call: &Call<'_>, count: usize, all: u64) -> u64 {
    call.signature(count).class(if call.kind.is_exchange() { 0 } else { all })
}

/// Finds ranks that wait in vain for others to come to what they have issued long ago.
pub(crate) fn far_behind(operation: &'static str) -> impl Fn(&Inner) -> Option<Error> {
    move |inner| left_ranks::far_behind(inner, operation)
}

/// Who keeps this rank from its next collective.
pub(super) fn behind(inner: &Inner) -> String {
    let Some(in_process) = inner.validation.in_process() else { return String::new() };
    let behind =
        in_process.signatures.collectives().behind(inner.rank).map(|rank| in_process.signatures.whereabouts(rank));
    format!("{} is hundreds of collectives ahead; {}", inner.in_words(), explanation::list(behind, "; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::ElementKind;
    use crate::nccl::validate::ballot::RanksOf;
    use crate::nccl::validate::pair::{Manner, Message};

    /// Between the comparison and the look at what the other end has come to, that goes on: with
    /// the message, or without it.
    #[test]
    fn who_goes_on_meanwhile_is_not_too_late() {
        let manner = Manner::Plain;
        let message = Message { element: ElementKind::U8.into(), count: 5, window: false, exchanges: 0, manner };
        for end in [End::Sender, End::Receiver] {
            for comes in [true, false] {
                let signatures = SignatureLog::new(2, RanksOf::default());
                let met = signatures.message((0, end), 1, message).unwrap();
                assert!(met.first && !is_too_late(&signatures, (0, end), 1, 0, met.number));
                if comes {
                    assert!(!signatures.message((1, end.other()), 0, message).unwrap().first);
                }
                signatures.history(1).exchange(Exchange::AllToAll);
                assert_eq!(is_too_late(&signatures, (0, end), 1, 0, met.number), !comes, "{end:?}");
            }
        }
    }
}
