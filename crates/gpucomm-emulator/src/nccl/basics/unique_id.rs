//! Unique ids: what leads to a control segment, in the bytes of NCCL's struct.

use crate::meet::segment::Id;
use crate::sys::ncclUniqueId;

/// The bytes of an id.
pub(crate) fn of(id: Id) -> ncclUniqueId {
    let mut bytes = [0u8; 128];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(id.words()) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    ncclUniqueId { internal: bytes.map(|byte| byte as _) }
}

/// The id in these bytes, if they hold one.
pub(crate) fn read(id: &ncclUniqueId) -> Id {
    let bytes = id.internal.map(|byte| byte as u8);
    let word = |i| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap_or_default());
    Id::from_words(std::array::from_fn(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        let id = Id::from_words([1, u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef]);
        assert_eq!(read(&of(id)), id);
    }
}
