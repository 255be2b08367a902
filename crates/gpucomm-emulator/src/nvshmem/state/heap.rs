//! The symmetric heap: allocations at the same offsets on all PEs, and memory of programs that became symmetric.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::lock::Mutex;
use crate::memory::heap::{Block, Heap};
use crate::memory::map::Kind;
use crate::memory::object::Location;
use crate::memory::usage::InUse;
use crate::memory::{heap, map, object, symmetric, usage};
use crate::nvshmem::basics::{Outcome, variable_size, wrong};
use crate::settings::settings;

/// From so many bytes on, pages go back to the system when memory is freed.
const PUNCHED: u64 = 1 << 20;

/// One allocation, in the heaps of all PEs.
#[derive(Debug)]
struct Piece {
    /// What was taken for it.
    taken: (u64, u64),
    blocks: Vec<Arc<Block>>,
}

#[derive(Debug)]
struct Inner {
    space: Space,
    live: BTreeMap<u64, Piece>,
    /// It could not grow, which has ended it.
    lost: bool,
}

/// Why there is no memory for an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The heap, which is so long, cannot grow by so many bytes.
    Grows(u64, u64),
    /// It is not there any more.
    Lost,
}

/// The heap of this PE, and those of the others.
#[derive(Debug)]
pub(crate) struct Symmetric {
    me: usize,
    device: i32,
    /// By their PEs.
    heaps: Vec<&'static Heap>,
    inner: Mutex<Inner>,
    pub(crate) regions: Regions,
}

/// Places of regions have the number of theirs, from 1, above so many bits.
const BITS: u32 = 48;

/// Memory of this PE's heap, and that it is used.
#[derive(Debug)]
pub(crate) struct Place {
    /// In the heap of any PE, or in a region.
    pub(crate) offset: u64,
    pub(crate) used: InUse,
}

impl Symmetric {
    /// The heap of PE `me`, among those that begin at `places`.
    pub(crate) fn new(me: usize, device: i32, places: &[Location]) -> io::Result<Self> {
        let heaps = places.iter().map(|place| symmetric::of(place, device)).collect::<io::Result<Vec<_>>>()?;
        let most = heaps.iter().map(|heap| heap.ground.total).min().unwrap_or(0);
        let step = variable_size("NVSHMEM_CUMEM_GRANULARITY", 512 << 20).clamp(2 << 20, 2 << 30);
        let wide = settings().nvshmem >= 3_05_00;
        let limit = variable_size("NVSHMEM_MAX_MEMORY_PER_GPU", if wide { 256 << 30 } else { 128 << 30 });
        let space = Space::new(step, limit.min(most.saturating_add(1)));
        let inner = Inner { space, live: BTreeMap::new(), lost: false };
        Ok(Self { me, device, heaps, inner: Mutex::new(inner), regions: Regions::default() })
    }

    /// Takes memory for an allocation that begins at a multiple of `align`, a power of two, or 0 for any: where it begins. All PEs take the same.
    pub(crate) fn take(&self, bytes: u64, align: u64) -> Result<u64, Full> {
        let mut inner = self.inner.lock();
        if inner.lost {
            return Err(Full::Lost);
        }
        let mut taken = inner.space.take(bytes, align);
        if taken.is_none() {
            let growth = inner.space.growth(bytes, align);
            let device = heap::of(self.device);
            let lent = growth.filter(|growth| device.is_some_and(|device| device.ground.lend(*growth)));
            let Some(growth) = lent else { return Err(Full::Grows(inner.space.length, bytes.saturating_add(align))) };
            inner.space.grow(growth);
            self.heaps.iter().for_each(|heap| heap.backed.store(inner.space.length, Ordering::Relaxed));
            taken = inner.space.take(bytes, align);
        }
        let Some((offset, span)) = taken else { return Err(Full::Lost) };
        let blocks = self.heaps.iter().map(|heap| heap.place(offset, bytes)).collect();
        inner.live.insert(offset, Piece { taken: (offset, span), blocks });
        Ok(offset)
    }

    /// It is not there any more.
    pub(crate) fn lose(&self) {
        self.inner.lock().lost = true;
        self.heaps.iter().for_each(|heap| heap.backed.store(0, Ordering::Relaxed));
    }

    /// Leaves in new memory what nobody should count on.
    pub(crate) fn soil(&self, offset: u64, bytes: u64) {
        // SAFETY: the range was just taken, and no PE uses it before all have it.
        unsafe { object::poison(self.at(self.me, offset), bytes as usize) };
    }

    /// Gives an allocation back. Whether there is one at `offset`.
    pub(crate) fn give(&self, offset: u64) -> Option<u32> {
        let piece = self.inner.lock().live.remove(&offset)?;
        let mut uses = 0;
        for (heap, block) in self.heaps.iter().zip(&piece.blocks) {
            heap.condemn(offset);
            heap.bury(block);
            uses += block.uses();
        }
        let (start, span) = piece.taken;
        if span >= PUNCHED
            && let Ok(arena) = self.heaps[self.me].ground.arena()
        {
            arena.punch(start, span);
        }
        self.inner.lock().space.put(start, span);
        Some(uses)
    }

