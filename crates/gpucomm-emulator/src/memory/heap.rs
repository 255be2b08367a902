//! The allocations of a device: which are alive, and which contains a pointer.

use super::block::{Block, Origin};
use super::fault::Fault;
use super::ground::Ground;
use super::map::{self, Kind};
use super::object::Location;
use super::ranges::span;
use crate::lock::lock;
use crate::settings::settings;
use crate::visible::visible;
use std::collections::BTreeMap;
#[cfg(feature = "nvshmem")]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex};

/// The allocations of one device.
#[derive(Debug)]
pub(crate) struct Heap {
    pub ground: Ground,
    live: Mutex<BTreeMap<u64, Arc<Block>>>,
    /// Of a symmetric heap: up to where there is memory.
    #[cfg(feature = "nvshmem")]
    pub(crate) backed: AtomicU64,
}

static HEAPS: LazyLock<Vec<Heap>> = LazyLock::new(|| {
    let memory = settings().memory;
    let new = |(ordinal, &number)| Heap::on(Ground::new(ordinal, number, memory));
    (0..).zip(visible()).map(new).collect()
});

/// The allocations of the device with this ordinal.
pub(crate) fn of(ordinal: i32) -> Option<&'static Heap> {
    HEAPS.get(usize::try_from(ordinal).ok()?)
}

/// The heap in which `address` lies, and where.
pub(crate) fn owner(address: usize) -> Option<(&'static Heap, Location)> {
    let mapping = map::find(address)?;
    let Kind::Ground { ordinal } = mapping.kind else { return None };
    Some((of(ordinal)?, mapping.place(address)))
}

impl Heap {
    /// Free and total bytes.
    pub(crate) fn room(&self) -> (u64, u64) {
        (self.ground.free(), self.ground.total)
    }

    fn admit(&'static self, range: (u64, u64), bytes: u64, origin: Origin) -> Arc<Block> {
        let block = Block::new(&self.ground, range, bytes, origin);
        lock(&self.live).insert(block.offset, block.clone());
        block
    }

    /// A new allocation, or `None` where there is no room.
    pub(crate) fn allocate(&'static self, bytes: u64, origin: Origin) -> Option<Arc<Block>> {
        if bytes > self.ground.total {
            return None;
        }
        let span = span(bytes);
        let offset = self.ground.take(span)?;
        Some(self.admit((offset, span), bytes, origin))
    }

    /// Without allocations.
    pub(super) fn on(ground: Ground) -> Self {
        Self {
            ground,
            live: Mutex::default(),
            #[cfg(feature = "nvshmem")]
            backed: AtomicU64::new(0),
        }
    }

    /// An allocation at a place that somebody else has chosen, and takes back.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn place(&'static self, offset: u64, bytes: u64) -> Arc<Block> {
        let block = self.admit((offset, span(bytes)), bytes, Origin::Symmetric);
        block.pass_on();
        block
    }

    /// A new allocation in the memory of `old`, which is condemned and not buried.
    pub(crate) fn succeed(&'static self, old: &Block, bytes: u64) -> Arc<Block> {
        old.pass_on();
        self.admit((old.offset, old.span), bytes, Origin::Pool)
    }

    /// The live allocation that holds all of `bytes` bytes at `offset`.
    pub(crate) fn find(&self, address: usize, offset: u64, bytes: usize) -> Result<Arc<Block>, Fault> {
        let live = lock(&self.live);
        let before = live.range(..=offset).next_back().map(|(_, block)| block);
        let inside = before.filter(|block| offset < block.offset + block.bytes);
        let ordinal = self.ground.ordinal;
        let describe = |block: &Block| {
            let start = address.wrapping_sub(offset as usize).wrapping_add(block.offset as usize);
            format!("{} bytes at {start:#x} on device {ordinal}", block.bytes)
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
                let after = live.range(offset..).next().map(|(_, block)| block);
                let nearest = match (before, after) {
                    (Some(before), Some(after)) => {
                        let closer = offset - (before.offset + before.bytes) <= after.offset - offset;
                        Some(if closer { before } else { after })
                    }
                    (before, after) => before.or(after),
                };
                let nearest = nearest.map_or("there is none on this device".into(), |block| describe(block));
                Err(Fault::value(format!(
                    "{bytes} bytes at {address:#x} lie in no live allocation of device {ordinal}; the nearest: {nearest}"
                )))
            }
        }
    }

    /// Marks the live allocation that starts at `offset` as freed. It stays where it is.
    pub(crate) fn condemn(&self, offset: u64) -> Option<Arc<Block>> {
        let live = lock(&self.live);
        let block = live.get(&offset)?;
        (!block.freed.swap(true, Ordering::Relaxed)).then(|| block.clone())
    }

    /// Whether `block` is in the register: not buried, and its memory was not passed on.
    pub(crate) fn holds(&self, block: &Arc<Block>) -> bool {
        lock(&self.live).get(&block.offset).is_some_and(|live| Arc::ptr_eq(live, block))
    }

    /// Removes a condemned block, unless its memory was passed on.
    pub(crate) fn bury(&self, block: &Arc<Block>) {
        let mut live = lock(&self.live);
        if live.get(&block.offset).is_some_and(|live| Arc::ptr_eq(live, block)) {
            live.remove(&block.offset);
        }
    }
}
