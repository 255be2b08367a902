//! What the addresses of this process mean: one map of all that devices can reach.
//!
//! It is read for each buffer of each operation and hardly ever changes, so each thread keeps a copy, and looks with one load
//! whether it is the last one.

use super::object::{ALIGN, Location, Object};
use crate::emulator::lock::lock;
use std::cell::RefCell;
use std::io;
use std::sync::Mutex;
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
    /// Where a byte of it lies in its object; `address` is one of it.
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
            let all = lock(&ALL);
            *known = (CHANGES.load(Ordering::Relaxed), all.clone());
        }
        look(&known.1)
    });
    // A thread that is ending has no copy any more.
    known.unwrap_or_else(|_| look(&lock(&ALL)))
}

/// Maps all of `object`: the address of its first byte. The mapping stays.
pub(crate) fn add(object: &Object, kind: Kind) -> io::Result<usize> {
    insert(&mut lock(&ALL), object, kind)
}

fn insert(all: &mut Vec<Mapping>, object: &Object, kind: Kind) -> io::Result<usize> {
    let (begin, base) = (object.begin(), object.map()?);
    let at = all.partition_point(|other| other.base < base);
    all.insert(at, Mapping { base, bytes: begin.bytes as usize, begin, kind });
    CHANGES.fetch_add(1, Ordering::Release);
    Ok(base)
}

/// What lies at `address`.
pub(crate) fn find(address: usize) -> Option<Mapping> {
    look(|all| {
        let before = all.partition_point(|mapping| mapping.base <= address).checked_sub(1)?;
        Some(all[before]).filter(|mapping| address - mapping.base < mapping.bytes)
    })
}

/// A pointer of this process to `bytes` bytes at `place`, which may belong to another process: what that says is not believed. Objects of
/// others are mapped once and stay mapped, so the pointer stays valid when their process ends.
pub(crate) fn reach(place: &Location, bytes: usize) -> io::Result<*mut u8> {
    if bytes == 0 {
        return Ok(std::ptr::without_provenance_mut(ALIGN));
    }
    if place.fd < 0 || place.offset.checked_add(bytes as u64).is_none_or(|end| end > place.bytes) {
        let text = format!("{bytes} bytes at {place:?} do not lie in its object");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let known = |all: &[Mapping]| all.iter().find_map(|mapping| mapping.address(place, bytes));
    if let Some(address) = look(known) {
        return Ok(std::ptr::with_exposed_provenance_mut(address));
    }
    if place.pid == std::process::id() {
        return Err(place.gone());
    }
    let mut all = lock(&ALL);
    // Another thread may have been quicker.
    let address = match known(&all) {
        Some(address) => address,
        None => insert(&mut all, &Object::open(place)?, Kind::Foreign)? + place.offset as usize,
    };
    Ok(std::ptr::with_exposed_provenance_mut(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_their_objects() {
        let bytes = 4 * ALIGN as u64;
        let objects = [7, 8].map(|device| Object::new(device, bytes).unwrap());
        let bases = objects.each_ref().map(|object| add(object, Kind::Ground { ordinal: 0 }).unwrap());
        for (object, base) in objects.iter().zip(bases) {
            for offset in [0, 1, bytes - 1] {
                let place = find(base + offset as usize).unwrap().place(base + offset as usize);
                assert_eq!(place, Location { offset, ..object.begin() });
                assert_eq!(reach(&place, 1).unwrap().addr(), base + offset as usize);
                let rest = (bytes - offset) as usize;
                assert_eq!(reach(&place, rest).unwrap().addr(), base + offset as usize);
                for more in [rest + 1, usize::MAX] {
                    assert!(reach(&place, more).is_err(), "{offset} {more}");
                }
            }
            assert!(find(base + bytes as usize).is_none_or(|next| !next.begin.same_object(&object.begin())));
            assert!(reach(&Location { offset: bytes, ..object.begin() }, 1).is_err());
            assert!(reach(&Location { offset: u64::MAX, ..object.begin() }, 1).is_err());
            assert!(reach(&Location { nonce: object.begin().nonce.wrapping_add(1), ..object.begin() }, 1).is_err());
            // Who says that the object is larger says nothing about this one.
            assert!(reach(&Location { bytes: bytes + 1, ..object.begin() }, bytes as usize + 1).is_err());
        }
        assert!(find(0).is_none() && find(usize::MAX).is_none());
        assert!(reach(&Location::EMPTY, 0).is_ok() && reach(&Location::EMPTY, 1).is_err());
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
