//! The memory of each device of a multicast object, as writes find it.

use crate::memory::room::Room;

/// The memory of each device of an object, side by side as it is bound. It stays mapped while work uses it.
#[derive(Debug)]
pub(super) struct Spread {
    /// As of which change.
    pub(super) changes: u64,
    pub(super) devices: Vec<Side>,
}

/// That of one device.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) number: i32,
    pub(super) room: Room,
    /// What is bound: from, to.
    pub(super) filled: Vec<(u64, u64)>,
    /// Whether some of it was bound by a process that is gone.
    pub(super) orphaned: bool,
}

impl Side {
    pub(super) fn covers(&self, from: u64, to: u64) -> bool {
        let mut next = from;
        while next < to {
            match self.filled.iter().find(|(begin, end)| *begin <= next && next < *end) {
                Some((_, end)) => next = *end,
                None => return false,
            }
        }
        true
    }
}
