//! Communicators for other libraries.

use super::communicator::Communicator;
use super::life::give;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::sys;

impl Communicator {
    /// The `ncclComm_t`, which belongs to the caller from now on: who has it uses it, and destroys it (`ncclCommDestroy`), or aborts it.
    /// [`Communicator::from_raw`] is the other way round, and [`Communicator::as_raw`] lends it.
    ///
    /// It waits until the work of this rank is done, no longer than [`Communicator::timeout`]. To this crate the communicator is closed then:
    /// aborters do nothing, other ranks of a [`Clique`](super::Clique) that wait for this one are told that it has left, and an abort of
    /// those does not end it. What was split off from it goes on by itself, and may be closed before it and after. Give all ranks away
    /// that one process has, or none: NCCL frees them together.
    ///
    /// ```
    /// # use gpucomm::{Clique, Communicator, Device, InPlace, ReduceOp, Stream, sys};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let comm = Clique::init_all(&[Device::new(0)?])?.into_ranks().pop().expect("one rank");
    /// // Another library has it, and gives it back.
    /// let raw: sys::ncclComm_t = comm.into_raw()?;
    /// // SAFETY: it was not destroyed, nothing is registered with it, and nobody else uses it.
    /// let comm = unsafe { Communicator::from_raw(raw)? };
    /// let stream = Stream::new(comm.device())?;
    /// let mut x = comm.alloc_from(&stream, &[1f32; 1000])?;
    /// comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](crate::Error::InvalidUsage) where memory is registered with it, as a window or otherwise: that of what was dropped is
    /// taken away by [`Communicator::reclaim`], what was forgotten never is; where it [shares its resources](super::Config::split_share); and
    /// within a host function. [`Timeout`](crate::Error::Timeout) where its work is not done; why it has failed or was aborted. It is
    /// dropped then, and so closed or aborted.
    pub fn into_raw(self) -> Result<sys::ncclComm_t> {
        let deadline = Deadline::after(self.timeout());
        give::give("Communicator::into_raw", self.inner(), &deadline).map(|handle| handle.raw())
    }
}
