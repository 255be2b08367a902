//! Work of streams: what was asked for, and one run of it.
//!
//! Whatever a stream does is a value that says what was asked for, and nothing that only one run of it has. To start it is to
//! look up what a run uses, keep that for it, and give it its numbers; so it can be started again.

use super::device::Device;
use crate::races::Touching;
use crate::races::{Chain, Point};
use crate::report;
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

    /// What no update of a graph may change, as text: nothing, where it may change whatever a call says.
    fn fixed(&self) -> String {
        String::new()
    }

    /// The bytes of local memory that a thread of its kernel needs.
    fn local_memory(&self) -> usize {
        0
    }

    /// A run of it, which can be enqueued now. Fails where it uses what is no more.
    fn start(&self) -> Result<Self::Run, cudaError>;
}

/// One run of a piece of work. It keeps what it uses, until it is dropped.
pub(crate) trait Run: Send {
    /// Does it.
    fn run(self: Box<Self>, running: &Running);

    /// Whether it takes less time than the thread of its stream needs to wake up, and can be attempted.
    fn is_light(&self) -> bool {
        false
    }

    /// Goes on with it as far as that needs no wait: what is left, if it is not done.
    fn attempt(self: Box<Self>, running: &Running) -> Option<Box<dyn Run>>
    where
        Self: 'static,
    {
        self.run(running);
        None
    }

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
    /// Somebody has attempted it.
    begun: bool,
}

impl Step {
    pub fn new(device: &'static Device, name: &'static str, run: Box<dyn Run>) -> Self {
        Self { device, name, run, begun: false }
    }

    /// Whether it can be attempted, and is done soon.
    pub fn is_light(&self) -> bool {
        self.run.is_light()
    }

    /// Whether it has a place in the launch queue.
    pub fn takes_an_entry(&self) -> bool {
        self.name != HOST_FUNCTION
    }

    /// Does the work, or drops it, once the device has failed.
    pub fn perform(self) {
        let begun = self.begun;
        if !begun {
            self.device.begin_work(self.name);
        }
        self.guarded(begun, |run, running| {
            run.run(running);
            None
        });
    }

    /// Goes on with the work, on a thread that is not that of the stream, as far as that needs no wait: what is left, if it is not done.
    pub fn attempt(mut self) -> Option<Self> {
        let begun = std::mem::replace(&mut self.begun, true);
        if !begun {
            self.device.begin_work(self.name);
        }
        let (device, name) = (self.device, self.name);
        let run = report::during(name, || self.guarded(begun, |run, running| run.attempt(running)))?;
        Some(Self { device, name, run, begun: true })
    }

    /// Has `act` do something with the work, or drops it, once the device has failed; what was `begun` before sees to its end itself, for which
    /// others may wait.
    fn guarded(
        self,
        begun: bool,
        act: impl FnOnce(Box<dyn Run>, &Running) -> Option<Box<dyn Run>>,
    ) -> Option<Box<dyn Run>> {
        let Self { device, name, run, .. } = self;
        let running = Running { device };
        // Also around the drop of work that does not run: it may own anything.
        let done =
            catch_unwind(AssertUnwindSafe(|| if running.cancelled() && !begun { None } else { act(run, &running) }));
        done.unwrap_or_else(|payload| {
            // To drop the payload of a panic may panic again.
            std::mem::forget(payload);
            report::violation(format!("{name} panicked on a stream of device {}", device.ordinal));
            running.fail(cudaError::cudaErrorLaunchFailure);
            None
        })
    }
}
