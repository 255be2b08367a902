//! Memory that is registered.

use std::ffi::{c_int, c_void};

use crate::lock::lock;
use crate::memory::object::Location;
use crate::memory::space::locate;
use crate::nvshmem::basics::entry::{Outcome, refused};
use crate::nvshmem::basics::kind::Kind;
use crate::nvshmem::state::deed::Activity;
use crate::nvshmem::state::heap::Symmetric;
use crate::nvshmem::state::life;
use crate::sys::*;

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
    if locate::is_device(address.addr()) {
        locate::hold(address, bytes).map_err(|fault| invalid(fault.text))?;
    }
    let range = address.addr()..address.addr().saturating_add(bytes);
    let mut all = lock(&pe.registered);
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
    let mut all = lock(&pe.registered);
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
    lock(&pe.registered).clear();
    Ok(())
}

/// `nvshmemx_buffer_register_symmetric`: memory that each PE has mapped itself becomes symmetric, at an address of its own.
pub(crate) fn register_symmetric(address: *mut c_void, bytes: usize, flags: c_int) -> Outcome<*mut c_void> {
    let pe = life::pe_or_start()?;
    let invalid = |text: String| refused(NVSHMEMX_ERROR_INVALID_VALUE, text);
    let found = locate::locate(address, bytes).map_err(|fault| fault.text).and_then(|(place, used)| {
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
    let turn = world.circle.meet(&pe.boot, activity, &words, None)?;
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
    let turn = world.circle.meet(&pe.boot, activity, &[place], None)?;
    turn.same(1, "region")?;
    let gone = pe.heap.regions.remove(pe.me(), address, bytes as u64);
    turn.end()?;
    gone.map(drop).ok_or_else(|| {
        refused(NVSHMEMX_ERROR_INVALID_VALUE, format!("no {bytes} bytes at {address:p} are registered as symmetric"))
    })
}
