//! Comparing calls with the other ranks of a clique, before they are launched.
//!
//! The collectives of a group come before its messages, as they do in NCCL; those too that NCCL makes messages of.

use std::sync::atomic::{Ordering, fence};

use smallvec::SmallVec;

use super::checked;
use super::said::{collectives, exchanges, is_collective_of, message_of};
use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::validate::ballot::{Difference, Verdict};
use crate::nccl::validate::history::Exchange;
use crate::nccl::validate::in_process::InProcess;
use crate::nccl::validate::ledger::Ledger;
use crate::nccl::validate::order::Clash;
use crate::nccl::validate::pair::{End, Word};
use crate::nccl::validate::sequence::Turn;
use crate::nccl::validate::signature::Signature;
use crate::nccl::wait::departure;
use crate::nccl::wait::patience::Patience;
use crate::nccl::wait::pending;

/// Compares a call that is in no group. Whether it is the first of its kind, so that the ranks have to meet.
///
/// # Errors
/// [`Error::Timeout`] where nothing was agreed on, so that the call may be made again; everything else ends the clique.
#[inline]
pub(crate) fn one(call: &Call<'_>) -> Result<bool> {
    let Some(in_process) = &call.comm.in_process else { return elsewhere(call) };
    if let Some((end, peer)) = call.kind.message() {
        let is_first = message(in_process, call, end, peer)?;
        in_order(in_process, call)?;
        return Ok(is_first);
    }
    let signature = call.signature(1);
    call.agreed.set(collective(in_process, call.comm, call.operation, &signature)?);
    in_order(in_process, call)?;
    passed(in_process, call)?;
    let history = in_process.ledger.history(call.comm.rank);
    Ok(call.count > 0 && call.comm.size > 1 && !history.knows_class(signature.class(bytes(call))))
}

/// The same, of a communicator whose other ranks live in other processes: it is checked, or they have promised to agree.
#[inline]
fn elsewhere(call: &Call<'_>) -> Result<bool> {
    call.comm.checked.get().map_or(Ok(()), |checked| checked::one(call, checked)).map(|()| false)
}

/// Compares a collective, or a registration, that is in no group; its number in the sequence.
#[inline]
pub(crate) fn collective(
    in_process: &InProcess,
    inner: &Inner,
    operation: &'static str,
    signature: &Signature,
) -> Result<u64> {
    let mut patience = Patience::default();
    loop {
        match in_process.ledger.collective(inner.rank, signature) {
            Turn::Passed(entry) => {
                inner.issued.compares_no_more();
                return Ok(entry);
            }
            Turn::Wait => patience.wait(operation, &[inner], in_vain(operation), inner, || behind(inner))?,
            Turn::Differs => {
                let difference = in_process.ledger.differ(inner.rank, signature);
                return Err(contradicted(in_process, inner, operation, &difference));
            }
        }
    }
}

/// A call was agreed on. Whether the ranks that it concerns come to it in the same order among those of other communicators, with which
/// this one shares its resources.
#[inline]
fn in_order(in_process: &InProcess, call: &Call<'_>) -> Result<()> {
    if call.comm.shared_lock().is_none() {
        return Ok(());
    }
    let peer = call.kind.message().map(|(_, peer)| peer);
    compare_order(in_process, call.comm, call.operation, peer, || call.signature(1).describe())
}

/// The same for a point, to which all ranks come.
pub(crate) fn point_in_order(
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
    Err(in_process.ledger.decide(Verdict::new(rank, peer, expected, got)).error(operation))
}

/// A collective was agreed on.
#[inline]
fn passed(in_process: &InProcess, call: &Call<'_>) -> Result<()> {
    match call.kind.exchange() {
        Some(kind) if call.count > 0 => {
            exchange(in_process, call.comm, kind, call.operation, || call.signature(1).describe())
        }
        _ => Ok(()),
    }
}

/// One that NCCL makes messages of, which come one after another with the others between the same ranks: so between two
/// ranks the same messages must come before it. Either end of another message sees that this one has come before, or is
/// seen here.
pub(super) fn exchange(
    in_process: &InProcess,
    inner: &Inner,
    kind: Exchange,
    operation: &'static str,
    what: impl Fn() -> String,
) -> Result<()> {
    let (ledger, rank) = (&in_process.ledger, inner.rank);
    let history = ledger.history(rank);
    history.exchange(kind);
    fence(Ordering::SeqCst);
    for peer in (0..inner.size).filter(|&peer| peer != rank) {
        for (end, exchanges) in
            [(End::Sender, history.exchanges(rank, peer)), (End::Receiver, history.exchanges(peer, rank))]
        {
            let theirs = ledger.pair(rank, end, peer).waiting(end);
            if let Some(theirs) = theirs.filter(|theirs| theirs.is_before(exchanges)) {
                let got = format!("{} before that", what());
                return Err(ledger.decide(Verdict::new(rank, peer, theirs.describe(rank), got)).error(operation));
            }
        }
    }
    Ok(())
}

