//! What stands in the queue of a stream.

use super::lanes::Lanes;
use super::line::Ticket;
use super::work::Step;
use crate::memory::block::Block;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// One entry of a queue.
pub(crate) enum Task {
    /// Work on data; dropped without running once the device has failed.
    Run(Step),
    /// The pieces of a graph, and how they are done.
    Graph(Vec<Step>, Arc<Lanes>),
    /// Nothing before that ticket is done.
    Wait(Ticket),
    /// The time when the stream came here.
    Stamp(Arc<OnceLock<Instant>>),
    /// The end of an allocation in stream order. It comes also when the device has failed: others may wait for the memory.
    Free(Arc<Block>),
}

impl Task {
    /// Whether it is done in less time than the thread of its stream needs to wake up, wherever it need not wait.
    pub fn is_light(&self) -> bool {
        matches!(self, Self::Run(step) if step.is_light())
    }

    /// Goes on with one that is light, as far as that needs no wait: what is left of it, if it is not done.
    pub fn attempt(self) -> Option<Self> {
        let Self::Run(step) = self else { return Some(self) };
        step.attempt().map(Self::Run)
    }

    /// How many places it takes in the launch queue.
    pub fn entries(&self) -> usize {
        match self {
            Self::Run(step) => usize::from(step.takes_an_entry()),
            Self::Graph(steps, _) => steps.iter().filter(|step| step.takes_an_entry()).count(),
            Self::Wait(_) | Self::Stamp(_) | Self::Free(_) => 0,
        }
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(step) => write!(f, "Run({})", step.name),
            Self::Graph(steps, _) => write!(f, "Graph({})", steps.len()),
            Self::Wait(ticket) => write!(f, "Wait({})", ticket.number()),
            Self::Stamp(_) => write!(f, "Stamp"),
            Self::Free(block) => write!(f, "Free({:#x})", block.offset),
        }
    }
}
