//! What a rank has made when its communicator ends, with work on it that nobody has waited for.

use std::sync::Arc;

use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::nccl::{Registration, Window};
use gpucomm::{
    CommBuffer, Communicator, DeviceBuffer, Error, Event, Graph, InPlace, PinnedBuffer, ReduceOp, Result, Stream,
};

use crate::farewell::Farewell;
use crate::number::Buffer;

/// Where the memory of an item comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Device,
    Nccl,
    Mapped,
    Local,
    Alloc,
    Symmetric,
}

/// What goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    Nothing,
    Registration,
    Window,
    /// A graph of its work.
    Graph,
    /// Pinned memory through which its values come.
    Pinned,
}

/// The same on all ranks, but for where it goes.
#[derive(Debug)]
pub struct Item {
    pub origin: Origin,
    pub with: With,
    pub len: usize,
    pub value: u32,
    /// Whether the ranks add up.
    pub sums: bool,
    /// By the rank: how the memory goes, what goes with it, and the stream.
    pub farewells: Vec<[Farewell; 3]>,
}

/// What an item is on one rank.
struct Thing<'c> {
    buffer: Buffer<'c, u32>,
    registration: Option<Registration<'c>>,
    window: Option<Window<'c>>,
    graph: Option<Graph>,
    pinned: Option<PinnedBuffer<u32>>,
    stream: Stream,
    event: Option<Event>,
    copy: DeviceBuffer<u32>,
}

/// A copy of what an item has come to, if that has come to anything.
#[derive(Debug)]
pub struct Kept {
    copy: DeviceBuffer<u32>,
    stream: Stream,
    want: u32,
}

impl Kept {
    /// Whether the copy is there; panics if it is wrong.
    pub fn check(&self) -> Result<()> {
        let got = self.copy.to_vec(&self.stream)?;
        let wrong = got.iter().filter(|value| **value != self.want).count();
        assert_eq!(
            wrong,
            0,
            "wrong data: {wrong} of {} elements are not {:#x}: {:#x?}",
            got.len(),
            self.want,
            got.first()
        );
        Ok(())
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

/// Items of one rank.
pub struct Left<'c> {
    comm: &'c Communicator,
    things: Vec<Thing<'c>>,
}

impl<'c> Left<'c> {
    /// Makes them. Nothing is behind a host function yet that waits, as some of that waits for other ranks and devices.
    pub fn make(comm: &'c Communicator, items: &[Item]) -> Result<Self> {
        let things = items.iter().map(|item| Thing::make(comm, item)).collect::<Result<_>>()?;
        Ok(Self { comm, things })
    }

    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.things.iter().map(|thing| &thing.stream)
    }

    /// Gives the streams their work.
    pub fn work(&mut self, items: &[Item]) -> Result<()> {
        self.things.iter_mut().zip(items).try_for_each(|(thing, item)| thing.work(self.comm, item))
    }

    /// Lets go of all items, in this order, and keeps the copies. `other` is for host functions.
    pub fn leave(self, items: &[Item], order: &[usize], other: &Stream) -> Result<Vec<Kept>> {
        let mut things: Vec<_> = self.things.into_iter().map(Some).collect();
        let thing = |at: &usize| things[*at].take().expect("each of them once").leave(self.comm, &items[*at], other);
        order.iter().map(thing).collect()
    }

    /// The same, where all that is no device's own has a share of the communicator.
    pub fn leave_shared(
        self,
        shared: &Arc<Communicator>,
        items: &[Item],
        order: &[usize],
        other: &Stream,
    ) -> Result<Vec<Kept>> {
        let mut things: Vec<_> = self.things.into_iter().map(Some).collect();
        let thing =
            |at: &usize| things[*at].take().expect("each of them once").leave_shared(shared, &items[*at], other);
        order.iter().map(thing).collect()
    }
}

