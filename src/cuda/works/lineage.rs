//! Which operations of communicators the bytes of an allocation come from.
//!
//! One word says it as long as they all are of one [`Work`]: its id and the number of the last operation, relative to the
//! first. To go on is one compare and exchange then. Everything else is behind a mutex, the works themselves too, which
//! live as long as something comes from them.
//!
//! | word | list |
//! |---|---|
//! | 0 | empty |
//! | id, number | the work with this id alone; its number stands in the word |
//! | id, 0 | the same work, of which nothing is left: all was overwritten by others |
//! | `MANY` | holds all there is |
//! | `UNKNOWN` | empty, for good: nobody keeps where these bytes come from |
//!
//! # Two threads
//!
//! Halves of one allocation may be written at the same time, so no change may be lost. Who changes the list holds the
//! mutex, and puts `MANY` into the word before it looks at the list, which nobody replaces without the mutex. Who goes past
//! the mutex exchanges a word with a work's id for one with the same id, and so loses nothing. What replaces or clears is a
//! write of the whole allocation, and excludes other writers by its borrow.

use std::sync::atomic::{AtomicU64, Ordering};

use super::work::{Origins, Work, any_failures};
use crate::deadline::{Deadline, default_timeout};
use crate::lock::{Mutex, MutexGuard};

/// The list holds more than the word could say.
const MANY: u64 = 1;

/// Nothing is said of these bytes. No work has the id 0, so nobody goes on here.
const UNKNOWN: u64 = 2;

const NUMBER: u64 = u32::MAX as u64;

/// The word for the operations of `work` up to `number`, if one can say it.
#[inline]
fn word_of(work: &Work, number: u64) -> Option<u64> {
    let offset = number.wrapping_sub(work.base());
    (work.id() != 0 && offset <= NUMBER).then_some((u64::from(work.id()) << 32) | offset)
}

/// Whether `word` is of the work with this id.
#[inline]
fn is_of(word: u64, id: u32) -> bool {
    id != 0 && word >> 32 == u64::from(id)
}

/// A place where another thread may come between; in tests one is let in.
#[inline]
fn between() {
    #[cfg(test)]
    if fastrand::bool() {
        std::thread::yield_now();
    }
}

/// Where the bytes of an allocation come from.
#[derive(Debug)]
pub(crate) struct Lineage {
    word: AtomicU64,
    list: Mutex<Origins>,
}

impl Lineage {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0), list: Mutex::new(Origins::new()) }
    }

    /// Of memory that others write to and read as well, and of which nothing is kept.
    pub(crate) fn unknown() -> Self {
        Self { word: AtomicU64::new(UNKNOWN), list: Mutex::new(Origins::new()) }
    }

    /// Whether nothing is kept here.
    #[inline]
    pub(crate) fn is_unknown(&self) -> bool {
        self.word.load(Ordering::Relaxed) == UNKNOWN
    }

    /// Whether nothing comes from any operation.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.word.load(Ordering::Acquire) & NUMBER == 0
    }

    /// Whether nothing comes from operations of other works than `work`.
    #[inline]
    pub(crate) fn is_only(&self, work: &Work) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & NUMBER == 0 || is_of(word, work.id())
    }

    /// Operation `number` of `work` writes some of the bytes; false where only [`Lineage::change`] can say so.
    #[inline]
    pub(crate) fn go_on(&self, work: &Work, number: u64) -> bool {
        let old = self.word.load(Ordering::Acquire);
        between();
        word_of(work, number).is_some_and(|new| {
            old >> 32 == new >> 32 && self.word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// The word, where nothing comes from operations of other works than the one with id `own`; 0 for nothing.
    #[inline]
    pub(crate) fn own(&self, own: u32) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        if word & NUMBER == 0 { Some(0) } else { is_of(word, own).then_some(word) }
    }

    /// Some bytes, or all, are overwritten by what comes from the operations of which `word` was said elsewhere; false where
    /// only [`Lineage::change`] can say so: unless all of them, and those here, are of the work with id `own`.
    #[inline]
    pub(crate) fn take(&self, word: u64, whole: bool, own: u32) -> bool {
        let old = self.word.load(Ordering::Acquire);
        between();
        let new = if whole { word } else { word.max(old) };
        is_of(word, own)
            && is_of(old, own)
            && !(whole && any_failures())
            && self.word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// What `word` stood for when it was said here, while nothing is cleared; what has been settled since is left out.
    pub(crate) fn origins_of(&self, word: u64) -> Origins {
        let mut origins = Origins::new();
        if let Some(one) = self.lock().iter().find(|one| is_of(word, one.work.id())) {
            origins.add_one(&one.work, one.work.base() + (word & NUMBER), one.follows());
        }
        origins
    }

    /// The user takes the bytes as they are. Waits until they change no more: no longer than the default timeout.
    pub(crate) fn accept(&self) {
        self.origins().wait_until_gone(&Deadline::after(default_timeout()));
        self.change(Origins::clear);
    }

    /// All bytes are overwritten by what comes from no operation.
    #[inline]
    pub(crate) fn overwrite(&self) {
        let word = self.word.load(Ordering::Acquire);
        if word == MANY || (word & NUMBER != 0 && any_failures()) {
            self.change(Origins::overwrite);
        } else if word != 0 && word != UNKNOWN {
            self.word.store(word & !NUMBER, Ordering::Release);
        }
    }

    /// Adds what is not settled to `origins`.
    pub(crate) fn gather(&self, origins: &mut Origins) {
        if !self.is_empty() {
            let mut list = self.lock();
            let word = self.word.load(Ordering::Acquire);
            self.refresh(&mut list, word);
            origins.merge(&list);
        }
    }

    /// All there is that is not settled.
    pub(crate) fn origins(&self) -> Origins {
        let mut origins = Origins::new();
        self.gather(&mut origins);
        origins
    }

    fn lock(&self) -> MutexGuard<'_, Origins> {
        self.list.lock()
    }

    /// Brings what `word` says into the list.
    fn refresh(&self, list: &mut Origins, word: u64) {
        if word & NUMBER == 0 {
            list.clear();
        } else if word != MANY
            && let Some(one) = list.single()
        {
            one.number = one.work.base() + (word & NUMBER);
        }
    }

    /// Changes the list, and has the word say it again if it can.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Origins)) {
        if self.is_unknown() {
            return;
        }
        let mut list = self.lock();
        let word = self.word.swap(MANY, Ordering::AcqRel);
        self.refresh(&mut list, word);
        between();
        change(&mut list);
        let word = match list.single() {
            Some(one) => word_of(&one.work, one.number).unwrap_or(MANY),
            None => MANY * u64::from(!list.is_empty()),
        };
        self.word.store(word, Ordering::Release);
    }
}
