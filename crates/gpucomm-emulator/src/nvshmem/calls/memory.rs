//! Symmetric memory, which all PEs allocate and free together, and memory that is registered.

use std::ffi::{c_int, c_void};

use crate::memory::object::Location;
use crate::memory::usage;
use crate::nvshmem::basics::{Kind, Outcome, refused, wrong};
use crate::nvshmem::state::boot::Activity;
use crate::nvshmem::state::heap::{Full, Symmetric};
use crate::nvshmem::state::life;
use crate::nvshmem::state::pe::Pe;
use crate::settings::settings;
use crate::sys::{NVSHMEM_TEAM_WORLD, *};
use crate::{fault, report};

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
    let turn = world.group.meet(&pe.boot, activity, &[bytes as u64, taken.unwrap_or(NONE)], None)?;
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
    let turn = world.group.meet(&pe.boot, activity, &[offset], None)?;
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

/// `nvshmemx_buffer_register`: memory of this PE that transfers may begin or end in.
pub(crate) fn register(address: *mut c_void, bytes: usize) -> Outcome {
    let pe = life::pe()?;
    let invalid = |text: String| refused(NVSHMEMX_ERROR_INVALID_VALUE, text);
    if bytes == 0 || address.is_null() {
        return Err(invalid(format!("{bytes} bytes at {address:p}, expected some")));
    }
    if pe.heap.find(address.addr()).is_some() {
        return Err(invalid(format!("{address:p} is symmetric memory, which is registered as it is")));
    }
    if usage::is_device(address.addr()) {
        usage::hold(address, bytes).map_err(|fault| invalid(fault.text))?;
    }
    let range = address.addr()..address.addr().saturating_add(bytes);
    let mut all = pe.registered.lock();
    if let Some(other) = all.iter().find(|other| other.start < range.end && range.start < other.end) {
        return Err(invalid(format!("{bytes} bytes at {address:p} overlap what is registered: {other:#x?}")));
    }
    all.push(range);
    Ok(())
}

/// `nvshmemx_buffer_unregister`.
pub(crate) fn unregister(address: *mut c_void) -> Outcome {
    let pe = life::pe()?;
    pe.quiesce();
    let mut all = pe.registered.lock();
    match all.iter().position(|range| range.start == address.addr()) {
        Some(found) => drop(all.swap_remove(found)),
        None => return Err(refused(NVSHMEMX_ERROR_INVALID_VALUE, format!("nothing is registered at {address:p}"))),
    }
    Ok(())
}

/// `nvshmemx_buffer_unregister_all`.
pub(crate) fn unregister_all() -> Outcome {
    let pe = life::pe()?;
    pe.quiesce();
    pe.registered.lock().clear();
    Ok(())
}

/// `nvshmemx_buffer_register_symmetric`: memory that each PE has mapped itself becomes symmetric, at an address of its own.
pub(crate) fn register_symmetric(address: *mut c_void, bytes: usize, flags: c_int) -> Outcome<*mut c_void> {
    let pe = life::pe_or_start()?;
    let invalid = |text: String| refused(NVSHMEMX_ERROR_INVALID_VALUE, text);
    let found = usage::locate(address, bytes).map_err(|fault| fault.text).and_then(|(place, used)| {
        let whole = bytes > 0 && used.is_mapped_by_program();
        if whole && flags == 0 {
            Ok((place, used))
        } else {
            Err(format!("{bytes} bytes at {address:p}, flags {flags}"))
        }
    });
    let is_well = u64::from(found.is_ok());
    let place = found.as_ref().map_or(Location::EMPTY, |(place, _)| *place).words();
    pe.quiesce();
    let world = pe.teams.get(NVSHMEM_TEAM_WORLD)?;
    let activity = Activity { kind: Kind::Register, team: 0, number: 0, bytes: bytes as u64 };
    let words = [bytes as u64, is_well, place[0], place[1], place[2], place[3]];
    let turn = world.group.meet(&pe.boot, activity, &words, None)?;
    turn.same(1, "number of bytes")?;
    turn.same(2, "memory: some (1) can be registered, other (0) not; it")?;
    let places: Vec<Location> =
        turn.shown.iter().map(|words| Location::from_words([words[3], words[4], words[5], words[6]])).collect();
    let added = found.and_then(|(_, used)| {
        let region = pe.heap.regions.add(pe.device.ordinal, &places, bytes as u64, used);
        region.map_err(|error| format!("{bytes} bytes at {address:p}: {error}"))
    });
    turn.end()?;
    let region = added.map_err(|text| {
        invalid(format!("{text}: expected memory that the program has mapped, and flags 0, and none of it registered"))
    })?;
    Ok(pe.heap.at(pe.me(), Symmetric::in_region(region, 0)).cast())
}

/// `nvshmemx_buffer_unregister_symmetric`.
pub(crate) fn unregister_symmetric(address: *mut c_void, bytes: usize) -> Outcome {
    let pe = life::pe_or_start()?;
    pe.quiesce();
    let world = pe.teams.get(NVSHMEM_TEAM_WORLD)?;
    let activity = Activity { kind: Kind::Unregister, team: 0, number: 0, bytes: bytes as u64 };
    let place = pe.heap.find(address.addr()).map_or(u64::MAX, |(_, offset)| offset);
    let turn = world.group.meet(&pe.boot, activity, &[place], None)?;
    turn.same(1, "region")?;
    let gone = pe.heap.regions.remove(pe.me(), address, bytes as u64);
    turn.end()?;
    gone.map(drop).ok_or_else(|| {
        refused(NVSHMEMX_ERROR_INVALID_VALUE, format!("no {bytes} bytes at {address:p} are registered as symmetric"))
    })
}
