//! Memory that a rank registers for itself, so that NCCL moves it without copying.
//!
//! Every rank can reach every buffer here anyway, so that changes nothing about how an operation runs. What NCCL demands of it is checked.

use std::ffi::c_void;
use std::sync::LazyLock;

use crate::cuda::core::capture;
use crate::memory::space::locate::locate;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::state::comm::Comm;

/// Whether NCCL registers anything: NCCL_LOCAL_REGISTER, which it reads once.
pub(super) fn is_on() -> bool {
    static ON: LazyLock<bool> =
        LazyLock::new(|| std::env::var("NCCL_LOCAL_REGISTER").map_or(true, |value| value.trim() != "0"));
    *ON
}

/// `ncclCommRegister`: local. The handle, which is null where NCCL registers nothing.
pub(crate) fn register(comm: &Comm, buffer: *mut c_void, bytes: usize) -> Outcome<*mut c_void> {
    if !is_on() {
        return Ok(std::ptr::null_mut());
    }
    comm.ensure_usable()?;
    let (_, used) = locate(buffer, bytes).map_err(|fault| Failure::unnoticed(fault.text))?;
    if used.device() != Some(comm.device) {
        return Err(Failure::unnoticed(format!(
            "{bytes} bytes at {buffer:p} are registered, which do not lie on device {} of rank {}",
            comm.device, comm.rank
        )));
    }
    if let Some((range, piece)) = used.piece(buffer.addr()) {
        let fresh = comm.graph_cache.check(&range, &piece);
        fresh.map_err(|what| Failure::usage(format!("ncclCommRegister on rank {}: {what}", comm.rank)).reported())?;
    }
    let handle = comm.registrations.add(buffer.addr(), bytes, used);
    Ok(std::ptr::without_provenance_mut(handle))
}

/// `ncclCommDeregister`: local.
pub(crate) fn deregister(comm: &Comm, handle: *mut c_void) -> Outcome {
    if handle.is_null() {
        return Ok(());
    }
    // NCCL frees a small array of its own on the device.
    let _ = capture::check();
    comm.registrations.remove(handle.addr(), comm.is_revoked()).map_err(|what| {
        let text = format!("ncclCommDeregister on rank {}: {what}", comm.rank);
        Failure::usage(text).reported()
    })
}
