//! Giving a communicator back to NCCL, for who has shut its gate and found nobody inside.

use std::sync::Arc;
use std::time::Duration;

use super::{reaper, registration};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::known_bugs;
use crate::nccl::flight::ended;
use crate::nccl::state::inner::Inner;
use crate::sys;

/// How long the lock is waited for, for what can be left undone.
const BUSY: Duration = Duration::from_secs(1);

/// Wraps `ncclCommAbort`, for who has shut the gate of `inner` and found nobody inside it, nor inside of what shares its resources.
pub(crate) fn abort_one(inner: &Arc<Inner>) {
    end_graphs(inner);
    // SAFETY: the handle is live, and nobody uses it any more: the gate is shut and empty, and only who has shut it comes
    // here. Revoking has returned. What NCCL keeps pointers into, the household of `inner` has. Nobody is inside a communicator that
    // shares its resources, and no other thread ends one: sharers are taken down by one thread at a time, when nobody is inside any.
    let _ = unsafe { sys::ncclCommAbort(inner.handle().raw()) };
    let_go(inner);
}

/// Ends the graphs that hold operations of `inner`, whose gate is shut and empty: NCCL would wait for that. It does not wait for launches
/// that are under way.
pub(super) fn end_graphs(inner: &Inner) {
    let closed = || Error::Aborted { operation: "close", reason: "its communicator was closed or dropped".to_owned() };
    inner.graphs.end(&inner.cause().cloned().unwrap_or_else(closed));
}

/// NCCL has let go of `inner`. Its streams go here, on a thread of their device.
pub(crate) fn let_go(inner: &Arc<Inner>) {
    // First: who has waited for the end, and allocates, finds what is about to be freed.
    inner.windows.end().into_iter().for_each(|burial| reaper::receive(burial, inner));
    // What names a stream goes before its owner may hear that the communicator has ended, and destroy that.
    inner.scratch.clear();
    // Who does not find it among those that have not ended finds what it had issued.
    ended::over(inner);
    inner.set_ended();
    if let Some(mut guard) = inner.lock_within(&Deadline::after(BUSY)) {
        guard.streams.clear();
    }
}

/// Whether NCCL would forget the windows of `inner` in an abort, and with them their memory. Then it is stopped first, and they are taken
/// away. That costs the time of revoking, half a second to one.
pub(super) fn loses_windows(inner: &Inner) -> bool {
    inner.windows.any().0 && known_bugs::ABORT_KEEPS_WINDOWS.is_running()
}

/// Whether NCCL would look for what `inner` has registered where it has freed that, in an abort. Then it is stopped first, and all of it is
/// taken away. (Revoking also ends the threads by which ranks ask each other to let go of that: NCCL is told so, and forgets it.)
pub(super) fn follows_registrations(inner: &Inner) -> bool {
    inner.windows.any().1 && known_bugs::REGISTRATIONS_LEFT.is_running()
}

/// Wraps `ncclCommWindowDeregister` and `ncclCommDeregister` for all that NCCL has registered of `inner`, whose gate is shut and empty.
/// Nothing comes after that, so the order does not matter.
pub(crate) fn take_off_registered(inner: &Arc<Inner>) {
    for handle in inner.windows.registered() {
        // SAFETY: a live communicator that nobody else uses: only who has shut the gate comes here. Its operations are done, or have been
        // stopped, and the handle is one of its own that is given once, as all are forgotten below.
        unsafe { registration::take_away(inner.handle().raw(), handle) };
    }
    inner.windows.clear().into_iter().for_each(|burial| reaper::receive(burial, inner));
}
