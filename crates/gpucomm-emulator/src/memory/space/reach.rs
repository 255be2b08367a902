//! From a place, which another rank has named, to an address of this process.

use super::table;
use crate::memory::map;
use crate::memory::object::{ALIGN, Location};
use std::io;

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
    let address = match map::known(place, bytes).or_else(|| table::known(place, bytes)) {
        Some(address) => address,
        None if place.pid == std::process::id() => return Err(place.gone()),
        None => map::open(place, bytes)?,
    };
    Ok(std::ptr::with_exposed_provenance_mut(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::map::{Kind, add, find};
    use crate::memory::object::Object;

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
            let next = base + bytes as usize;
            assert!(find(next).is_none_or(|mapping| !mapping.place(next).same_object(&object.begin())));
            assert!(reach(&Location { offset: bytes, ..object.begin() }, 1).is_err());
            assert!(reach(&Location { offset: u64::MAX, ..object.begin() }, 1).is_err());
            assert!(reach(&Location { nonce: object.begin().nonce.wrapping_add(1), ..object.begin() }, 1).is_err());
            // Who says that the object is larger says nothing about this one.
            assert!(reach(&Location { bytes: bytes + 1, ..object.begin() }, bytes as usize + 1).is_err());
        }
        assert!(find(0).is_none() && find(usize::MAX).is_none());
        assert!(reach(&Location::EMPTY, 0).is_ok() && reach(&Location::EMPTY, 1).is_err());
    }
}
