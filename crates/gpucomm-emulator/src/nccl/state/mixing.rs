//! What of a communicator is of graphs, and what is not, where NCCL keeps no order between them.

use std::sync::Mutex;

use crate::lock::lock;
use crate::nccl::basics::graphs::{Graphs, Usage};
use crate::races::course::{Chain, Moment, Point};
use crate::report;

/// The last things that were launched.
#[derive(Debug, Default)]
pub(crate) struct Mixing {
    captured: Mutex<Option<Moment>>,
    live: Mutex<Option<Moment>>,
    /// Launches of graphs, which NCCL keeps in order without the rest.
    pub(crate) graphs: Chain,
}

impl Mixing {
    /// Whether a launch of a graph may be on its way that NCCL does not see.
    pub(crate) fn is_unseen(&self, graphs: Graphs) -> bool {
        graphs.usage != Usage::Mixed && lock(&self.captured).as_ref().is_some_and(|last| !last.is_seen())
    }

    /// Reports launches of graphs that may be on their way when all is to be stopped, where NCCL does not see them: it takes its flag back
    /// and ends its threads, and they run afterwards.
    pub(crate) fn stop(&self, graphs: Graphs, rank: usize) {
        if self.is_unseen(graphs) {
            report::violation(format!(
                "rank {rank} is revoked while a graph with operations of it is on its way, and graphUsageMode is not 2: expected a wait of \
                 the host for the graph before it"
            ));
        }
    }

    /// Reports launches of graphs that may be on their way when what they use is freed: in an abort NCCL waits for the graphs themselves, which
    /// CUDA lets go of before that.
    pub(crate) fn free(&self, graphs: Graphs, rank: usize) {
        if self.is_unseen(graphs) {
            report::violation(format!(
                "rank {rank} is freed while a graph with operations of it is on its way, and graphUsageMode is not 2: expected that the graph \
                 is destroyed when the host has seen it done"
            ));
        }
    }

    /// Something is launched, of a graph or not, at `point`; `what` names it. Reports what NCCL neither puts in order nor supports.
    pub(crate) fn launch(&self, graphs: Graphs, captured: bool, point: &Point, what: &str) {
        if graphs.usage != Usage::Mixed {
            let (of_graphs, others) = (lock(&self.captured).clone(), lock(&self.live).clone());
            let mode = "and graphUsageMode is not 2";
            if !captured && of_graphs.is_some_and(|last| !last.is_seen()) {
                report::violation(format!(
                    "{what} is launched while a graph with operations of the communicator is on its way, {mode}: expected a wait of the \
                     host for the graph before it"
                ));
            }
            if captured && others.is_some_and(|last| !point.follows(&last)) {
                report::violation(format!(
                    "{what} of a graph has no order with what was launched on the communicator before, {mode}: expected a wait for an event"
                ));
            }
            let of_graphs = lock(&self.captured).clone();
            if captured && graphs.ordered && of_graphs.is_some_and(|last| !point.follows(&last)) {
                report::violation(format!(
                    "{what} of a graph has no order with a launch of another one that has operations of the communicator, {mode}: expected a \
                     wait for an event"
                ));
            }
        }
        let last = if captured { &self.captured } else { &self.live };
        *lock(last) = Some(point.moment().clone());
    }
}
