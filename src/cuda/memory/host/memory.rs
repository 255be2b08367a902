//! Pinned memory of the host, and who uses it: what buffers and views of it have in common.

use std::ptr;
use std::sync::{Arc, OnceLock, Weak};

use super::block::Block;
use crate::cuda::devices::thread::{is_off_limits, outside_host_functions, refuse_in_child};
use crate::cuda::memory::basics::address::Address;
use crate::cuda::order::capture::Capture;
use crate::cuda::order::lanes::Tracker;
use crate::cuda::order::recording;
use crate::cuda::order::recording::Used;
use crate::cuda::order::stream::Stream;
use crate::cuda::works::lineage::Lineage;
use crate::cuda::works::work::Origins;
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};

/// Bytes that devices copy from and to. Dropping it does not wait.
pub(crate) struct PinnedMemory {
    /// `None` for no bytes.
    block: Option<Block>,
    bytes: usize,
    uses: Tracker,
    lineage: Lineage,
    /// Where it has moved into a graph.
    moved: OnceLock<Moved>,
}

/// What pinned memory knows that belongs to a graph.
struct Moved {
    me: Weak<PinnedMemory>,
    /// The capture that it belongs to.
    capture: Weak<Capture>,
}

// SAFETY: who shares it learns where the memory lies, and changes the uses behind their mutex.
unsafe impl Sync for PinnedMemory {}

/// Which copies are waited for.
#[derive(Clone, Copy)]
pub(crate) enum Copies {
    /// Those that write the memory.
    To,
    /// Those that read it, too.
    Of,
}

impl PinnedMemory {
    /// Wraps `cudaHostAlloc`: so many zeros.
    pub(crate) fn zeroed(bytes: usize) -> Result<Self> {
        let block = if bytes > 0 { Some(Block::new(bytes)?) } else { None };
        if let Some(block) = &block {
            // SAFETY: the block has that many bytes, and nobody else uses it.
            unsafe { block.ptr().write_bytes(0, bytes) };
        }
        Ok(Self { block, bytes, uses: Tracker::new(), lineage: Lineage::new(), moved: OnceLock::new() })
    }

    /// From now on it belongs to the graph that comes of `capture`.
    pub(crate) fn move_in(self, capture: &Arc<Capture>) -> Arc<Self> {
        let memory = Arc::new(self);
        let _ = memory.moved.set(Moved { me: Arc::downgrade(&memory), capture: Arc::downgrade(capture) });
        memory
    }

    /// Fails where `operation` on `stream` cannot use it: what belongs to a graph is used in the capture of that alone.
    pub(crate) fn check_use(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        let Some(moved) = self.moved.get() else {
            return if stream.records() { recording::kept_alive(self).map(drop) } else { Ok(()) };
        };
        if stream.capture_of().is_some_and(|capture| ptr::eq(Arc::as_ptr(capture), moved.capture.as_ptr())) {
            return Ok(());
        }
        let reason = "the pinned memory belongs to a graph: it is used within the capture that it has moved into, and by launches of that";
        Err(Error::InvalidUsage { operation, reason: reason.to_owned() })
    }

    /// Fails where the host cannot look at it by a view: what belongs to a graph is shown by that.
    pub(crate) fn check_access(&self, operation: &'static str) -> Result<()> {
        if self.moved.get().is_none() {
            return Ok(());
        }
        let reason = "the pinned memory belongs to a graph, which may be launched meanwhile: use Graph::pinned and Graph::pinned_mut";
        Err(Error::InvalidUsage { operation, reason: reason.to_owned() })
    }

    /// Where it begins; null where there is none.
    pub(crate) fn address(&self) -> Address {
        Address::new(self.block.as_ref().map_or(std::ptr::null_mut(), |block| block.ptr().cast()))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn uses(&self) -> &Tracker {
        &self.uses
    }

    /// Which operations of communicators the bytes come from.
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// What the copies wait for: what the bytes come from, and what is before them on their streams.
    fn waits_for(&self) -> Origins {
        let mut origins = self.lineage.origins();
        self.uses.lanes().iter().for_each(|stream| origins.merge(&stream.history().origins()));
        origins
    }

    /// Waits for copies, of the `shown` elements and of what lies beside them, no longer than the default timeout; then tells whether what
    /// they come from has failed.
    pub(crate) fn wait(&self, operation: &'static str, copies: Copies, shown: usize) -> Result<()> {
        refuse_in_child(operation, "CUDA")?;
        let origins = self.lineage.origins();
        let word = match copies {
            Copies::To => "to",
            Copies::Of => "of",
        };
        let what = || format!("copies {word} {shown} elements{}", self.waits_for().pending());
        let done = || match copies {
            Copies::To => self.uses.written(),
            Copies::Of => self.uses.idle(),
        };
        let deadline = Deadline::after(default_timeout());
        let look = || self.waits_for().look_around();
        let waited = deadline.poll_and_look(operation, what, look, || outside(operation, done()));
        waited.inspect_err(|error| {
            self.uses.lanes().iter().for_each(|stream| stream.give_up_all(error));
            self.waits_for().give_up(error);
        })?;
        origins.judge_within(operation, &deadline)
    }
}

impl Used for PinnedMemory {
    fn tracker(&self) -> &Tracker {
        &self.uses
    }

    fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    fn keep(&self) -> Option<Arc<dyn Used>> {
        // Otherwise the host looks at it whenever it likes, while a graph may be launched.
        self.moved.get()?.me.upgrade().map(|memory| memory as Arc<dyn Used>)
    }
}

/// Where CUDA could not be asked because this is a host function, the error of `operation` that says so: what is done with needs
/// no question.
fn outside(operation: &'static str, asked: Result<bool>) -> Result<bool> {
    asked.or_else(|error| outside_host_functions(operation).and(Err(error)))
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let uses = self.uses.take();
        let Some(block) = self.block.take() else { return };
        if is_off_limits() {
            // CUDA must not be called here.
            std::mem::forget((uses, block));
            return;
        }
        // Where the device has failed, the memory is leaked: nobody knows whether it is used.
        if let Ok(marks) = uses.into_marks() {
            block.park(marks, false);
        }
    }
}
