//! Allocations of a device: which are alive, which contains a pointer, and whose memory may be used again.

use super::arena::Fault;
use super::ranges::{GRAIN, Ranges};
use crate::emulator::cuda::core::device::Device;
use crate::emulator::cuda::core::stream::{Stream, Ticket};
use crate::emulator::cuda::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Blocks of cudaMalloc at least this large give their pages back to the system when they are freed.
const PUNCHED: u64 = 1 << 20;

/// Where an allocation came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// cudaMalloc or ncclMemAlloc.
    Malloc,
    /// cudaMallocFromPoolAsync: the pages stay when it is freed.
    Pool,
}

/// One allocation. Its range returns to the device when the last of those who know it lets go, so that work that is still
/// queued when a program frees its memory harms nobody else.
#[derive(Debug)]
pub(crate) struct Block {
    pub device: &'static Device,
    pub offset: u64,
    pub bytes: u64,
    pub origin: Origin,
    span: u64,
    uses: AtomicU32,
    /// Freed by the program, if not yet in stream order. Written under the lock of the device's blocks.
    freed: AtomicBool,
    /// The range went to another block, or was never to be returned by this one. Written under the same lock.
    passed_on: AtomicBool,
}

impl Block {
    pub(crate) fn begin_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_use(&self) {
        self.uses.fetch_sub(1, Ordering::Release);
    }

    /// How many pieces of queued or running work use this block.
    pub fn uses(&self) -> u32 {
        self.uses.load(Ordering::Acquire)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if *self.passed_on.get_mut() {
            return;
        }
        if self.origin == Origin::Malloc
            && self.span >= PUNCHED
            && let Some(arena) = self.device.arena_if_made()
        {
            arena.punch(self.offset, self.span);
        }
        lock(&self.device.blocks.0).ranges.give(self.offset, self.span);
    }
}

/// The allocations of one device.
#[derive(Debug)]
pub(crate) struct Blocks(Mutex<State>);

#[derive(Debug)]
struct State {
    total: u64,
    ranges: Ranges,
    live: BTreeMap<u64, Arc<Block>>,
    /// Freed in stream order, but the stream is not there yet.
    pending: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    block: Arc<Block>,
    free: Ticket,
}

impl State {
    fn admit(&mut self, device: &'static Device, offset: u64, span: u64, bytes: u64, origin: Origin) -> Arc<Block> {
        let block = Arc::new(Block {
            device,
            offset,
            bytes,
            origin,
            span,
            uses: AtomicU32::new(0),
            freed: AtomicBool::new(false),
            passed_on: AtomicBool::new(false),
        });
        self.live.insert(offset, block.clone());
        block
    }
}

fn span(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(GRAIN)
}

impl Blocks {
    pub fn new(total: u64) -> Self {
        Self(Mutex::new(State { total, ranges: Ranges::new(total), live: BTreeMap::new(), pending: Vec::new() }))
    }

    /// Free and total bytes.
    pub fn room(&self) -> (u64, u64) {
        let state = lock(&self.0);
        (state.ranges.free(), state.total)
    }

    /// A new allocation, or `None` where there is no room.
    pub fn allocate(&self, device: &'static Device, bytes: u64, origin: Origin) -> Option<Arc<Block>> {
        let mut state = lock(&self.0);
        if bytes > state.total {
            return None;
        }
        let span = span(bytes);
        let offset = state.ranges.take(span)?;
        Some(state.admit(device, offset, span, bytes, origin))
    }

    /// A new allocation in memory that is freed on `stream` before anything that is enqueued there now.
    pub fn reuse(&self, device: &'static Device, bytes: u64, stream: &Arc<Stream>) -> Option<Arc<Block>> {
        self.succeed(device, bytes, |pending| Arc::ptr_eq(&pending.free.stream, stream)).map(|(block, _)| block)
    }

    /// A new allocation in memory that is freed when the ticket is done.
    pub fn steal(&self, device: &'static Device, bytes: u64) -> Option<(Arc<Block>, Ticket)> {
        self.succeed(device, bytes, |_| true)
    }

