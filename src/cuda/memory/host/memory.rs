//! Pinned memory of the host, and who uses it: what buffers and views of it have in common.

use super::block::Block;
use crate::cuda::devices::thread::{in_host_function, outside_host_functions};
use crate::cuda::memory::basics::address::Address;
use std::sync::Arc;

use crate::cuda::order::lanes::Tracker;
use crate::cuda::order::recording::Used;
use crate::cuda::works::lineage::Lineage;
use crate::cuda::works::work::Origins;
use crate::deadline::{Deadline, default_timeout};
use crate::error::Result;

/// Bytes that devices copy from and to. Dropping it does not wait.
pub(crate) struct PinnedMemory {
    /// `None` for no bytes.
    block: Option<Block>,
    bytes: usize,
    uses: Tracker,
    lineage: Lineage,
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
        Ok(Self { block, bytes, uses: Tracker::new(), lineage: Lineage::new() })
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
        deadline.poll_and_look(operation, what, look, || outside(operation, done()))?;
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
        // The host looks at it whenever it likes, while a graph may be launched.
        None
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
        if in_host_function() {
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
