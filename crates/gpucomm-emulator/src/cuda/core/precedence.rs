//! Which pieces of a plan come before which, also by way of others.

use super::plan::Plan;

/// For each piece of a plan, what comes before it.
pub(crate) struct Precedence(Vec<Box<[u64]>>);

impl Precedence {
    /// Of all pieces of `plan`.
    pub(crate) fn of(plan: &Plan) -> Self {
        let words = plan.len().div_ceil(64);
        let mut all: Vec<Box<[u64]>> = Vec::with_capacity(plan.len());
        for node in 0..plan.len() {
            let mut before = vec![0; words].into_boxed_slice();
            for &earlier in plan.after(node) {
                before[earlier / 64] |= 1 << (earlier % 64);
                before.iter_mut().zip(&all[earlier]).for_each(|(word, more)| *word |= more);
            }
            all.push(before);
        }
        Self(all)
    }

    /// Whether `one` comes before `other`.
    pub(crate) fn precedes(&self, one: usize, other: usize) -> bool {
        self.0[other][one / 64] >> (one % 64) & 1 != 0
    }

    /// Whether one of both comes before the other, or both are the same.
    pub(crate) fn has(&self, one: usize, other: usize) -> bool {
        one == other || self.precedes(one.min(other), one.max(other))
    }
}
