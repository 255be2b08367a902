//! The memory that NCCL has registered for one rank: windows, which all ranks make together, and
//! memory that each rank registers by itself.
//!
//! Dropping either removes nothing from NCCL. Each rank chooses by itself where a window lies in
//! the address space of the communicator, and the ranks choose alike only if they have removed the
//! same windows before. And memory that is registered on one rank must be registered on all. So a
//! dropped registration waits here, with its memory, until all ranks come to a point at which it
//! can be removed (see [`retire`](crate::nccl::memory::retire)), or until the communicator ends.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::registered::Registered;
use crate::cuda::{Allocation, Freed, Region};
use crate::error::Result;
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::validate::signature::REGISTERED;
use crate::sys;

/// NCCL's handle of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handle {
    /// A window, which all ranks have made together. NCCL has them from 2.27 on.
    Window(sys::ncclWindow_t),
    /// Memory that this rank has registered by itself.
    Memory(*mut c_void),
}

// SAFETY: a handle, used during visits of its communicator only.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// The memory of a registration that was dropped.
pub(crate) enum DroppedMemory {
    /// Allocated by NCCL. It is freed after the window over it is removed.
    Freed(Freed),
    /// Allocated by others, and kept alive.
    Kept(Arc<Allocation>),
}

impl DroppedMemory {
    /// Whether nothing uses it.
    pub(crate) fn is_idle(&mut self) -> Result<bool> {
        match self {
            Self::Freed(freed) => freed.uses.is_done(),
            Self::Kept(alloc) => alloc.is_idle(),
        }
    }

    /// Reclaims it when nothing uses it any more.
    pub(crate) fn when_idle(self) -> Reclaim {
        match self {
            Self::Freed(freed) => Reclaim::WhenIdle(freed),
            Self::Kept(alloc) => Reclaim::Drop(alloc),
        }
    }
}

/// A window or registration that was dropped.
pub(crate) struct Dropped {
    /// The same on all ranks of a clique.
    pub(crate) number: u64,
    pub(crate) handle: Handle,
    pub(crate) memory: DroppedMemory,
}

/// Memory to be reclaimed.
#[must_use = "the memory is lost otherwise"]
pub(crate) enum Reclaim {
    /// Frees memory as soon as nothing uses it.
    WhenIdle(Freed),
    /// Frees memory after NCCL has freed the communicator, which may use it until then.
    AfterEnd(Freed),
    /// Drops a reference to memory of others.
    Drop(Arc<Allocation>),
}

enum Memory {
    /// Belongs to a buffer that lives.
    InUse,
    /// Registered, and kept alive.
    Kept(Arc<Allocation>),
    Dropped(DroppedMemory),
    /// A thread waits for its uses.
    InHand,
}

impl Memory {
    /// The memory, unless a buffer or a thread has it.
    fn into_dropped(self) -> Option<DroppedMemory> {
        match self {
            Self::Kept(alloc) => Some(DroppedMemory::Kept(alloc)),
            Self::Dropped(memory) => Some(memory),
            Self::InUse | Self::InHand => None,
        }
    }
}

/// The base of registrations that are not looked up by their base.
pub(crate) const NOWHERE: usize = 0;

struct Entry {
    number: u64,
    handle: Handle,
    /// For windows over memory of others: the beginning of the mapping.
    base: usize,
    memory: Memory,
}

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    ended: bool,
}

/// All registrations of one rank.
#[derive(Default)]
pub(crate) struct Windows {
    table: Mutex<Table>,
    /// The registrations of allocations that live.
    over: Registered,
    /// Whether a part of an allocation is registered, or was.
    parts: AtomicBool,
    /// How many registrations were removed from NCCL.
    removals: AtomicU64,
    /// The memory under windows. It may be gone.
    memory: Mutex<Vec<Weak<Allocation>>>,
}

impl Windows {
    /// Held for a moment, and never around a call of CUDA or NCCL: an abort takes it, too.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// The number of the window or registration that a region lies in; 0 if there is none.
    #[inline]
    pub(crate) fn of(&self, region: &Region<'_>) -> u64 {
        self.place(region).0
    }

    /// The same, and how many of its bytes lie before the region.
    #[inline]
    pub(crate) fn place(&self, region: &Region<'_>) -> (u64, usize) {
        let address = region.ptr().addr();
        let (number, begin) = self.over.find(region.alloc.id(), address);
        (number, address.wrapping_sub(begin))
    }

