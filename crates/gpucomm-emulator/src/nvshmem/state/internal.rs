//! The stream of the library, on which what does not block its stream is done.
//!
//! It comes after what was enqueued before on the program's stream, and nothing there comes after it, until a quiet or a barrier puts
//! that in order. In a capture it becomes part of that, and must be joined before the end: by the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cuda::core::capture;
use crate::cuda::core::device::Device;
use crate::cuda::core::event::Event;
use crate::cuda::core::stream::Stream;
use crate::meet::futex::SLICE;
use crate::patience::Patience;
use crate::report;
use crate::sys::{cudaError, cudaStreamNonBlocking};

/// The stream, and whether it has work that nothing comes after.
#[derive(Debug)]
pub(crate) struct Internal {
    pub(crate) stream: Arc<Stream>,
    event: Event,
    is_active: AtomicBool,
}

impl Internal {
    pub(crate) fn new(device: &'static Device) -> Self {
        Self {
            stream: Stream::new(device, cudaStreamNonBlocking, 0),
            event: Event::new(device, false),
            is_active: AtomicBool::new(false),
        }
    }

    /// What is enqueued here now comes after what `stream` has.
    pub(crate) fn follow(&self, stream: &Arc<Stream>) -> Result<(), cudaError> {
        self.event.record(stream)?;
        self.event.hold(&self.stream)?;
        self.is_active.store(true, Ordering::Release);
        Ok(())
    }

    /// What is enqueued on `stream` now comes after what this one has.
    pub(crate) fn lead(&self, stream: &Arc<Stream>) -> Result<(), cudaError> {
        if self.is_active.swap(false, Ordering::AcqRel) {
            self.event.record(&self.stream)?;
            self.event.hold(stream)?;
        }
        Ok(())
    }

    /// The host waits for what this one has.
    pub(crate) fn wait(&self) {
        if !self.is_active.swap(false, Ordering::AcqRel) {
            return;
        }
        if capture::number(&self.stream.line).is_some() {
            let text = "the host waits for transfers that a stream capture has written down, expected nvshmemx_quiet_on_stream";
            return report::violation(text);
        }
        let last = self.stream.line.last();
        let mut patience = Patience::new();
        while !last.wait_for(SLICE) {
            patience.check(|| format!("{}, for transfers that stand on streams of the program,", report::call()));
        }
        last.see();
    }
}

impl Drop for Internal {
    /// What was enqueued is still done.
    fn drop(&mut self) {
        self.stream.close();
    }
}
