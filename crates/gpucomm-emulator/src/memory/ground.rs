//! What a device's memory lies in: one object, and which ranges of it are free.

use super::access::{Access, Rights};
use super::map::{self, Kind};
use super::object::Object;
use super::ranges::Ranges;
use crate::lock::lock;
use crate::report;
use crate::sys::cudaError;
use std::io;
use std::sync::{Mutex, OnceLock};

/// The object of a device, mapped.
#[derive(Debug)]
pub(crate) struct Arena {
    object: Object,
    base: usize,
}

impl Arena {
    /// An object that is mapped already.
    #[cfg(feature = "nvshmem")]
    pub(super) fn mapped(object: Object, base: usize) -> Self {
        Self { object, base }
    }

    /// Where the memory begins, for other processes.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn begin(&self) -> super::object::Location {
        self.object.begin()
    }

    fn new(ordinal: i32, number: i32, bytes: u64) -> io::Result<Self> {
        let object = Object::new(number, bytes)?;
        let base = map::add(&object, Kind::Ground { ordinal })?;
        Ok(Self { object, base })
    }

    /// The address of a byte of this arena.
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.base + offset as usize)
    }

    /// Gives the pages of a range back to the system; they read as zero afterwards.
    pub(crate) fn punch(&self, offset: u64, bytes: u64) {
        self.object.punch(offset, bytes);
    }
}

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The number of the device in this process.
    pub ordinal: i32,
    /// Its number on the machine.
    pub number: i32,
    /// Its bytes.
    pub total: u64,
    /// What devices may do with memory of cudaMalloc in it.
    pub rights: Rights,
    /// None until the first allocation.
    arena: OnceLock<Option<Arena>>,
    ranges: Mutex<Ranges>,
}

impl Ground {
    /// The memory of device `ordinal` of this process, which is `number` of the machine: `total` bytes.
    pub(crate) fn new(ordinal: i32, number: i32, total: u64) -> Self {
        let rights = Rights::default();
        rights.set(ordinal, Access::ReadWrite);
        Self { ordinal, number, total, rights, arena: OnceLock::new(), ranges: Mutex::new(Ranges::new(total)) }
    }

    /// Memory in an object that is mapped already, of that device or near it.
    #[cfg(feature = "nvshmem")]
    pub(super) fn of(ordinal: i32, arena: Arena) -> Self {
        let begin = arena.object.begin();
        let ground = Self::new(ordinal, begin.device, begin.bytes);
        ground.arena.get_or_init(|| Some(arena));
        ground
    }

    /// The memory, made if this is the first use.
    pub(crate) fn arena(&self) -> Result<&Arena, cudaError> {
        let make = || {
            Arena::new(self.ordinal, self.number, self.total)
                .map_err(|error| {
                    report::line(format!(
                        "device {}: cannot map {} bytes of shared memory: {error} (GPUCOMM_EMULATOR_MEMORY sets the size)",
                        self.ordinal, self.total
                    ));
                })
                .ok()
        };
        self.arena.get_or_init(make).as_ref().ok_or(cudaError::cudaErrorMemoryAllocation)
    }

    /// How many bytes are free.
    pub(crate) fn free(&self) -> u64 {
        lock(&self.ranges).free()
    }

    /// Takes `bytes` bytes for memory with an object of its own; whether there were so many. Which ones does not matter.
    pub(crate) fn lend(&self, bytes: u64) -> bool {
        lock(&self.ranges).lend(bytes)
    }

    /// Takes bytes back that were lent.
    pub(crate) fn restore(&self, bytes: u64) {
        lock(&self.ranges).restore(bytes);
    }

    /// Takes a range of `span` bytes, a multiple of the grain: where it begins.
    pub(crate) fn take(&self, span: u64) -> Option<u64> {
        lock(&self.ranges).take(span)
    }

    /// Takes a range back; `punched`: its pages go back to the system.
    pub(crate) fn give(&self, offset: u64, span: u64, punched: bool) {
        if punched && let Some(Some(arena)) = self.arena.get() {
            arena.punch(offset, span);
        }
        lock(&self.ranges).give(offset, span);
    }
}
