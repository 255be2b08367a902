//! How far the symmetric heap goes: the library says it nowhere, so addresses are asked for.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Result;

/// What memory of devices is mapped by.
const PAGE: usize = 2 << 20;

/// Where the heap of this PE begins and ends, as it was known last. It only becomes longer.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    begin: AtomicUsize,
    end: AtomicUsize,
}

impl Extent {
    /// The heap around `inside`, an address in it. It has grown by multiples of `step`, and there is a gap of at least as much behind it. There may be
    /// something else before it, which is taken for a part of it then.
    pub(crate) fn now(
        &self,
        inside: usize,
        step: usize,
        is_mapped: impl Fn(usize) -> Result<bool>,
    ) -> Result<Range<usize>> {
        let mut last = self.end.load(Ordering::Relaxed).saturating_sub(PAGE).max(inside / PAGE * PAGE);
        while is_mapped(last + step)? {
            last += step;
        }
        let (mut mapped, mut not) = (last / PAGE, (last + step) / PAGE);
        while not - mapped > 1 {
            let middle = mapped.midpoint(not);
            if is_mapped(middle * PAGE)? { mapped = middle } else { not = middle }
        }
        let end = not * PAGE;
        let mut begin = self.begin.load(Ordering::Relaxed);
        if begin == 0 {
            begin = end;
            while begin >= step && is_mapped(begin - step)? {
                begin -= step;
            }
        }
        self.begin.store(begin, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        Ok(begin..end)
    }
}

/// Whether there is a gap of `span` bytes between the `held` ranges, within `all`.
pub(crate) fn has_gap(held: impl IntoIterator<Item = Range<usize>>, all: Range<usize>, span: usize) -> bool {
    let mut held: Vec<_> = held.into_iter().collect();
    held.sort_unstable_by_key(|range| range.start);
    let mut from = all.start;
    for range in held {
        if range.start >= from && range.start - from >= span {
            return true;
        }
        from = from.max(range.end);
    }
    all.end >= from && all.end - from >= span
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[test]
    fn a_heap_is_found_as_it_grows() {
        for (step, base) in [(PAGE, 7 * PAGE), (512 << 20, 1 << 40), (512 << 20, (1 << 40) + 3 * PAGE)] {
            let (extent, heap, asked) = (Extent::default(), RefCell::new(base..base + step), Cell::new(0));
            let is_mapped = |address: usize| {
                asked.set(asked.get() + 1);
                Ok(heap.borrow().contains(&address))
            };
            for steps in [1, 2, 5, 60] {
                heap.replace(base..base + steps * step);
                assert_eq!(extent.now(base + 12_345, step, is_mapped).unwrap(), base..base + steps * step);
            }
            asked.set(0);
            extent.now(base + 12_345, step, is_mapped).unwrap();
            assert!(asked.get() < 12, "{} addresses", asked.get());
        }
    }

    #[test]
    fn gaps() {
        let gap = |held: &[Range<usize>], span| has_gap(held.iter().cloned(), 10..100, span);
        assert!(gap(&[], 90) && !gap(&[], 91));
        assert!(gap(&[50..60, 20..50], 40) && !gap(&[50..60, 20..50], 41));
        assert!(gap(&[10..20, 45..100], 25) && !gap(&[10..20, 45..100], 26));
        // What reaches further than it might.
        assert!(!gap(&[10..99, 20..30], 2) && gap(&[10..99, 20..30], 1));
        assert!(!gap(&[0..50, 50..200], 1));
    }
}