    /// Gives all back. Returns how many pieces of queued or running work use it.
    pub(crate) fn clear(&self) -> u32 {
        let all: Vec<u64> = self.inner.lock().live.keys().copied().collect();
        let uses = all.into_iter().filter_map(|offset| self.give(offset)).sum();
        self.heaps.iter().for_each(|heap| heap.backed.store(0, Ordering::Relaxed));
        let mut inner = self.inner.lock();
        if let Some(device) = heap::of(self.device) {
            device.ground.restore(inner.space.length);
        }
        inner.space = Space::new(1, 0);
        uses
    }

    /// The address of an offset, in the heap of `pe`, or in its part of a region.
    pub(crate) fn at(&self, pe: usize, offset: u64) -> *mut u8 {
        if let Some(region) = (offset >> BITS).checked_sub(1) {
            return self.regions.at(region as usize, pe, offset & ((1 << BITS) - 1));
        }
        self.heaps[pe].ground.arena().map_or(std::ptr::null_mut(), |arena| arena.at(offset))
    }

    /// A place in a region, as an offset.
    pub(crate) fn in_region(region: usize, offset: u64) -> u64 {
        (region as u64 + 1) << BITS | offset
    }

    /// Whose heap or region an address is in, and where, if in any.
    pub(crate) fn find(&self, address: usize) -> Option<(usize, u64)> {
        let mapping = map::find(address)?;
        let Kind::Symmetric { heap } = mapping.kind else { return None };
        let heap = symmetric::heap(heap)?;
        let offset = mapping.place(address).offset;
        if let Some(pe) = self.heaps.iter().position(|other| std::ptr::eq(*other, heap)) {
            return Some((pe, offset));
        }
        let (region, pe, offset) = self.regions.find(heap, offset)?;
        Some((pe, Self::in_region(region, offset)))
    }

    /// Where `bytes` bytes lie that any PE may reach: in one allocation of this PE's heap.
    pub(crate) fn place(&self, what: &str, ptr: *const c_void, bytes: usize) -> Outcome<Place> {
        let found = self.find(ptr.addr());
        match found {
            Some((pe, offset)) if pe == self.me => {
                let used = usage::hold(ptr, bytes).map_err(|fault| wrong(format!("{what}: {}", fault.text)))?;
                Ok(Place { offset, used })
            }
            Some((pe, _)) => Err(wrong(format!(
                "{what}: {ptr:p} lies in the heap of PE {pe}, as nvshmem_ptr gives it, expected the symmetric address of PE {}",
                self.me
            ))),
            None => Err(wrong(format!("{what}: {ptr:p} is not symmetric, expected {bytes} bytes of nvshmem_malloc"))),
        }
    }

    /// Where an allocation begins, if `ptr` is one.
    pub(crate) fn allocation(&self, ptr: *const c_void) -> Option<u64> {
        let (_, offset) = self.find(ptr.addr()).filter(|&(pe, _)| pe == self.me)?;
        self.inner.lock().live.contains_key(&offset).then_some(offset)
    }
}

impl Drop for Symmetric {
    fn drop(&mut self) {
        // The process ends, or has left the job without finalize. No later allocation takes this memory.
        self.clear();
    }
}

// none, the heap becomes longer by steps, up to a limit.

/// What allocations are multiples of.
const UNIT: u64 = 512;

#[derive(Debug)]
pub(crate) struct Space {
    free: BTreeMap<u64, u64>,
    /// How long it is.
    pub(crate) length: u64,
    step: u64,
    /// It is never as long as this.
    limit: u64,
}

impl Space {
    pub(crate) fn new(step: u64, limit: u64) -> Self {
        Self { free: BTreeMap::new(), length: 0, step, limit: limit.next_multiple_of(step) }
    }

    /// By how much it has to grow for so many bytes; `None` where it cannot be so long.
    pub(crate) fn growth(&self, bytes: u64, align: u64) -> Option<u64> {
        let growth = bytes.checked_add(align)?.checked_next_multiple_of(self.step)?;
        (self.length.checked_add(growth)? < self.limit).then_some(growth)
    }

    pub(crate) fn grow(&mut self, growth: u64) {
        self.put(self.length, growth);
        self.length += growth;
    }

    /// Takes `bytes` that begin at a multiple of `align`, 0 for any: where they begin, and how many they are with what is lost.
    pub(crate) fn take(&mut self, bytes: u64, align: u64) -> Option<(u64, u64)> {
        let span = bytes.checked_add(align)?.checked_next_multiple_of(UNIT)?;
        let (&start, &length) = self.free.iter().find(|&(_, &length)| length >= span)?;
        self.free.remove(&start);
        if length > span {
            self.free.insert(start + span, length - span);
        }
        let begin = start.next_multiple_of(align.max(1));
        if begin > start {
            self.put(start, begin - start);
        }
        Some((begin, start + span - begin))
    }

