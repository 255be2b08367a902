//! What ranks had issued whose communicators have ended, or are about to: the others may wait for them still.

use std::collections::VecDeque;
use std::fmt::Display;

use super::dump::Dump;
use crate::lock::{Mutex, MutexGuard};
use crate::nccl::rank::inner::Inner;

/// So many are kept.
const KEPT: usize = 64;

/// The last ones, the oldest first, each by the number of its communicator.
static LAST: Mutex<VecDeque<(u64, Dump)>> = Mutex::new(VecDeque::new());

fn last() -> MutexGuard<'static, VecDeque<(u64, Dump)>> {
    LAST.lock()
}

fn keep(inner: &Inner, dump: Dump) {
    let mut last = last();
    if last.len() == KEPT {
        last.pop_front();
    }
    last.push_back((inner.id, dump));
}

/// Records what `inner` had issued, which is about to be aborted. The abort wakes threads inside NCCL: afterwards it is not known where they were.
pub(crate) fn record_abort(inner: &Inner, cause: &impl Display) {
    keep(inner, Dump::of(inner, cause.to_string()));
}

/// Records what `inner` had issued, which NCCL has freed.
pub(crate) fn record_end(inner: &Inner) {
    if let Some((_, dump)) = last().iter_mut().find(|(id, _)| *id == inner.id) {
        return dump.end();
    }
    let why = inner.cause().map_or_else(|| "the communicator was closed".to_owned(), |cause| cause.to_string());
    let mut dump = Dump::of(inner, why);
    dump.end();
    keep(inner, dump);
}

/// What is kept of `inner`.
pub(super) fn of(inner: &Inner) -> Option<Dump> {
    last().iter().find(|(id, _)| *id == inner.id).map(|(_, dump)| dump.clone())
}

/// What is kept of all.
pub(super) fn all() -> Vec<Dump> {
    last().iter().map(|(_, dump)| dump.clone()).collect()
}
