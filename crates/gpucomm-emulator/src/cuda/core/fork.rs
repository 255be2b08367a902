//! A forked child has the memory of its parent but none of its threads, so the emulator cannot work there, as CUDA cannot.

use crate::sys::cudaError;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static WATCHED: Once = Once::new();
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// From now on children know that they are forked. Called where the first device state is made: a child that is forked
/// before that starts afresh.
pub(crate) fn watch() {
    WATCHED.call_once(|| {
        // SAFETY: the handler is a static function that only stores an atomic, which is allowed after a fork.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// The error of every call in a forked child.
pub(crate) fn check() -> Result<(), cudaError> {
    if FORKED.load(Ordering::Relaxed) { Err(cudaError::cudaErrorInitializationError) } else { Ok(()) }
}