    /// Takes back what [`Self::take`] gave.
    pub(crate) fn put(&mut self, mut start: u64, mut length: u64) {
        if let Some((&before, &bytes)) = self.free.range(..start).next_back()
            && before + bytes == start
        {
            self.free.remove(&before);
            (start, length) = (before, length + bytes);
        }
        if let Some(bytes) = self.free.remove(&(start + length)) {
            length += bytes;
        }
        self.free.insert(start, length);
    }
}

#[test]
fn the_first_gap_is_taken_and_the_end_grows() {
    let mut space = Space::new(4096, 3 * 4096);
    assert_eq!((space.take(1, 0), space.growth(5000, 0)), (None, Some(8192)));
    assert_eq!(space.growth(4096, 8192), None, "never as long as the limit");
    space.grow(8192);
    let all: Vec<_> = [1, 513, 600].map(|bytes| space.take(bytes, 0).unwrap()).into();
    assert_eq!(all, [(0, 512), (512, 1024), (1536, 1024)]);
    space.put(512, 1024);
    // What begins later leaves what lies before it.
    assert_eq!(space.take(100, 2048), Some((4096, 1024)));
    assert_eq!(space.take(1024, 0), Some((512, 1024)));
    assert_eq!(space.take(1024, 0), Some((2560, 1024)));
    space.put(0, 512);
    space.put(2560, 1024);
    assert_eq!(space.take(4096, 0), None);
    assert_eq!(space.growth(1, 0), None);
}

/// A region, on all PEs.
#[derive(Debug)]
struct Region {
    /// The object of each PE, and where in it the region begins.
    parts: Vec<(&'static Heap, u64)>,
    bytes: u64,
    blocks: Vec<Arc<Block>>,
    /// The program must not unmap what it has registered.
    _used: InUse,
}

/// All regions, at numbers that all PEs agree on, for they come and go together.
#[derive(Debug, Default)]
pub(crate) struct Regions(Mutex<Vec<Option<Region>>>);

fn address(heap: &Heap, offset: u64) -> *mut u8 {
    heap.ground.arena().map_or(std::ptr::null_mut(), |arena| arena.at(offset))
}

impl Regions {
    /// Adds the one that begins at these places of the PEs: its number.
    pub(crate) fn add(&self, device: i32, places: &[Location], bytes: u64, used: InUse) -> io::Result<usize> {
        let part = |place: &Location| {
            let object = Location { offset: 0, ..*place };
            symmetric::of(&object, device).map(|heap| (heap, place.offset))
        };
        let parts = places.iter().map(part).collect::<io::Result<Vec<_>>>()?;
        let mut all = self.0.lock();
        let twice = |other: &Region| {
            let pairs = other.parts.iter().zip(&parts);
            pairs
                .into_iter()
                .any(|(one, new)| std::ptr::eq(one.0, new.0) && one.1 < new.1 + bytes && new.1 < one.1 + other.bytes)
        };
        if all.iter().flatten().any(twice) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "some of it is registered already"));
        }
        let blocks = parts.iter().map(|(heap, offset)| heap.place(*offset, bytes)).collect();
        let region = Some(Region { parts, bytes, blocks, _used: used });
        match all.iter().position(Option::is_none) {
            Some(free) => {
                all[free] = region;
                Ok(free)
            }
            None => {
                all.push(region);
                Ok(all.len() - 1)
            }
        }
    }

    /// Takes one away, which must begin there and have as many bytes.
    pub(crate) fn remove(&self, me: usize, ptr: *const c_void, bytes: u64) -> Option<usize> {
        let mut all = self.0.lock();
        let begins = |region: &Region| {
            let (heap, offset) = region.parts[me];
            address(heap, offset).addr() == ptr.addr() && region.bytes == bytes
        };
        let number = all.iter().position(|region| region.as_ref().is_some_and(begins))?;
        let region = all[number].take()?;
        for ((heap, offset), block) in region.parts.iter().zip(&region.blocks) {
            heap.condemn(*offset);
            heap.bury(block);
        }
        Some(number)
    }

    /// Which PE's part of which region begins at `offset` of an object, or holds it, and where.
    pub(crate) fn find(&self, heap: &'static Heap, offset: u64) -> Option<(usize, usize, u64)> {
        self.0.lock().iter().enumerate().find_map(|(number, region)| {
            let region = region.as_ref()?;
            let holds = |(other, begin): &(&'static Heap, u64)| {
                std::ptr::eq(*other, heap) && (*begin..begin + region.bytes).contains(&offset)
            };
            let pe = region.parts.iter().position(holds)?;
            Some((number, pe, offset - region.parts[pe].1))
        })
    }

    /// The address of a place in a PE's part of a region.
    pub(crate) fn at(&self, number: usize, pe: usize, offset: u64) -> *mut u8 {
        let all = self.0.lock();
        let region = all.get(number).and_then(Option::as_ref);
        region.map_or(std::ptr::null_mut(), |region| {
            let (heap, begin) = region.parts[pe];
            address(heap, begin + offset)
        })
    }
}
