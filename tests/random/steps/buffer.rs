//! Buffers come and go.

use fastrand::Rng;
use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::{DeviceBuffer, Element, ElementKind, Error, Result, Stream};

use crate::cell::Cell;
use crate::deviation::Deviation;
use crate::farewell::Farewell;
use crate::generator::{Generator, Values};
use crate::model::{Contents, Model, Origin};
use crate::number::{Buffer, Memory, Number, typed};
use crate::rank::Rank;
use crate::step::Step;

/// A new buffer on all ranks.
#[derive(Debug)]
struct Make {
    slot: usize,
    kind: ElementKind,
    len: usize,
    origin: Origin,
    /// For those that are made from values.
    values: Vec<Values>,
    streams: Vec<usize>,
}

pub fn make(g: &mut Generator) -> Option<Box<dyn Step>> {
    let slot = g.vacant()?;
    let kind = g.kind();
    let origin = if g.chance(20) { Origin::Uninit } else { g.choose(&Origin::INITIAL) };
    let len = match g.rng.u32(..12) {
        // Little can be done with short ones.
        0 => g.length(8000),
        _ => 2 * Generator::margin(kind) + g.length(20_000).max(g.length(20_000)),
    };
    let has_values = matches!(origin, Origin::From | Origin::AllocFrom | Origin::Foreign);
    let values = g.each(|g| g.values(kind, if has_values { len } else { 0 }));
    Some(Box::new(Make { slot, kind, len, origin, values, streams: g.streams() }))
}

/// Memory that the crate takes for that of others: its owner is a buffer.
fn foreign<T: Element>(stream: &Stream, values: &[T]) -> Result<DeviceBuffer<T>> {
    let memory = DeviceBuffer::<T>::uninit(stream, values.len())?;
    let (device, ptr) = (memory.device(), memory.as_raw());
    // SAFETY: the memory goes with its owner, which nobody else has; it is there for the stream, which uses it next.
    let mut buffer = unsafe { DeviceBuffer::from_raw_parts(device, ptr, values.len(), memory)? };
    buffer.copy_from_slice(stream, values)?;
    Ok(buffer)
}

/// Memory that is mapped for this device.
fn mapped<T: Element>(stream: &Stream, len: usize) -> Result<DeviceBuffer<T>> {
    let memory = PhysicalMemory::new(stream.device(), len * size_of::<T>())?;
    let mut buffer = memory.map(&[Access::read_write(stream.device())])?.into_buffer_of(len)?;
    buffer.fill(stream, T::ZERO)?;
    Ok(buffer)
}

impl Step for Make {
    fn apply(&self, model: &mut Model) {
        let cells = |values: &Values| match self.origin {
            Origin::From | Origin::AllocFrom | Origin::Foreign => {
                values.0.iter().map(|&bits| Cell::exact(bits)).collect()
            }
            Origin::Uninit => vec![Cell::UNKNOWN; self.len],
            Origin::Zeroed | Origin::Alloc | Origin::Local | Origin::Nccl | Origin::Mapped => {
                vec![Cell::exact(0); self.len]
            }
        };
        let ranks = self.values.iter().map(cells).collect();
        model.slots[self.slot] = Some(Contents { kind: self.kind, origin: self.origin, registered: false, ranks });
    }

    fn makes(&self) -> Option<usize> {
        Some(self.slot)
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (comm, stream, values) = (rank.comm, rank.stream(&self.streams), &self.values[rank.number()].0);
        let memory = typed!(self.kind, T => {
            let buffer: Buffer<'_, T> = match self.origin {
                Origin::From => Buffer::Device(DeviceBuffer::from_slice(stream, &T::values(values))?),
                Origin::Uninit => Buffer::Device(DeviceBuffer::uninit(stream, self.len)?),
                Origin::Zeroed => Buffer::Device(DeviceBuffer::zeroed(stream, self.len)?),
                // The same for ranks that differ in this, at such lengths.
                Origin::Alloc if self.len % 2 == 1 => match comm.alloc_symmetric(stream, self.len) {
                    Ok(symmetric) => Buffer::Comm(symmetric.into_fitting()),
                    Err(Error::Unsupported { .. }) => Buffer::Comm(comm.alloc(stream, self.len)?),
                    Err(error) => return Err(error),
                },
                Origin::Alloc => Buffer::Comm(comm.alloc(stream, self.len)?),
                Origin::AllocFrom => Buffer::Comm(comm.alloc_from(stream, &T::values(values))?),
                Origin::Local => Buffer::Comm(comm.alloc_local(stream, self.len)?.into_fitting()),
                Origin::Mapped => Buffer::Device(mapped(stream, self.len)?),
                Origin::Nccl => Buffer::Device(gpucomm::nccl::alloc(stream, self.len)?),
                Origin::Foreign => Buffer::Device(foreign(stream, &T::values(values))?),
            };
            T::into_memory(buffer)
        });
        assert_eq!((memory.kind(), memory.len()), (self.kind, self.len), "a new buffer");
        rank.slots[self.slot] = Some(memory);
        Ok(())
    }

    /// A window of another size.
    fn deviate(&self, _: &mut Rng, _: usize) -> Option<Deviation> {
        let len = self.len + 5000;
        let values = self.values.iter().map(|_| Values(vec![0; len])).collect();
        let other = Self { len, values, streams: self.streams.clone(), ..*self };
        self.origin.is_window().then(|| Deviation::instead("window", other))
    }
}

#[derive(Debug)]
struct Release {
    slot: usize,
    ways: Vec<Farewell>,
    /// Whether what is registered goes before its buffer.
    first: Vec<bool>,
    streams: Vec<usize>,
}

pub fn release(g: &mut Generator) -> Option<Box<dyn Step>> {
    let slot = g.live()?;
    let ways = g.each(|g| Farewell::draw(&mut g.rng, g.forget));
    let first = g.each(|g| g.rng.bool());
    Some(Box::new(Release { slot, ways, first, streams: g.streams() }))
}

impl Step for Release {
    fn apply(&self, model: &mut Model) {
        model.slots[self.slot] = None;
    }

    fn slots(&self) -> Vec<usize> {
        vec![self.slot]
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (memory, mut registration) = (rank.slots[self.slot].take(), rank.registrations[self.slot].take());
        if self.first[rank.number()] {
            registration = None;
        }
        let (way, stream) = (self.ways[rank.number()], rank.stream(&self.streams));
        match memory.map(Memory::into_owned) {
            Some(Ok(owned)) => way.to(owned, stream)?,
            Some(Err(borrower)) => way.to_borrower(borrower),
            None => {}
        }
        drop(registration);
        Ok(())
    }
}
