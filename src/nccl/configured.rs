//! Collectives with a configuration of the call.

use super::calls::call::{Call, Calls};
use super::calls::call_config::CallConfig;
use super::calls::site::Site;
use super::communicator::Communicator;
use super::enqueue::submit;
use super::group::Group;
use crate::cuda::Stream;
use crate::error::Result;

/// A communicator whose next collective has a configuration of its own: [`Communicator::configured`], [`Group::configured`].
#[derive(Debug)]
#[must_use = "nothing is done before a collective is called"]
pub struct Configured<'c, 'a> {
    comm: &'a Communicator,
    config: &'a CallConfig,
    /// Where it is recorded; made at once where that is nowhere.
    group: Option<&'c mut Calls<'a>>,
}

impl Communicator {
    /// The collectives of this communicator, with a configuration of the call; see [`CallConfig`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, Stream, group, nccl::CallConfig};
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::nccl::version()? < gpucomm::version::Version::new(2, 31, 2) { return Ok(()) }
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = &Stream::new(comm.device())?;
    /// # let mut x = DeviceBuffer::from_slice(stream, &[1u8; 8])?;
    /// let few = CallConfig::new().with_max_ctas(2);
    /// comm.configured(&few).broadcast(InPlace(&mut x), 0, stream)?;
    /// # stream.synchronize()
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn configured<'a>(&'a self, config: &'a CallConfig) -> Configured<'a, 'a> {
        Configured { comm: self, config, group: None }
    }
}

impl<'a> Group<'a> {
    /// Records a collective with a configuration of the call; see [`CallConfig`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, Stream, group, nccl::CallConfig};
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::nccl::version()? < gpucomm::version::Version::new(2, 31, 2) { return Ok(()) }
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = &Stream::new(comm.device())?;
    /// # let mut x = DeviceBuffer::from_slice(stream, &[1u8; 8])?;
    /// let few = CallConfig::new().with_max_ctas(2);
    /// group(|g| g.configured(comm, &few).broadcast(InPlace(&mut x), 0, stream))?;
    /// # stream.synchronize()
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn configured<'c>(&'c mut self, comm: &'a Communicator, config: &'a CallConfig) -> Configured<'c, 'a> {
        Configured { comm, config, group: Some(self.calls()) }
    }
}

impl<'a> Configured<'_, 'a> {
    pub(super) fn site(&self, operation: &'static str, stream: &'a Stream) -> Result<Site<'a>> {
        self.config.check(operation)?;
        self.config.check_policy(operation, self.comm.inner().local_ranks.is_deterministic())?;
        Site::new(operation, self.comm.inner(), stream)
    }

    pub(super) fn submit(self, mut call: Call<'a>) -> Result<()> {
        call.config = Some(self.config);
        match self.group {
            None => submit::one(&call),
            Some(calls) => {
                calls.push(call);
                Ok(())
            }
        }
    }

    /// Submits what is one call if NCCL has a function for it, as every NCCL that knows configurations has.
    pub(super) fn submit_only(self, mut calls: Calls<'a>) -> Result<()> {
        calls.pop().map_or(Ok(()), |call| self.submit(call))
    }
}
