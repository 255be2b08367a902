//! A program that all ranks of a clique run, each on a thread of its own.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::agree::presence::Run;
use super::clique::Clique;
use super::communicator::Communicator;
use super::end::abort_members;
use super::life::failure::{Failure, What, blame};
use super::life::scope::Scope;
use super::raw::outside::outside_of_host_functions;
use super::state::helper;
use crate::error::{Error, Result};

const SPMD: &str = "spmd";

/// Of a program that has failed: the rank, if it was one, and its error.
type Failed<E> = (Option<usize>, E);

impl Clique {
    /// Runs `program` once for each rank, all at the same time, each on a thread of its own, `gpucomm r0` and so on, on which the rank's
    /// device is current, and which is near it where [`Clique::set_pinned`] was asked for. Returns what they return, in the order of ranks, when all have returned: an error of one rank comes out when the
    /// programs of the others have come to an end, too.
    ///
    /// A program with an error type of its own runs by [`Clique::try_spmd`].
    ///
    /// Communicators and cliques that `program` makes on these threads end with it: where a rank fails, they are aborted as
    /// well, and those that are being made are given up.
    ///
    /// A rank whose program has returned comes to nothing more in this run. Others that wait for it, in a call or for the device, are
    /// told so at once, by [`Error::Disagreement`], unless they wait for what it had issued before. That goes for the threads that run
    /// the programs; others may wait for what a later run brings, and are told at their deadline. Asking,
    /// by [`Stream::query`](crate::Stream::query) and [`Event::query`](crate::Event::query), is no waiting: who asks again and again is
    /// told nothing, and has to look at the clock.
    ///
    /// # Errors
    /// That of the rank at fault, which its text names at the end: the first failure in time, of those that say more than that a communicator was aborted, if there are
    /// any; where ranks disagree, that of the rank which differs. All ranks are aborted then, so that none waits for one that has
    /// given up. [`Error::InvalidUsage`] where a thread cannot be started,
    /// and within a host function of a stream; `program` has not run then, and the clique is as it was.
    ///
    /// # Panics
    /// Where the rank at fault has panicked, all are aborted as well, and the panic goes on here when all have ended.
    pub fn spmd<R: Send>(&self, program: impl Fn(&Communicator) -> Result<R> + Sync) -> Result<Vec<R>> {
        self.run(program, |error| Some(error)).map_err(|(rank, error)| match rank {
            Some(rank) => error.of_rank(rank),
            None => error,
        })
    }

