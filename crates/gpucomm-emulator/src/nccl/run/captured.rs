//! Batches in captures: written down once, and run at every launch of the graph.
//!
//! NCCL keeps what it has made for a batch until the last graph dies that has it, and the communicator with it: an end of the
//! communicator waits for that. A launch after the end uses memory that is free, and is a violation here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::turn::BatchRun;
use crate::cuda::core::work::Work;
use crate::lock::lock;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::requests::operation::Operation;
use crate::nccl::requests::order::Order;
use crate::nccl::requests::registered;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::nccl::state::shared::Shared;
use crate::report;
use crate::sys::cudaError;

/// A communicator of which a graph has something, as long as it does.
#[derive(Debug)]
pub(crate) struct Kept(Arc<Comm>);

/// What one group has captured of one communicator.
#[derive(Debug)]
pub(super) struct Captured {
    kept: Kept,
    name: &'static str,
    orders: Vec<Order>,
    /// What NCCL has registered for it.
    registered: Vec<u64>,
}

impl Captured {
    /// From operations that were to be launched.
    pub(super) fn new(comm: &Arc<Comm>, name: &'static str, operations: &[Operation]) -> Outcome<Self> {
        let kept = Kept::new(comm)?;
        let orders = operations.iter().map(|operation| operation.order.captured()).collect();
        let mut captured = Self { kept, name, orders, registered: Vec::new() };
        for order in &captured.orders {
            for (range, piece) in registered::for_graph(comm, order) {
                let record = comm.graph_cache.add(&range, &piece);
                captured.registered.push(record.map_err(|what| {
                    Failure::usage(format!("{name} is captured on rank {}: {what}", comm.rank)).reported()
                })?);
            }
        }
        Ok(captured)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        self.kept.comm().graph_cache.end(&self.registered);
    }
}

impl Kept {
    /// A graph has one more thing of `comm`.
    pub(crate) fn new(comm: &Arc<Comm>) -> Outcome<Self> {
        comm.segment()?.own(comm.rank).graphs.fetch_add(1, Ordering::SeqCst);
        Ok(Self(comm.clone()))
    }

    pub(crate) fn comm(&self) -> &Arc<Comm> {
        &self.0
    }

    /// A launch has `name` of it: the epoch in which that begins. Fails where NCCL would work in memory that is free.
    pub(crate) fn begin(&self, name: &str) -> Result<u32, cudaError> {
        if let Some(end) = self.gone() {
            let rank = self.0.rank;
            report::violation(format!("the graph has {name} of a communicator of which rank {rank} {end}"));
            return Err(cudaError::cudaErrorInvalidValue);
        }
        Ok(self.0.epoch())
    }

    /// Why NCCL would work in memory that is free.
    fn gone(&self) -> Option<&'static str> {
        if registry::find(registry::handle(&self.0)).is_none() {
            Some("was destroyed or aborted")
        } else if self.0.is_closed() {
            Some("was finalized or revoked")
        } else if self.0.resources.memory.is_suspended() {
            Some("is suspended")
        } else {
            None
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Ok(segment) = self.0.segment() {
            segment.own(self.0.rank).graphs.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Work for Captured {
    type Run = BatchRun;

    fn name(&self) -> &'static str {
        self.name
    }

    /// NCCL may take other kernels, or more of them, for whatever changes: an update that goes well with one version need not with another.
    fn fixed(&self) -> String {
        format!("{} {:?}", self.kept.comm().handle, self.orders)
    }

    fn start(&self) -> Result<BatchRun, cudaError> {
        let (epoch, comm) = (self.kept.begin(self.name)?, self.kept.comm());
        let started = self.orders.iter().map(|order| Operation::start(comm, order)).collect::<Outcome<Vec<_>>>();
        // What is wrong is reported.
        let operations = started.map_err(|_| cudaError::cudaErrorInvalidValue)?;
        Ok(BatchRun::new(comm, self.name, epoch, operations, &mut lock(&comm.resources.progress.launched)))
    }
}
