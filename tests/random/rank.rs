//! One rank that runs programs: its streams and buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpucomm::nccl::{PreMulSum, Registration};
use gpucomm::{Communicator, Device, DeviceBuffer, Graph, PinnedBuffer, Result, Stream, group};

use crate::generator::{SLOTS, SPARE, STREAMS};
use crate::issue::{Io, Via};
use crate::model::Factors;
use crate::number::{Factor, Memory, Number, ViewMut, typed};
use crate::operation::Operation;
use crate::record::Record;
use crate::{streams, watch};

/// How operations are issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    OneByOne,
    Grouped,
    /// Without a group, from another thread.
    Elsewhere,
}

pub struct Rank<'c> {
    pub comm: &'c Communicator,
    pub streams: Vec<Stream>,
    pub slots: Vec<Option<Memory<'c>>>,
    /// What is registered, by the slot of its buffer.
    pub registrations: Vec<Option<Registration<'c>>>,
    /// What was split off and is there until the end.
    pub parts: Vec<Communicator>,
    /// Graphs that are there until the end.
    pub graphs: Vec<Graph>,
    /// Whether the streams are those of a capture, which belongs to this thread.
    pub captures: bool,
    /// Whether all ranks are in this process.
    pub together: bool,
    /// A stream of another device than this rank's, if there is one, and memory there. They are made while nobody waits for this rank: to
    /// make something on a device may have to wait for what another thread frees there, and that for the ranks.
    pub stranger: Option<(Stream, DeviceBuffer<u8>)>,
    /// Where it notes what it sees, if somebody wants to know.
    pub record: Option<Record>,
    /// Host functions: the stream of each, and how often it ran.
    hosted: Vec<(Stream, Arc<AtomicUsize>)>,
}

impl<'c> Rank<'c> {
    pub fn new(comm: &'c Communicator) -> Result<Self> {
        let streams = (0..STREAMS).map(|which| streams::make(comm, which)).collect::<Result<_>>()?;
        let stranger = Device::all()?.into_iter().find(|device| *device != comm.device()).map(strange).transpose()?;
        let slots = (0..SLOTS + SPARE.len()).map(|_| None).collect();
        let registrations = (0..SLOTS).map(|_| None).collect();
        Ok(Self {
            comm,
            streams,
            slots,
            registrations,
            parts: Vec::new(),
            graphs: Vec::new(),
            captures: false,
            together: std::env::var_os(crate::process::ROLE).is_none(),
            stranger,
            record: None,
            hosted: Vec::new(),
        })
    }

    /// Connects every rank with every other: ranks in processes of their own have to do that in the same way.
    pub fn connect(comm: &Communicator) -> Result<()> {
        let (stream, counts) = (Stream::new(comm.device())?, vec![1; comm.size()]);
        let send = DeviceBuffer::<u8>::zeroed(&stream, comm.size())?;
        let mut recv = DeviceBuffer::<u8>::zeroed(&stream, comm.size())?;
        comm.all_to_all_v((&send, &mut recv), &counts, &counts, &stream)?;
        stream.synchronize()
    }

    pub fn number(&self) -> usize {
        self.comm.rank()
    }

    /// Notes what it sees in this step.
    pub fn sees(&self, text: impl FnOnce() -> String) {
        if let Some(record) = &self.record {
            record.add(watch::step_of(self.number()), text());
        }
    }

    /// A stream, given the number of it on each rank.
    pub fn stream(&self, streams: &[usize]) -> &Stream {
        &self.streams[streams[self.number()]]
    }

