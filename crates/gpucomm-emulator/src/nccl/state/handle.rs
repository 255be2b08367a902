//! The numbers of communicators, which only look like pointers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Handles are multiples of this, as pointers would be.
const STEP: usize = 256;
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// A number that no handle had before.
pub(super) fn fresh() -> usize {
    NEXT.fetch_add(1, Ordering::Relaxed) * STEP
}

/// Whether some handle had this number.
pub(super) fn was_given(number: usize) -> bool {
    number.is_multiple_of(STEP) && number / STEP < NEXT.load(Ordering::Relaxed) && number != 0
}
