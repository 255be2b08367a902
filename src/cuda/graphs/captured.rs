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
    let under_way = UnderWay::begin(device)?;
    f(&under_way.stream)?;
    Ok(under_way.end()?)
}

/// A capture that was begun, and is ended whatever happens.
struct UnderWay {
    stream: Stream,
    capture: Arc<Capture>,
    ended: bool,
}

impl UnderWay {
    fn begin(device: Device) -> Result<Self> {
        device.ready(CAPTURE)?;
        // Ends graphs that are dropped in host functions.
        owners::start(CAPTURE)?;
        let capture = Arc::new(Capture::new(Box::new(Recording::default())));
        let stream = Stream::of_capture(CAPTURE, device, Arc::clone(&capture))?;
        Template::begin(&stream)?;
        Ok(Self { capture, stream, ended: false })
    }

    fn end(mut self) -> Result<Captured> {
        self.capture.set_over();
        let Some(recording) = Recording::of(&self.stream) else { unreachable!("the capture was made with one") };
        recording.lanes().iter().try_for_each(|lane| follow(&self.stream, lane))?;
        self.ended = true;
        let ended = Template::end(&self.stream);
        // The streams of the capture hold each other, which ends here.
        let (lanes, memory, party) = recording.take();
        let template = ended?;
        let cost = lanes.iter().chain([&self.stream]).map(|lane| lane.in_flight().position()).sum();
        Ok(Captured { template, memory, party, cost })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.capture.set_over();
        if !self.ended {
            drop(Template::end(&self.stream));
            // The streams of the capture hold each other.
            drop(Recording::of(&self.stream).map(Recording::take));
        }
        self.capture.leave();
    }
}
