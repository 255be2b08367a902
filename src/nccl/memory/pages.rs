//! What NCCL can show to other ranks: memory that was mapped as one, in whole pages.

use std::ffi::c_void;
use std::sync::OnceLock;

use crate::cuda::{Allocation, mapping};
use crate::error::Result;

/// Memory that was mapped as one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapped {
    /// Its first address.
    pub(super) base: usize,
    pub(super) bytes: usize,
}

/// What was mapped as one that has these bytes of `memory`, or why NCCL shows them to nobody.
pub(super) fn find(
    operation: &'static str,
    memory: &Allocation,
    (begin, bytes): (*mut c_void, usize),
) -> Result<std::result::Result<Mapped, &'static str>> {
    if bytes == 0 {
        return Ok(Err("there are no elements"));
    }
    let _current = memory.device().bind(operation)?;
    let Some((base, length)) = mapping(begin) else {
        return Ok(Err("the memory is of a pool or of cudaMalloc, which NCCL does not show to other ranks"));
    };
    let (begin, end, last) = (begin.addr(), begin.addr() + bytes, base + length);
    if end > last {
        return Ok(Err("the memory was not mapped as one"));
    }
    // Memory of NCCL has its pages for itself.
    let whole = begin == memory.address().ptr().addr() && bytes == memory.bytes();
    let apart = |at: usize, edge: usize| at.is_multiple_of(page()) || at == edge;
    if !(memory.owner() != 0 && whole || apart(begin, base) && apart(end, last)) {
        return Ok(Err("the memory shares pages with other memory: it has to begin and end where pages do"));
    }
    Ok(Ok(Mapped { base, bytes: length }))
}

/// Bytes of a page of this machine.
fn page() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    // SAFETY: takes a number, and answers one.
    *PAGE.get_or_init(|| usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(64 << 10).max(1))
}
