//! Handles of communicators: numbers that only look like pointers, so a stale one is an error and never a dangling access.

use std::collections::HashMap;
use std::sync::Arc;

use super::comm::Comm;
use crate::lock::RwLock;
use crate::nccl::basics::error::{self, Failure, Outcome};
use crate::nccl::state::comm;
use crate::nccl::state::resources::{Inside, Manner};
use crate::sys::ncclComm_t;

static ALIVE: RwLock<Option<HashMap<usize, Arc<Comm>>>> = RwLock::new(None);

/// The handle of a communicator.
pub(crate) fn handle(comm: &Comm) -> ncclComm_t {
    std::ptr::without_provenance_mut(comm.handle)
}

/// Makes a communicator known under its handle.
pub(crate) fn insert(comm: &Arc<Comm>) {
    let mut alive = ALIVE.write();
    alive.get_or_insert_default().insert(comm.handle, comm.clone());
}

/// Whether a handle was once valid and no longer is.
pub(crate) fn stale(handle: ncclComm_t) -> bool {
    let number = handle.addr();
    comm::handle_was_given(number) && ALIVE.read().as_ref().is_none_or(|alive| !alive.contains_key(&number))
}

/// The communicator behind a handle, if there is one.
pub(crate) fn find(handle: ncclComm_t) -> Option<Arc<Comm>> {
    let alive = ALIVE.read();
    alive.as_ref()?.get(&handle.addr()).cloned()
}

/// The communicator that has a window of this handle.
pub(crate) fn of_window(window: usize) -> Option<Arc<Comm>> {
    let alive = ALIVE.read();
    alive.as_ref()?.values().find(|comm| comm.windows.parts(window).is_some()).cloned()
}

/// The other ranks of `comm` in this process.
pub(crate) fn mates(comm: &Comm) -> Vec<Arc<Comm>> {
    let nonce = |comm: &Comm| comm.segment().ok().map(|segment| segment.nonce());
    let alive = ALIVE.read();
    let all = alive.iter().flat_map(HashMap::values);
    all.filter(|other| other.handle != comm.handle && nonce(other) == nonce(comm)).cloned().collect()
}

/// The communicator behind a handle, and this thread inside it.
pub(crate) fn enter(handle: ncclComm_t, manner: Manner) -> Outcome<(Arc<Comm>, Inside)> {
    if handle.is_null() {
        return Err(Failure::argument("the communicator is null"));
    }
    if let Some(comm) = find(handle) {
        let inside = comm.resources.visits.enter(comm.handle, comm.rank, manner);
        return Ok((comm, inside));
    }
    Err(Failure::unnoticed(if stale(handle) {
        format!("the communicator {handle:p} was destroyed or aborted")
    } else {
        format!("{handle:p} is no communicator")
    }))
}

/// What there is to say of a communicator: why it has failed, or what it waits for. Of none, why this thread's last call failed, or
/// what those wait for that are being started.
pub(crate) fn said(handle: ncclComm_t) -> Option<String> {
    match find(handle) {
        Some(comm) => comm.text().or_else(|| comm.waits.text()),
        None => error::own().or_else(starting),
    }
}

fn starting() -> Option<String> {
    let alive = ALIVE.read();
    let texts = alive.iter().flat_map(HashMap::values).filter(|comm| !comm.has_started());
    let texts: Vec<_> = texts.filter_map(|comm| comm.waits.text()).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// How many communicators of `size` ranks have a handle. For tests that look for leaks.
pub fn alive(size: usize) -> usize {
    let alive = ALIVE.read();
    alive.iter().flatten().filter(|(_, comm)| comm.size == size).count()
}

/// Forgets a handle. Only the first of several callers gets the communicator.
pub(crate) fn remove(handle: ncclComm_t) -> Option<Arc<Comm>> {
    ALIVE.write().as_mut()?.remove(&handle.addr())
}
