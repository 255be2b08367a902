//! What a put moves: checked, and found in memory.

use std::ffi::c_void;

use crate::memory::space::locate::locate;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::basics::kind::element;
use crate::nccl::run::one_sided::Copy;
use crate::nccl::state::comm::Comm;
use crate::report;
use crate::sys::{ncclDataType_t, ncclWindow_t};

/// What a put moves, as it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Put {
    pub(crate) local: *const c_void,
    pub(crate) count: usize,
    pub(crate) datatype: ncclDataType_t,
    pub(crate) window: ncclWindow_t,
    pub(crate) offset: usize,
}

// SAFETY: the addresses are looked up, and never followed.
unsafe impl Send for Put {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Put {}

/// Looks at what a put moves, and to where.
pub(super) fn copy(comm: &Comm, peer: usize, put: &Put) -> Outcome<Copy> {
    let Put { local, count, datatype, window, offset } = *put;
    if window.is_null() || local.is_null() {
        return Err(Failure::argument(format!("{local:p} into window {window:p}: expected neither to be null")));
    }
    let (size, _) = element(datatype).ok_or_else(|| Failure::argument(format!("{} is no type", datatype.0)))?;
    let bytes = count * size;
    let (_, parts) = comm
        .windows
        .parts(window.addr())
        .ok_or_else(|| Failure::unnoticed(format!("{window:p} is no window of this communicator")))?;
    if comm.windows.symmetric([local.addr(), local.addr()]) == 0 {
        return Err(Failure::argument(format!("{local:p} does not lie in a symmetric window")));
    }
    if bytes > 0 && offset as u64 >= parts[comm.rank].bytes {
        return Err(Failure::argument(format!(
            "byte {offset} lies beyond this rank's own window of {} bytes, in which NCCL looks for that of rank {peer}",
            parts[comm.rank].bytes
        )));
    }
    let end = (offset as u64).saturating_add(bytes as u64);
    if end > parts[peer].bytes {
        let text = format!(
            "{bytes} bytes at byte {offset} run past the end of the window of rank {peer}, which has {} bytes",
            parts[peer].bytes
        );
        report::violation(format!("ncclPutSignal: {text}"));
        return Err(Failure::argument(text));
    }
    let (from, used) = locate(local, bytes).map_err(|fault| Failure::unnoticed(fault.text))?;
    if used.device().is_some_and(|device| device != comm.device) {
        return Err(Failure::unnoticed(format!(
            "{local:p} does not lie on device {} of rank {}",
            comm.device, comm.rank
        )));
    }
    let mut to = parts[peer].begin;
    to.offset += offset as u64;
    Ok(Copy { from, to, window: window.addr(), bytes, count, used })
}
