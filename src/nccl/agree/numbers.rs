//! Which of the calls of a communicator a graph holds.

/// The numbers, in the order of all ranks, of collectives, or of messages of one pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) count: u64,
    /// Differs where others lie between: captures that are under way at once take what is issued in turns.
    pub(crate) digest: u64,
}

impl Numbers {
    pub(crate) const NONE: Self = Self { first: u64::MAX, last: 0, count: 0, digest: 0 };

    /// One more.
    pub(crate) fn add(&mut self, number: u64) {
        self.first = self.first.min(number);
        self.last = self.last.max(number);
        self.count += 1;
        let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.digest = self.digest.wrapping_add((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9));
    }
}
