//! How communicators end.

use std::sync::Arc;
use std::time::Duration;

use super::communicator::Communicator;
use super::lifecycle::abort::{AbortOutcome, GRACE, abort_after};
use super::lifecycle::{close, drop};
use super::rank::inner::Inner;
use crate::deadline::Deadline;
use crate::error::{Cause, Error, Result};

impl Communicator {
    /// Wraps `ncclCommAbort`: see [`Aborter::abort`](super::Aborter::abort).
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// for comm in clique.into_ranks() {
    ///     println!("{:?}", comm.abort("there is something better to do"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommAbort")]
    pub fn abort(self, reason: &str) -> AbortOutcome {
        self.aborter().abort(reason)
    }

    /// Wraps `ncclCommFinalize` and `ncclCommDestroy`: waits for all work of this rank, and for NCCL to free it, but no longer than
    /// [`Communicator::timeout`].
    ///
    /// NCCL frees the ranks of a process together, when the last of them ends, and then waits for everything on their devices. Where other
    /// communicators are active there, such as the one that this was split off from, a rank waits up to 100 ms for the others of its
    /// process to come here as well, and no longer than a second for NCCL, which goes on by itself: what holds it up may wait for this
    /// rank. Where others share its resources ([`Config::with_split_share`](super::Config::with_split_share)), NCCL frees it with the last of them,
    /// which is not waited for.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// std::thread::scope(|scope| {
    ///     // The ranks of a process end together.
    ///     let ranks: Vec<_> =
    ///         clique.into_ranks().into_iter().map(|comm| scope.spawn(|| comm.close())).collect();
    ///     ranks.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] where a [`Graph`](crate::Graph) with operations of it lives, or is being captured; [`Error::Timeout`] where that takes longer; [`Error::Aborted`] where it has ended before; why its work has failed; what
    /// NCCL says. The communicator is gone in any case: where it could not
    /// be closed it is aborted, and what may still write into memory is waited for as in a drop, two seconds to ten.
    #[doc(alias("ncclCommFinalize", "ncclCommDestroy"))]
    pub fn close(self) -> Result<()> {
        let timeout = self.timeout();
        self.close_timeout(timeout)
    }

    /// As [`Communicator::close`], with the given timeout.
    ///
    /// ```
    /// # use gpucomm::{Communicator, Device, UniqueId};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// // SAFETY: there is no other rank.
    /// let comm = unsafe { Communicator::init_rank(Device::new(0)?, 1, &UniqueId::new()?, 0)? };
    /// comm.close_timeout(Duration::from_secs(10))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn close_timeout(self, timeout: Duration) -> Result<()> {
        close_members(&[self], timeout)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        drop_members(std::slice::from_ref(self));
        // One that lives still, in a host function, goes on to compare.
        let inner = self.inner();
        if let (Some(checked), false) = (inner.validation.over_exchange(), inner.is_active() || inner.is_suspended()) {
            let how = inner.cause().map_or_else(|| "it was closed".to_owned(), ToString::to_string);
            checked.let_go(how, inner.time_to_end());
        }
    }
}

/// The cause of an end that a failure elsewhere brings.
pub(crate) fn aborted(reason: impl Into<Cause>) -> Error {
    Error::Aborted { operation: "abort", reason: reason.into() }
}

pub(super) fn inners<'a>(members: impl IntoIterator<Item = &'a Communicator>) -> Vec<Arc<Inner>> {
    members.into_iter().map(|member| Arc::clone(member.inner())).collect()
}

/// How long several `members` wait together: as long as the one that waits least.
pub(super) fn timeout_of(members: &[Communicator]) -> Duration {
    members.iter().map(Communicator::timeout).min().unwrap_or_default()
}

/// Closes the communicators of `members`. Where that fails, they are aborted, and all ranks of this process with them; that
/// is not waited for.
pub(crate) fn close_members<'a>(members: impl IntoIterator<Item = &'a Communicator>, timeout: Duration) -> Result<()> {
    let members = inners(members);
    close::close_or_abort(&members, &Deadline::after(timeout))
}

/// What dropping `members` does.
pub(crate) fn drop_members<'a>(members: impl IntoIterator<Item = &'a Communicator>) {
    drop::drop_all(&inners(members));
}

/// Ends the communicators of `members` and `others`, because of `reason`. The caller has `waited` in vain before.
pub(crate) fn abort_members(
    members: &[Communicator],
    others: Vec<Arc<Inner>>,
    reason: Cause,
    waited: Duration,
) -> AbortOutcome {
    let mut all = inners(members);
    all.extend(others);
    abort_after(waited, &all, &aborted(reason), &Deadline::after(GRACE))
}
