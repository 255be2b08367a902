//! The ways there are.

use std::time::Duration;

use super::{Completion, InFlight};

/// A thread of the rank asks the device again and again. The default, every 50 µs.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use gpucomm::{Device, ReduceOp};
/// use gpucomm::world::{World, WorldOptions, completion::Polling};
///
/// # fn main() -> gpucomm::Result<()> {
/// let completion = Arc::new(Polling::new().with_interval(Duration::from_micros(20)));
/// let options = WorldOptions::new().with_completion(completion).with_timeout(Duration::from_secs(30));
/// let world = World::new_with(&Device::all()?, &options)?;
/// world.barrier().wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polling {
    interval: Duration,
}

impl Polling {
    /// Polls every 50 µs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long the thread sleeps between two looks: 20 ms at most, so that deadlines are
    /// kept. The deadline is that of the request.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }
}

impl Default for Polling {
    fn default() -> Self {
        Self { interval: Duration::from_micros(50) }
    }
}

impl Completion for Polling {
    fn watch(&self, work: InFlight) {
        work.look_every(self.interval);
    }
}

/// The device calls the host ([`Stream::launch_host`](crate::Stream::launch_host)), and a thread of the rank looks what came of it. Costs no processor while the
/// device is at work, and the device some microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostCallback;

impl Completion for HostCallback {
    fn watch(&self, work: InFlight) {
        let stream = work.stream().clone();
        let bell = work.look_at_bell();
        let other = bell.clone();
        if stream.launch_host(move || bell.ring()).is_err() {
            // The look says what is wrong.
            other.ring();
        }
    }
}

/// The thread of the rank waits, and takes no other request meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Blocking;

impl Completion for Blocking {
    fn watch(&self, work: InFlight) {
        work.finish();
    }
}
