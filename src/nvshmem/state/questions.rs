//! Questions to the exchange. Its store may be the user's, and block: another thread asks, and nobody waits for that without a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use super::notes::Notes;
use crate::callbacks;

/// How many questions may be without an answer: each has a thread.
const OPEN: usize = 8;

/// How a PE asks the exchange.
pub(super) struct Questions {
    notes: Arc<Notes>,
    open: Arc<AtomicUsize>,
}

/// A question that has no answer yet.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Questions {
    pub(super) fn new(notes: Notes) -> Self {
        Self { notes: Arc::new(notes), open: Arc::default() }
    }

    /// Has another thread ask. The answer comes through the channel, which closes if there is none.
    pub(super) fn begin<R: Send + 'static>(&self, question: impl FnOnce(&Notes) -> R + Send + 'static) -> Receiver<R> {
        let (sender, receiver) = sync_channel(1);
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let open = Open(Arc::clone(&self.open));
        if before < OPEN {
            let notes = Arc::clone(&self.notes);
            callbacks::run(move || {
                let answer = question(&notes);
                drop(open);
                // Nobody may wait any more.
                let _ = sender.send(answer);
            });
        }
        receiver
    }

    /// The answer, if it comes in time.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        within: Duration,
        question: impl FnOnce(&Notes) -> R + Send + 'static,
    ) -> Option<R> {
        self.begin(question).recv_timeout(within).ok()
    }
}