    fn succeed(
        &self,
        device: &'static Device,
        bytes: u64,
        usable: impl Fn(&Pending) -> bool,
    ) -> Option<(Arc<Block>, Ticket)> {
        let span = span(bytes);
        let mut state = lock(&self.0);
        // A quarter may be wasted, or a loop over slightly different sizes would never find anything.
        let fits =
            |pending: &Pending| pending.block.span >= span && pending.block.span <= span + span / 4 && usable(pending);
        let found = state.pending.iter().position(fits)?;
        let Pending { block: old, free } = state.pending.swap_remove(found);
        old.passed_on.store(true, Ordering::Relaxed);
        let block = state.admit(device, old.offset, old.span, bytes, Origin::Pool);
        Some((block, free))
    }

    /// A free that is on its way, if there is one.
    pub fn any_pending(&self) -> Option<Ticket> {
        lock(&self.0).pending.first().map(|pending| pending.free.clone())
    }

    /// The live allocation that holds all of `bytes` bytes at `offset`.
    pub fn find(&self, device: &Device, address: usize, offset: u64, bytes: usize) -> Result<Arc<Block>, Fault> {
        let state = lock(&self.0);
        let before = state.live.range(..=offset).next_back().map(|(_, block)| block);
        let inside = before.filter(|block| offset < block.offset + block.bytes);
        let describe = |block: &Block| {
            let start = address.wrapping_sub(offset as usize).wrapping_add(block.offset as usize);
            format!("{} bytes at {start:#x} on device {}", block.bytes, device.ordinal)
        };
        match inside {
            Some(block) if block.freed.load(Ordering::Relaxed) => Err(Fault::value(format!(
                "{bytes} bytes at {address:#x} are used after they were freed: {}",
                describe(block)
            ))),
            Some(block) if bytes as u64 > block.offset + block.bytes - offset => Err(Fault::value(format!(
                "{bytes} bytes at {address:#x} run past the end of the allocation of {}",
                describe(block)
            ))),
            Some(block) => Ok(block.clone()),
            None => {
                let after = state.live.range(offset..).next().map(|(_, block)| block);
                let nearest = match (before, after) {
                    (Some(before), Some(after)) => {
                        let closer = offset - (before.offset + before.bytes) <= after.offset - offset;
                        Some(if closer { before } else { after })
                    }
                    (before, after) => before.or(after),
                };
                let nearest = nearest.map_or("there is none on this device".into(), |block| describe(block));
                Err(Fault::value(format!(
                    "{bytes} bytes at {address:#x} lie in no live allocation of device {}; the nearest: {nearest}",
                    device.ordinal
                )))
            }
        }
    }

    /// Marks the live allocation that starts at `offset` as freed. It stays where it is.
    pub fn condemn(&self, offset: u64) -> Option<Arc<Block>> {
        let state = lock(&self.0);
        let block = state.live.get(&offset)?;
        (!block.freed.swap(true, Ordering::Relaxed)).then(|| block.clone())
    }

    /// Makes a condemned block known as one whose free is on its way, unless that came already.
    pub fn expect_free(&self, block: &Arc<Block>, free: Ticket) {
        let mut state = lock(&self.0);
        if state.live.get(&block.offset).is_some_and(|live| Arc::ptr_eq(live, block)) {
            state.pending.push(Pending { block: block.clone(), free });
        }
    }

    /// Removes a condemned block, unless its memory was passed on.
    pub fn bury(&self, block: &Arc<Block>) {
        // Taken out under the lock, dropped after it: a block that goes takes the lock itself.
        let mut gone = (None, None);
        let mut state = lock(&self.0);
        if let Some(found) = state.pending.iter().position(|pending| Arc::ptr_eq(&pending.block, block)) {
            gone.0 = Some(state.pending.swap_remove(found));
        }
        if state.live.get(&block.offset).is_some_and(|live| Arc::ptr_eq(live, block)) {
            gone.1 = state.live.remove(&block.offset);
        }
        drop(state);
        drop(gone);
    }
}
