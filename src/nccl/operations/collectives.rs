//! Collectives: operations that all ranks take part in.

use crate::cuda::{AsSlice, AsSliceMut, Stream};
use crate::element::{Element, Reduce};
use crate::error::Result;
use crate::nccl::calls::buffers::{Buffer, Everywhere, Rooted};
use crate::nccl::calls::call::Calls;
use crate::nccl::calls::io::{AsFromRoot, AsSendRecv, AsToRoot};
use crate::nccl::calls::site::Site;
use crate::nccl::calls::{personal, prepare};
use crate::nccl::communicator::Communicator;
use crate::nccl::enqueue::submit;
use crate::nccl::reduce_op::ReduceOp;

/// Operations. Each is enqueued on a stream and returns at once; its result is there when the stream has come to it.
/// Buffers may be used again, and dropped, as soon as the call returned: whatever is done to them comes after it on the
/// device.
///
/// Faster from a thread whose current device is that of the communicator, see [`Device::set_current`](crate::Device::set_current):
/// NCCL switches to it and back otherwise. [`Clique::spmd`](crate::Clique::spmd) makes it current.
///
/// # Errors
/// [`InvalidArgument`](crate::Error::InvalidArgument) where a buffer is too short or a stream or buffer belongs to another
/// device or communicator, or a rank or root does not exist: nothing was submitted then.
/// [`Disagreement`](crate::Error::Disagreement) where the ranks of a clique do not issue the same operation.
/// [`Aborted`](crate::Error::Aborted) after an abort. [`Timeout`](crate::Error::Timeout) where too many operations are
/// on their way, or a peer does not come to the first one.
impl Communicator {
    /// Wraps `ncclAllReduce`: reduces the elements of all ranks, position by position, and gives every rank the result.
    ///
    /// Out of place, `send` has `n` elements and `recv` at least as many; in place, the buffer has `n`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut gradients = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32; 1000])?;
    /// comm.all_reduce(InPlace(&mut gradients), ReduceOp::Avg, &stream)?;
    /// assert_eq!(gradients.to_vec(&stream)?, [(comm.size() - 1) as f32 / 2.0; 1000]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn all_reduce<'a, T: Reduce>(
        &'a self,
        io: impl AsSendRecv<'a, T>,
        op: ReduceOp<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_reduce", self.inner(), stream)?;
        submit::prepared(prepare::all_reduce(site, Everywhere::from(io.into()), op.reduction()))
    }

    /// Wraps `ncclReduce`: reduces the elements of all ranks, position by position, and gives the result to `root`.
    ///
    /// `send` has `n` elements; at the root, `recv` has at least as many. In place, the buffer has `n`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, ReduceOp, SendOnly, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let losses = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0])?;
    /// if comm.rank() == 0 {
    ///     let mut sums = DeviceBuffer::<f32>::zeroed(&stream, 2)?;
    ///     comm.reduce((&losses, &mut sums), ReduceOp::Sum, 0, &stream)?;
    ///     assert_eq!(sums.to_vec(&stream)?, [comm.size() as f32, 2.0 * comm.size() as f32]);
    /// } else {
    ///     comm.reduce(SendOnly(&losses), ReduceOp::Sum, 0, &stream)?;
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reduce<'a, T: Reduce>(
        &'a self,
        io: impl AsToRoot<'a, T>,
        op: ReduceOp<'a, T>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("reduce", self.inner(), stream)?;
        submit::prepared(prepare::reduce(site, Rooted::from(io.into()), op.reduction(), root))
    }

    /// Wraps `ncclBroadcast`: gives every rank the elements of `root`.
    ///
    /// `recv` has `n` elements on every rank; out of place, `send` has as many at the root. In place, the buffer has `n`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut weights = DeviceBuffer::<f32>::zeroed(&stream, 100)?;
    /// if comm.rank() == 0 {
    ///     weights.fill(&stream, 0.5)?;
    /// }
    /// comm.broadcast(InPlace(&mut weights), 0, &stream)?;
    /// assert_eq!(weights.to_vec(&stream)?, [0.5; 100]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast<'a, T: Element>(
        &'a self,
        io: impl AsFromRoot<'a, T>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("broadcast", self.inner(), stream)?;
        submit::prepared(prepare::broadcast(site, Rooted::from(io.into()), root))
    }

    /// Wraps `ncclAllGather`: gives every rank the elements of all, one rank's after the other's.
    ///
    /// Out of place, `send` has `n` elements and `recv` at least `n * size`. In place, the buffer has `n * size` elements,
    /// and this rank's part begins at `n * rank`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as u32; 2])?;
    /// let mut all = DeviceBuffer::<u32>::zeroed(&stream, 2 * comm.size())?;
    /// comm.all_gather((&own, &mut all), &stream)?;
    /// let expected: Vec<_> = (0..comm.size() as u32).flat_map(|rank| [rank; 2]).collect();
    /// assert_eq!(all.to_vec(&stream)?, expected);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_gather<'a, T: Element>(&'a self, io: impl AsSendRecv<'a, T>, stream: &'a Stream) -> Result<()> {
        let site = Site::new("all_gather", self.inner(), stream)?;
        submit::prepared(prepare::all_gather(site, Everywhere::from(io.into())))
    }

    /// Wraps `ncclReduceScatter`: reduces the elements of all ranks and gives each rank its part of the result.
    ///
    /// Out of place, `send` has `n * size` elements and `recv` at least `n`. In place, the buffer has `n * size` elements,
    /// the result is written at `n * rank`, and the rest is unspecified afterwards.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // As many gradients as ranks: each rank gets the sum of those that it looks after.
    /// let gradients: Vec<_> = (0..comm.size()).map(|at| at as f32).collect();
    /// let gradients = DeviceBuffer::from_slice(&stream, &gradients)?;
    /// let mut own = DeviceBuffer::<f32>::zeroed(&stream, 1)?;
    /// comm.reduce_scatter((&gradients, &mut own), ReduceOp::Sum, &stream)?;
    /// assert_eq!(own.to_vec(&stream)?, [(comm.rank() * comm.size()) as f32]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reduce_scatter<'a, T: Reduce>(
        &'a self,
        io: impl AsSendRecv<'a, T>,
        op: ReduceOp<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("reduce_scatter", self.inner(), stream)?;
        submit::prepared(prepare::reduce_scatter(site, Everywhere::from(io.into()), op.reduction()))
    }

    /// Wraps `ncclAlltoAll`: sends part `r` of `send` to rank `r`, and receives what rank `r` sent into part `r` of `recv`. Before NCCL 2.28, a
    /// group of `ncclSend` and `ncclRecv`.
    ///
    /// `send` has `n * size` elements, `recv` at least as many.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // Tokens for experts: one for each rank.
    /// let tokens: Vec<_> = (0..comm.size() as u32).map(|to| 100 * comm.rank() as u32 + to).collect();
    /// let send = DeviceBuffer::from_slice(&stream, &tokens)?;
    /// let mut recv = DeviceBuffer::<u32>::zeroed(&stream, comm.size())?;
    /// comm.all_to_all(&send, &mut recv, &stream)?;
    /// let expected: Vec<_> = (0..comm.size() as u32).map(|from| 100 * from + comm.rank() as u32).collect();
    /// assert_eq!(recv.to_vec(&stream)?, expected);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_to_all<'a, T: Element>(
        &'a self,
        send: impl AsSlice<'a, T>,
        recv: impl AsSliceMut<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_to_all", self.inner(), stream)?;
        let mut calls = Calls::new();
        personal::all_to_all(site, Buffer::from(send.into()), Buffer::from(recv.into()), &mut calls)?;
        submit::all(&calls)
    }

    /// Wraps `ncclGather`: gives `root` the elements of all ranks, one rank's after the other's. Before NCCL 2.28, a group of `ncclSend` and
    /// `ncclRecv`.
    ///
    /// `send` has `n` elements; at the root, `recv` has at least `n * size`. In place at the root, the buffer has `n * size`
    /// elements, and the root's own part is at `n * root` already.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, SendOnly, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as u32])?;
    /// if comm.rank() == 0 {
    ///     let mut all = DeviceBuffer::<u32>::zeroed(&stream, comm.size())?;
    ///     comm.gather((&own, &mut all), 0, &stream)?;
    ///     assert_eq!(all.to_vec(&stream)?, (0..comm.size() as u32).collect::<Vec<_>>());
    /// } else {
    ///     comm.gather(SendOnly(&own), 0, &stream)?;
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn gather<'a, T: Element>(&'a self, io: impl AsToRoot<'a, T>, root: usize, stream: &'a Stream) -> Result<()> {
        let site = Site::new("gather", self.inner(), stream)?;
        let mut calls = Calls::new();
        personal::gather(site, Rooted::from(io.into()), root, &mut calls)?;
        submit::all(&calls)
    }

    /// Wraps `ncclScatter`: gives each rank its part of the elements of `root`. Before NCCL 2.28, a group of `ncclSend` and `ncclRecv`.
    ///
    /// `recv` has `n` elements; at the root, `send` has at least `n * size`. In place at the root, the buffer has
    /// `n * size` elements, and the root's own part stays at `n * root`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, RecvOnly, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut own = DeviceBuffer::<u32>::zeroed(&stream, 1)?;
    /// if comm.rank() == 0 {
    ///     let all = DeviceBuffer::from_slice(&stream, &(0..comm.size() as u32).collect::<Vec<_>>())?;
    ///     comm.scatter((&all, &mut own), 0, &stream)?;
    /// } else {
    ///     comm.scatter(RecvOnly(&mut own), 0, &stream)?;
    /// }
    /// assert_eq!(own.to_vec(&stream)?, [comm.rank() as u32]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scatter<'a, T: Element>(
        &'a self,
        io: impl AsFromRoot<'a, T>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("scatter", self.inner(), stream)?;
        let mut calls = Calls::new();
        personal::scatter(site, Rooted::from(io.into()), root, &mut calls)?;
        submit::all(&calls)
    }
}
