//! What a buffer holds of its block.

use std::ops::Deref;
use std::sync::Arc;

use super::block::Block;

/// The one handle of a block, beside what graphs have of it. Dropped, it puts the block down.
pub(crate) struct Handle {
    block: Arc<Block>,
    /// Whether the context must not be finalized while this is there, as no borrow keeps it.
    shared: bool,
}

impl Handle {
    pub(crate) fn new(block: Arc<Block>) -> Self {
        Self { block, shared: false }
    }

    /// The same, which no borrow of the context goes with.
    pub(crate) fn into_shared(mut self) -> Self {
        if !std::mem::replace(&mut self.shared, true) {
            self.block.inner.share();
        }
        self
    }
}

impl Deref for Handle {
    type Target = Arc<Block>;

    fn deref(&self) -> &Arc<Block> {
        &self.block
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.block.put_down();
        if self.shared {
            self.block.inner.unshare();
        }
    }
}