    /// Whether a region is registered only in part. NCCL looks at its first address.
    #[inline]
    pub(crate) fn is_cut(&self, region: &Region<'_>) -> bool {
        self.parts.load(Ordering::Relaxed) && self.cuts(region)
    }

    #[cold]
    fn cuts(&self, region: &Region<'_>) -> bool {
        let (begin, end) = (region.ptr().addr(), region.ptr().addr() + region.bytes);
        self.over.over(region.alloc.id()).any(|(_, window)| {
            let overlaps = begin < window.end && window.start < end;
            overlaps && !(window.start <= begin && end <= window.end)
        })
    }

    /// Whether a part of a region is registered, by a registration that was not dropped.
    pub(crate) fn is_taken(&self, region: &Region<'_>) -> bool {
        let (begin, end) = (region.ptr().addr(), region.ptr().addr() + region.bytes);
        let table = self.table();
        self.over.over(region.alloc.id()).any(|(number, window)| {
            let lives = |entry: &Entry| matches!(entry.memory, Memory::InUse | Memory::Kept(_));
            begin < window.end
                && window.start < end
                && table.entries.iter().any(|entry| entry.number == number && lives(entry))
        })
    }

    /// The number of the first window over the mapping that begins at `base`; 0 if there is none.
    pub(crate) fn beside(&self, base: usize) -> u64 {
        let table = self.table();
        let first = table.entries.iter().filter(|entry| entry.base == base).map(|entry| entry.number).min();
        first.unwrap_or(0)
    }

    /// Whether a region lies in a window.
    #[inline]
    pub(crate) fn is_window(&self, region: &Region<'_>) -> bool {
        matches!(self.of(region), number if number != 0 && number & REGISTERED == 0)
    }

    /// Notes that window or registration `number` lies over so many bytes of an allocation, from an
    /// address on. Returns false if there is another: it is not known which of two NCCL finds for
    /// an address.
    #[must_use]
    pub(crate) fn lay_over(&self, allocation: &Allocation, (begin, bytes): (usize, usize), number: u64) -> bool {
        if number & REGISTERED == 0
            && let Some(memory) = allocation.keep()
        {
            let mut known = self.memory.lock();
            known.retain(|one| one.strong_count() > 0);
            known.push(Arc::downgrade(&memory));
        }
        let whole = begin == allocation.address().ptr().addr() && bytes >= allocation.bytes();
        if !whole {
            self.parts.store(true, Ordering::Relaxed);
        }
        self.over.add(allocation.id(), &(begin..begin + bytes), number)
    }

