//! The uses of the ranges of an allocation.
//!
//! An allocation begins as one part. An access to a range cuts the parts at both ends of the range where
//! other lanes use them. So accesses to disjoint ranges do not wait for each other. A part that no
//! other lane uses is not cut, and an access that writes everything makes one part of all. Programs
//! that only use whole buffers have one part.
//!
//! Each byte lies in one part, and each part is a [`Uses`], for which its rules hold. A cut copies the
//! entries of a part: what they cover stays covered on both sides. Parts become one again in two
//! ways. A lane that has waited for all parts covers them all by one entry. If there are too many
//! parts, their entries are united: an entry without a mark covers whatever its lane was given so far,
//! in every part.

use std::fmt;

use smallvec::SmallVec;

use super::uses::{Access, Lane, Uses};
use crate::error::Result;

/// How many parts an allocation has at most, besides the first. Then they are united.
const MOST: usize = 64;

/// A range of the bytes of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    begin: usize,
    end: usize,
}

impl Span {
    /// All bytes, however many there are.
    pub(crate) const ALL: Self = Self { begin: 0, end: usize::MAX };

    /// So many bytes from `begin` on.
    pub(crate) fn of(begin: usize, bytes: usize) -> Self {
        Self { begin, end: begin + bytes }
    }

    /// The smallest range that has both.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self { begin: self.begin.min(other.begin), end: self.end.max(other.end) }
    }
}

/// The last uses of the ranges of an allocation.
pub(crate) struct RangedUses<L: Lane> {
    /// The part that begins with the allocation.
    first: Uses<L>,
    /// The others, in their order.
    rest: Vec<Part<L>>,
}

struct Part<L: Lane> {
    begin: usize,
    uses: Uses<L>,
}

impl<L: Lane> RangedUses<L> {
    pub(crate) const fn new() -> Self {
        Self { first: Uses::new(), rest: Vec::new() }
    }

    /// The lane whose write of everything is the only entry, if it has no mark.
    pub(crate) fn solo(&self) -> Option<&L> {
        if self.rest.is_empty() { self.first.solo() } else { None }
    }

    /// Before an enqueue on `lane`: makes it wait for what `access` to `span` conflicts with. Returns whether it comes after
    /// what such an access to all bytes would conflict with.
    #[inline]
    pub(crate) fn order(&mut self, span: Span, access: Access, lane: &L) -> Result<bool> {
        if self.rest.is_empty() && (span == Span::ALL || self.first.is_only(lane)) {
            self.first.order(access, lane).map(|()| true)
        } else {
            self.order_parts(span, access, lane)
        }
    }

    #[cold]
    fn order_parts(&mut self, span: Span, access: Access, lane: &L) -> Result<bool> {
        self.cut(span.begin, lane);
        self.cut(span.end, lane);
        for uses in self.within(span) {
            uses.order(access, lane)?;
        }
        if span == Span::ALL && access == Access::Write {
            self.rest.clear();
            self.first.note(access, lane);
        }
        Ok(span == Span::ALL || self.rest.is_empty())
    }

    /// After an enqueue on `lane`, or an attempt.
    #[inline]
    pub(crate) fn note(&mut self, span: Span, access: Access, lane: &L) {
        if self.rest.is_empty() {
            self.first.note(access, lane);
        } else {
            self.within(span).for_each(|uses| uses.note(access, lane));
        }
    }

    /// Makes a part begin at `at`, unless only `lane` uses the bytes around.
    fn cut(&mut self, at: usize, lane: &L) {
        let next = self.rest.partition_point(|part| part.begin <= at);
        let (begin, uses) = match next.checked_sub(1) {
            None => (0, &self.first),
            Some(before) => (self.rest[before].begin, &self.rest[before].uses),
        };
        if begin == at || at == usize::MAX || uses.is_only(lane) {
            return;
        }
        if self.rest.len() == MOST {
            self.rest.drain(..).for_each(|part| self.first.unite(part.uses));
            return;
        }
        let uses = uses.clone();
        self.rest.insert(next, Part { begin: at, uses });
    }

    /// The parts that have bytes of `span`.
    fn within(&mut self, span: Span) -> impl Iterator<Item = &mut Uses<L>> {
        // As places among all parts, of which the first is at 0.
        let from = self.rest.partition_point(|part| part.begin <= span.begin);
        let to = self.rest.partition_point(|part| part.begin < span.end);
        let (from, to) = if span.begin < span.end { (from, to) } else { (1, 0) };
        let first = (from == 0).then_some(&mut self.first);
        let rest = self.rest.get_mut(from.saturating_sub(1)..to).unwrap_or_default();
        first.into_iter().chain(rest.iter_mut().map(|part| &mut part.uses))
    }

    fn all(&self) -> impl Iterator<Item = &Uses<L>> {
        std::iter::once(&self.first).chain(self.rest.iter().map(|part| &part.uses))
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Uses<L>> {
        std::iter::once(&mut self.first).chain(self.rest.iter_mut().map(|part| &mut part.uses))
    }

    /// Marks that are reached when all uses are done.
    pub(crate) fn into_marks(self) -> Result<SmallVec<[L::Mark; 1]>> {
        let mut marks = self.first.into_marks()?;
        for part in self.rest {
            marks.extend(part.uses.into_marks()?);
        }
        Ok(marks)
    }

    /// The lanes of the uses that have no mark.
    pub(crate) fn unmarked(&self) -> impl Iterator<Item = &L> {
        self.all().flat_map(Uses::unmarked)
    }

    /// Marks the uses of some lanes, where that can be done.
    pub(crate) fn mark_those(&mut self, which: impl Fn(&L) -> bool) {
        self.all_mut().for_each(|uses| uses.mark_those(&which));
    }

    /// The lanes of all uses, some perhaps several times.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &L> {
        self.all().flat_map(Uses::lanes)
    }

    /// Whether all uses are done. Does not wait.
    pub(crate) fn idle(&mut self) -> Result<bool> {
        let mut idle = true;
        for uses in self.all_mut() {
            idle &= uses.idle()?;
        }
        if idle {
            self.rest.clear();
        }
        Ok(idle)
    }

    /// Whether all writes are done. Does not wait.
    pub(crate) fn written(&mut self) -> Result<bool> {
        let mut written = true;
        for uses in self.all_mut() {
            written &= uses.written()?;
        }
        Ok(written)
    }

    #[cfg(test)]
    pub(super) fn parts(&self) -> usize {
        1 + self.rest.len()
    }
}

impl<L: Lane> fmt::Debug for RangedUses<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}
