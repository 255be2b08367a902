//! Streams as the lanes of the hazard tracker.

use super::mark::Mark;
use super::stream::Stream;
use super::uses::{self, Lane};
use crate::error::Result;

/// The uses of an allocation by streams.
pub(crate) type Uses = uses::Uses<Stream>;

/// The uses of an allocation by streams, shared by threads.
pub(crate) type Tracker = super::tracker::Tracker<Stream>;

impl Lane for Stream {
    type Mark = Mark;

    #[inline]
    fn id(&self) -> usize {
        self.address()
    }

    fn mark(&self) -> Result<Mark> {
        self.mark()
    }

    fn follow(&self, mark: &Mark) -> Result<()> {
        self.in_flight().hold(self.queue(), mark)
    }

    fn reached(mark: &Mark) -> Result<bool> {
        mark.reached()
    }
}
