//! Ends the graphs that hold operations of a rank, before NCCL frees the rank.
//!
//! A moment after a graph is destroyed, a thread of CUDA notifies NCCL. NCCL then writes into the
//! communicator, and removes the registrations of the graph when it next polls. `ncclCommAbort` and
//! `ncclCommDestroy` wait for both, unless the communicator was revoked: then NCCL (up to 2.30.7)
//! frees the communicator at once. A later notice writes into freed memory, and NCCL reads freed
//! memory when it removes the registrations that are left.
//!
//! So this crate ends the graphs of a rank before it revokes the rank. A revoke polls once and removes
//! the registrations of the graphs of which CUDA has notified NCCL. Nothing removes any after it: a
//! communicator with registrations that are left is never freed. The others are freed when CUDA has
//! notified NCCL of all graphs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::interrupt;
use crate::deadline::{Deadline, wait_until};
use crate::error::Error;
use crate::known_bugs;
use crate::nccl::rank::graphs::TOLD;
use crate::nccl::rank::inner::Inner;
use crate::nccl::setup::environment;

/// How long a launch may be under way before it is taken for one that hangs.
const SETTLES: Duration = Duration::from_millis(300);

/// How much longer than [`TOLD`] a revoke waits for graphs, whose destruction takes a while itself.
const SLACK: Duration = Duration::from_secs(1);

/// Ends the graphs that hold operations of `inner`, whose gate is shut: they are launched no more.
/// Does not wait for launches that are under way, nor for CUDA to notify NCCL.
pub(super) fn end(inner: &Inner) {
    let closed = || Error::Aborted { operation: "close", reason: "its communicator was closed or dropped".into() };
    inner.graphs.end(&inner.cause().cloned().unwrap_or_else(closed));
}

/// Ends the graphs of `inner`, which is about to be revoked. If NCCL may have registered memory for
/// them, waits until CUDA has notified NCCL, which it does not before their launches are done. Does
/// not wait for a launch that hangs: it may wait for the revoke.
pub(super) fn before_revoke(inner: &Inner) {
    end(inner);
    if !inner.graphs.are_registered() || !known_bugs::REGISTRATIONS_LEFT.is_running() {
        return;
    }
    // A revoke does not look at registrations of memory of `cudaMalloc`.
    let idle = Deadline::after(SETTLES);
    let launches = inner.graphs.launches();
    let are_launched = || !inner.graphs.are_launching() && interrupt::are_seen_done(&launches);
    let are_done = !environment::registers_allocated() && idle.wait(are_launched);
    if are_done && Deadline::after(TOLD + SLACK).wait(|| inner.graphs.are_told()) {
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

/// Waits until CUDA has notified NCCL of the end of all graphs of `ranks`. The devices have left the
/// ranks, and their graphs have [ended](end).
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