impl<'c> Thing<'c> {
    fn make(comm: &'c Communicator, item: &Item) -> Result<Self> {
        let (device, len) = (comm.device(), item.len);
        let stream = Stream::new(device)?;
        let mut buffer = match item.origin {
            Origin::Device => Buffer::Device(DeviceBuffer::zeroed(&stream, len)?),
            Origin::Nccl => Buffer::Device(gpucomm::nccl::alloc(&stream, len)?),
            Origin::Mapped => {
                let memory = PhysicalMemory::new(device, len * size_of::<u32>())?;
                Buffer::Device(memory.map(&[Access::read_write(device)])?.into_buffer_of(len)?)
            }
            Origin::Local => Buffer::Comm(comm.alloc_local(&stream, len)?.into_fitting()),
            Origin::Alloc => Buffer::Comm(comm.alloc(&stream, len)?),
            Origin::Symmetric => Buffer::Comm(match comm.alloc_symmetric(&stream, len) {
                Ok(symmetric) => symmetric.into_fitting(),
                Err(Error::Unsupported { .. }) => comm.alloc(&stream, len)?,
                Err(error) => return Err(error),
            }),
        };
        let (mut registration, mut window, mut graph, mut pinned) = (None, None, None, None);
        match item.with {
            With::Nothing => {}
            With::Registration => registration = Some(comm.register(buffer.slice(0..len))?),
            With::Window => {
                window = match comm.window(buffer.slice(0..len)) {
                    Ok(window) => Some(window),
                    // Not each version has windows, nor is all memory fit for one.
                    Err(Error::Unsupported { .. } | Error::InvalidArgument { .. } | Error::InvalidUsage { .. }) => None,
                    Err(error) => return Err(error),
                }
            }
            With::Graph => {
                graph = Some(stream.capture(|lent| values(comm, item, &mut buffer, lent))?);
            }
            With::Pinned => {
                let mut memory = PinnedBuffer::zeroed(len)?;
                memory.as_slice_mut()?.fill(own(comm, item));
                pinned = Some(memory);
            }
        }
        let copy = DeviceBuffer::zeroed(&stream, len)?;
        Ok(Self { buffer, registration, window, graph, pinned, stream, event: None, copy })
    }

    fn work(&mut self, comm: &Communicator, item: &Item) -> Result<()> {
        let Self { buffer, graph, pinned, stream, event, copy, .. } = self;
        match (graph, pinned) {
            (Some(graph), _) => graph.launch(stream)?,
            (None, Some(pinned)) => {
                buffer.slice_mut(0..item.len).copy_from_pinned(stream, &*pinned)?;
                sum(comm, item, buffer, stream)?;
            }
            (None, None) => values(comm, item, buffer, stream)?,
        }
        copy.copy_from(stream, buffer.slice(0..item.len))?;
        *event = Some(stream.record()?);
        Ok(())
    }

    fn kept(comm: &Communicator, item: &Item, stream: &Stream, copy: DeviceBuffer<u32>) -> Kept {
        let own = |rank: usize| item.value + rank as u32;
        let want = if item.sums { (0..comm.size()).map(own).sum() } else { own(comm.rank()) };
        Kept { copy, stream: stream.clone(), want }
    }

    fn leave(self, comm: &Communicator, item: &Item, other: &Stream) -> Result<Kept> {
        let Self { buffer, registration, window, graph, pinned, stream, event, copy } = self;
        let kept = Self::kept(comm, item, &stream, copy);
        let [of_memory, beside, of_stream] = item.farewells[comm.rank()];
        beside.to_borrower((registration, window));
        beside.to((graph, pinned), other)?;
        match buffer {
            Buffer::Device(buffer) => of_memory.to(buffer, other)?,
            Buffer::Comm(buffer) => of_memory.to_borrower(buffer),
        }
        of_stream.to((stream, event), other)?;
        Ok(kept)
    }

    fn leave_shared(self, shared: &Arc<Communicator>, item: &Item, other: &Stream) -> Result<Kept> {
        let Self { buffer, registration, window, graph, pinned, stream, event, copy } = self;
        let kept = Self::kept(shared, item, &stream, copy);
        let [of_memory, beside, of_stream] = item.farewells[shared.rank()];
        let registration = registration.map(|one| one.into_shared(shared)).transpose()?;
        let window = window.map(|one| one.into_shared(shared)).transpose()?;
        beside.to((registration, window, graph, pinned), other)?;
        match buffer {
            Buffer::Device(buffer) => of_memory.to(buffer, other)?,
            Buffer::Comm(buffer) => {
                let buffer: CommBuffer<'static, u32> = buffer.into_shared(shared)?;
                of_memory.to(buffer, other)?;
            }
        }
        of_stream.to((stream, event), other)?;
        Ok(kept)
    }
}

fn own(comm: &Communicator, item: &Item) -> u32 {
    item.value + comm.rank() as u32
}

fn values(comm: &Communicator, item: &Item, buffer: &mut Buffer<'_, u32>, stream: &Stream) -> Result<()> {
    buffer.slice_mut(0..item.len).fill(stream, own(comm, item))?;
    sum(comm, item, buffer, stream)
}

fn sum(comm: &Communicator, item: &Item, buffer: &mut Buffer<'_, u32>, stream: &Stream) -> Result<()> {
    if !item.sums {
        return Ok(());
    }
    comm.all_reduce(InPlace(buffer.slice_mut(0..item.len)), ReduceOp::Sum, stream)
}
