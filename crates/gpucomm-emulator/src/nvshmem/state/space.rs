//! The addresses of a symmetric heap: which are free, and how many there are. As the library has it: the first gap that is long enough, and where there is
//! none, the heap becomes longer by steps, up to a limit.

use std::collections::BTreeMap;

/// What allocations are multiples of.
const UNIT: u64 = 512;

#[derive(Debug)]
pub(crate) struct Space {
    free: BTreeMap<u64, u64>,
    /// How long it is.
    pub(crate) length: u64,
    step: u64,
    /// It is never as long as this.
    limit: u64,
}

impl Space {
    pub(crate) fn new(step: u64, limit: u64) -> Self {
        Self { free: BTreeMap::new(), length: 0, step, limit: limit.next_multiple_of(step) }
    }

    /// By how much it has to grow for so many bytes; `None` where it cannot be so long.
    pub(crate) fn growth(&self, bytes: u64, align: u64) -> Option<u64> {
        let growth = bytes.checked_add(align)?.checked_next_multiple_of(self.step)?;
        (self.length.checked_add(growth)? < self.limit).then_some(growth)
    }

    pub(crate) fn grow(&mut self, growth: u64) {
        self.put(self.length, growth);
        self.length += growth;
    }

    /// Takes `bytes` that begin at a multiple of `align`, 0 for any: where they begin, and how many they are with what is lost.
    pub(crate) fn take(&mut self, bytes: u64, align: u64) -> Option<(u64, u64)> {
        let span = bytes.checked_add(align)?.checked_next_multiple_of(UNIT)?;
        let (&start, &length) = self.free.iter().find(|&(_, &length)| length >= span)?;
        self.free.remove(&start);
        if length > span {
            self.free.insert(start + span, length - span);
        }
        let begin = start.next_multiple_of(align.max(1));
        if begin > start {
            self.put(start, begin - start);
        }
        Some((begin, start + span - begin))
    }

    /// Takes back what [`Self::take`] gave.
    pub(crate) fn put(&mut self, mut start: u64, mut length: u64) {
        if let Some((&before, &bytes)) = self.free.range(..start).next_back()
            && before + bytes == start
        {
            self.free.remove(&before);
            (start, length) = (before, length + bytes);
        }
        if let Some(bytes) = self.free.remove(&(start + length)) {
            length += bytes;
        }
        self.free.insert(start, length);
    }
}

#[test]
fn the_first_gap_is_taken_and_the_end_grows() {
    let mut space = Space::new(4096, 3 * 4096);
    assert_eq!((space.take(1, 0), space.growth(5000, 0)), (None, Some(8192)));
    assert_eq!(space.growth(4096, 8192), None, "never as long as the limit");
    space.grow(8192);
    let all: Vec<_> = [1, 513, 600].map(|bytes| space.take(bytes, 0).unwrap()).into();
    assert_eq!(all, [(0, 512), (512, 1024), (1536, 1024)]);
    space.put(512, 1024);
    // What begins later leaves what lies before it.
    assert_eq!(space.take(100, 2048), Some((4096, 1024)));
    assert_eq!(space.take(1024, 0), Some((512, 1024)));
    assert_eq!(space.take(1024, 0), Some((2560, 1024)));
    space.put(0, 512);
    space.put(2560, 1024);
    assert_eq!(space.take(4096, 0), None);
    assert_eq!(space.growth(1, 0), None);
}
