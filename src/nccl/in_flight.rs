//! How many operations are on their way.
//!
//! The driver's launch queue holds about a thousand kernels. Behind a collective that hangs it fills, the next launch
//! blocks inside the driver, and no abort can help any more. So each communicator keeps count, records an event now and
//! then, and waits for an old one, with a deadline, before it enqueues more.

use std::collections::VecDeque;

use super::inner::Inner;
use crate::cuda::{Event, Stream};
use crate::deadline::{Deadline, backoff};
use crate::error::Result;

/// Operations between two events.
const INTERVAL: u32 = 128;

/// Events that may be outstanding, each for [`INTERVAL`] operations; as many may come after the last.
const OUTSTANDING: usize = 3;

/// Operations that may be on their way.
pub(crate) const LIMIT: u64 = (OUTSTANDING as u64 + 1) * INTERVAL as u64;

/// Streams that are remembered before idle ones are forgotten.
const MANY_STREAMS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    since_event: u32,
    events: VecDeque<Event>,
    spare: Vec<Event>,
    /// The streams that were used, each once.
    streams: Vec<Stream>,
}

impl InFlight {
    /// Waits until there is room for `calls` more operations.
    #[inline]
    pub(crate) fn make_room(&mut self, inner: &Inner, operation: &'static str) -> Result<()> {
        if self.since_event < INTERVAL || self.events.len() < OUTSTANDING {
            return Ok(());
        }
        self.wait_for_oldest(inner, operation)
    }

    #[cold]
    fn wait_for_oldest(&mut self, inner: &Inner, operation: &'static str) -> Result<()> {
        let Some(event) = self.events.front() else { return Ok(()) };
        let deadline = Deadline::after(inner.timeout());
        let mut round = 0;
        while !event.query()? {
            if let Some(error) = inner.refusal(operation) {
                return Err(error);
            }
            if deadline.expired() {
                return Err(deadline.error(
                    operation,
                    format!("{} earlier operations of rank {} have not completed", self.enqueued(), inner.rank),
                ));
            }
            backoff(round);
            round += 1;
        }
        self.spare.extend(self.events.pop_front());
        Ok(())
    }

    fn enqueued(&self) -> usize {
        self.events.len() * INTERVAL as usize + self.since_event as usize
    }

    /// Counts an operation that was enqueued on `stream`.
    #[inline]
    pub(crate) fn count(&mut self, stream: &Stream) -> Result<()> {
        self.since_event += 1;
        self.remember_stream(stream);
        if self.since_event >= INTERVAL && self.events.len() < OUTSTANDING {
            return self.mark(stream);
        }
        Ok(())
    }

    /// Keeps a stream that was used, for the day that the communicator ends.
    #[inline]
    pub(crate) fn remember_stream(&mut self, stream: &Stream) {
        if self.streams.last() != Some(stream) {
            self.remember(stream);
        }
    }

    #[cold]
    fn remember(&mut self, stream: &Stream) {
        match self.streams.iter().position(|known| known == stream) {
            Some(at) => {
                let last = self.streams.len() - 1;
                self.streams.swap(at, last);
            }
            None => {
                if self.streams.len() >= MANY_STREAMS {
                    // Streams whose work is done need not be told of a later abort.
                    self.streams.retain(|known| !known.query().unwrap_or(false));
                }
                self.streams.push(stream.clone());
            }
        }
    }

    #[cold]
    fn mark(&mut self, stream: &Stream) -> Result<()> {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => Event::new(stream.device())?,
        };
        event.record(stream)?;
        self.events.push_back(event);
        self.since_event = 0;
        Ok(())
    }

    /// The streams that operations were enqueued on.
    pub(crate) fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Forgets everything, streams included.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
