//! Places in memory, on their way to other ranks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::object::Location;

/// Words that a [`Location`] takes.
pub(crate) const LOCATION_WORDS: usize = 4;

/// Writes a location into shared memory.
pub(crate) fn put_location(words: &[AtomicU64], location: &Location) {
    for (word, value) in words.iter().zip(location.words()) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Reads a location from shared memory.
pub(crate) fn get_location(words: &[AtomicU64]) -> Location {
    Location::from_words(std::array::from_fn(|i| words.get(i).map_or(0, |word| word.load(Ordering::Relaxed))))
}
