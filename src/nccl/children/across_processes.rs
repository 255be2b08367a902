//! Has the ranks of a checked communicator, which live in several processes, meet before other
//! communicators are made of it, or it is resumed.

use std::time::Duration;

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::enqueue::connect::Promised;
use crate::nccl::rank::inner::Inner;
use crate::nccl::validate::failure::Failure;
use crate::nccl::validate::over_exchange::regroups::Progress;
use crate::nccl::validate::over_exchange::round::RoundState;
use crate::nccl::validate::over_exchange::this_rank::OverExchange;
use crate::nccl::validate::regroup::{Place, Plan};
use crate::nccl::validate::signature::Signature;
use crate::nccl::wait::comparison::Comparison;
use crate::shared_deadline::SharedDeadline;

/// How long one look into the store takes.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until all ranks have come that `plan` needs. Returns those that go on, with what they ask
/// for. A revoke ends the wait if the communicator was active when the call began.
///
/// # Errors
/// [`Failure::Retryable`] if this rank gives up and no other relies on it.
pub(super) fn meet<'a>(
    operation: &'static str,
    inner: &'a Inner,
    checked: &OverExchange,
    (plan, place): (&Plan, &Place),
    was_active: bool,
    promised: &mut Promised<'a>,
) -> Result<Vec<(usize, Place)>, Failure> {
    let deadline = SharedDeadline::within(inner.timeout());
    let over = || if was_active { inner.refusal(operation) } else { inner.ended_error(operation) };
    let party = match plan.signature() {
        Some(signature) => {
            round(operation, inner, checked, signature, &over, &deadline).map_err(|error| match error {
                // A revoke leaves the communicator as it is here. The others may rely on this rank.
                Error::Revoked { .. } => {
                    inner.validation.announce_end(inner.rank, &error);
                    Failure::Retryable(error)
                }
                error => error.into(),
            })?
        }
        None => {
            // A rank that is not ready does not let the others rely on it. A revoke that comes later waits until this rank has
            // entered NCCL, or has withdrawn: otherwise the others would wait for it there.
            promise(operation, inner, promised, &deadline).map_err(Failure::late_to_divide)?;
            return outside_of_sequence(operation, inner, checked, (plan, place), &over, &deadline)
                .inspect(|_| inner.issued.compares_no_more());
        }
    };
    promise(operation, inner, promised, &deadline)?;
    inner.issued.compares_no_more();
    Ok(party)
}

/// Waits for the others among the collectives, for a resume or a grow.
fn round(
    operation: &'static str,
    inner: &Inner,
    checked: &OverExchange,
    signature: Signature,
    over: &dyn Fn() -> Option<Error>,
    deadline: &Deadline,
) -> Result<Vec<(usize, Place)>> {
    let round = checked.announce(vec![signature], Vec::new(), inner.timeout())?;
    let mut comparison = Comparison::default();
    loop {
        let missing = match checked.collect_round(operation, &round, LOOK)? {
            RoundState::Agreed(_) => return Ok(Vec::new()),
            RoundState::Missing(missing) => missing,
        };
        let absent = || checked.absent(&round, &missing);
        comparison.waits(inner, absent);
        if let Some(error) = over() {
            return Err(error);
        }
        if deadline.expired() {
            return Err(comparison.failed(deadline.error(operation, absent()).waited_by(inner.rank)));
        }
    }
}

/// Waits for the others outside of the sequence of collectives. A store that is slow to answer may
/// have carried out the request. So a rank that has come trusts only the values in the store, until
/// it has withdrawn.
fn outside_of_sequence(
    operation: &'static str,
    inner: &Inner,
    checked: &OverExchange,
    (plan, place): (&Plan, &Place),
    over: &dyn Fn() -> Option<Error>,
    deadline: &Deadline,
) -> Result<Vec<(usize, Place)>, Failure> {
    let mut arrival = checked.arrive(plan, place.clone());
    let mut comparison = Comparison::default();
    loop {
        match checked.poll(operation, &mut arrival, inner.is_active(), LOOK) {
            Ok(Progress::Go(party)) => return Ok(party),
            Ok(Progress::Wait) => {}
            // The store may answer at once.
            Err(Error::Timeout { .. }) => std::thread::sleep(LOOK),
            Err(error) => return Err(error.into()),
        }
        let absent = || match arrival.awaited().missing() {
            [] => format!("{}: all have come to {}, and the store does not answer", inner.in_words(), plan.describe()),
            _ => format!("{}: {}", inner.in_words(), arrival.awaited().describe(plan)),
        };
        comparison.waits(inner, absent);
        let late = || deadline.error(operation, absent()).waited_by(inner.rank);
        let Some(error) = over().or_else(|| deadline.expired().then(late)) else { continue };
        return match checked.withdraw(operation, &arrival) {
            Ok(Some(party)) => Ok(party),
            Ok(None) => Err(Failure::late_to_divide(comparison.failed(error))),
            // Nobody knows whether the others go on with this one.
            Err(Error::Timeout { .. }) => Err(Failure::Fatal(comparison.failed(error))),
            Err(ended) => Err(ended.into()),
        };
    }
}

/// Promises visits to `inner`. Waits while it is being stopped by a revoke.
fn promise<'a>(
    operation: &'static str,
    inner: &'a Inner,
    promised: &mut Promised<'a>,
    deadline: &Deadline,
) -> Result<()> {
    let had = deadline.until(|| match inner.promise_division() {
        true => Ok(Some(())),
        false => inner.ended_error(operation).map_or(Ok(None), Err),
    })?;
    had.ok_or_else(|| {
        deadline.error(operation, format!("{} is still being stopped", inner.in_words())).waited_by(inner.rank)
    })?;
    promised.add(inner);
    Ok(())
}
