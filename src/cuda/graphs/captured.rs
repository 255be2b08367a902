//! One capture, from its begin to what comes of it.

use std::sync::Arc;

use super::executable::Template;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::owners;
use crate::cuda::order::capture::Capture;
use crate::cuda::order::recording::{CAPTURE, Kept, Party, Recording, follow};
use crate::cuda::order::stream::Stream;
use crate::error::{Error, Result};

/// What comes of a capture.
pub(super) struct Captured {
    pub(super) template: Template,
    pub(super) memory: Vec<Kept>,
    pub(super) party: Option<Arc<dyn Party>>,
    /// What it costs in the queue of a stream.
    pub(super) cost: u64,
}

/// Captures what `f` enqueues.
pub(super) fn capture<E: From<Error>>(device: Device, f: impl FnOnce(&Stream) -> Result<(), E>) -> Result<Captured, E> {
    device.ready(CAPTURE)?;
    // Who ends graphs that are dropped in host functions.
    owners::start(CAPTURE)?;
    let capture = Arc::new(Capture::new(Box::new(Recording::default())));
    let stream = Stream::of_capture(CAPTURE, device, Arc::clone(&capture))?;
    let Some(recording) = Recording::of(&stream) else { unreachable!("it is what the capture was made with") };
    Template::begin(&stream)?;
    let under_way = UnderWay { capture: &capture, recording, stream: &stream, ended: false };
    f(&stream)?;
    Ok(under_way.end()?)
}

/// A capture that was begun, and is ended whatever happens.
struct UnderWay<'c> {
    capture: &'c Capture,
    recording: &'c Recording,
    stream: &'c Stream,
    ended: bool,
}

impl UnderWay<'_> {
    fn end(mut self) -> Result<Captured> {
        self.capture.set_over();
        let recording = self.recording;
        recording.lanes().iter().try_for_each(|lane| follow(self.stream, lane))?;
        self.ended = true;
        let ended = Template::end(self.stream);
        // The streams of the capture hold each other, which ends here.
        let (lanes, memory, party) = recording.take();
        let template = ended?;
        let cost = lanes.iter().chain([self.stream]).map(|lane| lane.in_flight().position()).sum();
        Ok(Captured { template, memory, party, cost })
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.capture.set_over();
        if !self.ended {
            drop(Template::end(self.stream));
            // The streams of the capture hold each other.
            drop(self.recording.take());
        }
        self.capture.leave();
    }
}
