//! Whether there is room for an allocation, before all PEs ask for it.
//!
//! The library looks for the first gap in the heap; where there is none, it makes the heap longer, by steps. Where it cannot, and is older than 3.8, it
//! takes all of the heap away, with all that lies in it, while other PEs wait for this one for ever.

use crate::cuda::is_mapped;
use crate::error::Result;
use crate::nvshmem::state::environment::{is_set, size};
use crate::nvshmem::state::extent::has_gap;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::status::Status;
use crate::version::{Version, running_nvshmem};

/// By which the heap grows, if the environment does not say otherwise, and the least and the most of it.
const STEP: usize = 512 << 20;
const STEPS: std::ops::RangeInclusive<usize> = 2 << 20..=2 << 30;

/// What allocations are multiples of.
const UNIT: usize = 512;

/// What CUDA may need for itself when memory is mapped.
const RESERVE: usize = 16 << 20;

/// Bytes that the library looks for, and by how much it makes the heap longer where it does not find them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Need {
    span: usize,
    growth: usize,
}

/// What an allocation needs.
fn need(bytes: usize, alignment: Option<usize>, step: usize) -> Option<Need> {
    let all = bytes.checked_add(alignment.unwrap_or(0))?;
    Some(Need { span: all.checked_next_multiple_of(UNIT)?, growth: all.checked_next_multiple_of(step)? })
}

fn step() -> usize {
    size("NVSHMEM_CUMEM_GRANULARITY", STEP).clamp(*STEPS.start(), *STEPS.end())
}

/// The alignment that the library gives an allocation for which none was asked.
fn own_alignment(alignment: Option<usize>) -> Option<usize> {
    alignment.or_else(|| is_set("NVSHMEM_ENABLE_ALIGNED_MALLOC", false).then(step))
}

/// What of the heap an allocation takes, with what the library keeps beside.
pub(super) fn span(bytes: usize, alignment: Option<usize>) -> usize {
    need(bytes, own_alignment(alignment), step()).map_or(usize::MAX / 4, |need| need.span)
}

/// Whether the heap of this PE surely has room for an allocation, or can surely become longer for it.
pub(super) fn has_room(inner: &Inner, bytes: usize, alignment: Option<usize>) -> Result<bool> {
    if is_set("NVSHMEM_DISABLE_CUDA_VMM", false) {
        // The heap was made as a whole; where it has no more, the library says so.
        return Ok(true);
    }
    let step = step();
    let Some(Need { span, growth }) = need(bytes, own_alignment(alignment), step) else { return Ok(false) };
    let heap =
        inner.extent.now(inner.board.address().ptr().addr(), step, |address| is_mapped(inner.device, address))?;
    // What lies below the board is the library's. Where somebody else allocates as well, nobody knows what is free.
    let behind = inner.board.end().next_multiple_of(UNIT)..heap.end;
    if inner.alone && has_gap(inner.dropped.spans(), behind, span) {
        return Ok(true);
    }
    // PEs that share a device all take of it.
    let sharing = if inner.status == Status::Initialized { 1 } else { inner.n_pes };
    let free = inner.device.memory_info()?.free.saturating_sub(RESERVE);
    let longer = heap.len().saturating_add(growth);
    Ok(growth.saturating_mul(sharing) <= free && longer < limit(step))
}

/// The library takes it that the heap is never as long as this.
fn limit(step: usize) -> usize {
    let wide = running_nvshmem().is_ok_and(|version| version >= Version::new(3, 5, 0));
    let otherwise = if wide { 256 << 30 } else { 128 << 30 };
    size("NVSHMEM_MAX_MEMORY_PER_GPU", otherwise).saturating_add(step - 1) / step * step
}

/// Whether the heap is there: an allocation that fails may have ended it.
pub(super) fn has_heap(inner: &Inner) -> bool {
    is_mapped(inner.device, inner.board.address().ptr().addr()).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_rounded_up() {
        let of = |bytes, alignment| need(bytes, alignment, STEP).map(|need| (need.span, need.growth));
        assert_eq!(of(1, None), Some((512, STEP)));
        assert_eq!(of(STEP, None), Some((STEP, STEP)));
        assert_eq!(of(STEP, Some(2)), Some((STEP + 512, 2 * STEP)));
        assert_eq!(of(usize::MAX - 5, Some(2)), None);
    }
}
