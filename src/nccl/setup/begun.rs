//! Whether this process has begun to use the network: what is asked for the whole of it comes before.

use std::sync::atomic::{AtomicBool, Ordering};

use super::determinism;

static BEGUN: AtomicBool = AtomicBool::new(false);

/// It is about to.
pub(crate) fn begin() {
    determinism::remember();
    BEGUN.store(true, Ordering::Relaxed);
}

/// Whether it has.
#[cfg_attr(not(nccl_ge_2_32), allow(dead_code))]
pub(crate) fn has_begun() -> bool {
    BEGUN.load(Ordering::Relaxed)
}
