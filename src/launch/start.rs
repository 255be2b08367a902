//! Communicators and contexts of all ranks that a launcher has started.

#[cfg(any(feature = "nccl", feature = "nvshmem"))]
use super::handle::Launch;
#[cfg(feature = "nvshmem")]
use crate::nvshmem::ContextOptions;
#[cfg(feature = "nccl")]
use crate::{
    error::Result,
    nccl::{Communicator, InitOptions},
};

#[cfg(feature = "nccl")]
impl Communicator {
    /// Wraps `ncclCommInitRankConfig`: the communicator of all ranks that a launcher has started, this one on its
    /// [device](Launch::device).
    ///
    /// The id goes over the [exchange](Launch::join) of the launch; where `GPUCOMM_CHECKED` is 1, so does what ranks compare.
    ///
    /// ```
    /// # use gpucomm::{Communicator, Launch};
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = Launch::from_env()?;
    /// // SAFETY: all ranks run this program, and so issue the same operations in the same order.
    /// let comm = unsafe { Communicator::from_launch(&launch)? };
    /// assert_eq!((comm.rank(), comm.size()), (launch.rank(), launch.size()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Launch::join`], [`Launch::device`] and [`init_rank_over`](Self::init_rank_over); among these [`Error::InvalidUsage`](crate::Error::InvalidUsage)
    /// where two ranks have one device: it names both, and what to set.
    ///
    /// # Safety
    /// As [`Communicator::init_rank`].
    #[doc(alias = "ncclCommInitRankConfig")]
    pub unsafe fn from_launch(launch: &Launch) -> Result<Self> {
        let options = InitOptions::new().with_timeout(launch.timeout());
        // SAFETY: the caller promises it.
        unsafe { Self::from_launch_with(launch, &options) }
    }

    /// The same with options, whose timeout counts once the ranks have met.
    ///
    /// ```
    /// # use gpucomm::{Communicator, Launch};
    /// # use gpucomm::nccl::{Config, InitOptions};
    /// # fn main() -> gpucomm::Result<()> {
    /// let options = InitOptions::new().with_config(Config::new().with_max_ctas(8));
    /// let launch = Launch::from_env()?;
    /// // SAFETY: all ranks run this program, and so issue the same operations in the same order.
    /// let comm = unsafe { Communicator::from_launch_with(&launch, &options)? };
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`from_launch`](Self::from_launch).
    ///
    /// # Safety
    /// As [`Communicator::init_rank`].
    pub unsafe fn from_launch_with(launch: &Launch, options: &InitOptions) -> Result<Self> {
        let exchange = launch.join()?;
        let device = launch.find_device()?;
        // SAFETY: the caller promises it.
        unsafe { Self::init_rank_over(device, &exchange, options) }
    }
}

#[cfg(feature = "nvshmem")]
impl ContextOptions {
    /// Ranks that a launcher has started become PEs: as [`with_exchange`](Self::with_exchange),
    /// with [theirs](Launch::join), each on its [device](Launch::device), unless another one [was
    /// named](Self::with_device).
    ///
    /// ```
    /// # use gpucomm::Launch;
    /// # use gpucomm::nvshmem::{Context, ContextOptions};
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = Launch::from_env()?;
    /// // SAFETY: all PEs run this program.
    /// let ctx = unsafe { Context::init(&ContextOptions::new().with_launch(&launch)?)? };
    /// assert_eq!((ctx.pe().0, ctx.n_pes()), (launch.rank(), launch.size()));
    /// ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Launch::join`] and [`Launch::device`].
    pub fn with_launch(self, launch: &Launch) -> crate::error::Result<Self> {
        let exchange = launch.join()?;
        let with_device = if self.has_device() { self } else { self.with_device(launch.find_device()?) };
        Ok(with_device.with_exchange(&exchange))
    }
}
