//! A program that all ranks of a clique run, each on a thread of its own.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;

use super::clique::Clique;
use super::communicator::Communicator;
use super::end::abort_members;
use super::lifecycle::root_cause::{Failure, What, blame};
use super::lifecycle::scope::Scope;
use super::lifecycle::timeouts;
use super::rank::helper;
use super::raw::outside::outside_of_host_functions;
use super::validate::presence::Run;
use crate::error::{Error, Result};
use crate::lock::Mutex;

const SPMD: &str = "spmd";

/// Of a program that has failed: the rank, if it was one, and its error.
type Failed<E> = (Option<usize>, E);

/// Why a program has no result.
enum Stopped {
    /// It could not run.
    Unfit(Error),
    /// This rank is at fault, with the error that it has returned.
    Returned(usize),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Unfit(error)
    }
}

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
        self.collect(&program, |error| Some(error.clone())).map_err(|(rank, error)| match rank {
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
        self.collect(&program, |_| None).map_err(|(_, error)| error)
    }

    /// Runs `program` on a thread for each rank, and finds the rank at fault if some fail.
    fn run(&self, program: Program<'_>) -> Result<(), Stopped> {
        outside_of_host_functions(SPMD)?;
        let spmd = Spmd::new(self, program);
        spmd.run_all()?;
        match blame(spmd.failures.into_inner()).map(Failure::into_what) {
            None => Ok(()),
            Some(What::Error(rank)) => Err(Stopped::Returned(rank)),
            Some(What::Panic(payload)) => panic::resume_unwind(payload),
        }
    }

    /// Runs `program` and collects what the ranks return. `known` gives the error as one of this crate, if it is one.
    ///
    /// Generic over what ranks return only, so that a program costs its users little to compile.
    fn collect<R: Send, E: From<Error> + Send>(
        &self,
        program: &(dyn Fn(&Communicator) -> Result<R, E> + Sync),
        known: fn(&E) -> Option<Error>,
    ) -> Result<Vec<R>, Failed<E>> {
        let results: Vec<Mutex<Option<Result<R, E>>>> = self.ranks().iter().map(|_| Mutex::default()).collect();
        let program = |communicator: &Communicator| {
            let result = match communicator.device().set_current() {
                Ok(_current) => program(communicator),
                Err(error) => Err(E::from(error)),
            };
            let outcome = result.as_ref().map(drop).map_err(known);
            *results[communicator.rank()].lock() = Some(result);
            outcome
        };
        let outcome = self.run(&program);
        let mut results = results.into_iter().map(|result| result.into_inner());
        match outcome {
            Ok(()) => results.map(|result| result.and_then(Result::ok)).collect::<Option<_>>().ok_or_else(|| {
                let reason = "a rank ended without a value".into();
                (None, E::from(Error::InvalidUsage { operation: SPMD, reason }))
            }),
            Err(Stopped::Unfit(error)) => Err((None, E::from(error))),
            Err(Stopped::Returned(rank)) => {
                let result = results.nth(rank).flatten();
                Err((Some(rank), result.and_then(Result::err).expect("the rank has returned an error")))
            }
        }
    }
}

/// A program that reports an error of this crate, if its error is one.
type Program<'p> = &'p (dyn Fn(&Communicator) -> Result<(), Option<Error>> + Sync);

/// One run of a program on all ranks of a clique.
struct Spmd<'c> {
    clique: &'c Clique,
    program: Program<'c>,
    /// Owns the communicators that the program makes.
    scope: Arc<Scope>,
    /// Which programs have returned. `None` if the ranks do not compare their calls in this process.
    programs: Option<Run<'c>>,
    failures: Mutex<Vec<Failure>>,
}

impl<'c> Spmd<'c> {
    fn new(clique: &'c Clique, program: Program<'c>) -> Self {
        let in_process = clique.ranks().first().and_then(|first| first.inner().validation.in_process());
        let programs = in_process.map(|in_process| Run::begin(in_process.signatures.presence()));
        Self { clique, program, scope: Scope::new(), programs, failures: Mutex::default() }
    }

    /// Runs the program on a thread for each rank. No rank starts before every thread is there: a thread that cannot be
    /// started is an error, and leaves the clique as it was.
    fn run_all(&self) -> Result<()> {
        let may_start = Mutex::new(true);
        thread::scope(|scope| {
            let mut held = may_start.lock();
            let start = |communicator| {
                let may_start = &may_start;
                let run = move || {
                    let may_start = *may_start.lock();
                    if may_start {
                        self.run_rank(communicator);
                    }
                };
                thread::Builder::new().name(format!("gpucomm r{}", communicator.rank())).spawn_scoped(scope, run)
            };
            let threads: std::io::Result<Vec<_>> = self.clique.ranks().iter().map(start).collect();
            *held = threads.is_ok();
            drop(held);
            let threads = threads.map_err(|error| helper::cannot_start(SPMD, &error))?;
            // A panic that is not in `failures` leaves the rank without a result, which `collect` reports.
            threads.into_iter().for_each(|thread| drop(thread.join()));
            Ok(())
        })
    }

    /// Runs the program of one rank, on this thread.
    fn run_rank(&self, communicator: &Communicator) {
        let rank = communicator.rank();
        let _joined = self.scope.join();
        let _here = self.programs.as_ref().map(|programs| programs.here(rank));
        let attempt = panic::catch_unwind(AssertUnwindSafe(|| {
            if self.clique.is_pinned() {
                // Pinning only saves time, so a device whose CPUs are not known is no error.
                let _ = communicator.device().pin_thread();
            }
            (self.program)(communicator)
        }));
        match attempt {
            Ok(Ok(())) => self.programs.iter().for_each(|programs| programs.returns(rank)),
            Ok(Err(known)) => {
                let ended = communicator.inner().cause();
                self.fail(communicator, Failure::returned(rank, known.as_ref(), ended));
            }
            Err(payload) => self.fail(communicator, Failure::panicked(rank, payload)),
        }
    }

    /// Records the failure of a rank. The first one aborts the clique, and the communicators that the program has made.
    fn fail(&self, communicator: &Communicator, failure: Failure) {
        let reason = failure.reason();
        // The program's own error, or a panic, does not say how long the rank has waited.
        let waited = failure.waited().max(timeouts::may_have_waited(communicator.inner()));
        let is_first = {
            let mut failures = self.failures.lock();
            failures.push(failure);
            failures.len() == 1
        };
        if is_first {
            let _ = abort_members(self.clique.ranks(), self.scope.fail(&reason), reason, waited);
        }
    }
}
