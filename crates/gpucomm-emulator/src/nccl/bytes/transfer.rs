//! Copies between buffers, in blocks that stay in the cache.

/// Bytes that are worked on at a time: two such blocks fit into a first or second level cache.
pub(crate) const BLOCK: usize = 16 * 1024;

/// Operations that write at least this much go around the caches: what they write would not stay there anyway, and a
/// plain store first reads the line it replaces.
const STREAMED: usize = 16 << 20;

/// How an operation writes its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Cached,
    Streamed,
}

impl Way {
    /// The better way for an operation that writes `bytes` bytes in all.
    pub(crate) fn for_total(bytes: usize) -> Self {
        if bytes >= STREAMED { Self::Streamed } else { Self::Cached }
    }

    /// Copies `bytes` bytes, unless both are the same place.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for that length, and they do not overlap unless they are equal.
    pub(crate) unsafe fn copy(self, from: *const u8, to: *mut u8, bytes: usize) {
        if std::ptr::eq(from, to) {
            return;
        }
        // SAFETY: the caller vouches for both.
        unsafe {
            match self {
                Self::Cached => std::ptr::copy_nonoverlapping(from, to, bytes),
                Self::Streamed => stream(from, to, bytes),
            }
        }
    }

    /// Copies `bytes` bytes to each of `targets`, reading them from memory once.
    ///
    /// # Safety
    /// As [`Self::copy`], for each target.
    pub(crate) unsafe fn copy_to_all(self, from: *const u8, targets: &[*mut u8], bytes: usize) {
        let mut at = 0;
        while at < bytes {
            let length = BLOCK.min(bytes - at);
            for target in targets {
                // SAFETY: `at + length` is at most `bytes`; the caller vouches for the rest.
                unsafe { self.copy(from.add(at), target.add(at), length) };
            }
            at += length;
        }
    }

    /// Makes what was written visible to whoever is told afterwards.
    pub(crate) fn finish(self) {
        #[cfg(target_arch = "x86_64")]
        if self == Self::Streamed {
            // Streamed stores are not ordered by anything else.
            // SAFETY: every x86-64 processor has this instruction.
            unsafe { std::arch::x86_64::_mm_sfence() };
        }
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    const STEP: usize = size_of::<__m128i>();
    let head = to.align_offset(STEP).min(bytes);
    let body = (bytes - head) / STEP;
    let tail = head + body * STEP;
    // SAFETY: head, body and tail together are the `bytes` bytes for which the caller vouches, and the body is aligned.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        let (source, target) = (from.add(head).cast::<__m128i>(), to.add(head).cast::<__m128i>());
        for i in 0..body {
            _mm_stream_si128(target.add(i), _mm_loadu_si128(source.add(i)));
        }
        std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), bytes - tail);
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_copy_every_byte_at_any_alignment() {
        let from: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        for way in [Way::Cached, Way::Streamed] {
            for (skip, length) in [(0, 100_000), (1, 99_999), (3, 15), (7, 16), (15, 1), (5, 70_001), (9, 0)] {
                let mut to = vec![255u8; 100_064];
                // SAFETY: both vectors are long enough.
                unsafe { way.copy_to_all(from.as_ptr(), &[to[skip..].as_mut_ptr()], length) };
                way.finish();
                assert_eq!(to[skip..skip + length], from[..length]);
                assert!(to[..skip].iter().chain(&to[skip + length..]).all(|&byte| byte == 255));
            }
        }
    }
}
