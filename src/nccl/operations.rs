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
    pub fn all_gather<'a, T: Element>(&'a self, io: impl AsSendRecv<'a, T>, stream: &'a Stream) -> Result<()> {
        let site = Site::new("all_gather", self.inner(), stream)?;
        submit::one(&prepare::all_gather(site, io.into())?)
    }

    /// Wraps `ncclReduceScatter`: reduces the elements of all ranks and gives each rank its part of the result.
    ///
    /// Out of place, `send` has `n * size` elements and `recv` at least `n`. In place, the buffer has `n * size` elements,
    /// the result is written at `n * rank`, and the rest is unspecified afterwards.
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
    pub fn send<'a, T: Element>(&'a self, data: impl AsSlice<'a, T>, peer: usize, stream: &'a Stream) -> Result<()> {
        let site = Site::new("send", self.inner(), stream)?;
        submit::one(&prepare::send(site, data.into(), peer)?)
    }

    /// Wraps `ncclRecv`: receives elements from `peer`, which sends them with `send` and the same count.
    pub fn recv<'a, T: Element>(&'a self, data: impl AsSliceMut<'a, T>, peer: usize, stream: &'a Stream) -> Result<()> {
        let site = Site::new("recv", self.inner(), stream)?;
        submit::one(&prepare::recv(site, data.into(), peer)?)
    }

    /// Wraps `ncclAlltoAll`: sends part `r` of `send` to rank `r`, and receives what rank `r` sent into part `r` of `recv`. Before NCCL 2.28, a
    /// group of `ncclSend` and `ncclRecv`.
    ///
    /// `send` has `n * size` elements, `recv` at least as many.
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
