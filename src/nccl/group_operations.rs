//! The operations of groups.

use super::calls::buffers::{Buffer, Everywhere, Rooted};
use super::calls::io::{AsFromRoot, AsSendRecv, AsToRoot, Layout};
use super::calls::prepare;
use super::calls::site::Site;
use super::calls::{personal, variable};
use super::communicator::Communicator;
use super::group::Group;
use super::reduce_op::ReduceOp;
use crate::cuda::{AsSlice, AsSliceMut, Stream};
use crate::element::{Element, Reduce};
use crate::error::Result;

/// Operations: those of [`Communicator`], with the communicator first. Errors are found while recording, except those
/// that only submitting can bring.
///
/// ```
/// # use gpucomm::{Clique, Device, DeviceBuffer, ReduceOp, Stream, group};
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// let (rank, size) = (comm.rank(), comm.size());
/// // Rank r takes part with r elements.
/// let counts: Vec<_> = (0..size).collect();
/// let total = counts.iter().sum();
/// let own = DeviceBuffer::from_slice(&stream, &vec![rank as u32; rank])?;
/// let whole = DeviceBuffer::from_slice(&stream, &vec![1u32; total])?;
/// let (mut all, mut at_root) = (DeviceBuffer::<u32>::zeroed(&stream, total)?, DeviceBuffer::<u32>::zeroed(&stream, total)?);
/// let (mut summed, mut part) = (DeviceBuffer::<u32>::zeroed(&stream, rank)?, DeviceBuffer::<u32>::zeroed(&stream, rank)?);
/// group(|g| {
///     g.all_gather_v(comm, (&own, &mut all), &counts, &stream)?;
///     g.reduce_scatter_v(comm, (&whole, &mut summed), &counts, ReduceOp::Sum, &stream)?;
///     g.gather_v(comm, (&own, &mut at_root), &counts, 0, &stream)?;
///     g.scatter_v(comm, (&whole, &mut part), &counts, 0, &stream)
/// })?;
/// assert_eq!(summed.to_vec(&stream)?, vec![size as u32; rank]);
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
impl<'a> Group<'a> {
    /// Records [`Communicator::all_reduce`].
    pub fn all_reduce<T: Reduce>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsSendRecv<'a, T>,
        op: ReduceOp<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_reduce", comm.inner(), stream)?;
        self.add(prepare::all_reduce(site, Everywhere::from(io.into()), op.reduction()))
    }

    /// Records [`Communicator::reduce`].
    pub fn reduce<T: Reduce>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsToRoot<'a, T>,
        op: ReduceOp<'a, T>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("reduce", comm.inner(), stream)?;
        self.add(prepare::reduce(site, Rooted::from(io.into()), op.reduction(), root))
    }

    /// Records [`Communicator::broadcast`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, Stream, group};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut weights = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32; 10])?;
    /// let mut step = DeviceBuffer::from_slice(&stream, &[comm.rank() as u64])?;
    /// group(|g| {
    ///     g.broadcast(comm, InPlace(&mut weights), 0, &stream)?;
    ///     g.broadcast(comm, InPlace(&mut step), 0, &stream)
    /// })?;
    /// assert_eq!((weights.to_vec(&stream)?, step.to_vec(&stream)?), (vec![0.0; 10], vec![0]));
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast<T: Element>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsFromRoot<'a, T>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("broadcast", comm.inner(), stream)?;
        self.add(prepare::broadcast(site, Rooted::from(io.into()), root))
    }

    /// Records [`Communicator::all_gather`].
    pub fn all_gather<T: Element>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsSendRecv<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_gather", comm.inner(), stream)?;
        self.add(prepare::all_gather(site, Everywhere::from(io.into())))
    }

    /// Records [`Communicator::reduce_scatter`].
    pub fn reduce_scatter<T: Reduce>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsSendRecv<'a, T>,
        op: ReduceOp<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("reduce_scatter", comm.inner(), stream)?;
        self.add(prepare::reduce_scatter(site, Everywhere::from(io.into()), op.reduction()))
    }

    /// Records [`Communicator::send`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, ReduceOp, Stream, group};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let next = (comm.rank() + 1) % comm.size();
    /// let before = (comm.rank() + comm.size() - 1) % comm.size();
    /// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32])?;
    /// let (mut other, mut sum) = (DeviceBuffer::<f32>::zeroed(&stream, 1)?, DeviceBuffer::<f32>::zeroed(&stream, 1)?);
    /// group(|g| {
    ///     // A group may hold messages and collectives, in any order.
    ///     g.send(comm, &own, next, &stream)?;
    ///     g.recv(comm, &mut other, before, &stream)?;
    ///     g.all_reduce(comm, (&own, &mut sum), ReduceOp::Sum, &stream)
    /// })?;
    /// assert_eq!(other.to_vec(&stream)?, [before as f32]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send<T: Element>(
        &mut self,
        comm: &'a Communicator,
        data: impl AsSlice<'a, T>,
        peer: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("send", comm.inner(), stream)?;
        self.add(prepare::send(site, Buffer::from(data.into()), peer))
    }

    /// Records [`Communicator::recv`].
    pub fn recv<T: Element>(
        &mut self,
        comm: &'a Communicator,
        data: impl AsSliceMut<'a, T>,
        peer: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("recv", comm.inner(), stream)?;
        self.add(prepare::recv(site, Buffer::from(data.into()), peer))
    }

    /// Records [`Communicator::all_to_all`].
    pub fn all_to_all<T: Element>(
        &mut self,
        comm: &'a Communicator,
        send: impl AsSlice<'a, T>,
        recv: impl AsSliceMut<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_to_all", comm.inner(), stream)?;
        personal::all_to_all(site, Buffer::from(send.into()), Buffer::from(recv.into()), self.calls())
    }

    /// Records [`Communicator::gather`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream, group};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as u8])?;
    /// let (mut all, mut back) = (DeviceBuffer::<u8>::zeroed(&stream, comm.size())?, DeviceBuffer::<u8>::zeroed(&stream, 1)?);
    /// group(|g| g.gather(comm, (&own, &mut all), 0, &stream))?;
    /// // To another group: this one reads what that one writes.
    /// group(|g| g.scatter(comm, (&all, &mut back), 0, &stream))?;
    /// assert_eq!(back.to_vec(&stream)?, [comm.rank() as u8]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn gather<T: Element>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsToRoot<'a, T>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("gather", comm.inner(), stream)?;
        personal::gather(site, Rooted::from(io.into()), root, self.calls())
    }

    /// Records [`Communicator::scatter`].
    pub fn scatter<T: Element>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsFromRoot<'a, T>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("scatter", comm.inner(), stream)?;
        personal::scatter(site, Rooted::from(io.into()), root, self.calls())
    }

    /// Records [`Communicator::all_to_all_v`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream, group};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // Each rank sends r elements to rank r, and gets as many from all as its own number says.
    /// let (rank, size) = (comm.rank(), comm.size());
    /// let (send_counts, recv_counts): (Vec<_>, Vec<_>) = ((0..size).collect(), vec![rank; size]);
    /// let send = DeviceBuffer::from_slice(&stream, &vec![rank as u32; send_counts.iter().sum()])?;
    /// let mut recv = DeviceBuffer::<u32>::zeroed(&stream, rank * size)?;
    /// group(|g| g.all_to_all_v(comm, &send, &send_counts, &mut recv, &recv_counts, &stream))?;
    /// assert_eq!(recv.to_vec(&stream)?, (0..size).flat_map(|from| vec![from as u32; rank]).collect::<Vec<_>>());
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_to_all_v<'b, T: Element>(
        &mut self,
        comm: &'a Communicator,
        send: impl AsSlice<'a, T>,
        send_layout: impl Into<Layout<'b>>,
        recv: impl AsSliceMut<'a, T>,
        recv_layout: impl Into<Layout<'b>>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_to_all_v", comm.inner(), stream)?;
        variable::all_to_all_v(
            site,
            (Buffer::from(send.into()), send_layout.into()),
            (Buffer::from(recv.into()), recv_layout.into()),
            self.calls(),
        )
    }

    /// Records [`Communicator::all_gather_v`].
    pub fn all_gather_v<'b, T: Element>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsSendRecv<'a, T>,
        layout: impl Into<Layout<'b>>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_gather_v", comm.inner(), stream)?;
        variable::all_gather_v(site, Everywhere::from(io.into()), layout.into(), self.calls())
    }

    /// Records [`Communicator::reduce_scatter_v`].
    pub fn reduce_scatter_v<'b, T: Reduce>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsSendRecv<'a, T>,
        layout: impl Into<Layout<'b>>,
        op: ReduceOp<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("reduce_scatter_v", comm.inner(), stream)?;
        variable::reduce_scatter_v(site, Everywhere::from(io.into()), layout.into(), op.reduction(), self.calls())
    }

    /// Records [`Communicator::gather_v`].
    pub fn gather_v<'b, T: Element>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsToRoot<'a, T>,
        layout: impl Into<Layout<'b>>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("gather_v", comm.inner(), stream)?;
        variable::gather_v(site, Rooted::from(io.into()), layout.into(), root, self.calls())
    }

    /// Records [`Communicator::scatter_v`].
    pub fn scatter_v<'b, T: Element>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsFromRoot<'a, T>,
        layout: impl Into<Layout<'b>>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("scatter_v", comm.inner(), stream)?;
        variable::scatter_v(site, Rooted::from(io.into()), layout.into(), root, self.calls())
    }
}
