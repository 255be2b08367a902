//! Locks communicators for a call, and waits within its deadline for a thread that has the lock.

use super::explanation;
use crate::cuda;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nccl::rank::gate::{Locked, LockedAll};
use crate::nccl::rank::guarded::Guarded;
use crate::nccl::rank::inner::Inner;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

impl Inner {
    /// The lock and the handle, for one operation; the handle is live during a visit only, see [`Inner::inside`].
    #[inline]
    pub(crate) fn begin_call(&self, operation: &'static str) -> Result<(Locked<'_, Guarded>, sys::ncclComm_t)> {
        let guard = match self.try_lock() {
            Some(guard) => guard,
            None => self.wait_for_lock(operation)?,
        };
        if !self.is_active() {
            return Err(self.dead(operation));
        }
        Ok((guard, self.handle().raw()))
    }

    /// Enters beside those that this thread has locked already, whose locks come before this one, or are the same.
    #[inline]
    pub(crate) fn begin_call_with<'a>(
        &'a self,
        others: &mut LockedAll<'a, Guarded>,
        operation: &'static str,
    ) -> Result<()> {
        if self.join(others) {
            return if self.is_active() { Ok(()) } else { Err(self.dead(operation)) };
        }
        others.add(self.begin_call(operation)?.0);
        Ok(())
    }

    /// The lock, as long as the communicator is active or, unless it `was_active` before, was revoked and has stopped: for
    /// who makes others of it.
    pub(crate) fn begin_call_to_divide(
        &self,
        operation: &'static str,
        was_active: bool,
    ) -> Result<Locked<'_, Guarded>> {
        let deadline = SharedDeadline::within(self.timeout());
        let locked = deadline.until(|| {
            let ended = if was_active { self.refusal(operation) } else { self.ended_error(operation) };
            ended.or_else(|| self.suspended_error(operation)).map_or(Ok(()), Err)?;
            // What stops it has no lock, and a call that is being stopped may have it.
            let still = self.is_active() || self.has_stopped();
            Ok(self.try_lock().filter(|_| still))
        })?;
        locked.ok_or_else(|| busy(self, operation, &deadline))
    }

    /// The lock, as long as the communicator is suspended.
    #[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
    fn begin_call_to_resume(&self, operation: &'static str) -> Result<Locked<'_, Guarded>> {
        let deadline = SharedDeadline::within(self.timeout());
        let locked = deadline.until(|| {
            self.not_suspended_error(operation).map_or(Ok(()), Err)?;
            Ok(self.try_lock().filter(|_| self.is_suspended()))
        })?;
        locked.ok_or_else(|| busy(self, operation, &deadline))
    }

    /// As [`Inner::begin_call`], without a wait. Returns `None` if another thread has the lock, or the communicator has ended.
    pub(crate) fn try_begin_call(&self) -> Option<(Locked<'_, Guarded>, sys::ncclComm_t)> {
        self.try_lock().filter(|_| self.is_active()).map(|guard| (guard, self.handle().raw()))
    }

    /// The lock, whatever the state.
    pub(crate) fn lock_within(&self, deadline: &Deadline) -> Option<Locked<'_, Guarded>> {
        deadline.until(|| Ok(self.try_lock())).ok().flatten()
    }

    /// The lock, as long as the communicator is active.
    #[cold]
    fn wait_for_lock(&self, operation: &'static str) -> Result<Locked<'_, Guarded>> {
        let deadline = SharedDeadline::within(self.timeout());
        let locked = deadline.until(|| match self.try_lock() {
            None => self.refusal(operation).map_or(Ok(None), Err),
            locked => Ok(locked),
        })?;
        locked.ok_or_else(|| busy(self, operation, &deadline))
    }
}

/// The lock and the handle of each of several communicators.
pub(crate) type LockedRanks<'a> = Vec<(Locked<'a, Guarded>, sys::ncclComm_t)>;

/// Begins a call on all of `members`, ranks of one communicator, in the one order that all threads have, so that two of them cannot wait for each other's locks: the ranks of a
/// clique that was split off may be in another one.
pub(crate) fn begin_calls<'a>(members: &[&'a Inner], operation: &'static str) -> Result<LockedRanks<'a>> {
    in_order(members, |inner| inner.begin_call(operation))
}

/// The same where they may have been revoked, unless they `were_active` before: for who makes others of them.
pub(crate) fn begin_calls_to_divide<'a>(
    members: &[&'a Inner],
    operation: &'static str,
    were_active: bool,
) -> Result<Vec<Locked<'a, Guarded>>> {
    in_order(members, |inner| inner.begin_call_to_divide(operation, were_active))
}

/// The same, where they are suspended.
#[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
pub(crate) fn begin_calls_to_resume<'a>(
    members: &[&'a Inner],
    operation: &'static str,
) -> Result<Vec<Locked<'a, Guarded>>> {
    in_order(members, |inner| inner.begin_call_to_resume(operation))
}

fn in_order<'a, R>(members: &[&'a Inner], begin: impl Fn(&'a Inner) -> Result<R>) -> Result<Vec<R>> {
    let mut order: Vec<_> = (0..members.len()).collect();
    order.sort_unstable_by_key(|&at| members[at].order);
    let mut locked: Vec<_> = members.iter().map(|_| None).collect();
    for at in order {
        locked[at] = Some(begin(members[at])?);
    }
    Ok(locked.into_iter().flatten().collect())
}

/// Begins a visit to each of `members`, or none. The caller holds their locks, and ends the visits.
pub(crate) fn begin_visits<'a>(
    members: impl Iterator<Item = &'a Inner> + Clone,
    operation: &'static str,
) -> Result<()> {
    for (begun, inner) in members.clone().enumerate() {
        if let Err(error) = inner.begin_visit(operation) {
            members.take(begun).for_each(Inner::end_visit);
            return Err(error);
        }
    }
    Ok(())
}

/// Another thread has not left `inner` before the deadline.
#[cold]
pub(crate) fn busy(inner: &Inner, operation: &'static str, deadline: &Deadline) -> Error {
    if cuda::is_gate_shut(inner.device) {
        let device = inner.device;
        let detail =
            format!("NCCL frees another communicator on {device}, and may wait for its ranks in other processes");
        return deadline.error(operation, detail).waited_by(inner.rank);
    }
    let last = explanation::came_last(inner).map(|told| format!("; {told}")).unwrap_or_default();
    let shares = if inner.shared_lock().is_some() { ", or on one that shares its resources" } else { "" };
    let (rank, name) = (inner.rank, &inner.name);
    let detail = format!("another thread is inside a call on rank {rank} of communicator {name}{shares}{last}");
    deadline.error(operation, detail).waited_by(inner.rank)
}

#[cfg(all(test, gpucomm_emulator))]
#[path = "begin_call_tests.rs"]
mod tests;