    /// As [`Clique::spmd`], for a program with an error type of its own.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    /// #[derive(Debug)]
    /// enum Failed {
    ///     Gpu(gpucomm::Error),
    ///     Diverged { loss: f32 },
    /// }
    ///
    /// impl From<gpucomm::Error> for Failed {
    ///     fn from(error: gpucomm::Error) -> Self {
    ///         Self::Gpu(error)
    ///     }
    /// }
    ///
    /// fn train(clique: &Clique) -> Result<Vec<f32>, Failed> {
    ///     clique.try_spmd(|comm| {
    ///         let stream = Stream::new(comm.device())?;
    ///         let mut loss = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32])?;
    ///         comm.all_reduce(InPlace(&mut loss), ReduceOp::Max, &stream)?;
    ///         match loss.to_vec(&stream)?[0] {
    ///             loss if loss < 100.0 => Ok(loss),
    ///             loss => Err(Failed::Diverged { loss }),
    ///         }
    ///     })
    /// }
    /// # fn main() -> Result<(), Failed> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # assert_eq!(train(&clique)?, vec![clique.size() as f32 - 1.0; clique.size()]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is a method beside [`Clique::spmd`], because Rust would not know which error the `?` in that one's programs makes, where they end
    /// with `Ok(…)`. Here they say it themselves where nothing else does: `|comm| -> Result<_, Failed> { …; Ok(sum) }`. Of the boxed errors of
    /// the standard library `Box<dyn Error + Send + Sync>` will do.
    ///
    /// # Errors
    /// As [`Clique::spmd`], made into an `E`; of the rank at fault that which it has returned, as it is. Nothing can be asked of such an
    /// error: a rank whose communicator has ended already, and not by its own doing, counts as told that another one has failed.
    ///
    /// # Panics
    /// As [`Clique::spmd`].
    pub fn try_spmd<R: Send, E: From<Error> + Send>(
        &self,
        program: impl Fn(&Communicator) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, E> {
        self.run(program, |_| None).map_err(|(_, error)| error)
    }

    /// Runs `program`, whose errors may be `known` as those of this crate.
    fn run<R: Send, E: From<Error> + Send>(
        &self,
        program: impl Fn(&Communicator) -> Result<R, E> + Sync,
        known: impl Fn(&E) -> Option<&Error> + Sync,
    ) -> Result<Vec<R>, Failed<E>> {
        let unfit = |error: Error| (None, E::from(error));
        outside_of_host_functions(SPMD).map_err(unfit)?;
        let ranks = self.ranks();
        let scope = Scope::new();
        let presence = ranks.first().and_then(|first| first.inner().family.as_ref());
        let presence = presence.map(|family| family.ledger.presence());
        let program_run = presence.map(Run::begin);
        let failures = Mutex::new(Vec::new());
        let fail = |failure: Failure<E>| {
            let reason = failure.text().to_owned();
            let is_first = {
                let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.push(failure);
                failures.len() == 1
            };
            if is_first {
                let _ = abort_members(ranks, scope.fail(&reason), reason);
            }
        };
        let run = |communicator: &Communicator| {
            let rank = communicator.rank();
            let _joined = scope.join();
            let _here = program_run.as_ref().map(Run::here);
            presence.into_iter().for_each(|presence| presence.drive(rank));
            let attempt = panic::catch_unwind(AssertUnwindSafe(|| {
                let _current = communicator.device().set_current()?;
                if self.is_pinned() {
                    // Where it is not known what is near, nothing is lost but time.
                    let _ = communicator.device().pin_thread();
                }
                program(communicator)
            }));
            match attempt {
                Ok(Ok(value)) => {
                    program_run.iter().for_each(|run| run.returns(rank));
                    return Some(value);
                }
                Ok(Err(error)) => {
                    let (known, ended) = (known(&error).cloned(), communicator.inner().cause());
                    fail(Failure::returned(rank, error, known.as_ref(), ended));
                }
                Err(payload) => fail(Failure::panicked(rank, payload)),
            }
            None
        };
        // Held until all threads are there, or one is not to be had.
        let go = Mutex::new(true);
        let values: Vec<_> = thread::scope(|scope| {
            let mut held = go.lock().unwrap_or_else(PoisonError::into_inner);
            let start = |rank| {
                let (run, go) = (&run, &go);
                let wait_and_run = move || {
                    let go = *go.lock().unwrap_or_else(PoisonError::into_inner);
                    if go { run(rank) } else { None }
                };
                thread::Builder::new().name(format!("gpucomm r{}", rank.rank())).spawn_scoped(scope, wait_and_run)
            };
            let threads: std::io::Result<Vec<_>> = ranks.iter().map(start).collect();
            *held = threads.is_ok();
            drop(held);
            let threads = threads.map_err(|error| unfit(helper::cannot_start(SPMD, &error)))?;
            Ok(threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect())
        })?;
        match blame(failures.into_inner().unwrap_or_else(PoisonError::into_inner)).map(Failure::into_what) {
            None => values.into_iter().collect::<Option<Vec<R>>>().ok_or_else(|| {
                unfit(Error::InvalidUsage { operation: SPMD, reason: "a rank ended without a value".into() })
            }),
            Some(What::Error(rank, error)) => Err((Some(rank), error)),
            Some(What::Panic(payload)) => panic::resume_unwind(payload),
        }
    }
}
