//! Streams as the lanes of the hazard tracker.

use super::mark::Mark;
use super::ranged::RangedUses;
use super::stream::Stream;
use super::uses::{self, Lane};
#[cfg(feature = "nccl")]
use crate::cuda::devices::device::Device;
use crate::error::Result;

/// The uses of an allocation by streams.
pub(crate) type Uses = RangedUses<Stream>;

/// The uses of an allocation by streams, shared by threads.
pub(crate) type Tracker = super::tracker::Tracker<Stream>;

impl Tracker {
    /// See [`Uses::is_done`].
    pub(crate) fn is_done(&self) -> Result<bool> {
        self.change(Uses::is_done)
    }

    /// Whether all writes are done. As [`Uses::is_done`].
    #[cfg(feature = "nvshmem")]
    pub(crate) fn is_written(&self) -> Result<bool> {
        self.change(|uses| if uses.awaits_capture() { Ok(false) } else { uses.written() })
    }

    /// See [`Uses::needs_borrowed`].
    pub(crate) fn needs_borrowed(&self) -> bool {
        self.change(|uses| uses.needs_borrowed())
    }

    /// See [`Uses::let_go`].
    pub(crate) fn let_go(&self) {
        self.change(Uses::let_go);
    }
}

impl Uses {
    /// Whether all uses are done. Does not wait. What a stream has done that is being captured is not known.
    pub(crate) fn is_done(&mut self) -> Result<bool> {
        if self.awaits_capture() { Ok(false) } else { self.idle() }
    }

    /// Whether a stream would have to be marked that is being captured, and can have no mark until that is over.
    pub(crate) fn awaits_capture(&self) -> bool {
        self.unmarked().any(Stream::is_captured)
    }

    /// Returns true if a use of a stream that others may destroy has no mark.
    pub(crate) fn needs_borrowed(&self) -> bool {
        self.unmarked().any(Stream::is_borrowed)
    }

    /// When the memory is dropped: marks the uses of streams that others may destroy, as far as they can have marks now. Their handles
    /// are not needed any more then.
    pub(crate) fn let_go(&mut self) {
        self.mark_those(|stream| stream.is_borrowed());
    }
}

#[cfg(any(feature = "nccl", feature = "nvshmem"))]
impl Stream {
    /// Later work of this stream comes after all that `other`, which no capture of this crate has, was given so far.
    ///
    /// # Errors
    /// `other` is being captured, and so has no place in any order now.
    pub(crate) fn follow_all_of(&self, other: &Self) -> Result<()> {
        if other.is_idle()? { Ok(()) } else { self.follow(&Self::mark(other)?) }
    }
}

#[cfg(feature = "nccl")]
impl Stream {
    /// A new one: who has [seen](super::in_flight::InFlight::see) some of its work to be done, and uses the same memory elsewhere, does not wait for what it was
    /// given since. Every use of memory takes a lock of it.
    pub(crate) fn precise(device: Device) -> Result<Self> {
        let stream = Self::new(device)?;
        stream.in_flight().set_precise();
        Ok(stream)
    }
}

impl Lane for Stream {
    type Mark = Mark;

    #[inline]
    fn id(&self) -> usize {
        self.address()
    }

    fn mark(&self) -> Result<Mark> {
        if self.records() { Mark::in_capture(self.queue()) } else { self.mark() }
    }

    fn follow(&self, mark: &Mark) -> Result<()> {
        self.in_flight().hold(self.queue(), mark)
    }

    fn reached(mark: &Mark) -> Result<bool> {
        mark.reached()
    }

    fn stamp(&self) -> u64 {
        if self.in_flight().is_precise() { self.in_flight().position() } else { uses::NOWHERE }
    }

    fn has_passed(&self, stamp: u64) -> bool {
        self.in_flight().has_seen(stamp)
    }
}
