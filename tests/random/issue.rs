//! Calling an operation of the crate, on its own or within a group.

use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::nccl::{Buffers, Group, Reduction};
use gpucomm::{Communicator, Element, Result, Stream};

use crate::carried::Carried;
use crate::collective::{Collective, Form, What};
use crate::layout::Layout;
use crate::message::Message;
use crate::number::{Factor, Memory, Number, ViewMut, typed};
use crate::operation::{Operation, Region};
use crate::reduce::Operator;

/// The buffers of one rank for one operation.
pub struct Io<'a, 'c> {
    pub send: Option<(&'a Memory<'c>, Region)>,
    pub recv: Option<ViewMut<'a>>,
    pub factor: Option<&'a Factor<'a>>,
}

/// What a call goes through.
pub enum Via<'g, 'a> {
    Alone(&'a Communicator),
    Group(&'g mut Group<'a>, &'a Communicator),
}

impl Via<'_, '_> {
    fn rank(&self) -> usize {
        match self {
            Self::Alone(comm) | Self::Group(_, comm) => comm.rank(),
        }
    }
}

macro_rules! call {
    ($via:expr, $method:ident($($argument:expr),*)) => {
        match $via {
            Via::Alone(comm) => comm.$method($($argument),*),
            Via::Group(group, comm) => group.$method(comm, $($argument),*),
        }
    };
}

impl Operation {
    /// Calls this rank's part of it.
    pub fn issue<'a>(&'a self, io: Io<'a, '_>, via: &mut Via<'_, 'a>, streams: &'a [Stream]) -> Result<()> {
        typed!(self.kind(), T => {
            let send = io.send.map(|(memory, region)| T::of(memory).slice(region.at..region.at + region.len));
            let buffers = Ends::<T> { send, recv: io.recv.map(T::of_view) };
            match (self, self.carried()) {
                (Self::Collective(one), _) if one.what.reduces() => buffers.reduction(one, io.factor, via, streams),
                (_, Carried::Itself) => buffers.issue(self, via, streams),
                (_, Carried::Words) if size_of::<T>() > 1 => {
                    buffers.cast::<[u16; size_of::<T>().div_ceil(2)]>().issue(self, via, streams)
                }
                _ => buffers.cast::<[u8; size_of::<T>()]>().issue(self, via, streams),
            }
        })
    }
}

struct Ends<'a, T: Element> {
    send: Option<Slice<'a, T>>,
    recv: Option<SliceMut<'a, T>>,
}

impl<'a, T: Element> Ends<'a, T> {
    /// As elements of a type of the same size.
    fn cast<U: Element>(self) -> Ends<'a, U> {
        const FITS: &str = "elements of the same size";
        let (send, recv) = (self.send.map(|send| send.cast()), self.recv.map(SliceMut::into_cast));
        Ends { send: send.map(|send| send.expect(FITS)), recv: recv.map(|recv| recv.expect(FITS)) }
    }

    /// What only moves.
    fn issue(self, operation: &'a Operation, via: &mut Via<'_, 'a>, streams: &'a [Stream]) -> Result<()> {
        match operation {
            Operation::Message(message) => self.message(message, via, streams),
            Operation::Collective(collective) => self.movement(collective, via, streams),
        }
    }

    /// A message of a rank to itself has both ends here.
    fn message(self, message: &Message, via: &mut Via<'_, 'a>, streams: &'a [Stream]) -> Result<()> {
        let [from, to] = message.streams.map(|stream| &streams[stream]);
        if let Some(send) = self.send {
            call!(via, send(send, message.to, from))?;
        }
        if let Some(recv) = self.recv {
            call!(via, recv(recv, message.from, to))?;
        }
        Ok(())
    }

    fn movement(self, collective: &'a Collective, via: &mut Via<'_, 'a>, streams: &'a [Stream]) -> Result<()> {
        let (rank, root) = (via.rank(), collective.root);
        let stream = &streams[collective.streams[rank]];
        match (collective.what, &collective.layout) {
            (What::Broadcast, _) => call!(via, broadcast(self.buffers(collective, rank), root, stream)),
            (What::AllGather, _) => call!(via, all_gather(self.buffers(collective, rank), stream)),
            (What::AllToAll, _) => {
                call!(via, all_to_all(self.out_of_place(), stream))
            }
            (What::Gather, _) => call!(via, gather(self.buffers(collective, rank), root, stream)),
            (What::Scatter, _) => call!(via, scatter(self.buffers(collective, rank), root, stream)),
            (What::AllToAllV, Layout::Matrix { send: sent, recv: received }) => {
                let (sent, received) = (sent[rank].as_layout(), received[rank].as_layout());
                call!(via, all_to_all_v(self.out_of_place(), sent, received, stream))
            }
            (What::AllGatherV, Layout::Parts(parts)) => {
                call!(via, all_gather_v(self.buffers(collective, rank), parts.as_layout(), stream))
            }
            (What::GatherV, Layout::Parts(parts)) => {
                call!(via, gather_v(self.buffers(collective, rank), parts.as_layout(), root, stream))
            }
            (What::ScatterV, Layout::Parts(parts)) => {
                call!(via, scatter_v(self.buffers(collective, rank), parts.as_layout(), root, stream))
            }
            (what, layout) => panic!("{what:?} of {layout:?}"),
        }
    }

    fn out_of_place(self) -> (Slice<'a, T>, SliceMut<'a, T>) {
        (self.send.expect("what is sent"), self.recv.expect("a place for what comes"))
    }

    /// In the form that `collective` has on `rank`.
    fn buffers(self, collective: &Collective, rank: usize) -> Buffers<'a, T> {
        match collective.forms[rank] {
            Form::OutOfPlace => {
                let (send, recv) = self.out_of_place();
                Buffers::OutOfPlace { send, recv }
            }
            Form::InPlace => Buffers::InPlace(self.recv.expect("a buffer")),
            Form::OneWay if collective.to_root() => Buffers::SendOnly(self.send.expect("what is sent")),
            Form::OneWay => Buffers::RecvOnly(self.recv.expect("a place for what comes")),
        }
    }
}

impl<'a, T: Number> Ends<'a, T> {
    fn reduction(
        self,
        collective: &'a Collective,
        factor: Option<&'a Factor<'a>>,
        via: &mut Via<'_, 'a>,
        streams: &'a [Stream],
    ) -> Result<()> {
        let (rank, root) = (via.rank(), collective.root);
        let stream = &streams[collective.streams[rank]];
        let op: Reduction<'a, T> = match collective.operator {
            Operator::Op(op) => op.into(),
            Operator::PreMul => T::of_factor(factor.expect("a factor")).into(),
        };
        match (collective.what, &collective.layout) {
            (What::AllReduce, _) => call!(via, all_reduce(self.buffers(collective, rank), op, stream)),
            (What::Reduce, _) => call!(via, reduce(self.buffers(collective, rank), op, root, stream)),
            (What::ReduceScatter, _) => call!(via, reduce_scatter(self.buffers(collective, rank), op, stream)),
            (What::ReduceScatterV, Layout::Parts(parts)) => {
                call!(via, reduce_scatter_v(self.buffers(collective, rank), parts.as_layout(), op, stream))
            }
            (what, layout) => panic!("{what:?} of {layout:?}"),
        }
    }
}
