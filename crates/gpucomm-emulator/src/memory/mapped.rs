//! Physical memory, and the addresses at which programs have mapped it.
//!
//! Physical memory is an object of its own, which may be mapped anywhere, any number of times. One table knows what is reserved,
//! and what is mapped there.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::lock::Mutex;
use crate::memory::access::{Access, Fault, Rights};
use crate::memory::object::{ALIGN, Location, Object, Room};
use crate::memory::{heap, map, object};
use crate::races::Touches;
use crate::settings::settings;
use crate::sys::cudaError;
use crate::visible::visible;

/// The device of physical memory, and the properties that its creator asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nature {
    /// As this process counts.
    pub ordinal: i32,
    /// The kinds of handles that it may be exported as: a bit for each.
    pub handles: u32,
    /// Network cards may reach it.
    pub rdma: bool,
}

/// A piece of physical memory. It ends with the last handle and the last mapping, of any process.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(super) object: Object,
    pub(crate) nature: Nature,
    /// What its bytes were used for, under whatever addresses.
    pub(crate) touches: Touches,
    /// The device counts it as used: it was made by this process.
    lent: bool,
    exported: AtomicBool,
    /// How many multicast objects it is bound to by this process.
    pub(crate) bound: AtomicUsize,
    /// Whether it was unmapped while it was bound.
    pub(crate) torn: AtomicBool,
}

/// What this process has made or imported, and may still have.
static LIVE: Mutex<Vec<Weak<Physical>>> = Mutex::new(Vec::new());

impl Physical {
    /// New memory of `bytes` bytes.
    pub(crate) fn new(bytes: u64, nature: Nature) -> Result<Arc<Self>, Fault> {
        let heap = heap::of(nature.ordinal).ok_or_else(|| no_device(nature.ordinal))?;
        let out_of_memory = |why: &str| Fault {
            cuda: cudaError::cudaErrorMemoryAllocation,
            text: format!("{bytes} bytes of device {}: {why}", nature.ordinal),
        };
        if !heap.ground.lend(bytes) {
            return Err(out_of_memory("it has not as many"));
        }
        let label = u64::from(nature.handles) | u64::from(nature.rdma) << 32;
        let made = Object::labelled(heap.ground.number, bytes, label).and_then(|object| {
            soil(&object, bytes as usize)?;
            Ok(object)
        });
        match made {
            Ok(object) => Ok(enter(Self::of(object, nature, true))),
            Err(error) => {
                heap.ground.restore(bytes);
                Err(out_of_memory(&error.to_string()))
            }
        }
    }

    fn of(object: Object, nature: Nature, lent: bool) -> Self {
        let (exported, bound, torn) = (AtomicBool::new(!lent), AtomicUsize::new(0), AtomicBool::new(false));
        Self { object, nature, touches: Touches::default(), lent, exported, bound, torn }
    }

    /// Makes a placeholder of `bytes` bytes for a multicast object, which has addresses but no memory of
    /// its own. `ordinal` is the ordinal of one of its devices.
    pub(crate) fn none(ordinal: i32, bytes: u64) -> io::Result<Arc<Self>> {
        let number = usize::try_from(ordinal).ok().and_then(|at| visible().get(at).copied()).unwrap_or(-1);
        let nature = Nature { ordinal, handles: 0, rdma: false };
        Ok(Arc::new(Self::of(Object::new(number, bytes)?, nature, false)))
    }

    /// The memory that is an object of another process.
    pub(crate) fn import(object: Object) -> Result<Arc<Self>, Fault> {
        let begin = object.begin();
        let known = LIVE
            .lock()
            .iter()
            .find_map(|live| live.upgrade().filter(|physical| physical.object.begin().same_object(&begin)));
        if let Some(known) = known {
            return Ok(known);
        }
        let ordinal = visible().iter().position(|&number| number == begin.device);
        let ordinal = ordinal.ok_or_else(|| no_device(begin.device))? as i32;
        let label = object.label();
        let nature = Nature { ordinal, handles: label as u32, rdma: label >> 32 != 0 };
        Ok(enter(Self::of(object, nature, false)))
    }

