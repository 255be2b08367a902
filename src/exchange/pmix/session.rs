//! PMIx, from its start to its end.

use std::env;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use super::library::{self, End, Job};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::owner_process::OwnerProcess;

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
    owner: OwnerProcess,
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
        match call_within(deadline, || Ok(()), library::init)? {
            Some(Ok(job)) => {
                let session = Self { job, stuck: false, owner: OwnerProcess::this() };
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
            deadline
                .error(operation, format!("rank {rank} of {size}: rank 0 has not said where it is"))
                .between((usize::try_from(rank).ok(), Some(0)))
        };
        loop {
            // The server has seconds; it may be asked a little beyond the deadline, and nobody
            // listens then.
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
        let answer = call_within(deadline, || check(operation), call);
        self.stuck |= !matches!(answer, Ok(Some(_)));
        answer?.transpose().map_err(|said| check(operation).err().unwrap_or_else(|| failed(operation, said)))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without a server it would wait for nothing.
        if !self.stuck && !self.owner.is_another() && !matches!(library::end(), Some(End::Server(_))) {
            // What it says changes nothing any more.
            let _ = call_within(&Deadline::after(END), || Ok(()), library::finalize);
        }
    }
}

/// The error of `operation` where a rank of the job has ended, or the server.
pub(super) fn check(operation: &'static str) -> Result<()> {
    match library::end() {
        None => Ok(()),
        Some(End::Rank(rank, how)) => {
            Err(Error::Departed { operation, rank, how: format!("has ended before all have met, says PMIx: {how}") })
        }
        Some(End::Server(how)) => Err(failed(operation, format!("the server of PMIx is gone: {how}"))),
    }
}

fn failed(operation: &'static str, reason: String) -> Error {
    Error::Exchange { operation, key: "PMIx".to_owned(), reason }
}

/// Runs `call`, which may not return, on a thread. Returns `None` at the deadline, and an error if
/// `look` fails before. The thread is left behind then, with all that it uses.
pub(super) fn call_within<T: Send + 'static>(
    deadline: &Deadline,
    mut look: impl FnMut() -> Result<()>,
    call: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<Option<Result<T, String>>> {
    let (sender, answer) = sync_channel(1);
    let thread = thread::Builder::new().name("gpucomm-pmix".to_owned()).spawn(move || {
        // After the deadline nobody waits.
        let _ = sender.send(call());
    });
    if let Err(error) = thread {
        return Ok(Some(Err(format!("no thread to ask it: {error}"))));
    }
    deadline.until(|| match answer.try_recv() {
        Ok(answer) => Ok(Some(answer)),
        Err(TryRecvError::Empty) => look().map(|()| None),
        Err(TryRecvError::Disconnected) => Ok(Some(Err("the thread that asks it has panicked".to_owned()))),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_call_that_does_not_return_is_left_behind() {
        let (keep, never) = channel::<()>();
        let call = move || never.recv().map_err(|error| error.to_string());
        assert!(matches!(call_within(&Deadline::after(Duration::from_millis(20)), || Ok(()), call), Ok(None)));
        drop(keep);
    }

    #[test]
    fn results_and_failures_end_the_wait() {
        let deadline = Deadline::after(Duration::from_secs(60));
        assert_eq!(call_within(&deadline, || Ok(()), || Ok(7)).unwrap(), Some(Ok(7)));
        let failed = call_within(&deadline, || Ok(()), || Err::<(), _>("no".to_owned())).unwrap();
        assert_eq!(failed, Some(Err("no".to_owned())));
        let gone = || Err(Error::Departed { operation: "a test", rank: 3, how: "has died".to_owned() });
        let (keep, never) = channel::<()>();
        let call = move || never.recv().map_err(|error| error.to_string());
        let begin = Instant::now();
        assert!(matches!(call_within(&deadline, gone, call), Err(Error::Departed { rank: 3, .. })));
        assert!(begin.elapsed() < Duration::from_secs(30));
        drop(keep);
    }
}