    /// Forgets a registration of an allocation.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn lift(&self, allocation: u64, number: u64) {
        self.over.remove(allocation, number);
    }

    /// Adds a window over the memory of a buffer that lives, which was mapped for it alone.
    pub(crate) fn add(&self, number: u64, window: sys::ncclWindow_t) {
        let handle = Handle::Window(window);
        self.table().entries.push(Entry { number, handle, base: NOWHERE, memory: Memory::InUse });
    }

    /// Adds window or registration `number` of memory whose mapping begins at `base`. Keeps the
    /// memory alive.
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    pub(crate) fn keep(&self, number: u64, handle: Handle, base: usize, memory: Arc<Allocation>) {
        self.table().entries.push(Entry { number, handle, base, memory: Memory::Kept(memory) });
    }

    /// The memory under windows that still exists.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn memory(&self) -> Vec<Arc<Allocation>> {
        self.memory.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// The handle of the window with this number.
    pub(crate) fn window(&self, number: u64) -> Option<sys::ncclWindow_t> {
        let table = self.table();
        let entry = table.entries.iter().find(|entry| entry.number == number)?;
        if let Handle::Window(window) = entry.handle { Some(window) } else { None }
    }

    /// Notes that a registration, or a window over memory of others, was dropped. The memory stays
    /// registered and alive.
    pub(crate) fn drop_registration(&self, number: u64) {
        if let Some(entry) = self.table().entries.iter_mut().find(|entry| entry.number == number)
            && let Memory::Kept(alloc) = std::mem::replace(&mut entry.memory, Memory::InHand)
        {
            entry.memory = Memory::Dropped(DroppedMemory::Kept(alloc));
        }
    }

    /// Notes that the buffer over a window was dropped. Returns its memory if that need not wait
    /// here.
    pub(crate) fn drop_buffer(&self, number: u64, memory: Freed) -> Option<Reclaim> {
        self.over.remove(memory.id, number);
        self.wait(number, DroppedMemory::Freed(memory))
    }

    fn wait(&self, number: u64, memory: DroppedMemory) -> Option<Reclaim> {
        let mut table = self.table();
        let Some(at) = table.entries.iter().position(|entry| entry.number == number) else {
            return Some(memory.when_idle());
        };
        if table.ended {
            table.entries.swap_remove(at);
            return Some(after_end(memory));
        }
        table.entries[at].memory = Memory::Dropped(memory);
        None
    }

    /// Takes the dropped registrations, each of which the caller puts back or removes.
    pub(crate) fn take_dropped(&self) -> Vec<Dropped> {
        let mut taken = Vec::new();
        for entry in &mut self.table().entries {
            match std::mem::replace(&mut entry.memory, Memory::InHand) {
                Memory::Dropped(memory) => taken.push(Dropped { number: entry.number, handle: entry.handle, memory }),
                other => entry.memory = other,
            }
        }
        taken
    }

    /// Puts a dropped registration back. Returns its memory if that need not wait here any more.
    pub(crate) fn put_back(&self, dropped: Dropped) -> Option<Reclaim> {
        self.wait(dropped.number, dropped.memory)
    }

    /// Notes that a dropped registration was removed from NCCL.
    pub(crate) fn remove(&self, dropped: &Dropped) {
        if let DroppedMemory::Kept(alloc) = &dropped.memory {
            self.over.remove(alloc.id(), dropped.number);
        }
        self.removals.fetch_add(1, Ordering::AcqRel);
        self.table().entries.retain(|entry| entry.number != dropped.number);
    }

    /// A number that changes when a registration is removed from NCCL.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Whether NCCL knows the window, or registration, with this number.
    pub(crate) fn knows(&self, number: u64) -> bool {
        self.table().entries.iter().any(|entry| entry.number == number)
    }

    /// Whether there are windows, and whether there is memory that was registered without one.
    #[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
    pub(crate) fn any(&self) -> (bool, bool) {
        let is_window = |entry: &Entry| matches!(entry.handle, Handle::Window(_));
        let table = self.table();
        (table.entries.iter().any(is_window), !table.entries.iter().all(is_window))
    }

    /// The handles of all registrations.
    pub(crate) fn registered(&self) -> Vec<Handle> {
        self.table().entries.iter().map(|entry| entry.handle).collect()
    }

    /// Notes that all registrations were removed from NCCL. Returns the memory that no buffer has.
    pub(crate) fn clear(&self) -> Vec<Reclaim> {
        let entries = std::mem::take(&mut self.table().entries);
        entries.into_iter().filter_map(|entry| self.forget(entry)).map(DroppedMemory::when_idle).collect()
    }

    /// Notes that NCCL frees this rank. Returns the memory that no buffer has. NCCL may still use
    /// memory that it has allocated.
    pub(crate) fn end(&self) -> Vec<Reclaim> {
        let mut table = self.table();
        table.ended = true;
        let (ours, others): (Vec<_>, Vec<_>) = std::mem::take(&mut table.entries)
            .into_iter()
            .partition(|entry| matches!(entry.memory, Memory::Dropped(_) | Memory::Kept(_)));
        table.entries = others;
        drop(table);
        ours.into_iter().filter_map(|entry| self.forget(entry)).map(after_end).collect()
    }

    fn forget(&self, entry: Entry) -> Option<DroppedMemory> {
        let (number, memory) = (entry.number, entry.memory.into_dropped());
        if let Some(DroppedMemory::Kept(alloc)) = &memory {
            self.over.remove(alloc.id(), number);
        }
        memory
    }
}

/// Reclaims memory after NCCL has freed the communicator, if NCCL has allocated it.
fn after_end(memory: DroppedMemory) -> Reclaim {
    match memory {
        DroppedMemory::Freed(freed) => Reclaim::AfterEnd(freed),
        DroppedMemory::Kept(alloc) => Reclaim::Drop(alloc),
    }
}

impl std::fmt::Debug for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Windows").field("registered", &self.table().entries.len()).finish()
    }
}
