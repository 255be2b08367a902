//! The windows of one rank of a communicator, and the memory under those that were dropped.
//!
//! Dropping a buffer takes no window away: where a window lies in the address space that the ranks have in common, each rank chooses by
//! itself, and the ranks choose alike only if they have taken the same windows away before. So memory waits here until all ranks come to a
//! point where it can go, see [`retire`](crate::nccl::memory::retire), or until the communicator ends.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::registered::Registered;
use crate::cuda::{Freed, Region};
use crate::sys;

/// A registered window; NCCL before 2.27 has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window(pub(crate) sys::ncclWindow_t);

// SAFETY: a handle, used during visits of its communicator only.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

/// A window that was dropped.
pub(crate) struct Dropped {
    /// The same on all ranks of a clique.
    pub(crate) number: u64,
    pub(crate) window: Window,
    pub(crate) memory: Freed,
}

/// Memory that is to be freed.
#[must_use = "it is lost otherwise"]
pub(crate) enum Burial {
    /// As soon as nothing uses it.
    Soon(Freed),
    /// Not before NCCL has let go of the communicator, which may still know it.
    AfterTheEnd(Freed),
}

enum Memory {
    /// Of a buffer that lives.
    InUse,
    Dropped(Freed),
    /// With a thread that waits for its uses.
    InHand,
}

struct Entry {
    number: u64,
    window: Window,
    memory: Memory,
}

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    ended: bool,
}

/// All windows of one rank.
#[derive(Default)]
pub(crate) struct Windows {
    table: Mutex<Table>,
    /// Those over memory that lives.
    over: Registered,
}

impl Windows {
    /// Held for a moment only, and never around a call of CUDA or NCCL: an abort asks here too.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the window that a region lies in; 0 in none of these.
    #[inline]
    pub(crate) fn of(&self, region: &Region<'_>) -> u64 {
        self.over.number(region.alloc.id())
    }

    /// Makes known that window `number` lies over an allocation; false where there is one already: which of two NCCL finds for an address
    /// is not known.
    #[must_use]
    pub(crate) fn lay_over(&self, allocation: u64, number: u64) -> bool {
        self.over.add(allocation, number)
    }

    pub(crate) fn add(&self, number: u64, window: Window) {
        self.table().entries.push(Entry { number, window, memory: Memory::InUse });
    }

    /// The buffer over a window was dropped; its memory, where it need not wait here.
    pub(crate) fn bury(&self, number: u64, memory: Freed) -> Option<Burial> {
        self.over.remove(memory.id);
        let mut table = self.table();
        let Some(at) = table.entries.iter().position(|entry| entry.number == number) else {
            return Some(Burial::Soon(memory));
        };
        if table.ended {
            table.entries.swap_remove(at);
            return Some(Burial::AfterTheEnd(memory));
        }
        table.entries[at].memory = Memory::Dropped(memory);
        None
    }

    /// Takes those that were dropped in hand; each is put back or removed.
    pub(crate) fn take_dropped(&self) -> Vec<Dropped> {
        let mut taken = Vec::new();
        for entry in &mut self.table().entries {
            match std::mem::replace(&mut entry.memory, Memory::InHand) {
                Memory::Dropped(memory) => taken.push(Dropped { number: entry.number, window: entry.window, memory }),
                other => entry.memory = other,
            }
        }
        taken
    }

    /// Puts back what was in hand; its memory, where it need not wait here any more.
    pub(crate) fn put_back(&self, dropped: Dropped) -> Option<Burial> {
        self.bury(dropped.number, dropped.memory)
    }

    /// A window was taken away from NCCL.
    pub(crate) fn remove(&self, number: u64) {
        self.table().entries.retain(|entry| entry.number != number);
    }

    /// Whether NCCL knows none.
    #[cfg_attr(not(nccl_ge_2_28_7), allow(dead_code))]
    pub(crate) fn is_empty(&self) -> bool {
        self.table().entries.is_empty()
    }

    /// Those that NCCL knows.
    pub(crate) fn registered(&self) -> Vec<Window> {
        self.table().entries.iter().map(|entry| entry.window).collect()
    }

    /// All were taken away from NCCL; the memory of those that were dropped.
    pub(crate) fn clear(&self) -> Vec<Burial> {
        let entries = std::mem::take(&mut self.table().entries);
        let dropped = |entry: Entry| match entry.memory {
            Memory::Dropped(memory) => Some(Burial::Soon(memory)),
            Memory::InUse | Memory::InHand => None,
        };
        entries.into_iter().filter_map(dropped).collect()
    }

    /// NCCL lets go of this rank: the memory of those that were dropped, which it may still know.
    pub(crate) fn end(&self) -> Vec<Burial> {
        let mut table = self.table();
        table.ended = true;
        let (dropped, others) = std::mem::take(&mut table.entries)
            .into_iter()
            .partition(|entry| matches!(entry.memory, Memory::Dropped(_)));
        table.entries = others;
        let memory = |entry: Entry| match entry.memory {
            Memory::Dropped(memory) => Some(Burial::AfterTheEnd(memory)),
            Memory::InUse | Memory::InHand => None,
        };
        Vec::into_iter(dropped).filter_map(memory).collect()
    }
}

impl std::fmt::Debug for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Windows").field("registered", &self.table().entries.len()).finish()
    }
}
