//! Taking windows and registrations away at points that all ranks reach in the same order: where they allocate or register together, and
//! where they reclaim.
//!
//! At such a point ranks that compare show each other which windows they have dropped, and take those away that all of them have. Across
//! processes no rank sees the others elsewise, and takes away what it has dropped itself: it was promised that they drop alike. Uses of the memory
//! are waited for before, outside of all locks.

use std::sync::Arc;

use crate::cuda::Worker;
use crate::error::Result;
use crate::nccl::enqueue::connect::Promised;
use crate::nccl::enqueue::{connect, point};
use crate::nccl::lifecycle::{reclaim, release, timeouts};
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::windows::Dropped;
use crate::nccl::validate::signature::Signature;
use crate::nccl::wait::begin_call::LockedRanks;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// A rank on its way to a point, and what was dropped that it has in hand.
pub(crate) struct Member<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    /// Bytes of the window that it makes there, which the other ranks are told.
    pub(crate) bytes: usize,
    dropped: Vec<Dropped>,
}

impl<'a> Member<'a> {
    fn new(inner: &'a Arc<Inner>) -> Self {
        Self { inner, bytes: 0, dropped: inner.windows.take_dropped() }
    }

    /// Whether nothing uses the memory in hand.
    fn is_idle(&mut self) -> Result<bool> {
        if !self.dropped.is_empty() && !self.has_put()? {
            return Ok(false);
        }
        for dropped in &mut self.dropped {
            if !dropped.memory.is_idle()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether no put of this rank is on its way to windows of others; where ranks do not compare, nor one to its own, as far as this rank
    /// waits for it.
    fn has_put(&self) -> Result<bool> {
        let one_sided = &self.inner.one_sided;
        Ok(one_sided.has_given()? && (self.inner.validation.compares() || one_sided.has_waited()?))
    }

    /// The numbers of those in hand that nothing uses, now that nobody else is at the communicator. Memory that was registered may be in
    /// use again: nobody had its buffer taken away.
    fn idle(&mut self) -> Vec<u64> {
        if !matches!(self.has_put(), Ok(true)) {
            return Vec::new();
        }
        let idle = |dropped: &mut Dropped| matches!(dropped.memory.is_idle(), Ok(true)).then_some(dropped.number);
        self.dropped.iter_mut().filter_map(idle).collect()
    }

    /// Wraps `ncclCommWindowDeregister` and `ncclCommDeregister` for those in hand whose numbers are given.
    fn retire(&mut self, handle: sys::ncclComm_t, numbers: &[u64]) -> Result<()> {
        for dropped in std::mem::take(&mut self.dropped) {
            if !numbers.contains(&dropped.number) {
                self.dropped.push(dropped);
                continue;
            }
            let taken_away = self.inner.inside(release::deregister_function(dropped.handle), || {
                // SAFETY: a live communicator, during a visit, and something of it that is deregistered once: it is in hand, and
                // nothing uses it.
                unsafe { release::deregister(handle, dropped.handle) };
                self.inner.windows.remove(&dropped);
            });
            if let Err(error) = taken_away {
                self.dropped.push(dropped);
                return Err(error);
            }
            reclaim::reclaim(dropped.memory.when_idle(), self.inner);
        }
        Ok(())
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        for dropped in self.dropped.drain(..) {
            if let Some(memory) = self.inner.windows.put_back(dropped) {
                reclaim::reclaim(memory, self.inner);
            }
        }
    }
}

/// Waits until `is_idle`: until `what` is over that uses memory of `inner`.
pub(super) fn wait_until_idle(
    inner: &Arc<Inner>,
    operation: &'static str,
    what: &str,
    mut is_idle: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let detail = || format!("{} waits for {what}", inner.in_words());
    let look = || inner.look_around(0, inner.recent.last());
    SharedDeadline::within(inner.timeout())
        .poll_and_look(operation, detail, look, || match is_idle()? {
            true => Ok(true),
            false => inner.refusal(operation).map_or(Ok(false), Err),
        })
        .inspect_err(|error| timeouts::note_wait(inner, error))
}

/// `members` on their way to a point, once nothing uses what they have dropped before.
pub(crate) fn approach<'a>(members: &[&'a Arc<Inner>], operation: &'static str) -> Result<Vec<Member<'a>>> {
    let mut members: Vec<_> = members.iter().map(|inner| Member::new(inner)).collect();
    for member in &mut members {
        let what = "uses of memory that was dropped";
        wait_until_idle(member.inner, operation, what, || member.is_idle())?;
    }
    Ok(members)
}

/// Comes to the next point with all other ranks, and takes away the windows that all have dropped. The numbers of this point in the
/// sequence of collectives, where ranks compare; and the promise that all may do together in NCCL what comes there. `signature` is what
/// a member compares, by its place among them.
///
/// # Errors
/// Where the ranks do not come, or come to another point: the communicator cannot be used any more then.
pub(crate) fn meet<'a>(
    members: &mut [Member<'a>],
    locked: &mut LockedRanks<'_>,
    operation: &'static str,
    signature: impl Fn(usize) -> Signature,
) -> Result<(Vec<Option<u64>>, Promised<'a>)> {
    let mut promised = Promised::default();
    let mut entries = Vec::with_capacity(members.len());
    for (at, (member, (guard, _))) in members.iter_mut().zip(locked.iter_mut()).enumerate() {
        let inner = member.inner;
        guard.points += 1;
        let bytes = member.bytes;
        inner.validation.show_point(inner.rank, guard.points, || member.idle(), bytes);
        entries.push(point::come(inner, guard, operation, &signature(at))?);
        inner.validation.see_point(operation, guard.points)?;
    }
    if let Some(Some(entry)) = entries.first() {
        let inners: Vec<&'a Inner> = members.iter().map(|member| member.inner).map(|inner| &**inner).collect();
        promised = connect::meet_at(*entry, &inners, operation)?;
    }
    for (member, (guard, handle)) in members.iter_mut().zip(locked.iter()) {
        let numbers = match member.inner.validation.points() {
            Some(points) => points.common(guard.points),
            // What this rank did with it on this communicator since it was seen to be idle, others would have to do as well, before.
            None => member.dropped.iter().map(|dropped| dropped.number).collect(),
        };
        member.retire(*handle, &numbers)?;
    }
    Ok((entries, promised))
}
