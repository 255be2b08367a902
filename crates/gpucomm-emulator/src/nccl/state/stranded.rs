//! The windows that ranks took with them when they ended.

use std::sync::atomic::{AtomicU64, Ordering};

/// Windows of a communicator that are told apart, in words: more than any program registers.
const WORDS: usize = 256;

/// A bit for each window, in shared memory.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Stranded([AtomicU64; WORDS]);

impl Stranded {
    fn bit(&self, window: u64) -> (&AtomicU64, u64) {
        (&self.0[(window / 64) as usize % WORDS], 1 << (window % 64))
    }

    /// A rank ends while it still has this window.
    pub(crate) fn add(&self, window: u64) {
        let (word, bit) = self.bit(window);
        word.fetch_or(bit, Ordering::Release);
    }

    /// Whether a rank has ended while it still had this window.
    pub(crate) fn contains(&self, window: u64) -> bool {
        let (word, bit) = self.bit(window);
        word.load(Ordering::Acquire) & bit != 0
    }
}
