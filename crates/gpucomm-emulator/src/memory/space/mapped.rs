//! Physical memory, mapped at addresses.

use super::physical::Physical;
use crate::memory::access::Rights;
use crate::memory::object::Location;
use crate::memory::room::Room;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Physical memory at a range of addresses. The memory stays there until the last of those who know this lets go, so that
/// work that is still queued when a program unmaps it harms nobody.
#[derive(Debug)]
pub(crate) struct Mapped {
    room: Arc<Room>,
    pub(super) base: usize,
    pub(super) bytes: usize,
    pub(crate) physical: Arc<Physical>,
    /// Whether these are addresses of a multicast object: there is no memory at them.
    pub(crate) is_multicast: bool,
    /// What devices may do here. Nothing at first.
    pub(crate) rights: Rights,
    uses: AtomicU32,
}

impl Mapped {
    /// Where it begins, and its bytes.
    pub(crate) fn span(&self) -> (usize, usize) {
        (self.base, self.bytes)
    }

    /// Maps `physical`, which has so many bytes, to `base`, in `room`; nothing where it stands for a multicast object.
    pub(super) fn new(
        room: &Arc<Room>,
        (base, bytes): (usize, usize),
        physical: &Arc<Physical>,
        is_multicast: bool,
    ) -> io::Result<Arc<Self>> {
        if !is_multicast {
            physical.object.map_at(room, base, 0, bytes)?;
        }
        let (room, physical) = (room.clone(), physical.clone());
        let (rights, uses) = (Rights::default(), AtomicU32::new(0));
        Ok(Arc::new(Self { room, base, bytes, physical, is_multicast, rights, uses }))
    }

    /// Behind its last address.
    pub(super) fn end(&self) -> usize {
        self.base + self.bytes
    }

    /// Where a byte of it lies in its object; `address` is one of it.
    pub(super) fn place(&self, address: usize) -> Location {
        Location { offset: (address - self.base) as u64, ..self.physical.object.begin() }
    }

    /// The address of `bytes` bytes at a place, if all of them lie here.
    pub(super) fn address(&self, place: &Location, bytes: usize) -> Option<usize> {
        let end = place.offset.checked_add(bytes as u64)?;
        let here = end <= self.bytes as u64 && self.physical.object.begin().same_object(place);
        here.then(|| self.base + place.offset as usize)
    }

    /// Which bytes of the physical memory lie at the addresses of `range` that are its own.
    pub(super) fn part(&self, range: &Range<usize>) -> Range<u64> {
        let place = |address: usize| (address.clamp(self.base, self.end()) - self.base) as u64;
        place(range.start)..place(range.end)
    }

    /// Which bytes of the physical memory are mapped here.
    pub(crate) fn all(&self) -> Range<u64> {
        self.part(&(self.base..self.end()))
    }

    /// How many pieces of queued or running work use it.
    pub(crate) fn uses(&self) -> u32 {
        self.uses.load(Ordering::Acquire)
    }

    /// Somebody begins to use it, or has done with it.
    pub(super) fn used(&self, more: bool) {
        if more {
            self.uses.fetch_add(1, Ordering::Relaxed);
        } else {
            self.uses.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.room.clear(self.base);
    }
}

impl std::fmt::Display for Mapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x}, of {}", self.bytes, self.base, self.physical)
    }
}
