//! Tells the other ranks that this one has ended, by another thread. So a store that does not answer
//! holds up no end for long, and is asked again.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::callbacks;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::lock::Mutex;

/// How long a store is asked again that does not answer in time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(50);

/// How long an end waits once the ends before it have waited for this store as long as one end may.
const AGAIN: Duration = Duration::from_millis(100);

/// Answers that take less than this do not count: a store of many ends is not late for that.
const SLOW: Duration = Duration::from_millis(20);

/// How long ends that follow each other wait for all stores together.
const OF_ALL: Duration = Duration::from_secs(2);

/// After this time without a slow answer, an end has its whole time again.
const RECENT: Duration = Duration::from_secs(2);

/// What the ends of this process have waited for slow stores. Ends run on several threads, also those of one drop.
static SLOW_STORES: SlowStores = SlowStores(Mutex::new(Vec::new()));

struct SlowStores(Mutex<Vec<SlowStore>>);

/// A store for which ends have waited within [`RECENT`].
struct SlowStore {
    store: u64,
    /// How long they have waited in all.
    waited: Duration,
    last: Instant,
}

impl SlowStores {
    /// How long the next end of this `store` waits, which waits `within` for a store that answers. All ends that follow
    /// each other wait about twice as long as one of them alone, and [`OF_ALL`] for all stores together.
    fn time_left(&self, store: u64, within: Duration) -> Duration {
        let stores = self.0.lock();
        let recent = || stores.iter().filter(|slow| slow.last.elapsed() < RECENT);
        let waited = recent().find(|slow| slow.store == store).map_or(Duration::ZERO, |slow| slow.waited);
        let of_all: Duration = recent().map(|slow| slow.waited).sum();
        let floor = if waited >= 2 * within {
            Duration::ZERO
        } else if of_all >= OF_ALL {
            // A store that answers at once does so within this.
            SLOW
        } else {
            AGAIN
        };
        within.saturating_sub(waited).min(OF_ALL.saturating_sub(of_all)).max(floor.min(within))
    }

    /// An end has waited for this `store`.
    fn record_wait(&self, store: u64, waited: Duration) {
        let mut stores = self.0.lock();
        stores.retain(|slow| slow.last.elapsed() < RECENT);
        let last = Instant::now();
        match stores.iter_mut().find(|slow| slow.store == store) {
            Some(slow) => *slow = SlowStore { store, waited: slow.waited + waited, last },
            None => stores.push(SlowStore { store, waited, last }),
        }
    }
}

/// Others that are being told.
#[derive(Default)]
#[must_use = "without `wait`, the process may end before the others are told"]
pub(crate) struct Telling(Option<(u64, Receiver<Result<()>>)>);

/// Has another thread run `tell`, which asks the store of this [number](super::Exchange::store_number) and returns its answer.
pub(crate) fn tell(store: u64, tell: impl FnOnce() -> Result<()> + Send + 'static) -> Telling {
    let (told, is_told) = channel();
    callbacks::run(move || _ = told.send(tell()));
    Telling(Some((store, is_told)))
}

impl Telling {
    /// Waits until they are told, but no longer than `within`. Ends that follow each other share that time if the store
    /// answers slowly. A store that answers that it is late has used all of it, since `tell` often has the same limit.
    pub(crate) fn wait(self, within: Duration) {
        self.wait_among(&SLOW_STORES, within);
    }

    fn wait_among(self, slow_stores: &SlowStores, within: Duration) {
        let Some((store, is_told)) = self.0 else { return };
        let begin = Instant::now();
        let told = is_told.recv_timeout(slow_stores.time_left(store, within));
        let is_late = matches!(told, Ok(Err(Error::Timeout { .. })));
        let waited = if is_late { within.max(begin.elapsed()) } else { begin.elapsed() };
        if waited >= SLOW {
            slow_stores.record_wait(store, waited);
        }
    }
}

