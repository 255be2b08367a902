//! Ends the graphs that hold operations of a rank, before NCCL frees the rank.
//!
//! When a graph is gone, CUDA tells NCCL so on a thread of its own, a little later. NCCL then writes
//! into the communicator, and removes what it has registered for the graph when it next looks.
//! `ncclCommAbort` and `ncclCommDestroy` wait for all of that, but not for a communicator that was
//! revoked (in no version up to 2.30.7): they free it at once, and what is told afterwards is written
//! into freed memory. Registrations that are left are taken apart with what NCCL has freed before.
//!
//! So the graphs of a rank that is about to be revoked end first. A revoke looks at what NCCL was told
//! until then, and removes those registrations. After it nothing removes any: a communicator with
//! registrations that were left is never freed. The others are freed when NCCL has been told of all
//! graphs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::interrupt;
use crate::deadline::{Deadline, wait_until};
use crate::error::Error;
use crate::known_bugs;
use crate::nccl::rank::graphs::TOLD;
use crate::nccl::rank::inner::Inner;
use crate::nccl::setup::environment;

/// How long work may be under way on the streams of a rank before it is taken for work that hangs.
const SETTLES: Duration = Duration::from_millis(300);

/// How much longer than [`TOLD`] a revoke waits for graphs, whose destruction takes a while itself.
const SLACK: Duration = Duration::from_secs(1);

/// Ends the graphs that hold operations of `inner`, whose gate is shut: they are launched no more.
/// Does not wait for launches that are under way, nor until NCCL was told.
pub(super) fn end(inner: &Inner) {
    let closed = || Error::Aborted { operation: "close", reason: "its communicator was closed or dropped".into() };
    inner.graphs.end(&inner.cause().cloned().unwrap_or_else(closed));
}

/// Ends the graphs of `inner`, which is about to be revoked. If NCCL may have registered memory for
/// them, waits until NCCL was told, unless work goes on: a launch may wait for the revoke.
pub(super) fn before_revoke(inner: &Inner) {
    end(inner);
    if !inner.graphs.are_registered() || !known_bugs::REGISTRATIONS_LEFT.is_running() {
        return;
    }
    // A revoke does not look at registrations of memory of `cudaMalloc`.
    let idle = Deadline::after(SETTLES);
    let are_seen = !environment::registers_allocated() && idle.wait(|| interrupt::is_seen_idle(inner));
    if are_seen && Deadline::after(TOLD + SLACK).wait(|| inner.graphs.are_told()) {
        inner.graphs.set_told_idle();
    } else {
        inner.graphs.set_stranded();
    }
}

/// Whether NCCL would take apart registrations for graphs of one of `ranks` with what it has freed.
/// It frees the ranks of a communicator in one process together, so the other ranks count as well.
pub(super) fn must_stay(ranks: &[Arc<Inner>]) -> bool {
    let is_stranded = |inner: &Arc<Inner>| inner.graphs.are_stranded();
    ranks.iter().any(|inner| inner.local_ranks.ranks().iter().any(is_stranded) || is_stranded(inner))
}

/// Waits until NCCL was told of the end of all graphs of `ranks`, whose devices have left them, and
/// whose graphs have [ended](end).
pub(super) fn wait_until_told(ranks: &[Arc<Inner>]) {
    let idle = Instant::now();
    let is_told = |inner: &Inner| {
        // A launch keeps what its graph had, also when the graph is gone.
        let is_known = inner.graphs.were_told_idle() || idle.elapsed() >= TOLD;
        !inner.graphs.have_existed() || (is_known && inner.graphs.are_told())
    };
    wait_until(|| ranks.iter().all(|inner| is_told(inner)));
}

/// How much longer the end of `ranks` takes, which may be revoked first.
pub(super) fn patience(ranks: &[Arc<Inner>]) -> Duration {
    let have_graphs = ranks.iter().any(|inner| inner.graphs.have_existed());
    if have_graphs { TOLD + SLACK } else { Duration::ZERO }
}
