//! Collectives with a count for each rank.

use crate::cuda::{AsSlice, AsSliceMut, Stream};
use crate::element::{Element, Reduce};
use crate::error::Result;
use crate::nccl::calls::buffers::{Buffer, Everywhere, Rooted};
use crate::nccl::calls::call::Calls;
use crate::nccl::calls::io::{AsFromRoot, AsSendRecv, AsToRoot, Layout};
use crate::nccl::calls::site::Site;
use crate::nccl::calls::variable;
use crate::nccl::communicator::Communicator;
use crate::nccl::enqueue::submit;
use crate::nccl::reduce_op::ReduceOp;

impl Communicator {
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
        let mut calls = Calls::new();
        calls.reserve_exact(2 * self.size());
        variable::all_to_all_v(
            site,
            (Buffer::from(send.into()), send_layout.into()),
            (Buffer::from(recv.into()), recv_layout.into()),
            &mut calls,
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
        let mut calls = Calls::new();
        calls.reserve_exact(self.size());
        variable::all_gather_v(site, Everywhere::from(io.into()), layout.into(), &mut calls)?;
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
        let mut calls = Calls::new();
        calls.reserve_exact(self.size());
        variable::reduce_scatter_v(site, Everywhere::from(io.into()), layout.into(), op.reduction(), &mut calls)?;
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
        let mut calls = Calls::new();
        calls.reserve_exact(self.size());
        variable::gather_v(site, Rooted::from(io.into()), layout.into(), root, &mut calls)?;
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
        let mut calls = Calls::new();
        calls.reserve_exact(self.size());
        variable::scatter_v(site, Rooted::from(io.into()), layout.into(), root, &mut calls)?;
        submit::all(&calls)
    }
}
