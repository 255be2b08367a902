//! Where windows lie in the address space that the ranks of a communicator have in common.
//!
//! NCCL keeps one such space on each rank, and each rank chooses the place of a window by itself: the first gap that is large enough. The
//! same place on all ranks is what multicast and kernels rest on. It comes about only where all ranks have taken the same windows away
//! before.

use std::collections::BTreeMap;

/// What places are multiples of: the granularity of device memory.
const GRAIN: u64 = 2 << 20;

/// What is taken: the end of each range, by its begin.
#[derive(Debug, Default)]
pub(crate) struct Space(BTreeMap<u64, u64>);

impl Space {
    /// The first place for `bytes`.
    pub(crate) fn take(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.next_multiple_of(GRAIN);
        let mut place = 0;
        for (&begin, &end) in &self.0 {
            if begin - place >= bytes {
                break;
            }
            place = end;
        }
        self.0.insert(place, place + bytes);
        place
    }

    /// Gives a place back.
    pub(crate) fn give(&mut self, place: u64) {
        self.0.remove(&place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_gap_that_is_large_enough() {
        let mut space = Space::default();
        let all = [1, GRAIN, GRAIN + 1, 1].map(|bytes| space.take(bytes) / GRAIN);
        assert_eq!(all, [0, 1, 2, 4]);
        space.give(GRAIN);
        space.give(2 * GRAIN);
        assert_eq!([4 * GRAIN, 3 * GRAIN, 1].map(|bytes| space.take(bytes) / GRAIN), [5, 1, 9]);
        space.give(0);
        assert_eq!(space.take(GRAIN), 0);
    }
}
