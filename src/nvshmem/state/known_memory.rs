//! Which memory of this process the library knows: symmetric memory, and what was registered.

use std::collections::HashSet;

use crate::lock::RwLock;

/// What tells memory from other memory, as long as it is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The number of an allocation.
    Allocation(u64),
    /// Where pinned memory of the host begins.
    Pinned(usize),
}

/// All of it.
#[derive(Default)]
pub(crate) struct Own(RwLock<HashSet<Key>>);

impl Own {
    pub(crate) fn add(&self, key: Key) {
        self.0.write().insert(key);
    }

    pub(crate) fn remove(&self, key: Key) {
        self.0.write().remove(&key);
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        self.0.read().contains(&key)
    }
}