/// Asks until the store answers, for [`PATIENCE`].
pub(crate) fn persist<T>(ask: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Deadline::after(PATIENCE);
    loop {
        match ask() {
            Err(Error::Timeout { .. }) if !deadline.expired() => thread::sleep(PAUSE),
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;

    /// Asks a store that answers when the other end of `opened` is dropped.
    fn stalls(opened: &Arc<Mutex<Receiver<()>>>) -> impl FnOnce() -> Result<()> + Send + 'static {
        let opened = Arc::clone(opened);
        move || {
            let _ = opened.lock().recv();
            Ok(())
        }
    }

    #[test]
    fn only_the_first_end_waits() {
        let stores = SlowStores(Mutex::new(Vec::new()));
        let (open, opened) = channel::<()>();
        let opened = Arc::new(Mutex::new(opened));
        let within = Duration::from_secs(1);
        let begin = Instant::now();
        for _ in 0..4 {
            tell(1, stalls(&opened)).wait_among(&stores, within);
        }
        let took = begin.elapsed();
        assert!(within <= took && took < 2 * within, "{took:?}");
        // Another store answers in its own time.
        let (answered, pause) = (Arc::new(Mutex::new(false)), 3 * AGAIN);
        let other = Arc::clone(&answered);
        let slow = move || {
            thread::sleep(pause);
            *other.lock() = true;
            Ok(())
        };
        tell(2, slow).wait_among(&stores, Duration::from_secs(20));
        assert!(*answered.lock());
        drop(open);
    }

    /// A store that answers slowly, and never late, holds up many ends hardly longer than one that does not answer.
    #[test]
    fn ends_share_the_time_for_a_slow_store() {
        let stores = SlowStores(Mutex::new(Vec::new()));
        let within = Duration::from_millis(500);
        let begin = Instant::now();
        for _ in 0..40 {
            let slow = move || {
                thread::sleep(within / 2);
                Ok(())
            };
            tell(4, slow).wait_among(&stores, within);
        }
        let took = begin.elapsed();
        assert!(within <= took && took < 4 * within, "{took:?}");
        thread::sleep(RECENT);
        assert_eq!(stores.time_left(4, within), within, "it has been idle since");
    }

    /// Each end has a store of its own, none of which answers.
    #[test]
    fn ends_share_the_time_for_many_slow_stores() {
        let stores = SlowStores(Mutex::new(Vec::new()));
        let within = Duration::from_secs(1);
        let (open, opened) = channel::<()>();
        let opened = Arc::new(Mutex::new(opened));
        let begin = Instant::now();
        for store in 100..130 {
            tell(store, stalls(&opened)).wait_among(&stores, within);
        }
        let took = begin.elapsed();
        assert!(took < 2 * OF_ALL, "{took:?}");
        drop(open);
    }

    /// The limit of the question is that of the wait, and whichever of them ends first, the store is late.
    #[test]
    fn an_end_whose_question_was_too_late_makes_the_next_one_short() {
        let stores = SlowStores(Mutex::new(Vec::new()));
        let within = Duration::from_secs(1);
        let late = || Err(Deadline::after(Duration::ZERO).error("test", "a store".to_owned()));
        tell(3, late).wait_among(&stores, within);
        let begin = Instant::now();
        let (open, opened) = channel::<()>();
        let stalls = move || {
            let _ = opened.recv();
            Ok(())
        };
        tell(3, stalls).wait_among(&stores, within);
        assert!(begin.elapsed() < within, "{:?}", begin.elapsed());
        drop(open);
    }

    #[test]
    fn a_store_that_does_not_answer_is_asked_again() {
        let asked = Cell::new(0);
        let answer = persist(|| {
            asked.set(asked.get() + 1);
            let late = || Deadline::after(Duration::ZERO).error("test", "a store".to_owned());
            if asked.get() < 3 { Err(late()) } else { Ok(asked.get()) }
        });
        assert_eq!(answer.unwrap(), 3);
        let failed = persist(|| Err::<(), _>(Error::Aborted { operation: "test", reason: "".into() }));
        assert!(matches!(failed, Err(Error::Aborted { .. })));
    }
}
