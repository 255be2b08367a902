//! Free ranges of an arena: best fit, neighbours merge.

use std::collections::{BTreeMap, BTreeSet};

/// Sizes and offsets are multiples of this.
const GRAIN: u64 = 512;
/// Ranges of at least this size start at a multiple of it.
const COARSE: u64 = 2 << 20;

/// How much is taken for an allocation of `bytes` bytes.
pub(crate) fn span(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(GRAIN)
}

/// The free ranges of one arena.
#[derive(Debug)]
pub(crate) struct Ranges {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    free: u64,
    /// So many of the free ones are lent.
    lent: u64,
}

impl Ranges {
    /// All `bytes` bytes are free.
    pub fn new(bytes: u64) -> Self {
        let bytes = bytes / GRAIN * GRAIN;
        let mut ranges = Self { by_offset: BTreeMap::new(), by_size: BTreeSet::new(), free: bytes, lent: 0 };
        ranges.insert(0, bytes);
        ranges
    }

    /// How many bytes are free, in pieces of any size.
    pub fn free(&self) -> u64 {
        self.free - self.lent
    }

    /// Counts so many free bytes as used, wherever they lie; whether there were as many.
    pub fn lend(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free();
        if fits {
            self.lent += bytes;
        }
        fits
    }

    /// Takes back what [`Self::lend`] gave.
    pub fn restore(&mut self, bytes: u64) {
        self.lent -= bytes;
    }

    /// `size` bytes, a multiple of the grain, from the smallest range that holds them.
    pub fn take(&mut self, size: u64) -> Option<u64> {
        if size > self.free() {
            return None;
        }
        let align = if size >= COARSE { COARSE } else { GRAIN };
        let fits = |&&(length, offset): &&(u64, u64)| offset.next_multiple_of(align) - offset + size <= length;
        let &(length, offset) = self.by_size.range((size, 0)..).find(fits)?;
        self.by_offset.remove(&offset);
        self.by_size.remove(&(length, offset));
        let start = offset.next_multiple_of(align);
        self.insert(offset, start - offset);
        self.insert(start + size, offset + length - (start + size));
        self.free -= size;
        Some(start)
    }

    /// Takes back what [`Self::take`] gave.
    pub fn give(&mut self, mut offset: u64, mut size: u64) {
        self.free += size;
        if let Some((&before, &length)) = self.by_offset.range(..offset).next_back()
            && before + length == offset
        {
            self.remove(before, length);
            offset = before;
            size += length;
        }
        if let Some(&length) = self.by_offset.get(&(offset + size)) {
            self.remove(offset + size, length);
            size += length;
        }
        self.insert(offset, size);
    }

    fn insert(&mut self, offset: u64, size: u64) {
        if size > 0 {
            self.by_offset.insert(offset, size);
            self.by_size.insert((size, offset));
        }
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(size, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_takes_and_gives_never_overlap_and_merge_back() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let total = 64 << 20;
        let mut ranges = Ranges::new(total);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for _ in 0..4000 {
            if random.bool() || taken.is_empty() {
                let most = 1 << random.u32(1..14);
                let size = random.u64(1..=most) * GRAIN;
                if let Some(offset) = ranges.take(size) {
                    assert!(offset + size <= total);
                    assert_eq!(offset % if size >= COARSE { COARSE } else { GRAIN }, 0);
                    assert!(taken.iter().all(|&(other, length)| offset + size <= other || other + length <= offset));
                    taken.push((offset, size));
                }
            } else {
                let (offset, size) = taken.swap_remove(random.usize(..taken.len()));
                ranges.give(offset, size);
            }
            assert_eq!(ranges.free(), total - taken.iter().map(|(_, size)| size).sum::<u64>());
        }
        for (offset, size) in taken {
            ranges.give(offset, size);
        }
        assert_eq!(ranges.by_offset, BTreeMap::from([(0, total)]));
        assert_eq!(ranges.by_size, BTreeSet::from([(total, 0)]));
        assert_eq!(ranges.take(total), Some(0));
        assert_eq!(ranges.take(GRAIN), None);
    }

    #[test]
    fn what_is_lent_is_not_taken() {
        let mut ranges = Ranges::new(4 * GRAIN);
        assert!(ranges.lend(3 * GRAIN) && !ranges.lend(2 * GRAIN));
        assert_eq!((ranges.free(), ranges.take(2 * GRAIN)), (GRAIN, None));
        assert_eq!(ranges.take(GRAIN), Some(0));
        assert!(!ranges.lend(1) && ranges.lend(0));
        ranges.restore(3 * GRAIN);
        assert_eq!(ranges.take(3 * GRAIN), Some(GRAIN));
    }
}
