//! Validates the calls of a group, whose communicators may have different validators.
//!
//! The collectives of a group come before its messages, as they do in NCCL. This includes
//! collectives that NCCL makes messages of.

use smallvec::SmallVec;

use super::messages::{collectives, is_collective_of};
use super::of_checked;
use super::of_clique::{behind, bytes, contradicted, far_behind, in_order, message, passed};
use crate::error::Result;
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::validate::ballot::Difference;
use crate::nccl::validate::connects::Connects;
use crate::nccl::validate::in_process::InProcess;
use crate::nccl::validate::sequence::Turn;
use crate::nccl::validate::signature::Signature;
use crate::nccl::wait::patience::Patience;

/// The collectives of one communicator in a group.
struct Progress<'a> {
    inner: &'a Inner,
    in_process: &'a InProcess,
    /// How many there are, and the bytes that they move together.
    count: usize,
    bytes: u64,
    /// Where the next may be among the calls.
    at: usize,
    /// Whether NCCL connects ranks for one of them.
    connects: bool,
    differs: Option<Difference>,
}

impl<'a> Progress<'a> {
    fn new(calls: &[Call<'_>], inner: &'a Inner, in_process: &'a InProcess) -> Self {
        let mut progress = Self { inner, in_process, count: 0, bytes: 0, at: 0, connects: false, differs: None };
        for call in collectives(calls, inner) {
            progress.count += 1;
            progress.bytes += bytes(call);
        }
        progress
    }

    /// Whether NCCL connects ranks for a collective.
    fn is_first(&self, call: &Call<'_>, signature: &Signature) -> bool {
        let history = self.in_process.signatures.history(self.inner.rank);
        let class = || signature.class(if call.kind.is_exchange() { 0 } else { self.bytes });
        call.count > 0 && self.inner.size > 1 && !history.knows_class(class())
    }

    /// Goes on as far as possible. Whether it waits for other ranks then.
    fn advance(&mut self, calls: &[Call<'_>]) -> bool {
        while self.differs.is_none()
            && let Some(call) = calls.get(self.at)
        {
            if is_collective_of(call, self.inner) {
                let signature = call.signature(self.count);
                match self.in_process.signatures.collective(self.inner.rank, &signature) {
                    Turn::Passed(entry) => {
                        call.agreed.set(entry);
                        self.connects |= self.is_first(call, &signature);
                    }
                    Turn::Wait => return true,
                    Turn::Differs => {
                        self.differs = Some(self.in_process.signatures.differ(self.inner.rank, &signature));
                        return false;
                    }
                }
            }
            self.at += 1;
        }
        false
    }
}

/// Validates the calls of a group on these communicators, whose locks are held.
///
/// A thread that drives several ranks must not wait in one of them for another. So each rank goes
/// on as far as it can, then the next.
///
/// # Errors
/// Any error ends the clique.
pub(crate) fn before_group(calls: &[Call<'_>], members: &[&Inner], operation: &'static str) -> Result<Connects> {
    if !members.iter().any(|inner| inner.validation.compares()) {
        return Ok(Connects::Nothing);
    }
    expect(calls);
    let mut sequences: SmallVec<[Progress<'_>; 4]> = SmallVec::new();
    let mut is_checked = false;
    for &inner in members {
        match inner.validation.in_process() {
            Some(in_process) => sequences.push(Progress::new(calls, inner, in_process)),
            None => is_checked |= inner.validation.over_exchange().is_some(),
        }
    }
    let announced = if is_checked { Some(of_checked::announce(calls, members)?) } else { None };
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
            patience.wait(operation, members, far_behind(operation), slow, || behind(slow))?;
        }
    }
    for Progress { inner, in_process, at, differs, .. } in &sequences {
        if let Some(difference) = differs {
            return Err(contradicted(in_process, inner, calls[*at].operation, difference));
        }
    }
    let mut first = sequences.iter().any(|sequence| sequence.connects);
    let in_clique = || calls.iter().filter_map(|call| Some((call, call.comm.validation.in_process()?)));
    for (call, in_process) in in_clique().filter(|(call, _)| call.kind.message().is_none()) {
        passed(in_process, call)?;
    }
    for (call, in_process) in in_clique() {
        if let Some((end, peer)) = call.kind.message() {
            first |= message(in_process, call, end, peer)? == Connects::Ranks;
        }
    }
    if let Some(announced) = announced {
        of_checked::collect(calls, members, announced, operation)?;
    }
    if members.iter().any(|inner| inner.shared_lock().is_some()) {
        group_in_order(calls, members)?;
    }
    Ok(Connects::if_first(first))
}

/// The calls of a group on communicators that share their resources, in the order in which
/// [`Parts`](crate::nccl::enqueue::group_parts::Parts) makes them.
#[cold]
fn group_in_order(calls: &[Call<'_>], members: &[&Inner]) -> Result<()> {
    let mut members: SmallVec<[&Inner; 4]> = members.into();
    members.sort_unstable_by(|one, other| one.local_ranks.lineage.cmp(&other.local_ranks.lineage));
    for inner in members {
        let Some(in_process) = inner.validation.in_process() else { continue };
        calls.iter().filter(|call| call.comm.id == inner.id).try_for_each(|call| in_order(in_process, call))?;
    }
    Ok(())
}

/// Requests the cache lines of all messages that are about to be compared, before the first is
/// needed.
#[inline]
fn expect(calls: &[Call<'_>]) {
    for call in calls {
        if let (Some(in_process), Some((end, peer))) = (call.comm.validation.in_process(), call.kind.message()) {
            in_process.signatures.expect_message((call.comm.rank, end), peer);
        }
    }
}
