//! Starts by several ids.

use super::communicator::Communicator;
use super::life::init;
use super::setup::init_options::InitOptions;
use super::setup::unique_id::UniqueId;
use crate::cuda::Device;
use crate::error::Result;

impl Communicator {
    /// Wraps `ncclCommInitRankScalable`: rank `rank` of `size`, by several ids. The process that has made an id answers the ranks that come
    /// by it, so where there are thousands of ranks, several of them answer at the same time. Needs NCCL 2.23.4.
    ///
    /// There is one id at least, and at most one a rank, each once. All ranks pass the same, in the same order; who has made one lives until
    /// the communicator exists.
    ///
    /// ```no_run
    /// # fn tell_all<T>(mine: Option<T>) -> Vec<T> { mine.into_iter().collect() }
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (rank, size) = (0, 1024);
    /// use gpucomm::nccl::InitOptions;
    /// use gpucomm::{Communicator, Device, UniqueId};
    ///
    /// // Every 64th rank makes an id, and all get all of them.
    /// let mine = (rank % 64 == 0).then(UniqueId::new).transpose()?;
    /// let ids: Vec<UniqueId> = tell_all(mine);
    /// // SAFETY: all ranks run this program.
    /// let comm = unsafe {
    ///     Communicator::init_rank_scalable(Device::new(0)?, size, &ids, rank, &InitOptions::default())?
    /// };
    /// # drop(comm);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::init_rank`]; [`InvalidArgument`](crate::Error::InvalidArgument) for too few ids, too many, or one twice, and where
    /// `NCCL_COMM_ID` is set, with which NCCL takes the first id on one rank, and all on others.
    ///
    /// # Safety
    /// As [`Communicator::init_rank`].
    pub unsafe fn init_rank_scalable(
        device: Device,
        size: usize,
        ids: &[UniqueId],
        rank: usize,
        options: &InitOptions,
    ) -> Result<Self> {
        let inner = init::one_of_many("Communicator::init_rank_scalable", device, size, ids, rank, options);
        inner.map(Self::from_inner)
    }
}
