//! Collectives with a configuration of the call.

use super::calls::buffers::{Buffer, Everywhere, Rooted};
use super::calls::call::{Call, Calls};
use super::calls::call_config::CallConfig;
use super::calls::io::{AsFromRoot, AsSendRecv, AsToRoot};
use super::calls::site::Site;
use super::calls::{personal, prepare};
use super::communicator::Communicator;
use super::enqueue::submit;
use super::group::Group;
use super::reduce_op::ReduceOp;
use crate::cuda::{AsSlice, AsSliceMut, Stream};
use crate::element::{Element, Reduce};
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
    /// let few = CallConfig::new().max_ctas(2);
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
    /// let few = CallConfig::new().max_ctas(2);
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

/// Collectives: those of [`Communicator`].
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::nccl::CallConfig;
/// use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream, group};
///
/// # if gpucomm::nccl::version()? < gpucomm::version::Version::new(2, 31, 2) { return Ok(()) }
/// let few = CallConfig::new().max_ctas(2);
/// let clique = Clique::init_all(&Device::all()?)?;
/// clique.spmd(|comm| {
///     let stream = &Stream::new(comm.device())?;
///     let n = comm.size();
///     let (mut one, mut all) = (DeviceBuffer::from_slice(stream, &[1u32; 8])?, DeviceBuffer::zeroed(stream, 8 * n)?);
///     comm.configured(&few).broadcast(InPlace(&mut one), 0, stream)?;
///     comm.configured(&few).reduce(InPlace(&mut one), ReduceOp::Max, 0, stream)?;
///     comm.configured(&few).all_gather((&one, &mut all), stream)?;
///     comm.configured(&few).reduce_scatter((&all, &mut one), ReduceOp::Min, stream)?;
///     comm.configured(&few).gather((&one, &mut all), 0, stream)?;
///     comm.configured(&few).scatter((&all, &mut one), 0, stream)?;
///     let mut other = DeviceBuffer::zeroed(stream, 8 * n)?;
///     group(|g| {
///         g.configured(comm, &few).all_to_all(&all, &mut other, stream)?;
///         g.configured(comm, &few).all_reduce(InPlace(&mut one), ReduceOp::Sum, stream)
///     })?;
///     assert_eq!(one.to_vec(stream)?, [n as u32; 8]);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As there; [`Unsupported`](crate::Error::Unsupported) where the running NCCL is older than 2.31.2, and
/// [`InvalidArgument`](crate::Error::InvalidArgument) for what it would not take in a configuration: nothing was submitted then.
impl<'a> Configured<'_, 'a> {
    fn site(&self, operation: &'static str, stream: &'a Stream) -> Result<Site<'a>> {
        self.config.check(operation)?;
        self.config.check_policy(operation, self.comm.inner().local_ranks.is_deterministic())?;
        Site::new(operation, self.comm.inner(), stream)
    }

    fn submit(self, mut call: Call<'a>) -> Result<()> {
        call.config = Some(self.config);
        match self.group {
            None => submit::one(&call),
            Some(calls) => {
                calls.push(call);
                Ok(())
            }
        }
    }

    /// Wraps `ncclAllReduceConfig`: as [`Communicator::all_reduce`].
    pub fn all_reduce<T: Reduce>(
        self,
        io: impl AsSendRecv<'a, T>,
        op: ReduceOp<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = self.site("all_reduce", stream)?;
        self.submit(prepare::all_reduce(site, Everywhere::from(io.into()), op.reduction())?)
    }

    /// Wraps `ncclReduceConfig`: as [`Communicator::reduce`].
    pub fn reduce<T: Reduce>(
        self,
        io: impl AsToRoot<'a, T>,
        op: ReduceOp<'a, T>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = self.site("reduce", stream)?;
        self.submit(prepare::reduce(site, Rooted::from(io.into()), op.reduction(), root)?)
    }

    /// Wraps `ncclBroadcastConfig`: as [`Communicator::broadcast`].
    pub fn broadcast<T: Element>(self, io: impl AsFromRoot<'a, T>, root: usize, stream: &'a Stream) -> Result<()> {
        let site = self.site("broadcast", stream)?;
        self.submit(prepare::broadcast(site, Rooted::from(io.into()), root)?)
    }

    /// Wraps `ncclAllGatherConfig`: as [`Communicator::all_gather`].
    pub fn all_gather<T: Element>(self, io: impl AsSendRecv<'a, T>, stream: &'a Stream) -> Result<()> {
        let site = self.site("all_gather", stream)?;
        self.submit(prepare::all_gather(site, Everywhere::from(io.into()))?)
    }

    /// Wraps `ncclReduceScatterConfig`: as [`Communicator::reduce_scatter`].
    pub fn reduce_scatter<T: Reduce>(
        self,
        io: impl AsSendRecv<'a, T>,
        op: ReduceOp<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = self.site("reduce_scatter", stream)?;
        self.submit(prepare::reduce_scatter(site, Everywhere::from(io.into()), op.reduction())?)
    }

    /// Wraps `ncclAlltoAllConfig`: as [`Communicator::all_to_all`].
    pub fn all_to_all<T: Element>(
        self,
        send: impl AsSlice<'a, T>,
        recv: impl AsSliceMut<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = self.site("all_to_all", stream)?;
        let mut calls = Calls::new();
        personal::all_to_all(site, Buffer::from(send.into()), Buffer::from(recv.into()), &mut calls)?;
        self.submit_only(calls)
    }

    /// Wraps `ncclGatherConfig`: as [`Communicator::gather`].
    pub fn gather<T: Element>(self, io: impl AsToRoot<'a, T>, root: usize, stream: &'a Stream) -> Result<()> {
        let site = self.site("gather", stream)?;
        let mut calls = Calls::new();
        personal::gather(site, Rooted::from(io.into()), root, &mut calls)?;
        self.submit_only(calls)
    }

    /// Wraps `ncclScatterConfig`: as [`Communicator::scatter`].
    pub fn scatter<T: Element>(self, io: impl AsFromRoot<'a, T>, root: usize, stream: &'a Stream) -> Result<()> {
        let site = self.site("scatter", stream)?;
        let mut calls = Calls::new();
        personal::scatter(site, Rooted::from(io.into()), root, &mut calls)?;
        self.submit_only(calls)
    }

    /// Submits what is one call where NCCL has a function for it, as it has where there are configurations.
    fn submit_only(self, mut calls: Calls<'a>) -> Result<()> {
        calls.pop().map_or(Ok(()), |call| self.submit(call))
    }
}
