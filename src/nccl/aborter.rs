//! Aborting from another thread.

use std::sync::{Arc, Weak};

use super::flight::dump;
use super::lifecycle::abort::{AbortOutcome, GRACE, abort};
use super::lifecycle::root_cause;
use super::rank::inner::Inner;
use super::rank::state::CommState;
use crate::deadline::Deadline;
use crate::error::{Cause, Error};

/// Aborts a communicator from any thread; see [`Communicator::aborter`](super::Communicator::aborter).
///
/// It does not keep the communicator alive. However many aborters there are, the communicator is aborted once.
///
/// ```
/// # use gpucomm::{Clique, Device};
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// let aborter = clique.rank(0).aborter();
/// // Another thread watches, and may end what hangs.
/// let watch = std::thread::spawn(move || {
///     assert!(aborter.is_active());
///     aborter.abort("the user is tired of waiting")
/// });
/// let outcome = watch.join().expect("no panic");
/// println!("{outcome:?}");
/// assert!(!clique.rank(0).is_active());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Aborter {
    inner: Weak<Inner>,
}

impl Aborter {
    pub(crate) fn new(inner: &Arc<Inner>) -> Self {
        Self { inner: Arc::downgrade(inner) }
    }

    /// What the rank waits for now, in words, if that is known. Never waits itself.
    pub(crate) fn waits(&self) -> Option<String> {
        self.inner().and_then(|inner| dump::waits(&inner))
    }

    pub(super) fn inner(&self) -> Option<Arc<Inner>> {
        self.inner.upgrade()
    }

    /// Wraps `ncclCommAbort`: stops all operations of this rank, wherever they are, and those of all other ranks of the communicator
    /// that live in this process, in a clique or not, and what was [split](super::Communicator::split) off from it; with
    /// [`Config::with_split_share`](super::Config::with_split_share) also what it was split off from, and all that was split off from that.
    ///
    /// Work that is on the device ends without its result, its stream goes on, and waits for that stream, and for what was
    /// to be written, return [`Error::Aborted`] with `reason`. What had ended before counts as failed, too, unless somebody
    /// has waited for it: the device is not asked. Calls on the communicators return the error as well, those in which other
    /// threads wait at this moment included.
    ///
    /// **Ranks of other processes are not told**, and nothing that they can ask tells them. A kernel of NCCL that is stopped goes on as
    /// if it were done, so those that wait for it on other devices complete on what it has not sent: there a wait may say `Ok` over wrong
    /// data. Abort them as well, and have no process use results of operations that were under way when another one aborted; see
    /// [failures](super#failures).
    ///
    /// Waits until all are gone, for at most ten seconds: NCCL then frees memory, which waits for its devices. Where another
    /// communicator's operation runs there and waits for what this thread has yet to issue, that is [`AbortOutcome::StillRunning`], and the
    /// end comes later; within a host function of a stream not at all. With windows and
    /// NCCL 2.28.7 to 2.29.6 it takes twice as long, for what those would lose of their memory; before, they lose it. So it does for
    /// communicators that share their resources, or have registered memory, with NCCL 2.28.7 and later; before, those that share may not
    /// come to their end.
    ///
    /// A thread that is inside NCCL is waited for. One that has not left after five seconds, because it waits for a peer there, is woken,
    /// with NCCL 2.28.7 and later. Where that is not possible, or comes too early because the call was slow and begins to wait after it,
    /// the answer is [`AbortOutcome::StillRunning`]: that call returns when its peer comes, or never.
    ///
    /// ```
    /// # use gpucomm::nccl::AbortOutcome;
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let outcome = clique.rank(0).aborter().abort("a test");
    /// assert_eq!(outcome, AbortOutcome::Done);
    /// // All ranks of this process have ended with it.
    /// assert!(clique.ranks().iter().all(|rank| !rank.is_active()));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclCommAbort")]
    pub fn abort(&self, reason: &str) -> AbortOutcome {
        match self.inner.upgrade() {
            Some(inner) => {
                let cause = Error::Aborted { operation: "abort", reason: Cause::from(reason).of_rank(inner.rank) };
                root_cause::begin(&cause);
                abort(&inner.clique_ranks(), &cause, &Deadline::after(GRACE))
            }
            None => AbortOutcome::Already,
        }
    }

    /// How the communicator stands, as [`Communicator::state`](super::Communicator::state) says; `None` once nothing of it is left.
    ///
    /// ```
    /// # use gpucomm::nccl::CommState;
    /// # use gpucomm::{Clique, Device};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// let aborter = clique.rank(0).aborter();
    /// assert_eq!(aborter.state(), Some(CommState::Active));
    /// clique.abort("it is over");
    /// assert!(matches!(aborter.state(), None | Some(CommState::Aborted)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn state(&self) -> Option<CommState> {
        self.inner.upgrade().map(|inner| inner.state())
    }

    /// Whether calls on the communicator are still possible.
    pub fn is_active(&self) -> bool {
        self.inner.upgrade().is_some_and(|inner| inner.is_active())
    }
}
