//! Symmetric memory: allocated and freed by all PEs together.

use std::ffi::c_void;

use crate::fault;
use crate::nvshmem::basics::entry::{Outcome, wrong};
use crate::nvshmem::basics::kind::Kind;
use crate::nvshmem::state::deed::Activity;
use crate::nvshmem::state::heap::Full;
use crate::nvshmem::state::life;
use crate::nvshmem::state::pe::Pe;
use crate::report;
use crate::settings::settings;
use crate::sys::NVSHMEM_TEAM_WORLD;

/// What a PE shows that has no memory.
const NONE: u64 = u64::MAX;

/// Allocates `bytes` bytes on all PEs: null where there are not so many.
pub(crate) fn allocate(kind: Kind, bytes: usize, align: usize) -> Outcome<*mut c_void> {
    let pe = life::pe_or_start()?;
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let taken = if fault::on_alloc(pe.device.number(), bytes) { None } else { take(&pe, bytes as u64, align as u64)? };
    if let Some(offset) = taken {
        match kind {
            // SAFETY: the range was just taken, and no PE uses it before all have it.
            Kind::Calloc => unsafe { pe.heap.at(pe.me(), offset).write_bytes(0, bytes) },
            _ => pe.heap.soil(offset, bytes as u64),
        }
    } else {
        report::line(format!("{}: PE {} has no {bytes} bytes left", report::call(), pe.me()));
    }
    pe.quiesce();
    let world = pe.teams.get(NVSHMEM_TEAM_WORLD)?;
    let activity = Activity { kind, team: 0, number: 0, bytes: bytes as u64 };
    let turn = world.circle.meet(&pe.boot, activity, &[bytes as u64, taken.unwrap_or(NONE)], None)?;
    turn.same(1, "number of bytes")?;
    let places = turn.shown.iter().map(|words| words[2]);
    let mut offsets = places.filter(|&offset| offset != NONE);
    let first = offsets.next();
    if offsets.any(|offset| Some(offset) != first) {
        return Err(wrong(
            "the heaps are no longer alike, since an allocation has failed on some PEs only: this one lies at other offsets on others",
        ));
    }
    turn.end()?;
    Ok(taken.map_or(std::ptr::null_mut(), |offset| pe.heap.at(pe.me(), offset).cast()))
}

/// Memory of the heap, if it has any or can become longer. Where it cannot, older versions take all of it away.
fn take(pe: &Pe, bytes: u64, align: u64) -> Outcome<Option<u64>> {
    match pe.heap.take(bytes, align) {
        Ok(offset) => Ok(Some(offset)),
        Err(Full::Grows(..)) if settings().nvshmem >= 3_08_00 => Ok(None),
        Err(Full::Grows(length, by)) => {
            pe.heap.lose();
            Err(wrong(format!(
                "the heap of {length} bytes cannot grow by {by} more and the rest of a step: this version of NVSHMEM unmaps all of it, with what lies there, and other PEs wait for ever"
            )))
        }
        Err(Full::Lost) => Err(wrong("the heap is gone, since an allocation has failed")),
    }
}

/// Frees an allocation on all PEs.
pub(crate) fn free(ptr: *mut c_void) -> Outcome {
    let pe = life::pe()?;
    if ptr.is_null() {
        return Ok(());
    }
    let Some(offset) = pe.heap.allocation(ptr) else {
        return Err(wrong(format!("{ptr:p} is no allocation: it was freed, or is not what nvshmem_malloc gave")));
    };
    pe.quiesce();
    let world = pe.teams.get(NVSHMEM_TEAM_WORLD)?;
    let activity = Activity { kind: Kind::Free, team: 0, number: 0, bytes: 0 };
    let turn = world.circle.meet(&pe.boot, activity, &[offset], None)?;
    turn.same(1, "place in the heap")?;
    let uses = pe.heap.give(offset);
    if uses.is_some_and(|uses| uses > 0) {
        report::violation(format!("{ptr:p} is freed while work that is queued or runs uses it"));
    }
    turn.end()
}

/// `nvshmem_ptr`: where memory of another PE lies for this one, if it reaches that.
pub(crate) fn peer(pe: &Pe, ptr: *const c_void, other: usize) -> *mut c_void {
    let found = pe.heap.find(ptr.addr()).filter(|&(owner, _)| owner == pe.me() && pe.reaches(other));
    found.map_or(std::ptr::null_mut(), |(_, offset)| pe.heap.at(other, offset).cast())
}
