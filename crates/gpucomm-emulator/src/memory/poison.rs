//! What fresh memory holds in strict mode: not the zeros of new pages, which a program could come to rely on.

use crate::settings::settings;

/// A byte that is no zero, no NaN in any type, and no small number in most.
pub(crate) const POISON: u8 = 0xc7;

/// Of memory that is larger than twice this, only so much at both ends: pages that nobody uses shall take no memory.
const EDGE: usize = 1 << 20;

/// Fills memory that is about to be handed out.
///
/// # Safety
/// `bytes` bytes at `memory` may be written, and nobody uses them.
pub(crate) unsafe fn fill(memory: *mut u8, bytes: usize) {
    if !settings().strict {
        return;
    }
    let edge = bytes.min(EDGE);
    // SAFETY: both ranges lie within what the caller vouches for.
    unsafe {
        memory.write_bytes(POISON, edge);
        memory.add(bytes - edge).write_bytes(POISON, edge);
    }
}
