//! The operations of a communicator.

use super::calls::io::{AsFromRoot, AsSendRecv, AsToRoot, Layout};
use super::calls::prepare;
use super::calls::site::Site;
use super::calls::{personal, variable};
use super::communicator::Communicator;
use super::enqueue::submit;
use super::enqueue::submit::Calls;
use super::reduce_op::ReduceOp;
use crate::cuda::{AsSlice, AsSliceMut, Stream};
use crate::element::{Element, Reduce};
use crate::error::Result;

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
        submit::one(&prepare::all_reduce(site, io.into(), op.reduction())?)
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
        submit::one(&prepare::reduce(site, io.into(), op.reduction(), root)?)
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
        submit::one(&prepare::broadcast(site, io.into(), root)?)
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
        submit::one(&prepare::all_gather(site, io.into())?)
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
        submit::one(&prepare::reduce_scatter(site, io.into(), op.reduction())?)
    }

    /// Wraps `ncclSend`: sends elements to `peer`, which receives them with `recv` and the same count.
    ///
    /// Exchanges in both directions belong into a [`group`](super::group), or both ranks may wait for each other.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // Rank 0 sends to the last one.
    /// let (first, last) = (0, comm.size() - 1);
    /// if comm.rank() == first && first != last {
    ///     let data = DeviceBuffer::from_slice(&stream, &[1.5f32; 100])?;
    ///     comm.send(&data, last, &stream)?;
    /// } else if comm.rank() == last && first != last {
    ///     let mut data = DeviceBuffer::<f32>::zeroed(&stream, 100)?;
    ///     comm.recv(&mut data, first, &stream)?;
    ///     assert_eq!(data.to_vec(&stream)?, [1.5; 100]);
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send<'a, T: Element>(&'a self, data: impl AsSlice<'a, T>, peer: usize, stream: &'a Stream) -> Result<()> {
        let site = Site::new("send", self.inner(), stream)?;
        submit::one(&prepare::send(site, data.into(), peer)?)
    }

    /// Wraps `ncclRecv`: receives elements from `peer`, which sends them with `send` and the same count.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // A ring: the odd ranks receive first, where their number is even.
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let own = DeviceBuffer::from_slice(&stream, &[rank as u16])?;
    /// let mut other = DeviceBuffer::<u16>::zeroed(&stream, 1)?;
    /// if rank % 2 == 1 {
    ///     comm.recv(&mut other, rank - 1, &stream)?;
    ///     comm.send(&own, rank - 1, &stream)?;
    /// } else if rank + 1 < size {
    ///     comm.send(&own, rank + 1, &stream)?;
    ///     comm.recv(&mut other, rank + 1, &stream)?;
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv<'a, T: Element>(&'a self, data: impl AsSliceMut<'a, T>, peer: usize, stream: &'a Stream) -> Result<()> {
        let site = Site::new("recv", self.inner(), stream)?;
        submit::one(&prepare::recv(site, data.into(), peer)?)
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
        personal::all_to_all(site, send.into(), recv.into(), &mut |call| calls.push(call))?;
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
        personal::gather(site, io.into(), root, &mut |call| calls.push(call))?;
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
        personal::scatter(site, io.into(), root, &mut |call| calls.push(call))?;
        submit::all(&calls)
    }

    /// Wraps `ncclSend` and `ncclRecv`: in one group: sends part `r` of `send` to rank `r`, and receives what rank `r` sent into part `r` of
    /// `recv`; each part has a length of its own.
    ///
    /// Part `r` of `send` here is as long as the part of `recv` on rank `r` that belongs to this rank. The parts of `recv`
    /// do not overlap.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // One token for rank 0, two for rank 1, and so on.
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let (send_counts, recv_counts): (Vec<_>, Vec<_>) = ((1..=size).collect(), vec![rank + 1; size]);
    /// let send = DeviceBuffer::from_slice(&stream, &vec![rank as u32; send_counts.iter().sum()])?;
    /// let mut recv = DeviceBuffer::<u32>::zeroed(&stream, (rank + 1) * size)?;
    /// comm.all_to_all_v(&send, &send_counts, &mut recv, &recv_counts, &stream)?;
    /// assert_eq!(recv.to_vec(&stream)?, (0..size).flat_map(|from| vec![from as u32; rank + 1]).collect::<Vec<_>>());
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_to_all_v<'a, 'b, T: Element>(
        &'a self,
        send: impl AsSlice<'a, T>,
        send_layout: impl Into<Layout<'b>>,
        recv: impl AsSliceMut<'a, T>,
        recv_layout: impl Into<Layout<'b>>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_to_all_v", self.inner(), stream)?;
        let mut calls = Calls::with_capacity(2 * self.size());
        variable::all_to_all_v(
            site,
            (send.into(), send_layout.into()),
            (recv.into(), recv_layout.into()),
            &mut |call| calls.push(call),
        )?;
        submit::all(&calls)
    }

    /// Wraps `ncclBroadcast`: in one group, a call a rank: gives every rank the elements of all; each rank's part has a length of its own.
    ///
    /// `layout` divides `recv` and is the same on all ranks; `send` is as long as this rank's part. In place, this rank's
    /// part is in its place already.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let counts: Vec<_> = (0..comm.size()).map(|rank| rank % 3).collect();
    /// let own = DeviceBuffer::from_slice(&stream, &vec![comm.rank() as u8; counts[comm.rank()]])?;
    /// let mut all = DeviceBuffer::<u8>::zeroed(&stream, counts.iter().sum())?;
    /// comm.all_gather_v((&own, &mut all), &counts, &stream)?;
    /// assert_eq!(all.to_vec(&stream)?, (0..comm.size()).flat_map(|rank| vec![rank as u8; rank % 3]).collect::<Vec<_>>());
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_gather_v<'a, 'b, T: Element>(
        &'a self,
        io: impl AsSendRecv<'a, T>,
        layout: impl Into<Layout<'b>>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_gather_v", self.inner(), stream)?;
        let mut calls = Calls::with_capacity(self.size());
        variable::all_gather_v(site, io.into(), layout.into(), &mut |call| calls.push(call))?;
        submit::all(&calls)
    }

    /// Wraps `ncclReduce`: in one group, a call a rank: reduces the elements of all ranks and gives each rank its part of the result;
    /// each part has a length of its own.
    ///
    /// `layout` divides `send` and is the same on all ranks; `recv` is at least as long as this rank's part. In place, the
    /// result is written where this rank's part is, and the rest of the buffer is left as it was.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // 10 elements, of which the first ranks get one more where it does not come out even.
    /// let counts: Vec<_> = (0..comm.size()).map(|rank| 10 / comm.size() + usize::from(rank < 10 % comm.size())).collect();
    /// let all = DeviceBuffer::from_slice(&stream, &[1f32; 10])?;
    /// let mut own = DeviceBuffer::<f32>::zeroed(&stream, counts[comm.rank()])?;
    /// comm.reduce_scatter_v((&all, &mut own), &counts, ReduceOp::Sum, &stream)?;
    /// assert_eq!(own.to_vec(&stream)?, vec![comm.size() as f32; counts[comm.rank()]]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reduce_scatter_v<'a, 'b, T: Reduce>(
        &'a self,
        io: impl AsSendRecv<'a, T>,
        layout: impl Into<Layout<'b>>,
        op: ReduceOp<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("reduce_scatter_v", self.inner(), stream)?;
        let mut calls = Calls::with_capacity(self.size());
        variable::reduce_scatter_v(site, io.into(), layout.into(), op.reduction(), &mut |call| calls.push(call))?;
        submit::all(&calls)
    }

    /// Wraps `ncclSend` and `ncclRecv`: in one group: gives `root` the elements of all ranks; each part has a length of its own.
    ///
    /// `layout` divides `recv` at the root and is the same on all ranks; `send` is as long as this rank's part. In place at
    /// the root, its own part is in its place already.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, SendOnly, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let counts: Vec<_> = (1..=comm.size()).collect();
    /// let own = DeviceBuffer::from_slice(&stream, &vec![comm.rank() as u8; comm.rank() + 1])?;
    /// if comm.rank() == 0 {
    ///     let mut all = DeviceBuffer::<u8>::zeroed(&stream, counts.iter().sum())?;
    ///     comm.gather_v((&own, &mut all), &counts, 0, &stream)?;
    ///     assert_eq!(all.slice(..1).to_vec(&stream)?, [0]);
    /// } else {
    ///     comm.gather_v(SendOnly(&own), &counts, 0, &stream)?;
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn gather_v<'a, 'b, T: Element>(
        &'a self,
        io: impl AsToRoot<'a, T>,
        layout: impl Into<Layout<'b>>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("gather_v", self.inner(), stream)?;
        let mut calls = Calls::with_capacity(self.size());
        variable::gather_v(site, io.into(), layout.into(), root, &mut |call| calls.push(call))?;
        submit::all(&calls)
    }

    /// Wraps `ncclSend` and `ncclRecv`: in one group: gives each rank its part of the elements of `root`; each part has a length of its own.
    ///
    /// `layout` divides `send` at the root and is the same on all ranks; `recv` is at least as long as this rank's part. In
    /// place at the root, its own part stays where it is.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, RecvOnly, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let counts: Vec<_> = (1..=comm.size()).collect();
    /// let mut own = DeviceBuffer::<u8>::zeroed(&stream, comm.rank() + 1)?;
    /// if comm.rank() == 0 {
    ///     let all = DeviceBuffer::from_slice(&stream, &vec![7u8; counts.iter().sum()])?;
    ///     comm.scatter_v((&all, &mut own), &counts, 0, &stream)?;
    /// } else {
    ///     comm.scatter_v(RecvOnly(&mut own), &counts, 0, &stream)?;
    /// }
    /// assert_eq!(own.to_vec(&stream)?, vec![7; comm.rank() + 1]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scatter_v<'a, 'b, T: Element>(
        &'a self,
        io: impl AsFromRoot<'a, T>,
        layout: impl Into<Layout<'b>>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("scatter_v", self.inner(), stream)?;
        let mut calls = Calls::with_capacity(self.size());
        variable::scatter_v(site, io.into(), layout.into(), root, &mut |call| calls.push(call))?;
        submit::all(&calls)
    }
}
