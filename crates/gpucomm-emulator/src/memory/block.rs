//! Allocations: ranges of a device's memory that somebody uses.

use super::access::Access;
use super::ground::Ground;
use crate::races::touches::{Actor, Touches, Touching};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Blocks of cudaMalloc at least this large give their pages back to the system when they are freed.
const PUNCHED: u64 = 1 << 20;

/// Where an allocation came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// cudaMalloc: for its device, and for those that have enabled peer access to it.
    Malloc,
    /// cudaMallocFromPoolAsync: the pages stay when it is freed. For all devices, as gpucommPoolCreate makes pools.
    Pool,
    /// ncclMemAlloc, which gives access to all devices.
    Nccl,
    /// nvshmem_malloc, of this PE or another: all devices of all PEs use it.
    #[cfg(feature = "nvshmem")]
    Symmetric,
}

/// One allocation. Its range returns to the device when the last of those who know it lets go, so that work that is still
/// queued when a program frees its memory harms nobody else.
#[derive(Debug)]
pub(crate) struct Block {
    pub ground: &'static Ground,
    pub offset: u64,
    pub bytes: u64,
    pub origin: Origin,
    pub(super) span: u64,
    uses: AtomicU32,
    /// What its bytes were used for.
    pub(crate) touches: Touches,
    /// Freed by the program, if not yet in stream order. Written under the lock of the device's heap.
    pub(super) freed: AtomicBool,
    /// The range went to another block, or was never to be returned by this one. Written under the same lock.
    passed_on: AtomicBool,
}

impl Block {
    /// The range of `span` bytes at `offset` holds an allocation of `bytes` bytes.
    pub(super) fn new(ground: &'static Ground, (offset, span): (u64, u64), bytes: u64, origin: Origin) -> Arc<Self> {
        Arc::new(Self {
            ground,
            offset,
            bytes,
            origin,
            span,
            uses: AtomicU32::new(0),
            touches: Touches::default(),
            freed: AtomicBool::new(false),
            passed_on: AtomicBool::new(false),
        })
    }

    /// What the device with this ordinal may do with it.
    pub(crate) fn access(&self, device: i32) -> Access {
        match self.origin {
            Origin::Malloc => self.ground.rights.of(device),
            _ => Access::ReadWrite,
        }
    }

    /// Somebody begins to use it, or has done with it.
    pub(super) fn used(&self, more: bool) {
        if more {
            self.uses.fetch_add(1, Ordering::Relaxed);
        } else {
            self.uses.fetch_sub(1, Ordering::Release);
        }
    }

    /// What is done with all of it.
    pub(crate) fn whole(&self, writes: bool, actor: Actor) -> Touching<'_> {
        Touching { memory: &self.touches, by: 0, range: 0..self.bytes, writes, actor }
    }

    /// How many pieces of queued or running work use this block.
    pub(crate) fn uses(&self) -> u32 {
        self.uses.load(Ordering::Acquire)
    }

    /// Whether an allocation of so many bytes may lie in its range. A quarter may be wasted, or a loop over slightly different
    /// sizes would never find anything.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        let span = super::ranges::span(bytes);
        self.span >= span && self.span <= span + span / 4
    }

    /// The range belongs to another block now.
    pub(super) fn pass_on(&self) {
        self.passed_on.store(true, Ordering::Relaxed);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !*self.passed_on.get_mut() {
            self.ground.give(self.offset, self.span, self.origin != Origin::Pool && self.span >= PUNCHED);
        }
    }
}
