//! Groups: several operations that start together.

use super::calls::io::{AsFromRoot, AsSendRecv, AsToRoot, Layout};
use super::calls::prepare;
use super::calls::site::Site;
use super::calls::{personal, variable};
use super::communicator::Communicator;
use super::enqueue::submit;
use super::enqueue::submit::{Calls, GroupMark};
use super::reduce_op::ReduceOp;
use crate::cuda::{AsSlice, AsSliceMut, Stream};
use crate::element::{Element, Reduce};
use crate::error::{Error, Result};

/// Wraps `ncclGroupStart` and `ncclGroupEnd`: the operations that `record` issues on the [`Group`] start together.
///
/// They are checked and recorded first. When `record` has returned `Ok`, all of them are submitted in one block; when it
/// returned an error, or panicked, none is. Buffers stay borrowed until then. One thread may so drive several ranks,
/// and ranks may send to and receive from each other in any order.
///
/// A closure with an error type of its own is for [`try_group`].
///
/// Ranks group collectives alike, and messages as they like, but for one thing: between two ranks NCCL does the first message
/// of a group in one direction together with the first in the other, and begins the second ones when both are done. So where a
/// rank puts two messages to a peer and one from it into one group, that peer must not wait for both before it sends its own.
/// In doubt, group messages that go both ways on both sides alike.
///
/// The operations of several communicators may stand in any order. Ranks that do them for the first time do them alike, in one group or one
/// by one: NCCL connects the ranks of one communicator after those of the other, and waits for them.
///
/// # Errors
/// What `record` returned; [`InvalidUsage`](crate::Error::InvalidUsage) within another group; what the operations return.
pub fn group<'env, R>(record: impl FnOnce(&mut Group<'env>) -> Result<R>) -> Result<R> {
    try_group(record)
}

/// As [`group`], for a closure with an error type of its own.
///
/// ```
/// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream, try_group};
/// #[derive(Debug)]
/// enum Failed {
///     Gpu(gpucomm::Error),
///     NoGradients,
/// }
///
/// impl From<gpucomm::Error> for Failed {
///     fn from(error: gpucomm::Error) -> Self {
///         Self::Gpu(error)
///     }
/// }
///
/// # fn main() -> Result<(), Failed> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.try_spmd(|comm| -> Result<(), Failed> {
/// # let stream = Stream::new(comm.device())?;
/// # let mut gradients = vec![DeviceBuffer::<f32>::zeroed(&stream, 16)?];
/// try_group(|g| {
///     let Some(first) = gradients.first_mut() else { return Err(Failed::NoGradients) };
///     g.all_reduce(comm, InPlace(first), ReduceOp::Avg, &stream)?;
///     Ok(())
/// })?;
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`group`]; those of this crate are made into an `E`.
pub fn try_group<'env, R, E: From<Error>>(record: impl FnOnce(&mut Group<'env>) -> Result<R, E>) -> Result<R, E> {
    let mut group = Group { calls: Calls::new() };
    let value = {
        let _mark = GroupMark::set("group")?;
        record(&mut group)?
    };
    submit::group(&group.calls)?;
    Ok(value)
}

/// The operations of a group, as far as they were recorded; see [`group`].
#[derive(Debug)]
pub struct Group<'a> {
    calls: Calls<'a>,
}

/// Operations: those of [`Communicator`], with the communicator first. Errors are found while recording, except those
/// that only submitting can bring.
impl<'a> Group<'a> {
    /// Where calls are recorded.
    pub(crate) fn calls(&mut self) -> &mut Calls<'a> {
        &mut self.calls
    }

    /// How many calls were recorded.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Records [`Communicator::all_reduce`].
    pub fn all_reduce<T: Reduce>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsSendRecv<'a, T>,
        op: ReduceOp<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_reduce", comm.inner(), stream)?;
        self.calls.push(prepare::all_reduce(site, io.into(), op.reduction())?);
        Ok(())
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
        self.calls.push(prepare::reduce(site, io.into(), op.reduction(), root)?);
        Ok(())
    }

    /// Records [`Communicator::broadcast`].
    pub fn broadcast<T: Element>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsFromRoot<'a, T>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("broadcast", comm.inner(), stream)?;
        self.calls.push(prepare::broadcast(site, io.into(), root)?);
        Ok(())
    }

    /// Records [`Communicator::all_gather`].
    pub fn all_gather<T: Element>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsSendRecv<'a, T>,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("all_gather", comm.inner(), stream)?;
        self.calls.push(prepare::all_gather(site, io.into())?);
        Ok(())
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
        self.calls.push(prepare::reduce_scatter(site, io.into(), op.reduction())?);
        Ok(())
    }

    /// Records [`Communicator::send`].
    pub fn send<T: Element>(
        &mut self,
        comm: &'a Communicator,
        data: impl AsSlice<'a, T>,
        peer: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("send", comm.inner(), stream)?;
        self.calls.push(prepare::send(site, data.into(), peer)?);
        Ok(())
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
        self.calls.push(prepare::recv(site, data.into(), peer)?);
        Ok(())
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
        let push = &mut |call| self.calls.push(call);
        personal::all_to_all(site, send.into(), recv.into(), push)
    }

    /// Records [`Communicator::gather`].
    pub fn gather<T: Element>(
        &mut self,
        comm: &'a Communicator,
        io: impl AsToRoot<'a, T>,
        root: usize,
        stream: &'a Stream,
    ) -> Result<()> {
        let site = Site::new("gather", comm.inner(), stream)?;
        let push = &mut |call| self.calls.push(call);
        personal::gather(site, io.into(), root, push)
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
        let push = &mut |call| self.calls.push(call);
        personal::scatter(site, io.into(), root, push)
    }

    /// Records [`Communicator::all_to_all_v`].
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
        let push = &mut |call| self.calls.push(call);
        variable::all_to_all_v(site, (send.into(), send_layout.into()), (recv.into(), recv_layout.into()), push)
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
        let push = &mut |call| self.calls.push(call);
        variable::all_gather_v(site, io.into(), layout.into(), push)
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
        let push = &mut |call| self.calls.push(call);
        variable::reduce_scatter_v(site, io.into(), layout.into(), op.reduction(), push)
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
        let push = &mut |call| self.calls.push(call);
        variable::gather_v(site, io.into(), layout.into(), root, push)
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
        let push = &mut |call| self.calls.push(call);
        variable::scatter_v(site, io.into(), layout.into(), root, push)
    }
}
