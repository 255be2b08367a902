//! Enqueues one operation: straight through the safe layer, with nothing in between.

use gpucomm::Stream;
use gpucomm::nccl::{InPlace, Layout, RecvOnly, SendOnly, group};

use super::buffers::{Parts, Rank};
use super::number::Number;
use super::operation::{Operation, Shape};
use crate::options::RedOp;

/// An operation, ready to be enqueued again and again.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub operation: Operation,
    pub redop: Option<RedOp>,
    pub root: usize,
    pub in_place: bool,
    pub shape: Shape,
}

/// Issues a collective on `$on`, which is a communicator, or a group followed by the communicator.
macro_rules! collective {
    ($call:expr, $base:expr, $parts:expr, $stream:expr, $on:expr $(, $comm:expr)?) => {{
        let Call { operation, root, in_place, shape, .. } = *$call;
        let Shape { send: s, recv: r, .. } = shape;
        let (base, me, stream) = ($base, $parts.comm.rank(), $stream);
        let Parts { send, recv, op, counts, .. } = $parts;
        let (whole, at_root) = (shape.extent(), me == root);
        match operation {
            Operation::AllReduce if in_place => {
                $on.all_reduce($($comm,)? InPlace(recv.slice_mut(base..base + r)), op, stream)
            }
            Operation::AllReduce => {
                $on.all_reduce($($comm,)? (send.slice(base..base + s), recv.slice_mut(base..base + r)), op, stream)
            }
            Operation::Reduce if in_place => {
                $on.reduce($($comm,)? InPlace(recv.slice_mut(base..base + r)), op, root, stream)
            }
            Operation::Reduce if at_root => {
                $on.reduce($($comm,)? (send.slice(base..base + s), recv.slice_mut(base..base + r)), op, root, stream)
            }
            Operation::Reduce => $on.reduce($($comm,)? SendOnly(send.slice(base..base + s)), op, root, stream),
            Operation::Broadcast if in_place => {
                $on.broadcast($($comm,)? InPlace(recv.slice_mut(base..base + r)), root, stream)
            }
            Operation::Broadcast if at_root => {
                $on.broadcast($($comm,)? (send.slice(base..base + s), recv.slice_mut(base..base + r)), root, stream)
            }
            Operation::Broadcast => $on.broadcast($($comm,)? RecvOnly(recv.slice_mut(base..base + r)), root, stream),
            Operation::AllGather if in_place => {
                $on.all_gather($($comm,)? InPlace(recv.slice_mut(base..base + r)), stream)
            }
            Operation::AllGather => {
                $on.all_gather($($comm,)? (send.slice(base..base + s), recv.slice_mut(base..base + r)), stream)
            }
            Operation::ReduceScatter if in_place => {
                $on.reduce_scatter($($comm,)? InPlace(recv.slice_mut(base..base + whole)), op, stream)
            }
            Operation::ReduceScatter => {
                $on.reduce_scatter($($comm,)? (send.slice(base..base + s), recv.slice_mut(base..base + r)), op, stream)
            }
            Operation::Gather if in_place && at_root => {
                $on.gather($($comm,)? InPlace(recv.slice_mut(base..base + whole)), root, stream)
            }
            Operation::Gather if in_place => {
                let own = base + me * s;
                $on.gather($($comm,)? SendOnly(recv.slice(own..own + s)), root, stream)
            }
            Operation::Gather if at_root => {
                $on.gather($($comm,)? (send.slice(base..base + s), recv.slice_mut(base..base + r)), root, stream)
            }
            Operation::Gather => $on.gather($($comm,)? SendOnly(send.slice(base..base + s)), root, stream),
            Operation::Scatter if in_place && at_root => {
                $on.scatter($($comm,)? InPlace(recv.slice_mut(base..base + whole)), root, stream)
            }
            Operation::Scatter if in_place => {
                let own = base + me * r;
                $on.scatter($($comm,)? RecvOnly(recv.slice_mut(own..own + r)), root, stream)
            }
            Operation::Scatter if at_root => {
                $on.scatter($($comm,)? (send.slice(base..base + s), recv.slice_mut(base..base + r)), root, stream)
            }
            Operation::Scatter => $on.scatter($($comm,)? RecvOnly(recv.slice_mut(base..base + r)), root, stream),
            Operation::AllToAll => {
                $on.all_to_all($($comm,)? (send.slice(base..base + s), recv.slice_mut(base..base + r)), stream)
            }
            Operation::AllToAllV => $on.all_to_all_v(
                $($comm,)?
                (send.slice(base..base + s), recv.slice_mut(base..base + r)),
                Layout::from(counts.0),
                Layout::from(counts.1),
                stream,
            ),
            Operation::SendRecv => unreachable!("two calls in a group, not a collective"),
        }
    }};
}

/// Sends to the next rank in the ring and receives from the one before.
macro_rules! ring {
    ($group:expr, $call:expr, $base:expr, $parts:expr, $stream:expr) => {{
        let (base, count, ranks) = ($base, $call.shape.send, $call.shape.ranks);
        let stream = $stream;
        let Parts { comm, send, recv, .. } = $parts;
        let me = comm.rank();
        let (next, previous) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        $group.send(comm, send.slice(base..base + count), next, stream)?;
        $group.recv(comm, recv.slice_mut(base..base + count), previous, stream)
    }};
}

/// Enqueues `call` on all ranks of this thread: directly if it is one, in a group if there are more.
///
/// Each rank has its stream in `streams`. `shift` elements into the buffers, so that successive calls need not use the same memory.
#[inline]
pub fn enqueue<T: Number>(
    ranks: &mut [Rank<'_, T>],
    streams: &[&Stream],
    call: &Call,
    shift: usize,
) -> gpucomm::Result<()> {
    let base = Rank::<T>::GUARD + shift;
    match ranks {
        [one] if call.operation != Operation::SendRecv => {
            let parts = one.parts(call.redop);
            let comm = parts.comm;
            collective!(call, base, parts, streams[0], comm)
        }
        all if call.operation == Operation::SendRecv => group(|g| {
            for (rank, stream) in all.iter_mut().zip(streams) {
                ring!(g, call, base, rank.parts(call.redop), *stream)?;
            }
            Ok(())
        }),
        all => group(|g| {
            for (rank, stream) in all.iter_mut().zip(streams) {
                let parts = rank.parts(call.redop);
                let comm = parts.comm;
                collective!(call, base, parts, *stream, g, comm)?;
            }
            Ok(())
        }),
    }
}