    /// A descriptor by which another process can import it.
    pub(crate) fn export(&self) -> io::Result<OwnedFd> {
        self.exported.store(true, Ordering::Relaxed);
        self.object.share()
    }

    /// Where it begins, for other processes.
    pub(crate) fn begin(&self) -> Location {
        self.object.begin()
    }

    /// Maps a part of it to `address` and up, in room that is empty there.
    pub(crate) fn map_at(&self, room: &Room, address: usize, offset: u64, bytes: usize) -> io::Result<()> {
        self.object.map_at(room, address, offset, bytes)
    }

    /// How much it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.object.begin().bytes
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // Others of NCCL may have it mapped for good. What was exported may be in use wherever the descriptor went.
        if !*self.exported.get_mut() {
            self.object.punch(0, self.bytes());
        }
        if self.lent
            && let Some(heap) = heap::of(self.nature.ordinal)
        {
            heap.ground.restore(self.bytes());
        }
    }
}

fn enter(physical: Physical) -> Arc<Physical> {
    let physical = Arc::new(physical);
    let mut live = LIVE.lock();
    live.retain(|live| live.strong_count() > 0);
    live.push(Arc::downgrade(&physical));
    physical
}

fn no_device(device: i32) -> Fault {
    let text = format!("it belongs to device {device}, which this process does not have");
    Fault { cuda: cudaError::cudaErrorInvalidDevice, text }
}

/// Leaves in new memory what [`poison`] has for it.
fn soil(object: &Object, bytes: usize) -> io::Result<()> {
    if settings().strict {
        let room = Room::new(bytes, ALIGN)?;
        object.map_at(&room, room.base(), 0, bytes)?;
        // SAFETY: this function has just mapped the range, and no other thread has the object.
        unsafe { object::poison(std::ptr::with_exposed_provenance_mut(room.base()), bytes) };
    }
    Ok(())
}

impl std::fmt::Display for Physical {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of device {}", self.bytes(), self.nature.ordinal)
    }
}

/// Physical memory at a range of addresses. The mapping lives until its last reference is dropped, so
/// queued work can still use it after the program has unmapped it.
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

    /// Returns the location in the object of the byte at `address`, which lies in this mapping.
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

/// Sizes and offsets are multiples of this, as on H200s.
pub(crate) const GRANULARITY: usize = ALIGN;

#[derive(Debug)]
struct Table {
    /// The reservations, by their first addresses.
    rooms: BTreeMap<usize, Arc<Room>>,
    /// The mappings, likewise.
    mapped: BTreeMap<usize, Arc<Mapped>>,
    /// Names for several mappings side by side, under which other ranks know them, and where they begin. They last as long as all of
    /// those mappings.
    patches: Vec<(Range<usize>, Object)>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { rooms: BTreeMap::new(), mapped: BTreeMap::new(), patches: Vec::new() });

/// The range of `bytes` addresses from `base` on, if both are multiples of the granularity.
fn range(base: usize, bytes: usize) -> Result<Range<usize>, Fault> {
    let end = base.checked_add(bytes).filter(|_| bytes > 0);
    let aligned = base.is_multiple_of(GRANULARITY) && bytes.is_multiple_of(GRANULARITY);
    end.filter(|_| aligned).map(|end| base..end).ok_or_else(|| {
        Fault::value(format!("{bytes} bytes at {base:#x}, expected some, and multiples of {GRANULARITY}"))
    })
}

