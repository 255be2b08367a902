//! Where kernels reach the windows of other ranks.
//!
//! NCCL maps the windows of all ranks that can map each other's memory into one range, and computes the place there; it takes a rank that it does not
//! reach for none, and looks at the offset by the size of its own window. Here a window of another rank of this process lies where
//! that rank has it.

use std::ffi::{c_int, c_void};

use crate::memory::space::reach::reach;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::sys::ncclWindow_t;

/// `ncclGetPeerDevicePointer`: null where the rank is not reached.
pub(crate) fn peer(window: ncclWindow_t, offset: usize, peer: c_int) -> Outcome<*mut c_void> {
    find(window, |comm| {
        let known = usize::try_from(peer).ok().filter(|&peer| peer < comm.size);
        let known = known.ok_or_else(|| Failure::argument(format!("rank {peer} of {}", comm.size)))?;
        place(comm, window, offset, known)
    })
}

/// `ncclGetLsaDevicePointer`: all ranks are in the one group of those that map each other's memory.
pub(crate) fn lsa(window: ncclWindow_t, offset: usize, rank: c_int) -> Outcome<*mut c_void> {
    peer(window, offset, rank)
}

/// `ncclGetLsaMultimemDevicePointer`: null, as where there is no multicast.
pub(crate) fn multimem(window: ncclWindow_t) -> Outcome<*mut c_void> {
    find(window, |_| Ok(std::ptr::null_mut()))
}

fn find<R>(window: ncclWindow_t, then: impl FnOnce(&Comm) -> Outcome<R>) -> Outcome<R> {
    if window.is_null() {
        return Err(Failure::argument("the window is null"));
    }
    match registry::of_window(window.addr()) {
        Some(comm) => then(&comm),
        None => Err(Failure::argument(format!("{window:p} is no window"))),
    }
}

fn place(comm: &Comm, window: ncclWindow_t, offset: usize, peer: usize) -> Outcome<*mut c_void> {
    let (_, parts) = comm.windows.parts(window.addr()).ok_or_else(|| Failure::internal("the window has gone"))?;
    let own = parts[comm.rank].bytes;
    if offset as u64 >= own {
        return Err(Failure::argument(format!("byte {offset} of a window of {own} bytes")));
    }
    if offset as u64 >= parts[peer].bytes {
        let text = format!("byte {offset} of a window that has {} bytes on rank {peer}", parts[peer].bytes);
        return Err(Failure::unnoticed(text));
    }
    let mut begin = parts[peer].begin;
    if begin.pid != std::process::id() {
        return Ok(std::ptr::null_mut());
    }
    begin.offset += offset as u64;
    Ok(reach(&begin, 1).map_or(std::ptr::null_mut(), |address| address.cast()))
}