    pub fn memory(&self, slot: usize) -> &Memory<'c> {
        self.slots[slot].as_ref().expect("a buffer in the slot")
    }

    pub fn memory_mut(&mut self, slot: usize) -> &mut Memory<'c> {
        self.slots[slot].as_mut().expect("a buffer in the slot")
    }

    /// All elements of a buffer as bits, through a vector or pinned memory.
    pub fn bits(&self, slot: usize, stream: &Stream, pinned: bool) -> Result<Vec<u64>> {
        let memory = self.memory(slot);
        typed!(memory.kind(), T => {
            let all = T::of(memory).slice(0..memory.len());
            if pinned {
                let mut target = PinnedBuffer::<T>::zeroed(memory.len())?;
                all.copy_to_pinned(stream, &mut target)?;
                Ok(target.as_slice()?.iter().map(|value| value.bits()).collect())
            } else {
                Ok(all.to_vec(stream)?.into_iter().map(|value| value.bits()).collect())
            }
        })
    }

    /// A host function that takes a while.
    pub fn launch_host(&mut self, stream: usize, delay: Duration) -> Result<()> {
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        self.streams[stream].launch_host(move || {
            std::thread::sleep(delay);
            count.fetch_add(1, Ordering::SeqCst);
        })?;
        self.hosted.push((self.streams[stream].clone(), runs));
        Ok(())
    }

    /// Waits for everything.
    pub fn finish(&self) -> Result<()> {
        for stream in self.streams.iter().chain(self.hosted.iter().map(|(stream, _)| stream)) {
            stream.synchronize()?;
        }
        for (_, runs) in &self.hosted {
            assert_eq!(runs.load(Ordering::SeqCst), 1, "runs of a host function");
        }
        self.comm.async_error()
    }

    /// Issues this rank's part of operations, none of which writes what another one touches.
    pub fn issue(&mut self, operations: &[&Operation], way: Way) -> Result<()> {
        let (comm, me, streams) = (self.comm, self.comm.rank(), &self.streams);
        let way = if self.captures && way == Way::Elsewhere { Way::OneByOne } else { way };
        let operations: Vec<&Operation> =
            operations.iter().copied().filter(|operation| operation.concerns(me)).collect();
        // Every buffer is lent either to be read, by any number, or to be written, the whole or each half by one.
        let mut shared: Vec<Option<&Memory<'_>>> = Vec::new();
        let mut views: Vec<Option<ViewMut<'_>>> = operations.iter().map(|_| None).collect();
        for (slot, memory) in self.slots.iter_mut().enumerate() {
            let mut writers = operations.iter().enumerate().filter_map(|(at, operation)| {
                operation.written(me).map(|(target, _)| (at, target)).filter(|(_, target)| target.slot == slot)
            });
            let Some((first, target)) = writers.next() else {
                let memory: &Option<_> = memory;
                shared.push(memory.as_ref());
                continue;
            };
            shared.push(None);
            let memory = memory.as_mut().expect("a buffer in the slot");
            let Some((mid, _)) = target.half else {
                views[first] = Some(memory.whole());
                continue;
            };
            let mut halves = memory.halves(mid).map(Some);
            for (at, target) in std::iter::once((first, target)).chain(writers) {
                let (_, half) = target.half.expect("all writers take halves");
                views[at] = halves[half as usize].take();
            }
        }
        let factors =
            operations.iter().map(|operation| factor(comm, operation, &shared)).collect::<Result<Vec<_>>>()?;
        let parts: Vec<(&Operation, Io<'_, '_>)> = operations
            .iter()
            .zip(&mut views)
            .zip(&factors)
            .map(|((operation, view), factor)| {
                let send =
                    operation.read(me).map(|region| (shared[region.slot].expect("a buffer that is read"), region));
                let recv = operation.written(me).map(|(target, region)| {
                    let at = region.at - target.begin();
                    view.as_mut().expect("a buffer that is written").part(at..at + region.len)
                });
                (*operation, Io { send, recv, factor: factor.as_ref() })
            })
            .collect();
        match way {
            Way::Grouped => group(|group| {
                parts
                    .into_iter()
                    .try_for_each(|(operation, io)| operation.issue(io, &mut Via::Group(group, comm), streams))
            }),
            Way::OneByOne => {
                parts.into_iter().try_for_each(|(operation, io)| operation.issue(io, &mut Via::Alone(comm), streams))
            }
            Way::Elsewhere => parts.into_iter().try_for_each(|(operation, io)| {
                let issue = || operation.issue(io, &mut Via::Alone(comm), streams);
                std::thread::scope(|scope| scope.spawn(issue).join().expect("no panic"))
            }),
        }
    }
}

fn strange(device: Device) -> Result<(Stream, DeviceBuffer<u8>)> {
    let stream = Stream::new(device)?;
    let memory = DeviceBuffer::zeroed(&stream, 1 << 20)?;
    Ok((stream, memory))
}

/// The pre-multiplied sum of this rank, where an operation has one.
fn factor<'a>(
    comm: &'a Communicator,
    operation: &Operation,
    shared: &[Option<&'a Memory<'_>>],
) -> Result<Option<Factor<'a>>> {
    let me = comm.rank();
    typed!(operation.kind(), T => {
        let sum: PreMulSum<'a, T> = match operation.factors() {
            Factors::None => return Ok(None),
            Factors::Host(bits) => comm.pre_mul_sum(T::of_bits(bits[me]))?,
            Factors::Device(places) => {
                let place = places[me];
                let memory = shared[place.slot].expect("a buffer that is read");
                comm.pre_mul_sum_device(T::of(memory).slice(place.at..place.at + 1))?
            }
        };
        Ok(Some(T::into_factor(sum)))
    })
}
