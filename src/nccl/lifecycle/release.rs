//! Gives a rank back to NCCL, on the thread that has shut its gate and found no thread inside.

use std::sync::Arc;
use std::time::Duration;

use super::{graph_ends, reclaim};
use crate::cuda::undisturbing;
use crate::deadline::Deadline;
use crate::known_bugs;
use crate::nccl::flight::ended;
use crate::nccl::rank::inner::Inner;
use crate::nccl::rank::windows::Handle;
use crate::sys;

/// How long the lock is waited for, for something that can be left undone.
const BUSY: Duration = Duration::from_secs(1);

/// Wraps `ncclCommAbort`. No thread is inside `inner`, nor inside a communicator that shares its
/// resources.
pub(crate) fn abort_one(inner: &Arc<Inner>) {
    graph_ends::end(inner);
    // SAFETY: the handle is live, and no other thread uses it: the gate is shut and empty, and only
    // the thread that has shut it comes here. Revoking has returned. NCCL keeps pointers only into
    // what `inner.local_ranks` owns. No thread is inside a communicator that shares its resources,
    // and no other ends one: ranks that share are freed by one thread, when no thread is inside any
    // of them.
    let _ = unsafe { sys::ncclCommAbort(inner.handle().raw()) };
    let_go(inner);
}

/// Drops what belongs to `inner`, which NCCL has freed, and marks it freed. Runs on a thread whose
/// device is that of its streams.
pub(crate) fn let_go(inner: &Arc<Inner>) {
    // First: a thread that has waited for the end, and allocates, finds what is about to be freed.
    inner.windows.end().into_iter().for_each(|memory| reclaim::reclaim(memory, inner));
    // Before its owner may learn that the communicator has ended, and destroy the streams that this
    // names.
    inner.scratch.clear();
    // Before it ends: a thread that does not find it among the living finds this record.
    ended::record_end(inner);
    inner.mark_freed();
    if let Some(mut guard) = inner.lock_within(&Deadline::after(BUSY)) {
        guard.streams.clear();
    }
}

/// Whether NCCL would lose the memory of windows of `inner` in an abort. Then the rank is revoked
/// first, and the windows are removed. That takes half a second to one.
pub(super) fn loses_windows(inner: &Inner) -> bool {
    inner.windows.any().0 && known_bugs::ABORT_KEEPS_WINDOWS.is_running()
}

/// Whether NCCL would read registrations of `inner` in memory that it has freed, in an abort. Then
/// the rank is revoked first, and the registrations are removed. (Revoking also ends the threads by
/// which ranks ask each other to let go of registrations. NCCL knows that, and forgets them.)
pub(super) fn follows_registrations(inner: &Inner) -> bool {
    inner.windows.any().1 && known_bugs::REGISTRATIONS_LEFT.is_running()
}

/// Removes everything that NCCL has registered of `inner`, whose gate is shut and empty. Nothing
/// comes after that, so the order does not matter.
pub(crate) fn remove_registered(inner: &Arc<Inner>) {
    for handle in inner.windows.registered() {
        // SAFETY: a live communicator that no other thread uses: only the one that has shut the
        // gate comes here. Its operations are done, or have been stopped. The handle is one of its
        // own and is given once: all are forgotten below.
        unsafe { deregister(inner.handle().raw(), handle) };
    }
    inner.windows.clear().into_iter().for_each(|memory| reclaim::reclaim(memory, inner));
}

/// The C function that removes a registration.
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) fn deregister_function(handle: Handle) -> &'static str {
    match handle {
        Handle::Window(_) => "ncclCommWindowDeregister",
        Handle::Memory(_) => "ncclCommDeregister",
    }
}

/// Wraps `ncclCommWindowDeregister` and `ncclCommDeregister`. Ignores NCCL's result: NCCL forgets
/// what it was given in any case.
///
/// # Safety
/// `comm` is a live communicator that no other thread uses meanwhile, and `handle` is of it, and
/// given here once. No operation uses what is registered, now or later.
pub(crate) unsafe fn deregister(comm: sys::ncclComm_t, handle: Handle) {
    let _ = undisturbing(|| match handle {
        #[cfg(nccl_ge_2_27)]
        // SAFETY: the caller upholds the contract.
        Handle::Window(window) => Ok(unsafe { sys::ncclCommWindowDeregister(comm, window) }),
        #[cfg(not(nccl_ge_2_27))]
        Handle::Window(_) => Ok(sys::ncclResult_t::ncclSuccess),
        // SAFETY: as above.
        Handle::Memory(memory) => Ok(unsafe { sys::ncclCommDeregister(comm, memory) }),
    });
}
