//! What the last end of a communicator frees.
//!
//! NCCL frees all ranks of a process when the last of them is destroyed or aborted, on the thread of that call. Of each it frees pinned
//! memory, which waits for the whole device of that rank: also for work of others that was enqueued there since the rank itself had ended.
//! Beside a stream capture `cudaFreeHost` fails at once, and NCCL leaves the memory.

use std::sync::atomic::Ordering;

use crate::emulator::cuda::core::{capture, device, driver_lock};
use crate::emulator::nccl::state::comm::Comm;
use crate::emulator::nccl::state::shared::Shared;

/// `comm` has ended: frees it and the other ranks of this process, if it is the last of them.
pub(crate) fn reclaim(comm: &Comm) {
    let Some(segment) = comm.segment.get().filter(|_| comm.has_started()) else { return };
    let pid = std::process::id();
    let here = || (0..comm.size).filter(|&rank| segment.rank(rank).pid.load(Ordering::Acquire) == pid);
    let Some(first) = here().next() else { return };
    let ended = segment.own(first).ended_here.fetch_add(1, Ordering::AcqRel) + 1;
    if ended as usize != here().count() || capture::check().is_err() {
        return;
    }
    for rank in here() {
        let number = segment.own(rank).device.load(Ordering::Relaxed);
        if let Some(device) = device::devices().iter().find(|device| device.number() == number) {
            driver_lock::wait_for(device);
        }
    }
}