/// What counts for the class of a collective: how messages are connected does not depend on their size.
#[inline]
pub(crate) fn bytes(call: &Call<'_>) -> u64 {
    if call.kind.is_exchange() { 0 } else { (call.count * call.element.size()) as u64 }
}

/// Compares a message. Whether it is the first of this rank to this peer, or from it.
#[inline]
fn message(in_process: &InProcess, call: &Call<'_>, end: End, peer: usize) -> Result<bool> {
    let rank = call.comm.rank;
    if peer == rank {
        // Both ends are in this group, which was looked at before.
        return Ok(false);
    }
    let history = in_process.ledger.history(rank);
    let message = message_of(call, history, end, peer);
    match in_process.ledger.message((rank, end), peer, message) {
        Ok(met) if met.first && is_too_late(&in_process.ledger, (rank, end), peer, message.exchanges, met.number) => {
            Err(too_late(in_process, call.comm, peer, Word::new(end, message), call.operation))
        }
        Ok(met) => {
            call.agreed.set(met.number);
            Ok(call.count > 0 && !history.knows_peer(peer, end))
        }
        Err(theirs) => Err(settle_message(in_process, call, peer, theirs, Word::new(end, message))),
    }
}

/// Whether message `number`, to which its rank was the first to come after so many exchanges, comes behind an exchange that the other end
/// has come to without this message. If it has come to the message meanwhile, it has compared that.
#[inline]
pub(super) fn is_too_late(ledger: &Ledger, (rank, end): (usize, End), peer: usize, after: u64, number: u64) -> bool {
    exchanges(ledger.history(peer), (rank, end), peer) > after
        && ledger.pair(rank, end, peer).passed(end.other()) <= number
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
    in_process.ledger.decide(Verdict::new(inner.rank, peer, expected, mine.describe(peer))).error(operation)
}

#[cold]
fn settle_message(in_process: &InProcess, call: &Call<'_>, peer: usize, theirs: Word, mine: Word) -> Error {
    in_process.ledger.settle_message(call.comm.rank, peer, theirs, mine).error(call.operation)
}

#[cold]
pub(super) fn contradicted(
    in_process: &InProcess,
    inner: &Inner,
    operation: &'static str,
    difference: &Difference,
) -> Error {
    match in_process.ledger.settle(difference, || inner.refusal(operation)) {
        Ok(verdict) => verdict.error(operation),
        Err(error) => error,
    }
}

/// The collectives of one communicator in a group.
struct Sequence<'a> {
    inner: &'a Inner,
    in_process: &'a InProcess,
    /// How many there are.
    count: usize,
    /// Where the next may be among the calls.
    at: usize,
    differs: Option<Difference>,
}

impl Sequence<'_> {
    /// Goes on as far as possible. Whether it waits for other ranks then.
    fn advance(&mut self, calls: &[Call<'_>]) -> bool {
        while self.differs.is_none()
            && let Some(call) = calls.get(self.at)
        {
            if is_collective_of(call, self.inner) {
                let signature = call.signature(self.count);
                match self.in_process.ledger.collective(self.inner.rank, &signature) {
                    Turn::Passed(entry) => call.agreed.set(entry),
                    Turn::Wait => return true,
                    Turn::Differs => {
                        self.differs = Some(self.in_process.ledger.differ(self.inner.rank, &signature));
                        return false;
                    }
                }
            }
            self.at += 1;
        }
        false
    }
}

