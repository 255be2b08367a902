//! The windows of a communicator, and where they lie.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::space::Space;
use super::stranded::Stranded;
use crate::bugs;
use crate::lock::lock;
use crate::memory::object::Location;
use crate::memory::space::held::InUse;
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
        Self { number, place, range, base, symmetric, used, parts }
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
        lock(&self.space).take(bytes)
    }

    /// Gives the place of a window back that has come to nothing.
    pub(crate) fn give_place(&self, place: u64) {
        lock(&self.space).give(place);
    }

    /// Adds a window: its handle.
    pub(crate) fn add(&self, window: Window) -> usize {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed) * 64;
        let mut windows = lock(&self.by_handle);
        windows.insert(handle, window);
        self.len.store(windows.len(), Ordering::Release);
        handle
    }

    /// Removes a window and gives its place back; whether there was one.
    pub(crate) fn remove(&self, handle: usize) -> bool {
        let mut windows = lock(&self.by_handle);
        let removed = windows.remove(&handle);
        self.len.store(windows.len(), Ordering::Release);
        drop(windows);
        removed.inspect(|window| self.give_place(window.place)).is_some()
    }

    /// Whether a window is there still.
    pub(crate) fn has(&self, handle: usize) -> bool {
        lock(&self.by_handle).contains_key(&handle)
    }

    /// Where a window begins here, and the part of each rank.
    pub(crate) fn parts(&self, handle: usize) -> Option<(usize, Box<[Part]>)> {
        lock(&self.by_handle).get(&handle).map(|window| (window.range.start, window.parts.clone()))
    }

    /// Whether a symmetric window lies over some of these addresses.
    pub(crate) fn overlaps(&self, range: &Range<usize>) -> bool {
        let over = |window: &Window| window.range.start < range.end && range.start < window.range.end;
        lock(&self.by_handle).values().any(|window| window.symmetric && over(window))
    }

    /// Whether a window lies over what was mapped as one from `base` on.
    pub(crate) fn maps(&self, base: usize) -> bool {
        lock(&self.by_handle).values().any(|window| window.base == base)
    }

    /// Whether an address lies in a window.
    pub(crate) fn covers(&self, address: usize) -> bool {
        self.len.load(Ordering::Acquire) > 0
            && lock(&self.by_handle).values().any(|window| window.range.contains(&address))
    }

    /// How many of these addresses lie in symmetric windows.
    pub(crate) fn symmetric(&self, addresses: [usize; 2]) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let windows = lock(&self.by_handle);
        let lies = |address: &&usize| windows.values().any(|window| window.symmetric && window.range.contains(address));
        addresses.iter().filter(lies).count()
    }

    /// The communicator ends, and what it has not deregistered stays mapped, before NCCL 2.29.7.
    pub(super) fn leave_behind(&self, stranded: Option<&Stranded>) {
        for (_, window) in lock(&self.by_handle).drain() {
            if let Some(stranded) = stranded
                && bugs::ends_keep_windows(settings().nccl)
            {
                stranded.add(window.number);
            }
        }
    }
}
