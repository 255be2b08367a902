//! Which streams used an allocation last, so that conflicting uses come one after the other.
//!
//! An access takes two steps: [`Uses::order`] before the enqueue makes the stream wait for the conflicting accesses of
//! other streams; [`Uses::note`] after the enqueue, also after one that failed, says that the stream now uses the
//! memory. Reads conflict with writes, writes with everything. An entry holds a stream, and once another stream or the
//! host had to wait for it, a *mark* (an event) recorded on that stream. There is at most one entry per stream in each
//! of the two lists, writes and reads.
//!
//! # Why no use is ever lost
//!
//! The promise: *whatever was noted is done before anything that is ordered later and conflicts with it.* It holds
//! because each noted access, on stream `s` say, is always *covered* by an entry: an entry without a mark, of `s` or
//! of a stream that waited for the access; or one with a mark that was recorded after the access, or after such a
//! wait. `order` waits for the marks of the conflicting entries, recording those that are missing; so it waits for the
//! accesses that they cover.
//!
//! - `order(Write, s)` removes the entries that it waited for, and puts an entry for `s` in their place *at once*,
//!   under the same lock: what they covered is now covered by `s`, even if the enqueue fails and no note follows.
//! - `note` never removes an entry. It adds one for its own stream, or takes the mark of that entry away, because that
//!   mark was recorded before the access.
//! - `order(Read, s)` removes nothing. It leaves an entry for `s` with the version of the writes that it waited for,
//!   so that the next read on `s` need not wait again.
//! - A read on `s` needs no entry where `s` has one without a mark among the writes: the mark that is recorded there
//!   when needed comes after the read.
//! - What the host has seen to be done needs no mark. A lane that [says where it stands](Lane::stamp) leaves its *stamp* in its entry with whatever
//!   the entry comes to cover; once the lane has passed that, nobody waits for the entry. So who has waited for a use does not wait for what its stream was
//!   given since, as he would for a mark that is recorded now.
//!
//! # Two threads
//!
//! The two steps are not one, so another thread may come between them. The accesses that overlap in that way do not
//! conflict: an access holds its borrow from before `order` until after `note`, a write an exclusive one. Two reads,
//! then, or accesses to disjoint parts of one allocation (`split_at_mut`). Neither must wait for the other, so a mark
//! recorded too early for the other's work does no harm by itself. What matters is that both are covered afterwards.
//! Let A and B write disjoint halves: `A.order(s1)`, `B.order(s2)`, where B waits for s1, takes away A's entry and
//! leaves `[s2]`; A enqueues; `A.note(s1)` does not find its entry and adds it: `[s2, s1]`; `B.note(s2)`. A later
//! access waits for both. In any other interleaving too: B removes only what it has waited for under the lock, and A's
//! note comes after A's enqueue and leaves an entry of s1 without a mark, whatever happened before. A conflicting
//! access to A's half is ordered only after A's borrow ended, hence after A's note.
//!
//! Ranges of one allocation have entries of their own: see [`RangedUses`](super::ranged::RangedUses). No lock is held while waiting, and the waits are between streams, always for work that is
//! enqueued already, so they cannot make a cycle.

use std::fmt;

use smallvec::SmallVec;

use crate::error::Result;

/// What an access does with the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads it.
    Read,
    /// Writes it, perhaps reads it too.
    Write,
}

/// What runs work in order: a stream. A trait so that the rules above are tested on a model.
pub(crate) trait Lane: Clone {
    /// A point in the work of a lane.
    type Mark: Clone;
    /// Not 0, and the same for all handles of one lane, while one of them is alive.
    fn id(&self) -> usize;
    /// Whether two handles mean one lane.
    #[inline]
    fn same(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
    /// A point after all work that was enqueued and counted so far.
    fn mark(&self) -> Result<Self::Mark>;
    /// Work enqueued later runs after `mark` is reached.
    fn follow(&self, mark: &Self::Mark) -> Result<()>;
    /// Whether the work before `mark` is done.
    fn reached(mark: &Self::Mark) -> Result<bool>;
    /// Where it stands: all work that was enqueued and counted so far comes before. [`NOWHERE`] where that need not be known: its uses may go
    /// unnoted then.
    fn stamp(&self) -> u64;
    /// Whether the host has seen all before `stamp` to be done.
    fn has_passed(&self, stamp: u64) -> bool;
}

/// The stamp that no lane passes.
pub(crate) const NOWHERE: u64 = u64::MAX;

#[derive(Clone)]
struct Use<L: Lane> {
    lane: L,
    mark: Option<L::Mark>,
    /// Where the lane stood with what this covers.
    stamp: u64,
    /// For reads: the version of the writes that the lane has waited for.
    after: u64,
}

impl<L: Lane> Use<L> {
    fn new(lane: &L, after: u64) -> Self {
        Self { lane: lane.clone(), mark: None, stamp: lane.stamp(), after }
    }

