//! What a stream was given to do that may fail behind the back of CUDA.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::work::{Fate, Origin, Origins, Work, later};
use crate::lock::{Mutex, MutexGuard};

/// Operations of communicators on a stream, and those that the stream was made to follow or whose data it has read.
///
/// A failure is told by every wait until one has told it and a communicator that is well has enqueued something since, or
/// the user accepts it. Nor is it told any more when a communicator begins here that was made after it: who works with that
/// has begun anew, and what the failed operation would have written is marked all the same.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Whether there ever were entries.
    any: AtomicBool,
    /// The id of a work of this stream; 0 for none.
    own: AtomicU32,
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    work: Arc<Work>,
    /// The last operation; `None` for a work of this stream: whatever it enqueued last.
    last: Option<u64>,
    /// See [`Origin::follows`].
    follows: bool,
    /// A wait has told the failure of operations up to this one, or that they take too long.
    told: u64,
    /// What the work had enqueued when a wait last told something.
    seen: u64,
}

impl Entry {
    fn number(&self) -> u64 {
        self.last.unwrap_or_else(|| self.work.enqueued())
    }

    /// The stream has to do with `one` too, which is of the same work.
    fn extend(&mut self, one: &Origin) {
        if let Some(last) = self.last {
            let (last, follows) = later((last, self.follows), (one.number, one.follows()));
            (self.last, self.follows) = (Some(last), follows);
        }
    }

    /// Whether it need not be asked again. A work of this stream may go on.
    fn is_over(&self) -> bool {
        self.work.is_closed() || self.last.is_some_and(|last| self.work.is_settled(last))
    }

    /// Whether it has failed, and a wait has told that.
    fn is_told(&self) -> bool {
        self.told >= self.number() && self.has_failed()
    }

    /// Whether its last operation is known to have failed.
    fn has_failed(&self) -> bool {
        self.work.has_failed(self.number())
    }
}

impl History {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock()
    }

    /// The work of a worker on this stream, whose next operation is `number`; `make` makes it where there is none.
    pub(crate) fn adopt(&self, fate: &Arc<Fate>, number: u64, make: impl FnOnce() -> Work) -> Arc<Work> {
        let mut entries = self.entries();
        let goes_on = |entry: &&Entry| entry.last.is_none() && entry.work.is_of(fate) && entry.work.reaches(number);
        if let Some(entry) = entries.iter().find(goes_on) {
            return Arc::clone(&entry.work);
        }
        // Somebody goes on, so what was told need not be told again; who begins has nothing to do with what is past.
        let past = |entry: &Entry| entry.is_told() || entry.work.failed_before(fate);
        self.forget(&mut entries, |entry| entry.is_over() || past(entry));
        let work = Arc::new(make());
        entries.push(Entry { work: Arc::clone(&work), last: None, follows: true, told: 0, seen: work.base() });
        self.any.store(true, Ordering::Release);
        self.own.store(work.id(), Ordering::Release);
        work
    }

    /// The id of a work that was adopted and is covered by every wait; 0 for none.
    #[inline]
    pub(crate) fn own(&self) -> u32 {
        self.own.load(Ordering::Acquire)
    }

    /// The stream has read what comes from `origins`.
    pub(crate) fn cover(&self, origins: &Origins) {
        self.add(origins, |_, _| true);
    }

    /// The stream was made to follow `origins`: but for what had failed before a communicator was made that works here.
    pub(crate) fn follow(&self, origins: &Origins) {
        let is_past = |entry: &Entry, one: &Origin| entry.last.is_none() && one.work.failed_before(entry.work.fate());
        self.add(origins, |entries, one| !entries.iter().any(|entry| is_past(entry, one)));
    }

    fn add(&self, origins: &Origins, which: impl Fn(&[Entry], &Origin) -> bool) {
        if origins.is_empty() {
            return;
        }
        let mut entries = self.entries();
        for one in origins.iter().filter(|one| !one.is_settled()) {
            if !which(&entries, one) {
                continue;
            }
            match entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.work, &one.work)) {
                Some(entry) => entry.extend(one),
                None => {
                    self.forget(&mut entries, Entry::is_over);
                    let (work, last) = (Arc::clone(&one.work), Some(one.number));
                    entries.push(Entry { work, last, follows: one.follows(), told: 0, seen: 0 });
                }
            }
        }
        self.any.store(true, Ordering::Release);
    }

    /// What a wait covers that begins now.
    pub(crate) fn origins(&self) -> Origins {
        let mut origins = Origins::new();
        if !self.any.load(Ordering::Acquire) {
            return origins;
        }
        let mut entries = self.entries();
        let goes_on = |entry: &Entry| entry.last.is_none() && entry.work.enqueued() > entry.seen && !entry.has_failed();
        if entries.iter().any(goes_on) {
            self.forget(&mut entries, Entry::is_told);
        }
        self.forget(&mut entries, Entry::is_over);
        entries.iter().for_each(|entry| origins.add_one(&entry.work, entry.number(), entry.follows));
        origins
    }

    /// A wait for `origins` has told what of them has failed, or, being `late`, what is not known to be done.
    pub(crate) fn tell(&self, origins: &Origins, late: bool) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        for entry in self.entries().iter_mut() {
            let told = origins.iter().find(|one| Arc::ptr_eq(&one.work, &entry.work));
            if let Some(one) = told.filter(|one| one.has_failed() || (late && !one.is_settled())) {
                entry.told = entry.told.max(one.number);
            }
            entry.seen = entry.work.enqueued();
        }
    }

    /// What has failed until now is told no more.
    pub(crate) fn accept(&self) {
        self.forget(&mut self.entries(), Entry::has_failed);
    }

    /// Drops entries.
    fn forget(&self, entries: &mut Vec<Entry>, which: impl Fn(&Entry) -> bool) {
        entries.retain(|entry| {
            let forgotten = which(entry);
            if forgotten && entry.work.id() == self.own() {
                self.own.store(0, Ordering::Release);
            }
            !forgotten
        });
    }
}
