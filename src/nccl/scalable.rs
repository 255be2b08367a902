//! Starts by several ids.

use super::communicator::Communicator;
use super::lifecycle::start;
use super::setup::environment;
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
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::nccl::InitOptions;
    /// use gpucomm::{Communicator, Device, UniqueId};
    ///
    /// # let devices = Device::all()?;
    /// let size = devices.len();
    /// // Some ranks make one each, and all get all of them.
    /// let ids = (0..size.div_ceil(2)).map(|_| UniqueId::new()).collect::<gpucomm::Result<Vec<_>>>()?;
    /// std::thread::scope(|scope| {
    ///     for (rank, device) in devices.iter().enumerate() {
    ///         let ids = &ids;
    ///         scope.spawn(move || {
    ///             // SAFETY: all ranks do the same.
    ///             let comm = unsafe {
    ///                 Communicator::init_rank_scalable(*device, size, ids, rank, &InitOptions::default())
    ///             };
    ///             assert_eq!(comm.unwrap().rank(), rank);
    ///         });
    ///     }
    /// });
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
    #[doc(alias = "ncclCommInitRankScalable")]
    pub unsafe fn init_rank_scalable(
        device: Device,
        size: usize,
        ids: &[UniqueId],
        rank: usize,
        options: &InitOptions,
    ) -> Result<Self> {
        environment::cannot_check("Communicator::init_rank_scalable")?;
        let inner = start::one_of_many("Communicator::init_rank_scalable", device, size, ids, rank, options);
        inner.map(Self::from_inner)
    }
}
