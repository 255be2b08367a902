//! What one rank does to its own buffers: writes, fills and copies.

use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::{ElementKind, PinnedBuffer, Result, Stream, sys};

use crate::cell::Cell;
use crate::generator::{Generator, Values};
use crate::model::{Model, Place};
use crate::number::{Number, typed};
use crate::rank::Rank;
use crate::settings::injects;
use crate::step::Step;

/// Values from the host.
#[derive(Debug)]
struct Write {
    slot: usize,
    kind: ElementKind,
    at: Vec<usize>,
    values: Vec<Values>,
    /// Whether they are copied out of pinned memory.
    pinned: Vec<bool>,
    streams: Vec<usize>,
}

/// A part of a buffer on each rank, as offsets and lengths.
fn parts(g: &mut Generator, kind: ElementKind, len: usize) -> (Vec<usize>, Vec<usize>) {
    let part = |g: &mut Generator| {
        let count = g.length(len);
        (g.offset(kind, (0, len), count), count)
    };
    g.each(part).into_iter().unzip()
}

pub fn write(g: &mut Generator) -> Option<Box<dyn Step>> {
    let slot = g.live()?;
    let (kind, len) = (g.model.contents(slot).kind, g.model.contents(slot).len());
    let (at, lens) = parts(g, kind, len);
    let values = lens.into_iter().map(|len| g.values(kind, len)).collect();
    let pinned = g.each(|g| g.chance(3));
    Some(Box::new(Write { slot, kind, at, values, pinned, streams: g.streams() }))
}

impl Step for Write {
    fn apply(&self, model: &mut Model) {
        for (rank, (&at, values)) in self.at.iter().zip(&self.values).enumerate() {
            let cells: Vec<Cell> = values.0.iter().map(|&bits| Cell::exact(bits)).collect();
            model.write(rank, Place { slot: self.slot, at }, &cells);
        }
    }

    fn slots(&self) -> Vec<usize> {
        vec![self.slot]
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (me, stream) = (rank.number(), rank.stream(&self.streams).clone());
        let captures = rank.captures;
        let (at, memory) = (self.at[me], rank.memory_mut(self.slot));
        typed!(self.kind, T => {
            let values = T::values(&self.values[me].0);
            let mut target = T::of_mut(memory).slice_mut(at..at + values.len());
            if captures {
                // The graph keeps it.
                let pinned = stream.move_in(PinnedBuffer::from_slice(&values)?)?;
                target.copy_from_pinned(&stream, &pinned)
            } else if self.pinned[me] {
                let mut pinned = PinnedBuffer::<T>::zeroed(values.len() + 2)?;
                let mut part = pinned.slice_mut(1..=values.len());
                part.as_slice_mut()?.copy_from_slice(&values);
                target.copy_from_pinned(&stream, &part)
            } else {
                target.copy_from_slice(&stream, &values)
            }
        })
    }
}

#[derive(Debug)]
struct Fill {
    slot: usize,
    kind: ElementKind,
    at: Vec<usize>,
    lens: Vec<usize>,
    values: Vec<u64>,
    streams: Vec<usize>,
}

pub fn fill(g: &mut Generator) -> Option<Box<dyn Step>> {
    let slot = g.live()?;
    let (kind, len) = (g.model.contents(slot).kind, g.model.contents(slot).len());
    let (at, lens) = parts(g, kind, len);
    let values = g.each(|g| g.values(kind, 1).0[0]);
    Some(Box::new(Fill { slot, kind, at, lens, values, streams: g.streams() }))
}

impl Step for Fill {
    fn apply(&self, model: &mut Model) {
        for rank in 0..self.at.len() {
            let cells = vec![Cell::exact(self.values[rank]); self.lens[rank]];
            model.write(rank, Place { slot: self.slot, at: self.at[rank] }, &cells);
        }
    }

    fn slots(&self) -> Vec<usize> {
        vec![self.slot]
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (me, stream) = (rank.number(), rank.stream(&self.streams).clone());
        let (at, mut len, memory) = (self.at[me], self.lens[me], rank.memory_mut(self.slot));
        if me == 1 && len > 1 && injects("fill") {
            len -= 1;
        }
        typed!(self.kind, T => T::of_mut(memory).slice_mut(at..at + len).fill(&stream, T::of_bits(self.values[me])))
    }
}

