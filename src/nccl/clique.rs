//! All ranks of a communicator within one process.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use super::comm_buffer::CommBuffer;
use super::communicator::{Communicator, abort_members};
use super::config::InitOptions;
use super::ending::AbortOutcome;
use super::{allocate, init};
use crate::cuda::{Device, Stream};
use crate::element::Element;
use crate::error::{Error, Result};

/// All ranks of a communicator, each on a device of its own, in this process. Needs no `unsafe`: its ranks compare what
/// they are about to launch.
///
/// A rank that issues another operation, count, element type, reduction or root than the ranks before it gets
/// [`Error::Disagreement`], nothing that disagrees is launched, and all ranks are aborted.
#[derive(Debug)]
pub struct Clique {
    ranks: Vec<Communicator>,
}

impl Clique {
    /// Wraps `ncclCommInitRankConfig`, once a device, as `ncclCommInitAll` does: rank `r` on `devices[r]`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no device, or one twice; [`Error::Timeout`]; what NCCL says.
    pub fn init_all(devices: &[Device]) -> Result<Self> {
        Self::init_all_with(devices, &InitOptions::default())
    }

    /// Like [`Clique::init_all`], with options.
    ///
    /// # Errors
    /// As [`Clique::init_all`].
    pub fn init_all_with(devices: &[Device], options: &InitOptions) -> Result<Self> {
        Ok(Self { ranks: init::all_ranks(devices, options)? })
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// The ranks, in order.
    pub fn ranks(&self) -> &[Communicator] {
        &self.ranks
    }

    /// One rank.
    ///
    /// # Panics
    /// Where `rank` is not below [`Clique::size`].
    #[track_caller]
    pub fn rank(&self, rank: usize) -> &Communicator {
        &self.ranks[rank]
    }

    /// The ranks, to be moved to threads of your own. They go on comparing.
    pub fn into_ranks(self) -> Vec<Communicator> {
        self.ranks
    }

    /// Runs `program` once for each rank, all at the same time, each on a thread of its own on which the rank's device is
    /// current. Returns what they return, in the order of ranks.
    ///
    /// # Errors
    /// The first error that a rank returned, in time. All ranks are aborted then, so that none waits for one that has
    /// given up.
    ///
    /// # Panics
    /// If a rank panics, all are aborted, and the panic goes on here when all have ended.
    pub fn spmd<R: Send>(&self, program: impl Fn(&Communicator) -> Result<R> + Sync) -> Result<Vec<R>> {
        let first = Mutex::new(None);
        let fail = |failure: Failure| {
            let reason = failure.to_string();
            let is_first = {
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                let is_first = first.is_none();
                if is_first {
                    *first = Some(failure);
                }
                is_first
            };
            if is_first {
                let _ = abort_members(&self.ranks, reason);
            }
        };
        let run = |communicator: &Communicator| {
            let rank = communicator.rank();
            let attempt = panic::catch_unwind(AssertUnwindSafe(|| {
                let _current = communicator.device().set_current()?;
                program(communicator)
            }));
            match attempt {
                Ok(Ok(value)) => return Some(value),
                Ok(Err(error)) => fail(Failure::Error { rank, error }),
                Err(payload) => fail(Failure::Panic { rank, payload }),
            }
            None
        };
        let values: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = self.ranks.iter().map(|rank| scope.spawn(move || run(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
        });
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => values.into_iter().collect::<Option<Vec<R>>>().ok_or_else(|| Error::InvalidUsage {
                operation: "spmd",
                reason: "a rank ended without a value".into(),
            }),
            Some(Failure::Error { error, .. }) => Err(error),
            Some(Failure::Panic { payload, .. }) => panic::resume_unwind(payload),
        }
    }

    /// A [`CommBuffer`] of `len` zeroed elements for each rank, for one thread that drives them all; rank `r` uses
    /// `streams[r]`.
    ///
    /// # Errors
    /// As [`Communicator::alloc`]; [`Error::InvalidArgument`] where there is not one stream a rank.
    pub fn alloc<T: Element>(&self, streams: &[Stream], len: usize) -> Result<Vec<CommBuffer<'_, T>>> {
        if streams.len() != self.size() {
            return Err(Error::argument(
                "Clique::alloc",
                "streams",
                format!("{} streams, one a rank", self.size()),
                format!("{} streams", streams.len()),
            ));
        }
        let members: Vec<_> = self.ranks.iter().map(Communicator::inner).collect();
        let streams: Vec<_> = streams.iter().collect();
        allocate::many(&members, &streams, len)
    }

    /// Wraps `ncclCommAbort`, on all ranks; see [`Aborter::abort`](super::Aborter::abort).
    pub fn abort(self, reason: &str) -> AbortOutcome {
        abort_members(&self.ranks, reason.to_owned())
    }

    /// Wraps `ncclCommFinalize` and `ncclCommDestroy`, on all ranks at the same time.
    ///
    /// # Errors
    /// The first of [`Communicator::close`].
    pub fn close(self, timeout: Duration) -> Result<()> {
        thread::scope(|scope| {
            let threads: Vec<_> = self.ranks.into_iter().map(|rank| scope.spawn(move || rank.close(timeout))).collect();
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            ended.into_iter().try_for_each(|result| result.unwrap_or_else(|payload| panic::resume_unwind(payload)))
        })
    }
}

/// How a rank of [`Clique::spmd`] failed.
enum Failure {
    Error { rank: usize, error: Error },
    Panic { rank: usize, payload: Box<dyn Any + Send> },
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error { rank, error } => write!(f, "rank {rank} returned an error: {error}"),
            Self::Panic { rank, .. } => write!(f, "rank {rank} panicked"),
        }
    }
}