    /// Covers what its lane was given so far, by the next mark.
    #[inline]
    fn renew(&mut self) {
        self.mark = None;
        self.stamp = self.lane.stamp();
    }

    /// Whether it is known to be done.
    fn is_past(&self) -> bool {
        self.stamp != NOWHERE && self.lane.has_passed(self.stamp)
    }

    fn mark(&mut self) -> Result<&L::Mark> {
        let mark = match self.mark.take() {
            Some(mark) => mark,
            None => self.lane.mark()?,
        };
        Ok(self.mark.insert(mark))
    }

    fn done(&mut self) -> Result<bool> {
        if self.is_past() { Ok(true) } else { L::reached(self.mark()?) }
    }
}

/// Entries of different lanes: the first without an allocation, and the others in a vector that keeps its capacity.
#[derive(Clone)]
struct List<L: Lane> {
    first: Option<Use<L>>,
    more: Vec<Use<L>>,
}

impl<L: Lane> List<L> {
    const fn new() -> Self {
        Self { first: None, more: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &Use<L>> {
        self.first.iter().chain(&self.more)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Use<L>> {
        self.first.iter_mut().chain(&mut self.more)
    }

    fn find(&mut self, lane: &L) -> Option<&mut Use<L>> {
        self.iter_mut().find(|u| u.lane.same(lane))
    }

    /// Whether no other lane than `lane` is in the list.
    fn only(&self, lane: &L) -> bool {
        self.iter().all(|u| u.lane.same(lane))
    }

    /// Covers what `other` covers as well.
    fn unite(&mut self, other: Self) {
        for entry in other.first.into_iter().chain(other.more) {
            match self.find(&entry.lane) {
                Some(known) => known.renew(),
                None => self.push(entry),
            }
        }
    }

    fn clear(&mut self) {
        self.first = None;
        self.more.clear();
    }

    fn push(&mut self, entry: Use<L>) {
        // Many streams came and went: let go of those whose work is done. One that cannot be asked stays.
        if self.more.len() >= 8 && self.more.len().is_power_of_two() {
            self.more.retain_mut(|u| !matches!(u.done(), Ok(true)));
        }
        if self.first.is_none() { self.first = Some(entry) } else { self.more.push(entry) }
    }

    /// Removes the entries whose work is done; whether none is left.
    fn sweep(&mut self) -> Result<bool> {
        let mut failed = None;
        let mut keep = |u: &mut Use<L>| match u.done() {
            Ok(done) => !done,
            Err(error) => {
                failed = Some(error);
                true
            }
        };
        if let Some(first) = &mut self.first
            && !keep(first)
        {
            self.first = None;
        }
        self.more.retain_mut(keep);
        match failed {
            Some(error) => Err(error),
            None => Ok(self.is_empty()),
        }
    }
}

/// The last writes of an allocation, and the reads since.
#[derive(Clone)]
pub(crate) struct Uses<L: Lane> {
    writes: List<L>,
    reads: List<L>,
    /// Counts the notes of writes. Ordering a write leaves no read behind that could know an old one.
    version: u64,
}

impl<L: Lane> Uses<L> {
    pub(crate) const fn new() -> Self {
        Self { writes: List::new(), reads: List::new(), version: 1 }
    }

    /// The lane whose write is the only entry, if it has no mark.
    pub(crate) fn solo(&self) -> Option<&L> {
        let alone = self.reads.is_empty() && self.writes.more.is_empty();
        self.writes.first.as_ref().filter(|u| alone && u.mark.is_none() && u.stamp == NOWHERE).map(|u| &u.lane)
    }

    /// Whether no other lane than `lane` is known.
    #[inline]
    pub(super) fn is_only(&self, lane: &L) -> bool {
        self.writes.only(lane) && self.reads.only(lane)
    }

    /// Covers what `other` covers as well.
    pub(super) fn unite(&mut self, other: Self) {
        self.writes.unite(other.writes);
        self.reads.unite(other.reads);
        // No read knows the writes of both.
        self.version = self.version.max(other.version) + 1;
        self.reads.iter_mut().for_each(|entry| entry.after = 0);
    }

    /// Before an enqueue on `lane`: makes it wait for what `access` conflicts with.
    #[inline]
    pub(crate) fn order(&mut self, access: Access, lane: &L) -> Result<()> {
        match access {
            Access::Read => {
                if self.writes.only(lane) {
                    return Ok(());
                }
                self.order_read(lane)
            }
            Access::Write => {
                if self.reads.is_empty() && self.writes.more.is_empty() && self.writes.find(lane).is_some() {
                    return Ok(());
                }
                self.order_write(lane)
            }
        }
    }

    fn order_read(&mut self, lane: &L) -> Result<()> {
        let version = self.version;
        if self.reads.find(lane).is_some_and(|u| u.after == version) {
            return Ok(());
        }
        for entry in self.writes.iter_mut().filter(|u| !u.lane.same(lane) && !u.is_past()) {
            lane.follow(entry.mark()?)?;
        }
        match self.reads.find(lane) {
            Some(entry) => entry.after = version,
            None => self.reads.push(Use::new(lane, version)),
        }
        Ok(())
    }

    fn order_write(&mut self, lane: &L) -> Result<()> {
        let all = self.writes.iter_mut().chain(self.reads.iter_mut());
        for entry in all.filter(|u| !u.lane.same(lane) && !u.is_past()) {
            lane.follow(entry.mark()?)?;
        }
        self.reads.clear();
        self.writes.clear();
        self.writes.push(Use::new(lane, 0));
        Ok(())
    }

    /// After an enqueue on `lane`, or an attempt.
    #[inline]
    pub(crate) fn note(&mut self, access: Access, lane: &L) {
        match access {
            Access::Write => {
                self.version += 1;
                match self.writes.find(lane) {
                    Some(entry) => entry.renew(),
                    None => self.writes.push(Use::new(lane, 0)),
                }
            }
            Access::Read => {
                if let Some(entry) = self.writes.find(lane).filter(|u| u.mark.is_none()) {
                    entry.renew();
                    return;
                }
                match self.reads.find(lane) {
                    Some(entry) => entry.renew(),
                    None => self.reads.push(Use::new(lane, 0)),
                }
            }
        }
    }

    /// Marks that are reached when all uses are done.
    pub(crate) fn into_marks(mut self) -> Result<SmallVec<[L::Mark; 1]>> {
        for entry in self.writes.iter_mut().chain(self.reads.iter_mut()).filter(|u| !u.is_past()) {
            entry.mark()?;
        }
        let lists = [self.writes, self.reads];
        Ok(lists.into_iter().flat_map(|list| list.first.into_iter().chain(list.more)).filter_map(|u| u.mark).collect())
    }

    /// The lanes of the uses that have no mark.
    pub(crate) fn unmarked(&self) -> impl Iterator<Item = &L> {
        self.writes.iter().chain(self.reads.iter()).filter(|entry| entry.mark.is_none()).map(|entry| &entry.lane)
    }

    /// Marks the uses of some lanes, where that can be done.
    pub(crate) fn mark_those(&mut self, which: impl Fn(&L) -> bool) {
        for entry in self.writes.iter_mut().chain(self.reads.iter_mut()).filter(|entry| which(&entry.lane)) {
            let _ = entry.mark();
        }
    }

    /// The lanes of all uses, some perhaps twice.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &L> {
        self.writes.iter().chain(self.reads.iter()).map(|entry| &entry.lane)
    }

    /// Whether all uses are done. Does not wait.
    pub(crate) fn idle(&mut self) -> Result<bool> {
        let reads = self.reads.sweep()?;
        Ok(self.writes.sweep()? && reads)
    }

    /// Whether all writes are done. Does not wait.
    pub(crate) fn written(&mut self) -> Result<bool> {
        if self.writes.is_empty() {
            return Ok(true);
        }
        // Reads folded into an entry of the writes are done when it is.
        self.writes.sweep()
    }
}

impl<L: Lane> fmt::Debug for Uses<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uses")
            .field("writes", &self.writes.iter().count())
            .field("reads", &self.reads.iter().count())
            .finish()
    }
}

#[cfg(test)]
#[path = "uses_tests.rs"]
mod tests;
