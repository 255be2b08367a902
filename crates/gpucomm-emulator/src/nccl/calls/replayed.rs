//! One-sided operations in graphs: what was asked for, and looked up at each launch.

use super::put::{Put, copy};
use crate::cuda::core::work::Work;
use crate::lock::lock;
use crate::nccl::basics::kind::Kind;
use crate::nccl::run::captured::Kept;
use crate::nccl::run::one_sided::{Give, Wait};
use crate::nccl::run::turn::Turn;
use crate::report;
use crate::sys::cudaError;

fn next_turn(kept: &Kept) -> Turn {
    let comm = kept.comm();
    Turn::next(comm, &mut lock(&comm.resources.progress.launched))
}

/// A put, or a signal.
#[derive(Debug)]
pub(super) struct CapturedGive {
    pub(super) kept: Kept,
    pub(super) kind: Kind,
    pub(super) peer: usize,
    pub(super) put: Option<Put>,
}

impl Work for CapturedGive {
    type Run = Give;

    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn fixed(&self) -> String {
        format!("{} {} {:?}", self.kept.comm().handle, self.peer, self.put)
    }

    fn start(&self) -> Result<Give, cudaError> {
        let (epoch, comm) = (self.kept.begin(self.name())?, self.kept.comm().clone());
        let found = self.put.as_ref().map(|put| copy(&comm, self.peer, put)).transpose();
        let copy = found.map_err(|failure| {
            report::violation(format!("the graph has {} of rank {}: {}", self.name(), comm.rank, failure.text));
            cudaError::cudaErrorInvalidValue
        })?;
        let (kind, peer, turn) = (self.kind, self.peer, next_turn(&self.kept));
        Ok(Give { comm, epoch, kind, peer, copy, captured: true, turn })
    }
}

/// A wait for so many signals of each of these ranks.
#[derive(Debug)]
pub(super) struct CapturedWait {
    pub(super) kept: Kept,
    pub(super) peers: Vec<(usize, u64)>,
}

impl Work for CapturedWait {
    type Run = Wait;

    fn name(&self) -> &'static str {
        Kind::WaitSignal.name()
    }

    fn fixed(&self) -> String {
        format!("{} {:?}", self.kept.comm().handle, self.peers)
    }

    fn start(&self) -> Result<Wait, cudaError> {
        let epoch = self.kept.begin(self.name())?;
        let (comm, peers) = (self.kept.comm().clone(), self.peers.clone());
        Ok(Wait { comm, epoch, peers, captured: true, turn: next_turn(&self.kept) })
    }
}
