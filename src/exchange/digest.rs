//! Names of a bounded length for what may be long.

/// Beyond this many bytes what keys begin with is replaced by a digest: so that with what follows
/// it fits into [`MAX_KEY`](super::MAX_KEY), however deep exchanges are made of exchanges.
const LONG: usize = 256;

/// FNV-1a, of 128 bits.
pub(crate) fn digest(bytes: impl IntoIterator<Item = u8>) -> u128 {
    bytes.into_iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

/// What the keys of a view begin with, or a shorter name for that, below the same first two parts:
/// those of the generation with which all keys go.
pub(super) fn short(base: String) -> String {
    if base.len() <= LONG {
        return base;
    }
    let root: usize = base.split_inclusive('/').take(2).map(str::len).sum();
    format!("{}d/{:032x}/", &base[..root], digest(base.bytes()))
}
