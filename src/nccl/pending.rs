//! Communicators that are being started.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::communicator::Communicator;
use super::lifecycle::abort::start_abort;
use super::lifecycle::start::{self, Starting};
use super::rank::inner::Inner;
use super::raw::outside::outside_of_host_functions;
use super::setup::environment;
use super::setup::init_options::InitOptions;
use super::setup::unique_id::UniqueId;
use crate::cuda::{Ask, Device, Done};
use crate::deadline::Deadline;
use crate::error::{Cause, Error, Result};
use crate::lock::{Mutex, MutexGuard};

const OPERATION: &str = "Communicator::begin_rank";

/// A rank whose start has begun, and goes on by itself: it can be asked how it stands, waited for, awaited, or given up.
///
/// It ends at the deadline that began with it, the timeout of its [`InitOptions`]. Several may be under way at the same time: a rank of several communicators begins
/// them all, and no rank waits in one of them for another that waits in the next.
///
/// Dropping it gives the start up, and waits for nothing. NCCL cannot be brought back from a start that blocks: its thread stays until the
/// other ranks have come, or for ever, and aborts what it then has. They see a rank that is aborted.
///
/// # Why not `blocking = 0`
/// NCCL has communicators whose calls return before they are done (`ncclConfig_t.blocking = 0`), which is how a start is asked for its progress there.
/// That goes for all later calls as well: each operation is handed to a thread, and the caller asks until it has been enqueued. On H200s an
/// operation took 69 µs in place of 8, and nothing that comes after it on the stream may be enqueued before. A communicator that is split off
/// from such a one to block costs 2 to 3 µs for each operation, and 198 MiB of the device. So this crate makes communicators that block, on a
/// thread of their own: the start, the split and the end are what takes long, and each of them has a deadline. Calls that wait for the first
/// connection to a peer wait within [`Communicator::timeout`], and are woken by an abort.
///
/// # Examples
/// ```
/// # use gpucomm::nccl::InitOptions;
/// # use gpucomm::{Communicator, Device, UniqueId};
/// # use std::time::Duration;
/// # fn main() -> gpucomm::Result<()> {
/// # let (rank, size, ids) = (0, 1, [UniqueId::new()?, UniqueId::new()?]);
/// # let load_weights = || {};
/// let options = InitOptions::new().with_timeout(Duration::from_secs(60));
/// let device = Device::new(0)?;
/// // SAFETY: all ranks run this program, and so issue the same operations.
/// let begin = |id| unsafe { Communicator::begin_rank(device, size, id, rank, &options) };
/// let (world, side) = (begin(&ids[0])?, begin(&ids[1])?);
/// // Meanwhile there is something else to do.
/// load_weights();
/// if !world.is_ready() {
///     println!("still waiting for other ranks");
/// }
/// let (world, side) = (world.wait()?, side.wait()?);
/// assert_eq!((world.size(), side.rank()), (size, rank));
/// # Ok(())
/// # }
/// ```
///
/// Awaited, by any executor:
/// ```
/// # use gpucomm::nccl::InitOptions;
/// # use gpucomm::{Communicator, Device, Result, UniqueId};
/// async fn start(device: Device, size: usize, id: &UniqueId, rank: usize) -> Result<Communicator> {
///     // SAFETY: all ranks run this program, and so issue the same operations.
///     unsafe { Communicator::begin_rank(device, size, id, rank, &InitOptions::default())? }.await
/// }
/// # use std::task::{Context, Poll, Waker};
/// # fn main() -> Result<()> {
/// # let id = UniqueId::new()?;
/// # let mut future = std::pin::pin!(start(Device::new(0)?, 1, &id, 0));
/// # let comm = loop {
/// #     if let Poll::Ready(comm) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
/// #         break comm?;
/// #     }
/// # };
/// # assert_eq!(comm.size(), 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropped, it is given up"]
pub struct PendingCommunicator {
    progress: Arc<Progress>,
    done: Done,
}

impl fmt::Debug for PendingCommunicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCommunicator").field("is_ready", &self.is_ready()).finish_non_exhaustive()
    }
}

/// How a start stands.
#[derive(Debug)]
struct Progress(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    GoesOn(Box<Starting>),
    Over(Result<Arc<Inner>>),
    /// The answer was given.
    Told,
}

/// The start, for the thread that looks after futures.
#[derive(Debug)]
struct Asked(Arc<Progress>);

impl Ask for Asked {
    fn ask(&mut self) -> Option<Result<()>> {
        self.0.is_over().then_some(Ok(()))
    }
}

impl Progress {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock()
    }

    /// Never waits.
    fn is_over(&self) -> bool {
        let mut stage = self.stage();
        if let Stage::GoesOn(start) = &mut *stage
            && let Some(end) = start.ask()
        {
            *stage = Stage::Over(the_one(end));
        }
        !matches!(*stage, Stage::GoesOn(_))
    }

    fn take(&self) -> Stage {
        std::mem::replace(&mut *self.stage(), Stage::Told)
    }
}

