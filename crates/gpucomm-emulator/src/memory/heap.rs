//! The heap of a device: its memory, the free ranges of it, and the allocations that are alive.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use crate::lock::Mutex;
use crate::memory::access::{Access, Fault, Rights};
use crate::memory::map;
use crate::memory::map::Kind;
use crate::memory::object::{Location, Object};
use crate::races::{Actor, Touches, Touching};
use crate::report;
use crate::settings::settings;
use crate::sys::cudaError;
use crate::visible::visible;

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

/// One allocation. Its range returns to the device when its last reference is dropped, so queued work
/// that outlives the free cannot write into another allocation.
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
        let span = span(bytes);
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
    pub(crate) fn begin(&self) -> crate::memory::object::Location {
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
        self.ranges.lock().free()
    }

    /// Takes `bytes` bytes for memory with an object of its own; whether there were so many. Which ones does not matter.
    pub(crate) fn lend(&self, bytes: u64) -> bool {
        self.ranges.lock().lend(bytes)
    }

    /// Takes bytes back that were lent.
    pub(crate) fn restore(&self, bytes: u64) {
        self.ranges.lock().restore(bytes);
    }

    /// Takes a range of `span` bytes, a multiple of the grain: where it begins.
    pub(crate) fn take(&self, span: u64) -> Option<u64> {
        self.ranges.lock().take(span)
    }

    /// Takes a range back; `punched`: its pages go back to the system.
    pub(crate) fn give(&self, offset: u64, span: u64, punched: bool) {
        if punched && let Some(Some(arena)) = self.arena.get() {
            arena.punch(offset, span);
        }
        self.ranges.lock().give(offset, span);
    }
}

#[cfg(feature = "nvshmem")]
use std::sync::atomic::AtomicU64;

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
        self.live.lock().insert(block.offset, block.clone());
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
        let live = self.live.lock();
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
        let live = self.live.lock();
        let block = live.get(&offset)?;
        (!block.freed.swap(true, Ordering::Relaxed)).then(|| block.clone())
    }

    /// Whether `block` is in the register: not buried, and its memory was not passed on.
    pub(crate) fn holds(&self, block: &Arc<Block>) -> bool {
        self.live.lock().get(&block.offset).is_some_and(|live| Arc::ptr_eq(live, block))
    }

    /// Removes a condemned block, unless its memory was passed on.
    pub(crate) fn bury(&self, block: &Arc<Block>) {
        let mut live = self.live.lock();
        if live.get(&block.offset).is_some_and(|live| Arc::ptr_eq(live, block)) {
            live.remove(&block.offset);
        }
    }
}

/// Sizes and offsets are multiples of this.
const GRAIN: u64 = 512;
/// Ranges of at least this size start at a multiple of it.
const COARSE: u64 = 2 << 20;

/// How much is taken for an allocation of `bytes` bytes.
pub(crate) fn span(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(GRAIN)
}

/// The free ranges of one arena.
#[derive(Debug)]
pub(crate) struct Ranges {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    free: u64,
    /// So many of the free ones are lent.
    lent: u64,
}

impl Ranges {
    /// All `bytes` bytes are free.
    pub fn new(bytes: u64) -> Self {
        let bytes = bytes / GRAIN * GRAIN;
        let mut ranges = Self { by_offset: BTreeMap::new(), by_size: BTreeSet::new(), free: bytes, lent: 0 };
        ranges.insert(0, bytes);
        ranges
    }

    /// How many bytes are free, in pieces of any size.
    pub fn free(&self) -> u64 {
        self.free - self.lent
    }

    /// Counts so many free bytes as used, wherever they lie; whether there were as many.
    pub fn lend(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free();
        if fits {
            self.lent += bytes;
        }
        fits
    }

    /// Takes back what [`Self::lend`] gave.
    pub fn restore(&mut self, bytes: u64) {
        self.lent -= bytes;
    }

    /// `size` bytes, a multiple of the grain, from the smallest range that holds them.
    pub fn take(&mut self, size: u64) -> Option<u64> {
        if size > self.free() {
            return None;
        }
        let align = if size >= COARSE { COARSE } else { GRAIN };
        let fits = |&&(length, offset): &&(u64, u64)| offset.next_multiple_of(align) - offset + size <= length;
        let &(length, offset) = self.by_size.range((size, 0)..).find(fits)?;
        self.by_offset.remove(&offset);
        self.by_size.remove(&(length, offset));
        let start = offset.next_multiple_of(align);
        self.insert(offset, start - offset);
        self.insert(start + size, offset + length - (start + size));
        self.free -= size;
        Some(start)
    }

    /// Takes back what [`Self::take`] gave.
    pub fn give(&mut self, mut offset: u64, mut size: u64) {
        self.free += size;
        if let Some((&before, &length)) = self.by_offset.range(..offset).next_back()
            && before + length == offset
        {
            self.remove(before, length);
            offset = before;
            size += length;
        }
        if let Some(&length) = self.by_offset.get(&(offset + size)) {
            self.remove(offset + size, length);
            size += length;
        }
        self.insert(offset, size);
    }

    fn insert(&mut self, offset: u64, size: u64) {
        if size > 0 {
            self.by_offset.insert(offset, size);
            self.by_size.insert((size, offset));
        }
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(size, offset));
    }
}

#[cfg(test)]
mod ranges_tests {
    use super::*;

    #[test]
    fn random_takes_and_gives_never_overlap_and_merge_back() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let total = 64 << 20;
        let mut ranges = Ranges::new(total);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for _ in 0..4000 {
            if random.bool() || taken.is_empty() {
                let most = 1 << random.u32(1..14);
                let size = random.u64(1..=most) * GRAIN;
                if let Some(offset) = ranges.take(size) {
                    assert!(offset + size <= total);
                    assert_eq!(offset % if size >= COARSE { COARSE } else { GRAIN }, 0);
                    assert!(taken.iter().all(|&(other, length)| offset + size <= other || other + length <= offset));
                    taken.push((offset, size));
                }
            } else {
                let (offset, size) = taken.swap_remove(random.usize(..taken.len()));
                ranges.give(offset, size);
            }
            assert_eq!(ranges.free(), total - taken.iter().map(|(_, size)| size).sum::<u64>());
        }
        for (offset, size) in taken {
            ranges.give(offset, size);
        }
        assert_eq!(ranges.by_offset, BTreeMap::from([(0, total)]));
        assert_eq!(ranges.by_size, BTreeSet::from([(total, 0)]));
        assert_eq!(ranges.take(total), Some(0));
        assert_eq!(ranges.take(GRAIN), None);
    }

    #[test]
    fn what_is_lent_is_not_taken() {
        let mut ranges = Ranges::new(4 * GRAIN);
        assert!(ranges.lend(3 * GRAIN) && !ranges.lend(2 * GRAIN));
        assert_eq!((ranges.free(), ranges.take(2 * GRAIN)), (GRAIN, None));
        assert_eq!(ranges.take(GRAIN), Some(0));
        assert!(!ranges.lend(1) && ranges.lend(0));
        ranges.restore(3 * GRAIN);
        assert_eq!(ranges.take(3 * GRAIN), Some(GRAIN));
    }
}