/// Compares the calls of a group on these communicators, whose locks are held.
///
/// Whoever drives several ranks must not wait for one of them as another. So each goes as far as it comes, then the next.
/// Whether there is one that is the first of its kind, so that the ranks have to meet.
///
/// # Errors
/// What ends the clique.
pub(crate) fn group(calls: &[Call<'_>], members: &[&Inner], operation: &'static str) -> Result<bool> {
    expect(calls);
    let mut sequences: SmallVec<[Sequence<'_>; 4]> = SmallVec::new();
    let mut is_checked = false;
    for &inner in members {
        match &inner.in_process {
            Some(in_process) => {
                let count = collectives(calls, inner).count();
                sequences.push(Sequence { inner, in_process, count, at: 0, differs: None });
            }
            None => is_checked |= inner.checked.get().is_some(),
        }
    }
    let told = if is_checked { Some(checked::tell(calls, members)?) } else { None };
    let mut patience = Patience::default();
    loop {
        let (mut waits, mut moved) = (None, false);
        for sequence in &mut sequences {
            let before = sequence.at;
            if sequence.advance(calls) {
                waits = Some(sequence.inner);
            }
            moved |= sequence.at != before;
        }
        let Some(slow) = waits else { break };
        if !moved {
            if sequences.iter().any(|sequence| sequence.differs.is_some()) {
                break;
            }
            patience.wait(operation, members, in_vain(operation), slow, || behind(slow))?;
        }
    }
    for Sequence { inner, in_process, at, differs, .. } in &sequences {
        if let Some(difference) = differs {
            return Err(contradicted(in_process, inner, calls[*at].operation, difference));
        }
    }
    let mut first = false;
    for Sequence { inner, in_process, count, .. } in &sequences {
        let history = in_process.ledger.history(inner.rank);
        let all = collectives(calls, inner).map(bytes).sum();
        first |= inner.size > 1
            && collectives(calls, inner).any(|call| call.count > 0 && !history.knows_class(class(call, *count, all)));
    }
    let in_clique = || calls.iter().filter_map(|call| Some((call, call.comm.in_process.as_ref()?)));
    for (call, in_process) in in_clique().filter(|(call, _)| call.kind.message().is_none()) {
        passed(in_process, call)?;
    }
    for (call, in_process) in in_clique() {
        if let Some((end, peer)) = call.kind.message() {
            first |= message(in_process, call, end, peer)?;
        }
    }
    if let Some(told) = told {
        checked::hear(calls, members, told, operation)?;
    }
    if members.iter().any(|inner| inner.shared_lock().is_some()) {
        group_in_order(calls, members)?;
    }
    Ok(first)
}

/// The calls of a group on communicators that share their resources, in the order in which [`Parts`](super::parts::Parts) makes them.
#[cold]
fn group_in_order(calls: &[Call<'_>], members: &[&Inner]) -> Result<()> {
    let mut members: SmallVec<[&Inner; 4]> = members.into();
    members.sort_unstable_by(|one, other| one.local_ranks.lineage.cmp(&other.local_ranks.lineage));
    for inner in members {
        let Some(in_process) = &inner.in_process else { continue };
        calls.iter().filter(|call| call.comm.id == inner.id).try_for_each(|call| in_order(in_process, call))?;
    }
    Ok(())
}

/// The class of a collective in a group of so many, which move `all` bytes together: NCCL merges them before it chooses how
/// to do them.
pub(crate) fn class(call: &Call<'_>, count: usize, all: u64) -> u64 {
    call.signature(count).class(if call.kind.is_exchange() { 0 } else { all })
}

/// Asks for the cache lines of messages that are about to be compared, all of them before the first is needed.
#[inline]
fn expect(calls: &[Call<'_>]) {
    for call in calls {
        if let (Some(in_process), Some((end, peer))) = (&call.comm.in_process, call.kind.message()) {
            in_process.ledger.expect_message((call.comm.rank, end), peer);
        }
    }
}

/// Whether a rank waits in vain for others to come to what it has issued long ago.
pub(super) fn in_vain(operation: &'static str) -> impl Fn(&Inner) -> Option<Error> {
    move |inner| departure::far_behind(inner, operation)
}

/// Who keeps this rank from its next collective.
pub(super) fn behind(inner: &Inner) -> String {
    let Some(in_process) = &inner.in_process else { return String::new() };
    let behind = in_process.ledger.collectives().behind(inner.rank).map(|rank| in_process.ledger.whereabouts(rank));
    format!("rank {} is hundreds of collectives ahead; {}", inner.rank, pending::list(behind, "; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::ElementKind;
    use crate::nccl::validate::pair::{Manner, Message};

    /// Between the comparison and the look at what the other end has come to, that goes on: with the message, or without it.
    #[test]
    fn who_goes_on_meanwhile_is_not_too_late() {
        let manner = Manner::Plain;
        let message = Message { element: ElementKind::U8.into(), count: 5, window: false, exchanges: 0, manner };
        for end in [End::Sender, End::Receiver] {
            for comes in [true, false] {
                let ledger = Ledger::new(2, None);
                let met = ledger.message((0, end), 1, message).unwrap();
                assert!(met.first && !is_too_late(&ledger, (0, end), 1, 0, met.number));
                if comes {
                    assert!(!ledger.message((1, end.other()), 0, message).unwrap().first);
                }
                ledger.history(1).exchange(Exchange::AllToAll);
                assert_eq!(is_too_late(&ledger, (0, end), 1, 0, met.number), !comes, "{end:?}");
            }
        }
    }
}
