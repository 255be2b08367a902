//! Work of streams: what was asked for, and one run of it.
//!
//! Whatever a stream does is a value that says what was asked for, and nothing that only one run of it has. To start it is to
//! look up what a run uses, keep that for it, and give it its numbers; so it can be started again.

use super::device::Device;
use crate::emulator::races::course::{Chain, Point};
use crate::emulator::races::touches::Touching;
use crate::emulator::report;
use crate::sys::cudaError;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The name of work that runs on the host.
pub(crate) const HOST_FUNCTION: &str = "cudaLaunchHostFunc";

/// A piece of work, as it was asked for.
pub(crate) trait Work: Send + Sync + 'static {
    /// One run of it.
    type Run: Run + 'static;

    /// The function that asked for it.
    fn name(&self) -> &'static str;

    /// A run of it, which can be enqueued now. Fails where it uses what is no more.
    fn start(&self) -> Result<Self::Run, cudaError>;
}

/// One run of a piece of work. It keeps what it uses, until it is dropped.
pub(crate) trait Run: Send {
    /// Does it.
    fn run(self: Box<Self>, running: &Running);

    /// Tells which memory it will read and write.
    fn tell<'a>(&'a self, _tell: &mut dyn FnMut(Touching<'a>)) {}

    /// The runs that it comes after, and before, on whatever streams they are.
    fn chain(&self) -> Option<&Chain> {
        None
    }

    /// It is enqueued at that point.
    fn place(&mut self, _at: &Point) {}
}

impl<F: FnOnce(&Running) + Send> Run for F {
    fn run(self: Box<Self>, running: &Running) {
        self(running);
    }
}

/// What work knows about where it runs.
#[derive(Debug)]
pub(crate) struct Running {
    device: &'static Device,
}

impl Running {
    /// Makes `error` the sticky error of the device: every later call on it returns that.
    pub fn fail(&self, error: cudaError) {
        self.device.fail(error);
    }

    /// Whether waiting has lost its purpose, because the device has failed.
    pub fn cancelled(&self) -> bool {
        self.device.check().is_err()
    }
}

/// A run that waits for its turn on a device.
pub(crate) struct Step {
    pub device: &'static Device,
    pub name: &'static str,
    pub run: Box<dyn Run>,
}

impl Step {
    /// Whether it has a place in the launch queue.
    pub fn takes_an_entry(&self) -> bool {
        self.name != HOST_FUNCTION
    }

    /// Does the work, or drops it, once the device has failed.
    pub fn perform(self) {
        let Self { device, name, run } = self;
        let running = Running { device };
        device.begin_work(name);
        // Also around the drop of work that does not run: it may own anything.
        let done = catch_unwind(AssertUnwindSafe(|| if running.cancelled() { drop(run) } else { run.run(&running) }));
        if let Err(payload) = done {
            // What was thrown may itself panic when it is dropped.
            std::mem::forget(payload);
            report::violation(format!("{name} panicked on a stream of device {}", device.ordinal));
            running.fail(cudaError::cudaErrorLaunchFailure);
        }
    }
}
