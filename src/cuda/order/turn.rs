//! A turn: what one thread has at a time.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The thread that has it, or 0. Who waits for it has a deadline, and so asks again and again.
pub(super) struct Turn(AtomicUsize);

/// A turn that this thread has, until it drops this.
pub(super) struct Held<'t>(&'t Turn);

/// A number of this thread, which no other has as long as it lives.
fn me() -> usize {
    thread_local!(static ME: u8 = const { 0 });
    ME.with(|me| ptr::from_ref(me).addr())
}

impl Turn {
    pub(super) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Whether this thread has it.
    pub(super) fn is_mine(&self) -> bool {
        self.0.load(Ordering::Relaxed) == me()
    }

    /// Takes it where nobody has it.
    pub(super) fn try_take(&self) -> Option<Held<'_>> {
        let taken = self.0.compare_exchange(0, me(), Ordering::Acquire, Ordering::Relaxed);
        // Not made where it was not taken: its end gives the turn away.
        taken.is_ok().then(|| Held(self))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}
