//! What a C call asks for, and places in memory on their way to other ranks.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::object::Location;
use crate::nccl::basics::kind::Kind;
use crate::sys::{ncclDataType_t, ncclRedOp_t};

/// What a C call asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) send: *const c_void,
    pub(crate) recv: *mut c_void,
    pub(crate) count: usize,
    pub(crate) datatype: ncclDataType_t,
    pub(crate) redop: ncclRedOp_t,
    /// Root or peer.
    pub(crate) peer: i32,
    /// What its configuration says, as a number; 0 where it says nothing.
    pub(crate) config: u16,
}

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
