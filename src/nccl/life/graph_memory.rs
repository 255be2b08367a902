//! What is handed on when a graph ends: the memory that NCCL may have registered for it.

use std::sync::Arc;

use super::reaper;
use crate::cuda::{Allocation, Hold};
use crate::nccl::state::inner::Inner;

/// The memory that NCCL may have registered for what a graph has of one rank.
pub(crate) struct Registered {
    inner: Arc<Inner>,
    /// What is not the communicator's own: that knows itself what is to become of it.
    others: Vec<Hold>,
}

impl Registered {
    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        Self { inner, others: Vec::new() }
    }

    /// One more piece, which is kept alive in any case until this goes.
    pub(crate) fn add(&mut self, memory: &Allocation) {
        self.inner.graphs.set_registers();
        if memory.owner() == self.inner.id {
            memory.linger();
        } else if let Some(memory) = memory.hold()
            && !self.others.iter().any(|known| known.is_as(&memory))
        {
            self.others.push(memory);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.others.drain(..).for_each(|memory| reaper::keep(memory, &self.inner));
    }
}
