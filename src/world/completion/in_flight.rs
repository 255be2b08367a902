//! A request that was enqueued on its stream.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::poller::{Poller, Watch};
use crate::cuda::{Event, Stream};
use crate::error::Result;
use crate::world::task::Task;

/// A request that is enqueued on a stream. Its owner answers it when the device is done. If it is dropped, a thread of the rank does.
pub struct InFlight {
    watch: Option<Watch>,
    poller: Arc<Poller>,
    stream: Stream,
}

/// Tells a rank to check whether a request is done. Any thread may ring it, also in a host function of a stream.
#[derive(Debug, Clone)]
pub struct Bell {
    rung: Arc<AtomicBool>,
    poller: Arc<Poller>,
}

impl Bell {
    /// Rings the bell.
    pub fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.poller.wake();
    }
}

/// The interval of polling where none was given.
const OFTEN: Duration = Duration::from_micros(100);

impl InFlight {
    /// `event` was recorded behind the request, and `position` is that of the stream before the event.
    pub(in crate::world) fn new(
        task: Arc<dyn Task>,
        (event, position): (Event, u64),
        poller: &Arc<Poller>,
        stream: &Stream,
    ) -> Self {
        let watch = Watch::new(task, event, (stream.clone(), position), poller.number());
        Self { watch: Some(watch), poller: Arc::clone(poller), stream: stream.clone() }
    }

    /// The stream that has it.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// What it is called.
    pub fn operation(&self) -> &'static str {
        self.watch.as_ref().map_or("", |watch| watch.task.meta().operation)
    }

    /// How long is left until its deadline.
    pub fn remaining(&self) -> Duration {
        self.watch.as_ref().map_or(Duration::ZERO, |watch| watch.task.meta().deadline.remaining())
    }

    /// Whether the device is done with it, well or not. Does not wait.
    ///
    /// # Errors
    /// Those of [`Event::query`].
    pub fn query(&self) -> Result<bool> {
        self.watch.as_ref().map_or(Ok(true), |watch| watch.event.query())
    }

    /// Waits on this thread until the device is done with it, or its deadline has passed, and answers.
    pub fn finish(mut self) {
        if let Some(watch) = self.watch.take() {
            self.poller.wait_for(watch);
        }
    }

    /// Has the thread of the rank look every `interval`.
    pub fn look_every(mut self, interval: Duration) {
        if let Some(watch) = self.watch.take() {
            self.poller.push(watch.every(interval));
        }
    }

    /// Has the thread of the rank look when the bell is rung. It looks now and then in any case, as what rings may be lost with the device.
    pub fn look_at_bell(mut self) -> Bell {
        let rung = Arc::new(AtomicBool::new(false));
        let bell = Bell { rung: Arc::clone(&rung), poller: Arc::clone(&self.poller) };
        if let Some(watch) = self.watch.take() {
            self.poller.push(watch.at_bell(rung));
        }
        bell
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("operation", &self.operation()).finish_non_exhaustive()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            self.poller.push(watch.every(OFTEN));
        }
    }
}
