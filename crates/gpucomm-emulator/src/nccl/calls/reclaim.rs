//! What the last end of a communicator frees.
//!
//! NCCL frees all ranks of a process when the last of them is destroyed or aborted, on the thread of that call. Of each it frees pinned
//! memory, which waits for the whole device of that rank: also for work of others that was enqueued there since the rank itself had ended.
//! Beside a stream capture `cudaFreeHost` fails at once, and NCCL leaves the memory. Till then all of them stay connected to their peers.
//!
//! The last communicator that goes of those that share the resources of a rank waits for its peers, until they have let go of it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cuda::core::{capture, device, driver_lock};
use crate::lock::lock;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::shared::Shared;
use crate::patience::Patience;
use crate::report;

/// Who has ended, and was not freed.
static ENDED: Mutex<Vec<Arc<Comm>>> = Mutex::new(Vec::new());

/// The wait of the last that has let go of a rank, until its peers are not connected to it any more.
pub(super) fn wait_for_peers(comm: &Comm) {
    if !comm.is_last() {
        return;
    }
    let (call, mut patience) = (report::call(), Patience::new());
    while let Some(peer) = comm.missing() {
        patience.check(|| format!("{call} of rank {}: rank {peer} is connected to it, and it", comm.rank));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// `comm` has ended: frees it and the other ranks of this process, if it is the last of them.
pub(crate) fn reclaim(comm: &Arc<Comm>) {
    let Some(segment) = comm.segment.get().filter(|_| comm.has_started()) else { return };
    let pid = std::process::id();
    let here = || (0..comm.size).filter(|&rank| segment.rank(rank).pid.load(Ordering::Acquire) == pid);
    let Some(first) = here().next() else { return };
    lock(&ENDED).push(Arc::clone(comm));
    let ended = segment.own(first).ended_here.fetch_add(1, Ordering::AcqRel) + 1;
    if ended as usize != here().count() {
        return;
    }
    let is_here = |one: &mut Arc<Comm>| one.segment.get().is_some_and(|other| other.nonce() == segment.nonce());
    let freed: Vec<_> = lock(&ENDED).extract_if(.., is_here).collect();
    freed.iter().for_each(|one| one.let_go());
    freed.iter().for_each(|one| wait_for_peers(one));
    freed.iter().for_each(|one| one.resources.memory.leave());
    if capture::check().is_err() {
        return;
    }
    for rank in here() {
        let number = segment.own(rank).device.load(Ordering::Relaxed);
        if let Some(device) = device::devices().iter().find(|device| device.number() == number) {
            driver_lock::wait_for(device);
        }
    }
}
