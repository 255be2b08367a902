//! The stream of the library, on which what does not block its stream is done.
//!
//! It comes after what was enqueued before on the program's stream, and nothing there comes after it, until a quiet or a barrier puts
//! that in order. In a capture it becomes part of that, and must be joined before the end: by the same.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cuda::core::capture;
use crate::cuda::core::device::Device;
use crate::cuda::core::event::Event;
use crate::cuda::core::stream::Stream;
use crate::lock::Mutex;
use crate::meet::futex::SLICE;
use crate::nvshmem::state::boot::Boot;
use crate::patience::Patience;
use crate::settings::settings;
use crate::sys::{cudaError, cudaStreamNonBlocking};
use crate::{fault, report};

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

// What was put, or is to be got, and has not come: as over a network, until somebody waits for it.
//
// Some of it, by a chance that depends on the seed of the faults only, waits for a quiet, or for [`HELD`]: a program that has forgotten
// the quiet sees old values then. This is so in strict mode, and nowhere else: it costs time.

/// How long something is held where nobody waits for it.
const HELD: Duration = Duration::from_millis(5);

/// What comes late.
pub(crate) type Delivery = Box<dyn FnOnce(&Boot) + Send>;

/// What has not come, oldest first.
#[derive(Default)]
pub(crate) struct Late {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    held: VecDeque<(Instant, Delivery)>,
    /// How many there ever were that might have been held.
    asked: u64,
    /// A thread sees to them.
    attended: bool,
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Late({})", self.inner.lock().held.len())
    }
}

impl Late {
    /// Whether the next one comes late: of what does not block, more does.
    pub(crate) fn holds(&self, boot: &Boot, blocks: bool) -> bool {
        if !settings().strict {
            return false;
        }
        let mut inner = self.inner.lock();
        inner.asked += 1;
        fault::chance(boot.me as u64, inner.asked) < if blocks { 0.25 } else { 0.5 }
    }

    /// Lets it come later.
    pub(crate) fn hold(self: &Arc<Self>, boot: &Arc<Boot>, delivery: Delivery) {
        let mut inner = self.inner.lock();
        inner.held.push_back((Instant::now() + HELD, delivery));
        if !inner.attended {
            let (late, theirs) = (self.clone(), boot.clone());
            let thread = std::thread::Builder::new().name("gpucomm-late".to_owned());
            inner.attended = thread.spawn(move || late.attend(&theirs)).is_ok();
            if !inner.attended {
                Self::empty(&mut inner, boot);
            }
        }
    }

    /// Everything has come that was asked for before.
    pub(crate) fn quiet(&self, boot: &Boot) {
        Self::empty(&mut self.inner.lock(), boot);
    }

    fn empty(inner: &mut Inner, boot: &Boot) {
        inner.held.drain(..).for_each(|(_, delivery)| delivery(boot));
    }

    /// Lets come what is held for too long, until nothing is held.
    fn attend(&self, boot: &Boot) {
        loop {
            let mut inner = self.inner.lock();
            let now = Instant::now();
            while inner.held.front().is_some_and(|(due, _)| *due <= now)
                && let Some((_, delivery)) = inner.held.pop_front()
            {
                delivery(boot);
            }
            let Some((due, _)) = inner.held.front() else {
                inner.attended = false;
                return;
            };
            let pause = *due - now;
            drop(inner);
            std::thread::sleep(pause);
        }
    }
}
