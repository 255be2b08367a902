//! Checks every element of every rank, and the guard zones around them.

use std::cmp::Ordering;

use gpucomm::nccl::CommBuffer;

use super::buffers::Rank;
use super::data::{Data, Holds, Segment};
use super::number::Number;
use crate::failure::{Failure, Result};

/// Elements that are copied and compared at a time.
const BLOCK: usize = 1 << 18;

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Elements of results that are not what they should be.
    pub wrong: u64,
    /// Elements that the operation had no business with, and changed.
    pub outside: u64,
}

impl std::ops::AddAssign for Found {
    fn add_assign(&mut self, other: Self) {
        self.wrong += other.wrong;
        self.outside += other.outside;
    }
}

/// Does `work` for each rank; on threads of their own if there are several, since this is the slow part.
pub fn each<I: Send, R: Send>(items: &mut [I], work: impl Fn(&mut I) -> Result<R> + Sync) -> Result<Vec<R>> {
    if let [one] = items {
        return Ok(vec![work(one)?]);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter_mut().map(|item| scope.spawn(|| work(item))).collect();
        let results: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Failure::run("a thread panicked"))))
            .collect();
        results.into_iter().collect()
    })
}

/// Poisons both buffers, guards and all, and writes the input.
pub fn prepare<T: Number>(rank: &mut Rank<'_, T>, data: &Data, in_place: bool) -> Result<()> {
    let guard = Rank::<T>::GUARD;
    let source = data.source(rank.comm.rank(), in_place);
    rank.recv.slice_mut(0..data.region(in_place) + 2 * guard).fill(&rank.stream, T::POISON)?;
    if !in_place {
        let len = source.map_or(0, |source| source.len);
        rank.send.slice_mut(0..len + 2 * guard).fill(&rank.stream, T::POISON)?;
    }
    if let Some(source) = source {
        let buffer = if in_place { &mut rank.recv } else { &mut rank.send };
        let mut block = vec![T::ZERO; source.len.min(BLOCK)];
        for skip in (0..source.len).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(source.len - skip)];
            data.write(source.holds, skip, block);
            let start = guard + source.start + skip;
            buffer.slice_mut(start..start + block.len()).copy_from_slice(&rank.stream, block)?;
        }
    }
    Ok(())
}

/// Compares both buffers with what they must hold now.
pub fn examine<T: Number>(rank: &mut Rank<'_, T>, data: &Data, in_place: bool) -> Result<Found> {
    let me = rank.comm.rank();
    let guard = Rank::<T>::GUARD;
    let mut reader = Reader::new(&rank.stream, data);
    let mut found = Found::default();
    for segment in data.result(me, in_place) {
        let differing = reader.differing(&rank.recv, Segment { start: guard + segment.start, ..segment })?;
        match segment.holds {
            Holds::Poison => found.outside += differing,
            _ => found.wrong += differing,
        }
    }
    found.outside += reader.guards(&rank.recv, data.region(in_place))?;
    if !in_place {
        let source = data.source(me, false);
        found.outside += reader.guards(&rank.send, source.map_or(0, |source| source.len))?;
        if let Some(source) = source {
            found.outside += reader.differing(&rank.send, Segment { start: guard + source.start, ..source })?;
        }
    }
    Ok(found)
}

/// Reads device memory block by block and compares.
struct Reader<'a, T> {
    stream: &'a gpucomm::Stream,
    data: &'a Data,
    got: Vec<T>,
    want: Vec<T>,
}

impl<'a, T: Number> Reader<'a, T> {
    fn new(stream: &'a gpucomm::Stream, data: &'a Data) -> Self {
        Self { stream, data, got: Vec::new(), want: Vec::new() }
    }

    /// How many elements of `segment` are not what it says; `start` counts from the beginning of the buffer.
    fn differing(&mut self, buffer: &CommBuffer<'_, T>, segment: Segment) -> Result<u64> {
        let block = segment.len.min(BLOCK);
        if self.got.len() < block {
            self.got.resize(block, T::ZERO);
            self.want.resize(block, T::ZERO);
        }
        // The tolerance is for results that were rounded; inputs and poison come back as they were.
        let tolerance = if matches!(segment.holds, Holds::Reduced { .. }) { self.data.tolerance() } else { 0.0 };
        let mut differing = 0;
        for skip in (0..segment.len).step_by(BLOCK) {
            let len = BLOCK.min(segment.len - skip);
            let (got, want) = (&mut self.got[..len], &mut self.want[..len]);
            let start = segment.start + skip;
            buffer.slice(start..start + len).copy_to_slice(self.stream, got)?;
            self.data.write(segment.holds, skip, want);
            differing += compare(got, want, tolerance);
        }
        Ok(differing)
    }

    /// How many elements of the guards around `len` elements have changed.
    fn guards(&mut self, buffer: &CommBuffer<'_, T>, len: usize) -> Result<u64> {
        let guard = Rank::<T>::GUARD;
        let zone = |start| Segment { start, len: guard, holds: Holds::Poison };
        Ok(self.differing(buffer, zone(0))? + self.differing(buffer, zone(guard + len))?)
    }
}

/// How many elements differ by more than `tolerance`. What is not a number differs.
fn compare<T: Number>(got: &[T], want: &[T], tolerance: f64) -> u64 {
    let differ = |got: &T, want: &T| {
        got != want
            && (tolerance == 0.0
                || (got.to_real() - want.to_real()).abs().partial_cmp(&tolerance).is_none_or(Ordering::is_gt))
    };
    got.iter().zip(want).filter(|(got, want)| differ(got, want)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparing() {
        assert_eq!(compare(&[1, 2, 3], &[1, 5, 4], 0.0), 2);
        assert_eq!(compare(&[1.0f32, 2.0, f32::NAN], &[1.0, 2.1, 3.0], 0.0), 2);
        assert_eq!(compare(&[1.0f32, 2.0, f32::NAN, f32::INFINITY], &[1.0, 2.1, 3.0, 1.0], 0.2), 2);
    }
}
