//! What is reserved, and what is mapped there: the one table of both.

use super::mapped::Mapped;
use super::physical::Physical;
use crate::lock::lock;
use crate::memory::access::Access;
use crate::memory::fault::Fault;
use crate::memory::object::{ALIGN, Location, Object};
use crate::memory::room::Room;
use crate::memory::{map, patchwork};
use crate::sys::cudaError;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

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
    let mut table = lock(&TABLE);
    table.rooms.insert(base, Arc::new(room));
    map::reserve(base, bytes);
    Ok(base)
}

/// Gives a reservation back: all of it, with nothing mapped there.
pub(crate) fn free(base: usize, bytes: usize) -> Result<(), Fault> {
    let mut table = lock(&TABLE);
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
    enter(base, bytes, physical, false)
}

/// The same for a multicast object, for which `physical` stands.
pub(crate) fn map_multicast(base: usize, bytes: usize, physical: &Arc<Physical>) -> Result<(), Fault> {
    enter(base, bytes, physical, true)
}

fn enter(base: usize, bytes: usize, physical: &Arc<Physical>, is_multicast: bool) -> Result<(), Fault> {
    let range = range(base, bytes)?;
    if bytes as u64 != physical.bytes() {
        let text = format!("{bytes} bytes of {physical}: the driver maps all of some memory, or nothing");
        return Err(Fault { cuda: cudaError::cudaErrorNotSupported, text });
    }
    let mut table = lock(&TABLE);
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
    let mut table = lock(&TABLE);
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
    let table = lock(&TABLE);
    for mapped in table.whole(&range)? {
        for &(device, access) in rights {
            mapped.rights.set(device, access);
        }
    }
    Ok(())
}

/// What is mapped at `address`.
pub(crate) fn at(address: usize) -> Option<Arc<Mapped>> {
    lock(&TABLE).at(address).cloned()
}

/// The mappings in which `bytes` bytes from `address` on lie, without a gap.
pub(super) fn covering(address: usize, bytes: usize) -> Result<Vec<Arc<Mapped>>, Fault> {
    let table = lock(&TABLE);
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
    let mut table = lock(&TABLE);
    if let Some((_, patch)) = table.patches.iter().find(|(known, _)| *known == range) {
        return Ok(at(patch));
    }
    let parts: Vec<_> = mapped.iter().map(|mapped| (mapped.place(mapped.base), mapped.bytes as u64)).collect();
    let patch = patchwork::new(first.place(first.base).device, &parts)
        .map_err(|error| Fault::value(format!("{range:#x?} cannot be named to other ranks: {error}")))?;
    let place = at(&patch);
    table.patches.push((range, patch));
    Ok(place)
}

/// The address of `bytes` bytes at `place`, if they are mapped somewhere.
pub(super) fn known(place: &Location, bytes: usize) -> Option<usize> {
    let table = lock(&TABLE);
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
