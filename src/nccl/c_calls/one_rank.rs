//! A communicator of one rank, where NCCL's kernel for pre-multiplied sums may leave elements out.
//!
//! Measured on an H200 with NCCL 2.28.9: the kernel divides the elements among its thread blocks, one for each 16 KiB up to 32,
//! and rounds each share down, so that up to 31 elements at the end are not written: of 60001 floats the last one, of 1000003
//! 64-bit integers the last three. It is right where one block does all, and where the shares come out even. So the elements are
//! given to it in such pieces.

use crate::known_bugs;

/// Whether the NCCL that is running has such a kernel.
pub(crate) fn hits() -> bool {
    known_bugs::ONE_RANK_PREMULSUM.is_running()
}

/// Bytes that one thread block takes.
const BLOCK: usize = 16 << 10;

/// The most thread blocks.
const BLOCKS: usize = 32;

/// Bytes of which every thread block takes a whole number.
const PACK: usize = 16;

/// Elements of `size` bytes in pieces that the kernel does right, as `(offset, count)`.
pub(crate) fn pieces(count: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    let step = BLOCKS * PACK / size;
    // With all blocks at work, what 32 packs divide comes out even.
    let even = if count * size >= BLOCKS * BLOCK { count - count % step } else { 0 };
    let one_block = BLOCK / size;
    let rest = (even..count).step_by(one_block).map(move |offset| (offset, one_block.min(count - offset)));
    (even > 0).then_some((0, even)).into_iter().chain(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many elements the kernel writes.
    fn written(count: usize, size: usize) -> usize {
        let blocks = BLOCKS.min((count * size).div_ceil(BLOCK));
        let share = (count / blocks).next_multiple_of(PACK / size);
        count.min(share * blocks)
    }

    #[test]
    fn the_kernel_alone_leaves_elements_out() {
        assert_eq!(written(60_001, 4), 60_000);
        assert_eq!(written(1_000_003, 8), 1_000_000);
    }

    #[test]
    fn pieces_cover_everything_and_are_done_whole() {
        for size in [1, 2, 4, 8] {
            for count in (0..300).chain([4_096, 16_385, 60_001, 65_535, 524_287, 524_289, 600_011, 1_000_003]) {
                let mut next = 0;
                for (offset, len) in pieces(count, size) {
                    assert_eq!(offset, next, "{count} elements of {size} bytes");
                    assert!(len > 0);
                    assert_eq!(written(len, size), len, "{count} elements of {size} bytes: {len} at {offset}");
                    next = offset + len;
                }
                assert_eq!(next, count);
            }
        }
    }
}
