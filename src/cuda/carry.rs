//! How operations and copies carry on where bytes come from.
//!
//! Each is called after the enqueue, or an attempt, while the memory is still borrowed for it.

use std::sync::Arc;

use super::history::History;
use super::lineage::Lineage;
use super::work::{Origins, Work};

/// What an operation does to the allocation that it writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// It reads what it writes, or leaves some of that.
    InPlace,
    /// It overwrites some bytes.
    Part,
    /// It overwrites all bytes.
    Whole,
}

/// Operation `number` of `work`, on the stream of `history`, reads and writes these; `form` is asked if it matters.
#[inline]
pub(crate) fn operation(
    (work, number): (&Arc<Work>, u64),
    reads: [Option<&Lineage>; 2],
    written: Option<&Lineage>,
    history: &History,
    form: impl FnOnce() -> Form,
) {
    let known = reads.iter().flatten().all(|lineage| lineage.is_only(work));
    if !(known && written.is_none_or(|lineage| lineage.go_on(work, number))) {
        mix((work, number), reads, written, history, form());
    }
}

/// The same where other works, or none, have a part in the memory.
#[cold]
fn mix(
    (work, number): (&Arc<Work>, u64),
    reads: [Option<&Lineage>; 2],
    written: Option<&Lineage>,
    history: &History,
    form: Form,
) {
    let mut origins = Origins::new();
    reads.into_iter().flatten().for_each(|lineage| lineage.gather(&mut origins));
    // Waits for the stream tell what became of that, though they may never look at the result.
    history.cover(&origins);
    let Some(lineage) = written else { return };
    lineage.change(|list| {
        match form {
            Form::InPlace => history.cover(list),
            Form::Part => {}
            Form::Whole => list.clear(),
        }
        list.merge(&origins);
        list.add(work, number);
    });
}

/// A copy on the stream of `history`; `whole` where it overwrites all bytes.
#[inline]
pub(crate) fn copy(from: &Lineage, to: &Lineage, whole: bool, history: &History) {
    if !to.take(from, whole, history.own()) {
        let origins = from.origins();
        history.cover(&origins);
        to.change(|list| {
            if whole {
                list.clear();
            }
            list.merge(&origins);
        });
    }
}

#[cfg(test)]
#[path = "carry_tests.rs"]
mod tests;
