//! PMIx, from its start to its end.

use std::env;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::asked::asked;
use super::library::{self, End, Job};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// Whether this process has started PMIx.
static STARTED: AtomicBool = AtomicBool::new(false);

/// How long the server is given for one answer; who has asked asks again then.
const ANSWER: Duration = Duration::from_secs(10);

/// How long PMIx may take to end.
const END: Duration = Duration::from_secs(5);

/// What a launcher with PMIx sets.
const VARIABLES: [&str; 2] = ["PMIX_NAMESPACE", "PMIX_RANK"];

/// PMIx while it runs. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) job: Job,
    /// Whether a call is still on its way, so that PMIx cannot end.
    stuck: bool,
}

impl Session {
    /// Starts PMIx, for `operation`.
    pub(super) fn start(operation: &'static str, deadline: &Deadline) -> Result<Self> {
        let seen = VARIABLES.map(|name| (name, env::var_os(name).filter(|value| !value.is_empty())));
        if seen.iter().any(|(_, value)| value.is_none()) {
            let seen = seen.map(|(name, value)| match value {
                Some(value) => format!("{name}={}", value.to_string_lossy()),
                None => format!("{name} unset"),
            });
            let reason = format!(
                "expected PMIX_NAMESPACE and PMIX_RANK, as a launcher with PMIx sets them (srun --mpi=pmix, mpirun, prterun), got {}",
                seen.join(", ")
            );
            return Err(failed(operation, reason));
        }
        if STARTED.swap(true, Ordering::Relaxed) {
            let reason = "expected a process that has not met its job by PMIx, got one that has: it does so once";
            return Err(failed(operation, reason.to_owned()));
        }
        match asked(deadline, || Ok(()), library::init)? {
            Some(Ok(job)) => {
                let session = Self { job, stuck: false };
                let Job { rank, size, local_rank, local_size, .. } = session.job;
                if rank < size && local_rank < local_size && local_size <= size {
                    return Ok(session);
                }
                let reason = format!(
                    "expected a rank of the job, got rank {rank} of {size}, and {local_rank} of {local_size} on this node"
                );
                Err(failed(operation, reason))
            }
            Some(Err(said)) => Err(failed(operation, said)),
            None => Err(deadline.error(operation, "the server of PMIx does not answer")),
        }
    }

    /// Says what rank 0 tells all.
    pub(super) fn tell(&mut self, operation: &'static str, bytes: Vec<u8>, deadline: &Deadline) -> Result<()> {
        let told = self.ask(operation, deadline, move || library::tell(&bytes))?;
        told.ok_or_else(|| deadline.error(operation, "the server of PMIx does not take where rank 0 is"))
    }

    /// What rank 0 tells all, once it has.
    pub(super) fn told(&mut self, operation: &'static str, deadline: &Deadline) -> Result<Vec<u8>> {
        let late = |session: &Self| {
            let Job { rank, size, .. } = session.job;
            deadline.error(operation, format!("rank {rank} of {size}: rank 0 has not said where it is"))
        };
        loop {
            // The server has seconds; it may be asked a little beyond the deadline, and nobody listens then.
            let seconds = deadline.remaining().min(ANSWER).as_secs() + 1;
            let seconds = c_int::try_from(seconds).unwrap_or(c_int::MAX);
            match self.ask(operation, deadline, move || library::told(seconds))? {
                None => return Err(late(self)),
                Some(Some(bytes)) => return Ok(bytes),
                Some(None) if deadline.expired() => return Err(late(self)),
                // Some servers say at once that there is nothing yet.
                Some(None) => thread::sleep(Duration::from_millis(20).min(deadline.remaining())),
            }
        }
    }

    fn ask<T: Send + 'static>(
        &mut self,
        operation: &'static str,
        deadline: &Deadline,
        call: impl FnOnce() -> library::Said<T> + Send + 'static,
    ) -> Result<Option<T>> {
        let answer = asked(deadline, || check(operation), call);
        self.stuck |= !matches!(answer, Ok(Some(_)));
        answer?.transpose().map_err(|said| check(operation).err().unwrap_or_else(|| failed(operation, said)))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without a server it would wait for nothing.
        if !self.stuck && !matches!(library::end(), Some(End::Server(_))) {
            // What it says changes nothing any more.
            let _ = asked(&Deadline::after(END), || Ok(()), library::finalize);
        }
    }
}

/// The error of `operation` where a rank of the job has ended, or the server.
pub(super) fn check(operation: &'static str) -> Result<()> {
    match library::end() {
        None => Ok(()),
        Some(End::Rank(rank, how)) => {
            Err(Error::Gone { operation, rank, how: format!("has ended before all have met, says PMIx: {how}") })
        }
        Some(End::Server(how)) => Err(failed(operation, format!("the server of PMIx is gone: {how}"))),
    }
}

fn failed(operation: &'static str, reason: String) -> Error {
    Error::Exchange { operation, key: "PMIx".to_owned(), reason }
}
