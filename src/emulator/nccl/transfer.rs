//! Copies between buffers, in blocks that stay in the cache.

/// Bytes that are worked on at a time: two such blocks fit into a first or second level cache.
pub(super) const BLOCK: usize = 16 * 1024;

/// Copies `bytes` bytes, unless both are the same place.
///
/// # Safety
/// `from` is readable and `to` writable for that length, and they do not overlap unless they are equal.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if !std::ptr::eq(from, to) {
        // SAFETY: the caller vouches for both.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

/// Copies `bytes` bytes to each of `targets`, reading them from memory once.
///
/// # Safety
/// As [`copy`], for each target.
pub(super) unsafe fn copy_to_all(from: *const u8, targets: &[*mut u8], bytes: usize) {
    let mut at = 0;
    while at < bytes {
        let length = BLOCK.min(bytes - at);
        for target in targets {
            // SAFETY: `at + length` is at most `bytes`; the caller vouches for the rest.
            unsafe { copy(from.add(at), target.add(at), length) };
        }
        at += length;
    }
}
