//! Which of many blocks come next.

use std::sync::atomic::AtomicUsize;

/// Where the next meeting begins to look at blocks. All PEs have the same blocks, and meet as often.
#[derive(Default)]
pub(crate) struct Cursor(pub(super) AtomicUsize);