/// Copies, by a call of the crate or by one of another library that the crate is told of.
fn copy<T: Number>(stream: &Stream, from: Slice<'_, T>, mut to: SliceMut<'_, T>, bracket: bool) -> Result<()> {
    if !bracket {
        return to.copy_from(stream, from);
    }
    let bytes = from.len() * size_of::<T>();
    let kind = sys::cudaMemcpyKind::cudaMemcpyDeviceToDevice;
    let code = stream.launch((from, to), |stream, (from, mut to)| {
        // SAFETY: both have that many bytes, and this is the one launch.
        unsafe { sys::cudaMemcpyAsync(to.as_mut_ptr().cast(), from.as_ptr().cast(), bytes, kind, stream.as_raw()) }
    })?;
    assert_eq!(code, sys::cudaError::cudaSuccess);
    Ok(())
}

/// From one buffer to another.
#[derive(Debug)]
struct Between {
    kind: ElementKind,
    from: Vec<Place>,
    to: Vec<Place>,
    lens: Vec<usize>,
    /// Elements of each piece in which it goes.
    pieces: Vec<usize>,
    streams: Vec<usize>,
}

pub fn between(g: &mut Generator) -> Option<Box<dyn Step>> {
    let source = g.live()?;
    let (sink, kind) = (g.partner(source)?, g.model.contents(source).kind);
    let (from_len, to_len) = (g.model.contents(source).len(), g.model.contents(sink).len());
    let lens = g.each(|g| g.length(from_len.min(to_len)));
    let mut places = |slot: usize, within: usize| -> Vec<Place> {
        lens.iter().map(|&len| Place { slot, at: g.offset(kind, (0, within), len) }).collect()
    };
    let (from, to) = (places(source, from_len), places(sink, to_len));
    let pieces = lens.iter().map(|&len| if g.chance(3) { len / 3 + 1 } else { len + 1 }).collect();
    Some(Box::new(Between { kind, from, to, lens, pieces, streams: g.streams() }))
}

impl Step for Between {
    fn apply(&self, model: &mut Model) {
        for (rank, &len) in self.lens.iter().enumerate() {
            model.copy(rank, self.from[rank], self.to[rank], len);
        }
    }

    fn slots(&self) -> Vec<usize> {
        vec![self.from[0].slot, self.to[0].slot]
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (me, stream) = (rank.number(), rank.stream(&self.streams).clone());
        let (from, to, len) = (self.from[me], self.to[me], self.lens[me]);
        let mut target = rank.slots[to.slot].take().expect("a buffer in the slot");
        let source = rank.memory(from.slot);
        let copied = typed!(self.kind, T => {
            let source = T::of(source).slice(from.at..from.at + len);
            let (mut target, piece) = (T::of_mut(&mut target).slice_mut(to.at..to.at + len), self.pieces[me]);
            let mut pieces = target.chunks_mut(piece).zip(source.chunks(piece));
            pieces.try_for_each(|(to, from)| copy(&stream, from, to, len % 2 == 1))
        });
        rank.slots[to.slot] = Some(target);
        copied
    }
}

/// From one half of a buffer to the other.
#[derive(Debug)]
struct Within {
    slot: usize,
    kind: ElementKind,
    /// For each rank, where the buffer is divided, how many elements are copied, and whether forwards.
    ranks: Vec<(usize, usize, bool)>,
    streams: Vec<usize>,
}

pub fn within(g: &mut Generator) -> Option<Box<dyn Step>> {
    let slot = g.live()?;
    let (kind, len) = (g.model.contents(slot).kind, g.model.contents(slot).len());
    let ranks = g.each(|g| {
        let mid = g.rng.usize(..=len);
        (mid, g.length(mid.min(len - mid)), g.rng.bool())
    });
    Some(Box::new(Within { slot, kind, ranks, streams: g.streams() }))
}

impl Step for Within {
    fn apply(&self, model: &mut Model) {
        let slot = self.slot;
        for (rank, &(mid, len, forwards)) in self.ranks.iter().enumerate() {
            let (front, back) = (Place { slot, at: 0 }, Place { slot, at: mid });
            let (from, to) = if forwards { (front, back) } else { (back, front) };
            model.copy(rank, from, to, len);
        }
    }

    fn slots(&self) -> Vec<usize> {
        vec![self.slot]
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (stream, (mid, len, forwards)) = (rank.stream(&self.streams).clone(), self.ranks[rank.number()]);
        let memory = rank.memory_mut(self.slot);
        typed!(self.kind, T => {
            let (mut front, mut back) = T::of_mut(memory).split_at_mut(mid);
            if forwards {
                copy(&stream, front.slice(..len), back.slice_mut(..len), mid % 2 == 1)
            } else {
                copy(&stream, back.slice(..len), front.slice_mut(..len), mid % 2 == 1)
            }
        })
    }
}
