//! The windows of a communicator, and the address space in which they lie.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bugs;
use crate::lock::Mutex;
use crate::memory::object::Location;
use crate::memory::usage::InUse;
use crate::nccl::state::registrations::Found;
use crate::nccl::state::shared::Stranded;
use crate::settings::settings;

/// The memory of one rank in a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) begin: Location,
    pub(crate) bytes: u64,
}

/// A registered range.
#[derive(Debug)]
pub(crate) struct Window {
    /// Which of this communicator, on all ranks.
    number: u64,
    /// In the address space of all ranks.
    place: u64,
    range: Range<usize>,
    /// Where that begins which was mapped as one.
    base: usize,
    /// NCCL may use kernels between such windows that it has for nothing else.
    symmetric: bool,
    #[expect(dead_code, reason = "while it lives, freeing the memory is reported")]
    used: InUse,
    /// Of each rank.
    parts: Box<[Part]>,
    /// Held by the operations of this rank that found it.
    found: Arc<()>,
}

impl Window {
    pub(crate) fn new(
        (number, place): (u64, u64),
        range: Range<usize>,
        base: usize,
        symmetric: bool,
        used: InUse,
        parts: Box<[Part]>,
    ) -> Self {
        Self { number, place, range, base, symmetric, used, parts, found: Arc::default() }
    }
}

/// The windows that one rank has.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    by_handle: Mutex<HashMap<usize, Window>>,
    /// How many there are.
    len: AtomicUsize,
    space: Mutex<Space>,
}

/// Windows are named by numbers that only look like pointers.
static NEXT: AtomicUsize = AtomicUsize::new(1);

impl Windows {
    /// Takes the place of a window of `bytes` bytes in the address space of all ranks.
    pub(crate) fn take_place(&self, bytes: u64) -> u64 {
        self.space.lock().take(bytes)
    }

    /// Gives the place of a window back that has come to nothing.
    pub(crate) fn give_place(&self, place: u64) {
        self.space.lock().give(place);
    }

    /// Adds a window: its handle.
    pub(crate) fn add(&self, window: Window) -> usize {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed) * 64;
        let mut windows = self.by_handle.lock();
        windows.insert(handle, window);
        self.len.store(windows.len(), Ordering::Release);
        handle
    }

    /// Removes a window and gives its place back: whether operations of this rank use it. `None` if there was none.
    pub(crate) fn remove(&self, handle: usize) -> Option<bool> {
        let mut windows = self.by_handle.lock();
        let removed = windows.remove(&handle);
        self.len.store(windows.len(), Ordering::Release);
        drop(windows);
        let window = removed?;
        self.give_place(window.place);
        Some(Arc::strong_count(&window.found) > 1)
    }

    /// Whether a window is there still.
    pub(crate) fn has(&self, handle: usize) -> bool {
        self.by_handle.lock().contains_key(&handle)
    }

    /// Where a window begins here, and the part of each rank.
    pub(crate) fn parts(&self, handle: usize) -> Option<(usize, Box<[Part]>)> {
        self.by_handle.lock().get(&handle).map(|window| (window.range.start, window.parts.clone()))
    }

    /// Whether a symmetric window lies over some of these addresses.
    pub(crate) fn overlaps(&self, range: &Range<usize>) -> bool {
        let over = |window: &Window| window.range.start < range.end && range.start < window.range.end;
        self.by_handle.lock().values().any(|window| window.symmetric && over(window))
    }

    /// Whether a window lies over what was mapped as one from `base` on.
    pub(crate) fn maps(&self, base: usize) -> bool {
        self.by_handle.lock().values().any(|window| window.base == base)
    }

    /// The window in which an address lies.
    pub(crate) fn find(&self, address: usize) -> Option<Found> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let windows = self.by_handle.lock();
        windows.values().find(|window| window.range.contains(&address)).map(|window| Found::new(&window.found))
    }

    /// The handles of the symmetric windows in which these addresses lie.
    pub(crate) fn symmetric_at(&self, addresses: [usize; 2]) -> Vec<usize> {
        let windows = self.by_handle.lock();
        let lies = |window: &Window| addresses.iter().any(|address| window.range.contains(address));
        windows.iter().filter(|(_, window)| window.symmetric && lies(window)).map(|(handle, _)| *handle).collect()
    }

    /// How many of these addresses lie in symmetric windows.
    pub(crate) fn symmetric(&self, addresses: [usize; 2]) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let windows = self.by_handle.lock();
        let lies = |address: &&usize| windows.values().any(|window| window.symmetric && window.range.contains(address));
        addresses.iter().filter(lies).count()
    }

    /// The communicator ends, and what it has not deregistered stays mapped, before NCCL 2.29.7.
    pub(super) fn leave_behind(&self, stranded: Option<&Stranded>) {
        for (_, window) in self.by_handle.lock().drain() {
            if let Some(stranded) = stranded
                && bugs::ends_keep_windows(settings().nccl)
            {
                stranded.add(window.number);
            }
        }
    }
}

// Where windows lie in the address space that the ranks of a communicator have in common.
//
// NCCL keeps one such space on each rank, and each rank chooses the place of a window by itself: the first gap that is large enough. The
// same place on all ranks is what multicast and kernels rest on. It comes about only where all ranks have taken the same windows away
// before.

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
mod space_tests {
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
