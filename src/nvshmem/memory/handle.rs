//! What a buffer holds of its block.

use std::ops::Deref;
use std::sync::Arc;

use super::block::Block;
use crate::nvshmem::state::inner::Inner;

/// A handle of a block. The parts of a buffer that was split have one each.
pub(crate) struct Handle {
    // Fields are dropped in this order: the context must not be finalized before the block is put down.
    held: Arc<Held>,
    share: Option<Share>,
}

/// The only reference to a block, besides those of graphs. All handles share it: `Block` takes a second
/// reference for that of a graph. Dropping it puts the block down.
struct Held(Arc<Block>);

/// Keeps the context from being finalized, for a buffer that does not borrow it.
struct Share(Arc<Inner>);

impl Handle {
    pub(crate) fn new(block: Arc<Block>) -> Self {
        Self { held: Arc::new(Held(block)), share: None }
    }

    /// The same handle, for a buffer that does not borrow the context.
    pub(crate) fn into_shared(mut self) -> Self {
        self.share.get_or_insert_with(|| Share::new(&self.held.0.inner));
        self
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self { held: Arc::clone(&self.held), share: self.share.as_ref().map(|share| Share::new(&share.0)) }
    }
}

impl Share {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.share();
        Self(Arc::clone(inner))
    }
}

impl Deref for Handle {
    type Target = Arc<Block>;

    fn deref(&self) -> &Arc<Block> {
        &self.held.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.put_down();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.unshare();
    }
}
