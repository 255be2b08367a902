//! A turn: many threads share it, or one has it alone.

use std::sync::atomic::{AtomicU32, Ordering};

/// Held by one thread alone.
const ALONE: u32 = u32::MAX;

/// Who waits for it has a deadline, and so asks again and again.
pub(super) struct Turn {
    /// How many share it, or that somebody has it alone.
    held: AtomicU32,
    /// How many want it alone.
    awaited: AtomicU32,
}

/// A share, until this is dropped.
pub(super) struct Share<'t>(&'t Turn);

/// Nobody else has a share, until this is dropped.
pub(super) struct Alone<'t>(&'t Turn);

/// Those who come give way to whoever waits to have it alone, until this is dropped.
pub(super) struct Awaiting<'t>(&'t Turn);

impl Turn {
    pub(super) const fn new() -> Self {
        Self { held: AtomicU32::new(0), awaited: AtomicU32::new(0) }
    }

    /// A share, where nobody has it alone.
    pub(super) fn try_share(&self) -> Option<Share<'_>> {
        let one_more = |shares| if shares == ALONE { None } else { Some(shares + 1) };
        let shared = self.held.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more);
        // Not made where it was not taken: its end gives one back.
        shared.is_ok().then(|| Share(self))
    }

    /// The turn alone, where nobody has a share.
    pub(super) fn try_alone(&self) -> Option<Alone<'_>> {
        let taken = self.held.compare_exchange(0, ALONE, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Alone(self))
    }

    /// Whether somebody waits to have it alone.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }

    pub(super) fn awaiting(&self) -> Awaiting<'_> {
        self.awaited.fetch_add(1, Ordering::Relaxed);
        Awaiting(self)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.held.store(0, Ordering::Release);
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Ordering::Relaxed);
    }
}
