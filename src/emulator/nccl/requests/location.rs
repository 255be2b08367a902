//! Places in memory, on their way to other ranks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::emulator::memory::object::Location;

/// Words that a [`Location`] takes.
pub(crate) const LOCATION_WORDS: usize = 4;

/// Writes a location into shared memory.
pub(crate) fn put_location(words: &[AtomicU64], location: &Location) {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let values = [
        pair(location.pid, location.fd.cast_unsigned()),
        pair(location.device.cast_unsigned(), location.nonce.cast_unsigned()),
        location.offset,
        location.bytes,
    ];
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Reads a location from shared memory.
pub(crate) fn get_location(words: &[AtomicU64]) -> Location {
    let word = |i: usize| words.get(i).map_or(0, |word| word.load(Ordering::Relaxed));
    let (owner, place) = (word(0), word(1));
    Location {
        pid: owner as u32,
        fd: ((owner >> 32) as u32).cast_signed(),
        device: (place as u32).cast_signed(),
        nonce: ((place >> 32) as u32).cast_signed(),
        offset: word(2),
        bytes: word(3),
    }
}
