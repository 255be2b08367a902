//! Asks the exchange on other threads. Its store may be the user's and may block, so no call waits for it without a limit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use super::notes::{Notes, Point};
use crate::callbacks;
use crate::deadline::Deadline;
use crate::lock::Mutex;

/// How many questions may be open before [`Questions::ask_if_free`] asks no more. Each has a thread.
const OPEN: usize = 8;

/// How a PE asks the exchange.
#[derive(Clone)]
pub(super) struct Questions {
    notes: Arc<Notes>,
    work: Arc<Mutex<Work>>,
}

/// The questions that have no answer yet.
#[derive(Default)]
struct Work {
    open: usize,
    /// Meetings whose notes are to be removed. One thread removes them, one after the other.
    forgets: VecDeque<Point>,
    forgetting: bool,
}

impl Work {
    /// Takes the next meeting out of the list. The thread that removes notes ends once the list is empty.
    fn next_to_forget(&mut self) -> Option<Point> {
        let next = self.forgets.pop_front();
        self.forgetting = next.is_some();
        next
    }
}

/// A question that has no answer yet.
struct Open(Arc<Mutex<Work>>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().open -= 1;
    }
}

impl Questions {
    pub(super) fn new(notes: Notes) -> Self {
        Self { notes: Arc::new(notes), work: Arc::default() }
    }

    /// Asks on another thread, which sends the answer through the channel. A caller that asks repeatedly waits for each answer first.
    pub(super) fn begin<R: Send + 'static>(&self, question: impl FnOnce(&Notes) -> R + Send + 'static) -> Receiver<R> {
        self.work.lock().open += 1;
        let open = Open(Arc::clone(&self.work));
        let (sender, receiver) = sync_channel(1);
        let notes = Arc::clone(&self.notes);
        callbacks::run(move || {
            let answer = question(&notes);
            // Before the question counts as answered: this may be the last owner of the store.
            drop(notes);
            drop(open);
            // The caller may have given up.
            let _ = sender.send(answer);
        });
        receiver
    }

    /// Returns the answer, if it comes in time.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        within: Duration,
        question: impl FnOnce(&Notes) -> R + Send + 'static,
    ) -> Option<R> {
        self.begin(question).recv_timeout(within).ok()
    }

    /// Asks, unless so many questions are open that the store seems not to answer: every call of the library may ask this way.
    pub(super) fn ask_if_free(&self, within: Duration, question: impl FnOnce(&Notes) + Send + 'static) {
        if self.work.lock().open < OPEN {
            self.ask(within, question);
        }
    }

    /// Has the notes of these meetings removed, after all others for which that was asked.
    pub(super) fn forget(&self, points: impl IntoIterator<Item = Point>) {
        let mut work = self.work.lock();
        work.forgets.extend(points);
        if work.forgets.is_empty() || std::mem::replace(&mut work.forgetting, true) {
            return;
        }
        drop(work);
        // Does not own the store: a context that ends leaves notes behind rather than its store.
        let (notes, work) = (Arc::downgrade(&self.notes), Arc::clone(&self.work));
        callbacks::run(move || {
            // Not in the condition, where the lock would be held while the store is asked.
            let next = || work.lock().next_to_forget();
            while let Some(point) = next() {
                if let Some(notes) = notes.upgrade() {
                    notes.forget(point);
                }
            }
        });
    }

    /// How long the drop of the last owner of the store may wait for the other PEs.
    pub(super) fn lingers(&self) -> Duration {
        self.notes.lingers()
    }

    /// Waits until every question has its answer, but no longer than `within`.
    pub(super) fn finish(&self, within: Duration) {
        let is_over = || {
            let work = self.work.lock();
            Ok((work.open == 0 && !work.forgetting).then_some(()))
        };
        let _ = Deadline::after(within).until(is_over);
    }
}
