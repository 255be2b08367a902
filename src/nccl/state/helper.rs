//! A thread for each communicator, made before it is needed: it starts the communicator and ends it.
//!
//! Both take long and may never return. A thread that would have to be started for an abort may not be had then, so it is
//! made together with the communicator, which cannot be made without it, and sleeps in between.
//!
//! A process that ends while one of them is inside NCCL takes CUDA away from under it, and crashes in place of the status that it
//! was to end with: so its end waits for them, for a while.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use crate::cuda::{self, Device};
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};

type Job = Box<dyn FnOnce() + Send>;

/// How long the end of the process waits for jobs that go on. One that waits for a rank that never comes is no danger.
const AT_EXIT: Duration = Duration::from_secs(2);

/// Jobs that have been given to helpers and are not done.
static JOBS: AtomicUsize = AtomicUsize::new(0);

/// The thread. It ends when this value is dropped and all that it was given is done.
#[derive(Debug)]
pub(crate) struct Helper {
    jobs: Sender<Job>,
}

impl Helper {
    /// A thread whose current device is `device`.
    pub(crate) fn start(operation: &'static str, device: Device) -> Result<Self> {
        wait_at_exit();
        let (jobs, received) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("gpucomm-helper".into())
            .spawn(move || {
                for job in received {
                    // NCCL makes the thread's device current again after a call: one that nobody chose would get a context.
                    let _ = cuda::settle(device);
                    job();
                    JOBS.fetch_sub(1, Ordering::AcqRel);
                }
            })
            .map_err(|error| cannot_start(operation, &error))?;
        Ok(Self { jobs })
    }

    /// Has the thread do `job` after what it was given before.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        JOBS.fetch_add(1, Ordering::AcqRel);
        // The thread is there as long as this value, unless a job has panicked: none does.
        let _ = self.jobs.send(Box::new(job));
    }
}

/// Does `job` on a thread of its own, for which the end of the process waits as for any. Where there is none to be had, it is not done, and
/// what it holds stays for good.
pub(crate) fn aside(name: &str, job: impl FnOnce() + Send + 'static) {
    // Not dropped with the closure of a thread that does not start.
    let job = ManuallyDrop::new(job);
    let run = move || {
        ManuallyDrop::into_inner(job)();
        JOBS.fetch_sub(1, Ordering::AcqRel);
    };
    JOBS.fetch_add(1, Ordering::AcqRel);
    if thread::Builder::new().name(name.into()).spawn(run).is_err() {
        JOBS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Has the end of the process wait for jobs. What is registered last runs first: before CUDA, which was used already, takes itself away.
fn wait_at_exit() {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function of the C library, with one that lives as long as this code and neither panics nor ends the process. Where
        // there is no place for it nobody waits.
        unsafe { atexit(finish) };
    });
}

extern "C" fn finish() {
    settle(AT_EXIT);
}

/// Waits until no job goes on; whether none does.
fn settle(within: Duration) -> bool {
    let deadline = Deadline::after(within);
    let mut round = 0;
    while JOBS.load(Ordering::Acquire) > 0 {
        if deadline.expired() {
            return false;
        }
        backoff(round);
        round += 1;
    }
    true
}

/// The error where a thread cannot be had.
pub(crate) fn cannot_start(operation: &'static str, error: &std::io::Error) -> Error {
    Error::InvalidUsage { operation, reason: format!("a thread cannot be started: {error}") }
}

#[cfg(all(test, gpucomm_emulator))]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn jobs_are_waited_for() {
        let helper = Helper::start("test", Device::new(0).unwrap()).unwrap();
        let start = Instant::now();
        helper.run(|| thread::sleep(Duration::from_millis(300)));
        assert!(!settle(Duration::from_millis(20)), "a job that goes on");
        // Other tests have jobs, too.
        while !settle(Duration::from_secs(20)) {}
        assert!(start.elapsed() >= Duration::from_millis(300), "after {:?}", start.elapsed());
    }
}