/// Reserves `bytes` addresses; the first is a multiple of `align`, and of the granularity.
pub(crate) fn reserve(bytes: usize, align: usize) -> Result<usize, Fault> {
    range(0, bytes)?;
    if align != 0 && !align.is_power_of_two() {
        return Err(Fault::value(format!("the alignment is {align}, expected 0 or a power of two")));
    }
    let room = Room::new(bytes, align.max(GRANULARITY)).map_err(|error| Fault {
        cuda: cudaError::cudaErrorMemoryAllocation,
        text: format!("{bytes} addresses: {error}"),
    })?;
    let base = room.base();
    let mut table = TABLE.lock();
    table.rooms.insert(base, Arc::new(room));
    map::reserve(base, bytes);
    Ok(base)
}

/// Gives a reservation back: all of it, with nothing mapped there.
pub(crate) fn free(base: usize, bytes: usize) -> Result<(), Fault> {
    let mut table = TABLE.lock();
    match table.rooms.get(&base) {
        Some(room) if room.bytes() == bytes => {}
        Some(room) => {
            let text = format!("{bytes} bytes at {base:#x}, where {} are reserved", room.bytes());
            return Err(Fault::value(text));
        }
        None => return Err(Fault::value(format!("no reservation begins at {base:#x}"))),
    }
    if let Some(mapped) = table.within(&(base..base + bytes)).next() {
        return Err(Fault::value(format!("{mapped} is still mapped in the reservation at {base:#x}")));
    }
    map::forget(base);
    table.rooms.remove(&base);
    Ok(())
}

/// Maps `physical` to `base`; `bytes` is how many it has.
pub(crate) fn map(base: usize, bytes: usize, physical: &Arc<Physical>) -> Result<(), Fault> {
    enter_mapping(base, bytes, physical, false)
}

/// The same for a multicast object, for which `physical` stands.
pub(crate) fn map_multicast(base: usize, bytes: usize, physical: &Arc<Physical>) -> Result<(), Fault> {
    enter_mapping(base, bytes, physical, true)
}

fn enter_mapping(base: usize, bytes: usize, physical: &Arc<Physical>, is_multicast: bool) -> Result<(), Fault> {
    let range = range(base, bytes)?;
    if bytes as u64 != physical.bytes() {
        let text = format!("{bytes} bytes of {physical}: the driver maps all of some memory, or nothing");
        return Err(Fault { cuda: cudaError::cudaErrorNotSupported, text });
    }
    let mut table = TABLE.lock();
    if let Some(mapped) = table.within(&range).next() {
        return Err(Fault::value(format!("{bytes} bytes at {base:#x}, where there is something: {mapped}")));
    }
    let room = table.room(&range)?;
    let mapped = Mapped::new(room, (base, bytes), physical, is_multicast)
        .map_err(|error| Fault::value(format!("{bytes} bytes at {base:#x} cannot be mapped: {error}")))?;
    table.mapped.insert(base, mapped);
    Ok(())
}

/// Takes the mappings in a range of a reservation away, if there are any. The caller looks who still uses them.
pub(crate) fn unmap(base: usize, bytes: usize) -> Result<Vec<Arc<Mapped>>, Fault> {
    let range = range(base, bytes)?;
    let mut table = TABLE.lock();
    table.room(&range)?;
    let gone: Vec<_> = table.within(&range).cloned().collect();
    if let Some(mapped) = gone.iter().find(|mapped| mapped.base < range.start || mapped.end() > range.end) {
        return Err(Fault::value(format!("{range:#x?} has a part only of {mapped}")));
    }
    for mapped in &gone {
        table.mapped.remove(&mapped.base);
        table.patches.retain(|(range, _)| !range.contains(&mapped.base));
    }
    Ok(gone)
}

/// Sets what devices may do with all mappings in a range, which must be whole.
pub(crate) fn set_access(base: usize, bytes: usize, rights: &[(i32, Access)]) -> Result<(), Fault> {
    let range = range(base, bytes)?;
    let table = TABLE.lock();
    for mapped in table.whole(&range)? {
        for &(device, access) in rights {
            mapped.rights.set(device, access);
        }
    }
    Ok(())
}

/// What is mapped at `address`.
pub(crate) fn at(address: usize) -> Option<Arc<Mapped>> {
    TABLE.lock().at(address).cloned()
}

