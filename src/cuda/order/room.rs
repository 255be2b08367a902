//! Waiting for room in the queue of a stream.

use std::time::Duration;

use super::in_flight::ENTRY;
use super::later;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::shared_deadline::SharedDeadline;

impl Stream {
    /// Before an enqueue: waits until what is on its way leaves room for `cost`, no longer than `timeout`, and only while
    /// `refusal` says nothing. No lock that an abort needs may be held. Fails within host functions, and
    /// while the stream is being captured.
    #[inline]
    pub(crate) fn make_room(
        &self,
        cost: u64,
        operation: &'static str,
        timeout: impl FnOnce() -> Duration,
        refusal: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        self.ready(operation)?;
        if self.in_flight().has_room(cost) { Ok(()) } else { self.wait_for_room(cost, operation, timeout, refusal) }
    }

    /// As [`Stream::make_room`], for what may become part of a graph: there is room in a capture of this crate.
    #[inline]
    pub(crate) fn room_or_part(
        &self,
        cost: u64,
        operation: &'static str,
        timeout: impl FnOnce() -> Duration,
        refusal: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        match self.capture_of() {
            None => self.make_room(cost, operation, timeout, refusal),
            Some(_) => self.part_of_capture(operation),
        }
    }

    /// Fails where this thread cannot add `operation` to the capture of this stream, if it has one.
    #[cold]
    pub(crate) fn part_of_capture(&self, operation: &'static str) -> Result<()> {
        self.device().ready(operation)?;
        self.capture_of().map_or(Ok(()), |capture| capture.check(operation))
    }

    /// Fails where the stream was lent to the closure of a capture: `operation` cannot be part of one.
    pub(crate) fn no_part_of_capture(&self, operation: &'static str) -> Result<()> {
        self.capture_of().map_or(Ok(()), |capture| Err(capture.refusal(operation)))
    }

    /// Before an enqueue that takes one place; see [`Stream::make_room`].
    #[inline]
    pub(crate) fn room_for_one(&self, operation: &'static str, timeout: impl FnOnce() -> Duration) -> Result<()> {
        self.make_room(ENTRY, operation, timeout, || None)
    }

    /// Whether there is room for so many places, as far as can be said without a look at the device.
    #[cfg(feature = "nvshmem")]
    #[inline]
    pub(crate) fn has_room_for(&self, places: usize) -> bool {
        self.in_flight().has_room(places as u64 * ENTRY)
    }

    /// As [`Stream::room_or_part`], for so many places.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn make_room_for(
        &self,
        places: usize,
        operation: &'static str,
        timeout: impl FnOnce() -> Duration,
        refusal: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        self.room_or_part(places as u64 * ENTRY, operation, timeout, refusal)
    }

    #[cold]
    fn wait_for_room(
        &self,
        cost: u64,
        operation: &'static str,
        timeout: impl FnOnce() -> Duration,
        refusal: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        let deadline = SharedDeadline::within(timeout());
        let what = || {
            let (places, device) = (self.in_flight().places(), self.device());
            let pending = self.history().origins().pending();
            format!("earlier work on a stream of {device}, which has taken {places} places of its queue{pending}")
        };
        let look = || self.history().origins().look_around();
        deadline
            .poll_and_look(operation, what, look, || match self.in_flight().advance(self.queue(), cost)? {
                true => Ok(true),
                false => refusal().map_or(Ok(false), Err),
            })
            .inspect_err(|error| {
                self.give_up_all(error);
                self.history().origins().give_up(error);
            })?;
        // It may have begun while this waited.
        self.not_captured(operation)?;
        later::retry(self);
        Ok(())
    }
}
