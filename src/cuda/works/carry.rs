//! How operations and copies carry on where bytes come from.
//!
//! That takes two steps. *Before* the stream is ordered behind those who wrote what is read, it is asked where that comes
//! from; *after* the enqueue, or an attempt, what is written is said to come from there, while both are still borrowed. So
//! whatever is said of memory, or of a stream, was there before the stream was ordered, and the stream comes after it: an
//! operation is noted in the uses of its memory before it is carried on there.
//!
//! A stream that uses some bytes of an allocation need not come after those who write other bytes. What it carries on has their
//! operations as origins too, of which it then knows only whether they have failed: see [`Origin::follows`](super::work::Origin::follows).
//!
//! In between another thread may write other parts of the same memory. Whoever waits for this stream knows nothing of that,
//! and so must not find it well.

use std::ptr;
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

/// Whether this comes from no operations but those of `work`, as far as there is one.
#[inline]
pub(crate) fn is_own(work: Option<&Work>, lineage: &Lineage) -> bool {
    work.map_or_else(|| lineage.is_empty(), |work| lineage.is_only(work))
}

/// Before an operation on the stream of `history`: what these come from, but for operations of `work`, to which it will belong, if that
/// is known.
#[inline]
pub(crate) fn reads<const N: usize>(
    work: Option<&Work>,
    history: &History,
    lineages: [Option<&Lineage>; N],
) -> Option<Origins> {
    let is_own = |lineage: &Option<&Lineage>| lineage.is_none_or(|lineage| is_own(work, lineage));
    if lineages.iter().all(is_own) { None } else { gather(work, history, lineages) }
}

#[cold]
fn gather<const N: usize>(work: Option<&Work>, history: &History, lineages: [Option<&Lineage>; N]) -> Option<Origins> {
    let mut origins = Origins::new();
    for lineage in lineages.into_iter().flatten().filter(|lineage| !is_own(work, lineage)) {
        if !lineage.is_unknown() {
            lineage.gather(&mut origins);
            continue;
        }
        for one in history.origins().iter().filter(|one| work.is_none_or(|work| !ptr::eq(&*one.work, work))) {
            origins.add_one(&one.work, one.number, one.follows());
        }
    }
    (!origins.is_empty()).then_some(origins)
}

/// Where something comes from that is read on the stream of `history`: where nothing is kept, from all that the stream comes after.
pub(crate) fn origins(lineage: &Lineage, history: &History) -> Origins {
    if lineage.is_unknown() { history.origins() } else { lineage.origins() }
}

/// After an operation, number `number` of `work` on the stream of `history`: it has read what comes from `read`, and
/// written; `form` is asked if it matters.
#[inline]
pub(crate) fn operation(
    (work, number): (&Arc<Work>, u64),
    read: Option<&Origins>,
    written: Option<&Lineage>,
    history: &History,
    form: impl FnOnce() -> Form,
) {
    if !(read.is_none() && written.is_none_or(|lineage| lineage.go_on(work, number))) {
        mix((work, number), read, written, history, form());
    }
}

/// The same where other works, or none, have a part in the memory.
#[cold]
fn mix(
    (work, number): (&Arc<Work>, u64),
    read: Option<&Origins>,
    written: Option<&Lineage>,
    history: &History,
    form: Form,
) {
    // Waits for the stream tell what became of that, though they may never look at the result.
    read.into_iter().for_each(|read| history.cover(read));
    let Some(lineage) = written else { return };
    lineage.change(|list| {
        if form == Form::Whole {
            list.overwrite();
        }
        read.into_iter().for_each(|read| list.merge(read));
        list.add(work, number);
    });
}

/// What a copy reads comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// No operation.
    Nothing,
    /// Operations of a work of the stream, by the word of the lineage.
    Own(u64),
    Others(Origins),
}

impl Source {
    /// Before a copy on the stream of `history`.
    #[inline]
    pub(crate) fn of(from: &Lineage, history: &History) -> Self {
        match from.own(history.own()) {
            None => Self::Others(origins(from, history)),
            Some(0) => Self::Nothing,
            Some(word) => Self::Own(word),
        }
    }

    /// The copy may not come after those who wrote other bytes of the memory.
    pub(crate) fn beside_others(mut self) -> Self {
        if let Self::Others(origins) = &mut self {
            origins.follow_nothing();
        }
        self
    }

    /// After the copy from `from` to `to`; `whole` where it overwrites all bytes.
    #[inline]
    pub(crate) fn carry(self, from: &Lineage, to: &Lineage, whole: bool, history: &History) {
        match self {
            Self::Nothing if whole => to.overwrite(),
            Self::Nothing => {}
            Self::Own(word) if to.take(word, whole, history.own()) => {}
            Self::Own(word) => merge(&from.origins_of(word), to, whole, history),
            Self::Others(origins) => merge(&origins, to, whole, history),
        }
    }
}

#[cold]
fn merge(origins: &Origins, to: &Lineage, whole: bool, history: &History) {
    history.cover(origins);
    to.change(|list| {
        if whole {
            list.overwrite();
        }
        list.merge(origins);
    });
}

/// After work of others that may have carried what comes from `origins` to any of the bytes of `to`.
#[inline]
pub(crate) fn mingle(origins: &Origins, to: &Lineage) {
    if !origins.is_empty() {
        to.change(|list| list.merge(origins));
    }
}

#[cfg(test)]
#[path = "carry_tests.rs"]
mod tests;
