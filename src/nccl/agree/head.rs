//! What the first word of a [signature](super::signature) says of an operation, beside what it is: its reduction, and its root.

use super::code::{PUT_SIGNAL, RECV, SEND, SIGNAL, SIMULATED, WAIT_SIGNAL};

/// Where the parts of the word begin. A clique has fewer than 2^16 ranks.
pub(super) const ELEMENT: u32 = 8;
pub(super) const REDUCTION: u32 = 16;
pub(super) const ROOT: u32 = 24;

/// The reduction code of every pre-multiplied sum: each rank has a handle and a factor of its own.
pub(super) const PRE_MUL: u64 = 0xff;

/// Its reduction, where it has one.
pub(crate) fn reduction(head: u64) -> Option<&'static str> {
    match head >> REDUCTION & 0xff {
        0 => None,
        PRE_MUL => Some("pre-multiplied sum"),
        op => Some(["sum", "prod", "max", "min", "avg"].get(op as usize - 1).unwrap_or(&"?")),
    }
}

/// Its root, where it has one. What stands in that place of a message is the peer.
pub(crate) fn root(head: u64) -> Option<usize> {
    let is_message = matches!(head as u8 & !SIMULATED, SEND | RECV | PUT_SIGNAL | SIGNAL | WAIT_SIGNAL);
    let root = (head >> ROOT & 0xffff).wrapping_sub(1);
    (!is_message && root != u64::MAX).then_some(root as usize)
}
