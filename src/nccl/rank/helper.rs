//! The thread of each rank, which starts the rank and ends it.
//!
//! Both may never return. When an abort is needed, it may be impossible to start a thread. So the
//! thread is started before the rank, and sleeps in between.
//!
//! If a process ends while one of these threads is inside NCCL, CUDA is unloaded under it, and the
//! process crashes instead of ending with its status. So the end of the process waits for these
//! threads, for a while.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use crate::cuda::{self, Device};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

type Job = Box<dyn FnOnce() + Send>;

/// How long the end of the process waits for jobs. A job that waits for a rank that never comes
/// does no harm.
const AT_EXIT: Duration = Duration::from_secs(2);

/// Jobs that have been given to helpers and are not done.
static JOBS: AtomicUsize = AtomicUsize::new(0);

/// The thread. It ends when this value is dropped and all jobs are done.
#[derive(Debug)]
pub(crate) struct Helper {
    jobs: Sender<Job>,
}

impl Helper {
    /// Starts a thread whose current device is `device`.
    pub(crate) fn start(operation: &'static str, device: Device) -> Result<Self> {
        wait_at_exit();
        let (jobs, received) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("gpucomm-helper".into())
            .spawn(move || {
                for job in received {
                    // After a call, NCCL makes the device of the thread current again. A device
                    // that nobody chose would get a context.
                    let _ = cuda::settle(device);
                    job();
                    JOBS.fetch_sub(1, Ordering::AcqRel);
                }
            })
            .map_err(|error| cannot_start(operation, &error))?;
        Ok(Self { jobs })
    }

    /// Has the thread run `job` after its earlier jobs.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        JOBS.fetch_add(1, Ordering::AcqRel);
        // The thread lives as long as this value: no job panics.
        let _ = self.jobs.send(Box::new(job));
    }
}

/// Runs `job` on a thread of its own, for which the end of the process waits as well. If no thread
/// can be started, leaks `job`, and returns false.
pub(crate) fn aside(name: &str, job: impl FnOnce() + Send + 'static) -> bool {
    // Not dropped with the closure of a thread that does not start.
    let job = ManuallyDrop::new(job);
    let run = move || {
        ManuallyDrop::into_inner(job)();
        JOBS.fetch_sub(1, Ordering::AcqRel);
    };
    JOBS.fetch_add(1, Ordering::AcqRel);
    let started = thread::Builder::new().name(name.into()).spawn(run).is_ok();
    if !started {
        JOBS.fetch_sub(1, Ordering::AcqRel);
    }
    started
}

/// Has the end of the process wait for jobs. Functions that are registered last run first: before
/// CUDA, which was used already, is unloaded.
fn wait_at_exit() {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function of the C library, with one that lives as long as this code and
        // neither panics nor ends the process. If it cannot be registered, nobody waits.
        unsafe { atexit(finish) };
    });
}

extern "C" fn finish() {
    // The threads of a parent do nothing here.
    if !cuda::is_forked() {
        wait_for_jobs(AT_EXIT);
    }
}

/// Waits until all jobs are done. Returns false if they are not in time.
fn wait_for_jobs(within: Duration) -> bool {
    Deadline::after(within).wait(|| JOBS.load(Ordering::Acquire) == 0)
}

/// The error if a thread cannot be started.
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
        assert!(!wait_for_jobs(Duration::from_millis(20)), "a job that goes on");
        // Other tests have jobs, too.
        while !wait_for_jobs(Duration::from_secs(20)) {}
        assert!(start.elapsed() >= Duration::from_millis(300), "after {:?}", start.elapsed());
    }
}
