//! Validates calls of a checked communicator, whose ranks live in several processes: they compare
//! over an exchange before they launch.
//!
//! A thread that drives several ranks or communicators first says what all of them are about to do,
//! and then waits for the others.

use std::time::Duration;

use smallvec::SmallVec;

use super::messages::{self, collectives, message_of};
use crate::error::{Error, Result};
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::recent::Record;
use crate::nccl::validate::connects::Connects;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::history;
use crate::nccl::validate::over_exchange::round::{Round, RoundState};
use crate::nccl::validate::over_exchange::this_rank::OverExchange;
use crate::nccl::validate::pair::End;
use crate::nccl::validate::signature::{Numbers, Signature};
use crate::nccl::validate::validator::Validator;
use crate::nccl::wait::needed;
use crate::nccl::wait::patience::Patience;

/// How long a rank waits for others before it looks whether its communicator has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A communicator that has come to a round.
pub(super) type Announced<'a> = (&'a Inner, &'a OverExchange, Round);

impl Validator for OverExchange {
    #[cold]
    fn before_launch(&self, call: &Call<'_>) -> Result<Connects, Failure> {
        one(call, self).map(|()| Connects::Nothing).map_err(Failure::Fatal)
    }

    fn before_point(&self, inner: &Inner, operation: &'static str, signature: &Signature) -> Result<Option<u64>> {
        let round = self.announce(vec![*signature], Vec::new(), inner.timeout())?;
        wait(&[inner], (inner, self, round), operation).map(Some)
    }

    fn on_departure(&self, inner: &Inner, _end: &mut dyn FnMut(&Inner, &Error)) {
        inner.validation.over_exchange().into_iter().for_each(|this| this.leave(inner.time_to_end()));
    }

    fn departure_error(&self, inner: &Inner, done: u64, last: u64) -> Option<Error> {
        self.death(|rank| needed::on_device(inner, rank, done, last))
    }

    /// What the other ranks do is not known here.
    fn explain(
        &self,
        _inner: &Inner,
        _records: &[Record],
        _range: &dyn Fn() -> String,
        _absent: &[usize],
    ) -> Option<String> {
        None
    }
}

/// Compares a call that is in no group.
fn one(call: &Call<'_>, checked: &OverExchange) -> Result<()> {
    let inner = call.comm;
    if call.kind.message().is_some() {
        return message(call, checked);
    }
    let told = signature(call, 1);
    let exchanges = call.kind.exchange().filter(|_| call.count > 0).map(|kind| (kind, told.describe()));
    let round = checked.announce(vec![told], exchanges.into_iter().collect(), inner.timeout())?;
    call.agreed.set(wait(&[inner], (inner, checked, round), call.operation)?);
    Ok(())
}

/// What the ranks compare of a collective, in numbers that all processes have in common.
fn signature(call: &Call<'_>, group: usize) -> Signature {
    #[cfg(nccl_ge_2_31)]
    if let Some(config) = call.config {
        return call.signature(group).configured(config.digest());
    }
    call.signature(group)
}

/// Says what a group holds of these communicators, as far as they are checked.
pub(super) fn announce<'a>(calls: &[Call<'_>], members: &[&'a Inner]) -> Result<SmallVec<[Announced<'a>; 4]>> {
    let mut all = SmallVec::new();
    for &inner in members {
        let Some(checked) = inner.validation.over_exchange() else { continue };
        let count = collectives(calls, inner).count();
        if count == 0 {
            continue;
        }
        let told = collectives(calls, inner).map(|call| signature(call, count)).collect();
        let exchanges = collectives(calls, inner).filter(|call| call.count > 0);
        let exchanges = exchanges.filter_map(|call| Some((call.kind.exchange()?, signature(call, count).describe())));
        all.push((inner, &**checked, checked.announce(told, exchanges.collect(), inner.timeout())?));
    }
    Ok(all)
}

/// Waits for the other ranks of these communicators, which have said what a group holds, and
/// compares its messages.
pub(super) fn collect(
    calls: &[Call<'_>],
    members: &[&Inner],
    all: SmallVec<[Announced<'_>; 4]>,
    operation: &'static str,
) -> Result<()> {
    for one in all {
        let inner = one.0;
        let first = wait(members, one, operation)?;
        collectives(calls, inner).zip(first..).for_each(|(call, number)| call.agreed.set(number));
    }
    for call in calls.iter().filter(|call| call.kind.message().is_some()) {
        if let Some(checked) = call.comm.validation.over_exchange() {
            message(call, checked)?;
        }
    }
    Ok(())
}

/// The same of a launch of a graph, in which these collectives are messages to NCCL; waited for by
/// [`wait`].
pub(super) fn announce_replay<'a>(
    inner: &'a Inner,
    signature: &Signature,
    exchanges: &[history::Exchange],
) -> Result<Option<Announced<'a>>> {
    let Some(checked) = inner.validation.over_exchange() else { return Ok(None) };
    let what = || format!("{}, all_to_all, gather or scatter among them,", signature.describe());
    let exchanges = exchanges.iter().map(|kind| (*kind, what())).collect();
    Ok(Some((inner, checked, checked.announce(vec![*signature], exchanges, inner.timeout())?)))
}

/// Waits until all have come to a round. The locks of `members` are held, which an abort gets, as
/// this then waits no longer.
pub(super) fn wait(members: &[&Inner], (inner, checked, round): Announced<'_>, operation: &'static str) -> Result<u64> {
    let mut patience = Patience::default();
    loop {
        match checked.collect_round(operation, &round, LOOK)? {
            RoundState::Agreed(number) => {
                inner.issued.compares_no_more();
                return Ok(number);
            }
            RoundState::Missing(missing) => {
                patience.look(operation, members, |_| None, inner, || checked.absent(&round, &missing))?;
            }
        }
    }
}

/// Compares a message.
fn message(call: &Call<'_>, checked: &OverExchange) -> Result<()> {
    let (rank, Some((end, peer))) = (call.comm.rank, call.kind.message()) else { return Ok(()) };
    if peer == rank {
        // Both ends are in this group, which was looked at before.
        return Ok(());
    }
    let message = message_of(call, checked.history(), end, peer);
    call.agreed.set(checked.message(call.operation, (end, peer), message, call.comm.timeout())?);
    Ok(())
}

/// Compares that a graph is launched that has these messages between a rank and a peer.
pub(super) fn launched(
    inner: &Inner,
    operation: &'static str,
    (peer, end, numbers): &(usize, End, Numbers),
) -> Result<()> {
    let Some(checked) = inner.validation.over_exchange().filter(|_| *peer != inner.rank) else { return Ok(()) };
    let message = messages::launched(checked.history(), (inner.rank, *end), *peer, numbers);
    checked.message(operation, (*end, *peer), message, inner.timeout()).map(drop)
}
