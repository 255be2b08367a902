//! A thread for each communicator, made before it is needed: it starts the communicator and ends it.
//!
//! Both take long and may never return. A thread that would have to be started for an abort may not be had then, so it is
//! made together with the communicator, which cannot be made without it, and sleeps in between.

use std::sync::mpsc::{self, Sender};
use std::thread;

use crate::cuda::{self, Device};
use crate::error::{Error, Result};

type Job = Box<dyn FnOnce() + Send>;

/// The thread. It ends when this value is dropped and all that it was given is done.
#[derive(Debug)]
pub(crate) struct Helper {
    jobs: Sender<Job>,
}

impl Helper {
    /// A thread whose current device is `device`.
    pub(crate) fn start(operation: &'static str, device: Device) -> Result<Self> {
        let (jobs, received) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("gpucomm-helper".into())
            .spawn(move || {
                for job in received {
                    // NCCL makes the thread's device current again after a call: one that nobody chose would get a context.
                    let _ = cuda::settle(device);
                    job();
                }
            })
            .map_err(|error| cannot_start(operation, &error))?;
        Ok(Self { jobs })
    }

    /// Has the thread do `job` after what it was given before.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The thread is there as long as this value, unless a job has panicked: none does.
        let _ = self.jobs.send(Box::new(job));
    }
}

/// The error where a thread cannot be had.
pub(crate) fn cannot_start(operation: &'static str, error: &std::io::Error) -> Error {
    Error::InvalidUsage { operation, reason: format!("a thread cannot be started: {error}") }
}
