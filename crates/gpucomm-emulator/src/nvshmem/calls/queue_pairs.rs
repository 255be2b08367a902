//! Queue pairs. The emulator has no network, so that all of them are the one that there is anyway.

use std::ffi::c_int;

use crate::nvshmem::basics::entry::{Outcome, refused, wrong};
use crate::nvshmem::basics::kind::Kind;
use crate::nvshmem::state::deed::Activity;
use crate::nvshmem::state::life;
use crate::sys::*;

/// What the library calls `NVSHMEMX_QP_DEFAULT`.
const DEFAULT: nvshmemx_qp_handle_t = 0;

/// `nvshmemx_qp_create`: an array that the caller frees.
pub(crate) fn create(count: c_int) -> Outcome<*mut nvshmemx_qp_handle_t> {
    let pe = life::pe()?;
    let Ok(wanted @ 1..) = usize::try_from(count) else {
        return Err(wrong(format!("{count} queue pairs, expected some: the library looks at the first one")));
    };
    pe.quiesce();
    let world = pe.teams.get(NVSHMEM_TEAM_WORLD)?;
    let activity = Activity { kind: Kind::QueuePairs, team: 0, number: 0, bytes: 0 };
    world.circle.meet(&pe.boot, activity, &[count as u64], None)?.end()?;
    // SAFETY: a size that is not zero.
    let array = unsafe { libc::calloc(wanted, size_of::<nvshmemx_qp_handle_t>()) }.cast::<nvshmemx_qp_handle_t>();
    if array.is_null() {
        return Err(refused(NVSHMEMX_ERROR_OUT_OF_MEMORY, format!("no memory for {wanted} queue pairs")));
    }
    for at in 0..wanted {
        // SAFETY: within what was allocated.
        unsafe { array.add(at).write(DEFAULT) };
    }
    Ok(array)
}
