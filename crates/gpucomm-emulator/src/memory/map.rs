//! What the addresses of this process mean: one map of all that devices can reach.
//!
//! It is read for each buffer of each operation and hardly ever changes, so each thread keeps a copy, and looks with one load
//! whether it is the last one. What changes more often is not in it: where in a device's memory allocations lie, its heap says,
//! and what is mapped in a reservation, the table of the reservations.

use super::object::{Location, Object};
use crate::lock::Mutex;
use crate::memory::object;
use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// What lies at a range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The memory of a device of this process, in which its heap allocates.
    Ground {
        /// As this process counts.
        ordinal: i32,
    },
    /// Memory of another process. Where in it allocations lie, only that process knows.
    Foreign,
    /// Addresses that the program has reserved, to map memory there.
    Reserved,
    /// A heap that several processes have alike: that of this process, or of another.
    #[cfg(feature = "nvshmem")]
    Symmetric {
        /// See [`super::symmetric`].
        heap: usize,
    },
}

/// A range of addresses, and the part of an object that lies there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    base: usize,
    bytes: usize,
    begin: Location,
    pub(crate) kind: Kind,
}

impl Mapping {
    /// Returns the location in the object of the byte at `address`, which lies in this mapping.
    pub(crate) fn place(&self, address: usize) -> Location {
        Location { offset: self.begin.offset + (address - self.base) as u64, ..self.begin }
    }

    /// The address of `bytes` bytes at a place, if all of them lie here.
    fn address(&self, place: &Location, bytes: usize) -> Option<usize> {
        let offset = place.offset.checked_sub(self.begin.offset)?;
        let end = offset.checked_add(bytes as u64)?;
        (end <= self.bytes as u64 && self.begin.same_object(place)).then(|| self.base + offset as usize)
    }
}

/// All mappings, in the order of their addresses.
static ALL: Mutex<Vec<Mapping>> = Mutex::new(Vec::new());
/// How often they have changed. Changes under their lock.
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The mappings as this thread knows them, after so many changes.
    static KNOWN: RefCell<(u64, Vec<Mapping>)> = const { RefCell::new((0, Vec::new())) };
}

/// Calls `look` with all mappings.
fn look<R>(look: impl Fn(&[Mapping]) -> R) -> R {
    let known = KNOWN.try_with(|known| {
        let mut known = known.borrow_mut();
        if known.0 != CHANGES.load(Ordering::Acquire) {
            let all = ALL.lock();
            *known = (CHANGES.load(Ordering::Relaxed), all.clone());
        }
        look(&known.1)
    });
    // A thread that is ending has no copy any more.
    known.unwrap_or_else(|_| look(&ALL.lock()))
}

/// Maps all of `object`: the address of its first byte. The mapping stays.
pub(crate) fn add(object: &Object, kind: Kind) -> io::Result<usize> {
    add_to(&mut ALL.lock(), object, kind)
}

fn add_to(all: &mut Vec<Mapping>, object: &Object, kind: Kind) -> io::Result<usize> {
    let (begin, base) = (object.begin(), object::map(object)?);
    insert(all, Mapping { base, bytes: begin.bytes as usize, begin, kind });
    Ok(base)
}

fn insert(all: &mut Vec<Mapping>, mapping: Mapping) {
    let at = all.partition_point(|other| other.base < mapping.base);
    all.insert(at, mapping);
    CHANGES.fetch_add(1, Ordering::Release);
}

/// The program reserves these addresses.
pub(crate) fn reserve(base: usize, bytes: usize) {
    insert(&mut ALL.lock(), Mapping { base, bytes, begin: Location::EMPTY, kind: Kind::Reserved });
}

/// The program gives the reservation that starts at `base` back: the addresses mean nothing any more, to any thread.
pub(crate) fn forget(base: usize) {
    ALL.lock().retain(|mapping| mapping.kind != Kind::Reserved || mapping.base != base);
    CHANGES.fetch_add(1, Ordering::Release);
}

/// What lies at `address`.
pub(crate) fn find(address: usize) -> Option<Mapping> {
    look(|all| {
        let before = all.partition_point(|mapping| mapping.base <= address).checked_sub(1)?;
        Some(all[before]).filter(|mapping| address - mapping.base < mapping.bytes)
    })
}

/// The address of `bytes` bytes at `place`, if they lie in an object all of which is mapped.
pub(crate) fn known(place: &Location, bytes: usize) -> Option<usize> {
    look(|all| within(all, place, bytes))
}

fn within(all: &[Mapping], place: &Location, bytes: usize) -> Option<usize> {
    all.iter().find_map(|mapping| mapping.address(place, bytes))
}

/// The same for an object of another process, which is mapped if it is not yet. It stays mapped when that process ends.
pub(crate) fn open(place: &Location, bytes: usize) -> io::Result<usize> {
    let mut all = ALL.lock();
    // Another thread may have been quicker.
    match within(&all, place, bytes) {
        Some(address) => Ok(address),
        None => Ok(add_to(&mut all, &Object::open(place)?, Kind::Foreign)? + place.offset as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::object::ALIGN;

    #[test]
    fn threads_see_what_others_reserve_and_give_back() {
        let bytes = 2 * ALIGN;
        let room = crate::memory::object::Room::new(bytes, ALIGN).unwrap();
        let at = |address| {
            std::thread::scope(|scope| scope.spawn(move || find(address).map(|found| found.kind)).join().unwrap())
        };
        for _ in 0..2 {
            assert!(find(room.base()).is_none());
            std::thread::scope(|scope| scope.spawn(|| reserve(room.base(), bytes)).join().unwrap());
            for address in [room.base(), room.base() + bytes - 1] {
                assert_eq!((find(address).unwrap().kind, at(address)), (Kind::Reserved, Some(Kind::Reserved)));
            }
            assert!(find(room.base() + bytes).is_none_or(|next| next.kind != Kind::Reserved));
            std::thread::scope(|scope| scope.spawn(|| forget(room.base())).join().unwrap());
            assert!(at(room.base()).is_none());
        }
    }

    #[test]
    fn a_thread_sees_what_others_have_mapped() {
        assert!(find(0).is_none(), "this thread has a copy now");
        let object = Object::new(9, ALIGN as u64).unwrap();
        let base = std::thread::scope(|scope| {
            scope.spawn(|| add(&object, Kind::Ground { ordinal: 0 }).unwrap()).join().unwrap()
        });
        assert_eq!(find(base).map(|mapping| mapping.place(base)), Some(object.begin()));
    }
}