/// What became of the one rank that was started.
fn the_one(end: Result<Vec<Arc<Inner>>>) -> Result<Arc<Inner>> {
    end?.into_iter().next().ok_or_else(|| start::nothing(OPERATION))
}

impl Communicator {
    /// Wraps `ncclCommInitRankConfig`: as [`Communicator::init_rank_with`], and does not wait for the other ranks: what it returns does.
    ///
    /// # Errors
    /// As [`Communicator::init_rank`], but for what comes of the other ranks, which [`PendingCommunicator::wait`] tells.
    ///
    /// # Examples
    /// Where one thread has several ranks, which wait for each other; see [`PendingCommunicator`].
    /// ```
    /// # use gpucomm::nccl::InitOptions;
    /// # use gpucomm::{Communicator, Device, UniqueId};
    /// # fn main() -> gpucomm::Result<()> {
    /// let (devices, id, options) = (Device::all()?, UniqueId::new()?, InitOptions::default());
    /// let all = devices.iter().enumerate();
    /// // SAFETY: these are all ranks, and they issue nothing.
    /// let begin = |(rank, device): (usize, &Device)| unsafe { Communicator::begin_rank(*device, devices.len(), &id, rank, &options) };
    /// let starts = all.map(begin).collect::<gpucomm::Result<Vec<_>>>()?;
    /// let comms = starts.into_iter().map(|start| start.wait()).collect::<gpucomm::Result<Vec<_>>>()?;
    /// assert_eq!(comms.len(), devices.len());
    /// # gpucomm::nccl::close_all(comms);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// As [`Communicator::init_rank`].
    #[doc(alias = "ncclCommInitRankConfig")]
    pub unsafe fn begin_rank(
        device: Device,
        size: usize,
        id: &UniqueId,
        rank: usize,
        options: &InitOptions,
    ) -> Result<PendingCommunicator> {
        environment::cannot_check(OPERATION)?;
        let start = start::begin_rank(OPERATION, device, size, vec![*id], rank, options, None)?;
        let progress = Arc::new(Progress(Mutex::new(Stage::GoesOn(Box::new(start)))));
        let done = Done::of(Ok(Asked(Arc::clone(&progress))));
        Ok(PendingCommunicator { progress, done })
    }
}

impl PendingCommunicator {
    /// Whether the start has come to an end, well or not: [`PendingCommunicator::wait`] does not wait any more then.
    pub fn is_ready(&self) -> bool {
        self.progress.is_over()
    }

    /// Waits for the other ranks as [`wait`](Self::wait) does, but no longer than `timeout`. Returns itself if the start goes on.
    ///
    /// ```
    /// # use gpucomm::nccl::InitOptions;
    /// # use gpucomm::{Communicator, Device, UniqueId};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let id = UniqueId::new()?;
    /// // The other rank never comes.
    /// // SAFETY: there is nobody to issue anything.
    /// let pending = unsafe { Communicator::begin_rank(Device::new(0)?, 2, &id, 0, &InitOptions::default())? };
    /// let pending = pending.wait_timeout(Duration::from_millis(50)).expect_err("the start goes on");
    /// // There is something better to do.
    /// drop(pending);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Itself, while the start goes on; within, the errors of [`wait`](Self::wait).
    pub fn wait_timeout(self, timeout: Duration) -> Result<Result<Communicator>, Self> {
        if !Deadline::after(timeout).wait(|| self.is_ready()) {
            return Err(self);
        }
        Ok(self.end(|start| the_one(start.wait())))
    }

    /// Waits for the other ranks, until the deadline that began with the start.
    ///
    /// # Errors
    /// As [`Communicator::init_rank`]. Within a host function, which must not wait for ranks, the start is given up.
    ///
    /// # Examples
    /// See [`PendingCommunicator`].
    pub fn wait(self) -> Result<Communicator> {
        outside_of_host_functions("PendingCommunicator::wait")?;
        self.end(|start| the_one(start.wait()))
    }

    /// What has come of it, or comes of it by `wait`.
    fn end(&self, wait: impl FnOnce(Starting) -> Result<Arc<Inner>>) -> Result<Communicator> {
        let end = match self.progress.take() {
            Stage::GoesOn(start) => wait(*start),
            Stage::Over(end) => end,
            Stage::Told => {
                let reason = "what came of this start was told already".to_owned();
                Err(Error::InvalidUsage { operation: OPERATION, reason })
            }
        };
        end.map(Communicator::from_inner)
    }
}

impl Future for PendingCommunicator {
    type Output = Result<Communicator>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.done).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => Poll::Ready(self.end(|start| the_one(start.wait()))),
        }
    }
}

impl Drop for PendingCommunicator {
    fn drop(&mut self) {
        if let Stage::Over(Ok(inner)) = self.progress.take() {
            let reason = format!("rank {} was given up before it was used", inner.rank);
            start_abort(
                slice::from_ref(&inner),
                &Error::Aborted { operation: "drop", reason: Cause::from(reason).of_rank(inner.rank) },
            );
        }
    }
}