/// The mappings in which `bytes` bytes from `address` on lie, without a gap.
pub(super) fn covering(address: usize, bytes: usize) -> Result<Vec<Arc<Mapped>>, Fault> {
    let table = TABLE.lock();
    let end = address.checked_add(bytes).ok_or_else(|| Fault::value(format!("{bytes} bytes at {address:#x}")))?;
    let (mut found, mut next) = (Vec::with_capacity(1), address);
    while next < end {
        let Some(mapped) = table.at(next) else {
            let text = format!("{bytes} bytes at {address:#x}, of which nothing is mapped at {next:#x}");
            return Err(Fault::value(text));
        };
        next = mapped.end();
        found.push(mapped.clone());
    }
    Ok(found)
}

/// A name for what lies at `address`, in the first of `mapped`, which lie side by side.
pub(super) fn name(address: usize, mapped: &[Arc<Mapped>]) -> Result<Location, Fault> {
    let [first, .., last] = mapped else { return Ok(mapped[0].place(address)) };
    let range = first.base..last.end();
    let at = |patch: &Object| Location { offset: (address - range.start) as u64, ..patch.begin() };
    let mut table = TABLE.lock();
    if let Some((_, patch)) = table.patches.iter().find(|(known, _)| *known == range) {
        return Ok(at(patch));
    }
    let parts: Vec<_> = mapped.iter().map(|mapped| (mapped.place(mapped.base), mapped.bytes as u64)).collect();
    let patch = object::new(first.place(first.base).device, &parts)
        .map_err(|error| Fault::value(format!("{range:#x?} cannot be named to other ranks: {error}")))?;
    let place = at(&patch);
    table.patches.push((range, patch));
    Ok(place)
}

/// The address of `bytes` bytes at `place`, if they are mapped somewhere.
pub(super) fn known(place: &Location, bytes: usize) -> Option<usize> {
    let table = TABLE.lock();
    let patch = |(range, patch): &(Range<usize>, Object)| {
        let end = place.offset.checked_add(bytes as u64)?;
        let here = patch.begin().same_object(place) && end <= range.len() as u64;
        here.then(|| range.start + place.offset as usize)
    };
    table
        .mapped
        .values()
        .find_map(|mapped| mapped.address(place, bytes))
        .or_else(|| table.patches.iter().find_map(patch))
}

impl Table {
    fn at(&self, address: usize) -> Option<&Arc<Mapped>> {
        self.mapped.range(..=address).next_back().map(|(_, mapped)| mapped).filter(|mapped| address < mapped.end())
    }

    /// All mappings that have an address of the range.
    fn within(&self, range: &Range<usize>) -> impl Iterator<Item = &Arc<Mapped>> {
        let before = self.at(range.start).filter(|mapped| mapped.base < range.start);
        before.into_iter().chain(self.mapped.range(range.clone()).map(|(_, mapped)| mapped))
    }

    /// The mappings of a range that they fill from its first to its last address.
    fn whole(&self, range: &Range<usize>) -> Result<Vec<Arc<Mapped>>, Fault> {
        let found: Vec<_> = self.within(range).cloned().collect();
        let mut next = range.start;
        for mapped in &found {
            if mapped.base != next {
                break;
            }
            next = mapped.end();
        }
        if next == range.end {
            return Ok(found);
        }
        Err(Fault::value(format!("{range:#x?} are no whole mappings without a gap; up to {next:#x} they are")))
    }

    /// The reservation that a range lies in.
    fn room(&self, range: &Range<usize>) -> Result<&Arc<Room>, Fault> {
        let before = self.rooms.range(..=range.start).next_back().map(|(_, room)| room);
        before.filter(|room| range.end <= room.base() + room.bytes()).ok_or_else(|| {
            Fault::value(format!("{} bytes at {:#x} do not lie in a reservation", range.len(), range.start))
        })
    }
}
