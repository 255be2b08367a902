//! Tells the other ranks that this one has ended, by another thread. So a store that does not answer
//! holds up no end for long, and is asked again.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
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

/// How long an end waits where another end of this process has waited in vain within [`RECENT`].
const AGAIN: Duration = Duration::from_millis(100);
const RECENT: Duration = Duration::from_secs(2);

/// The stores for which an end has waited in vain within [`RECENT`], by their numbers, and when. Ends run on several threads, also those
/// of one drop.
static LATE: Mutex<Vec<(usize, Instant)>> = Mutex::new(Vec::new());

/// Others that are being told.
#[derive(Default)]
#[must_use = "without `wait`, the process may end before the others are told"]
pub(crate) struct Telling(Option<(usize, Receiver<Result<()>>)>);

/// Has another thread run `tell`, which asks the store of this [number](super::Exchange::store_number) and returns its answer.
pub(crate) fn tell(store: usize, tell: impl FnOnce() -> Result<()> + Send + 'static) -> Telling {
    let (told, is_told) = channel();
    callbacks::run(move || _ = told.send(tell()));
    Telling(Some((store, is_told)))
}

impl Telling {
    /// Waits until they are told, but no longer than `within`. If several ends follow each other, only the first one waits
    /// so long for a store. A store that answers that it is late counts as late, since `tell` often has the same limit.
    pub(crate) fn wait(self, within: Duration) {
        let Some((store, is_told)) = self.0 else { return };
        let was_late = LATE.lock().iter().any(|(known, last)| *known == store && last.elapsed() < RECENT);
        let within = if was_late { AGAIN.min(within) } else { within };
        if matches!(is_told.recv_timeout(within), Err(RecvTimeoutError::Timeout) | Ok(Err(Error::Timeout { .. }))) {
            let mut late = LATE.lock();
            late.retain(|(known, last)| *known != store && last.elapsed() < RECENT);
            late.push((store, Instant::now()));
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

    use super::*;

    #[test]
    fn only_the_first_end_waits() {
        let (open, opened) = channel::<()>();
        let opened = std::sync::Arc::new(Mutex::new(opened));
        let within = Duration::from_secs(1);
        let begin = Instant::now();
        for _ in 0..4 {
            let opened = std::sync::Arc::clone(&opened);
            let stalls = move || {
                let _ = opened.lock().recv();
                Ok(())
            };
            tell(1, stalls).wait(within);
        }
        let took = begin.elapsed();
        assert!(within <= took && took < 2 * within, "{took:?}");
        // Another store answers in its own time.
        let (answered, pause) = (std::sync::Arc::new(Mutex::new(false)), 3 * AGAIN);
        let other = std::sync::Arc::clone(&answered);
        let slow = move || {
            thread::sleep(pause);
            *other.lock() = true;
            Ok(())
        };
        tell(2, slow).wait(Duration::from_secs(20));
        assert!(*answered.lock());
        drop(open);
    }

    /// The limit of the question is that of the wait, and whichever of them ends first, the store is late.
    #[test]
    fn an_end_whose_question_was_too_late_makes_the_next_one_short() {
        let within = Duration::from_secs(1);
        let late = || Err(Deadline::after(Duration::ZERO).error("test", "a store".to_owned()));
        tell(3, late).wait(within);
        let begin = Instant::now();
        let (open, opened) = channel::<()>();
        let stalls = move || {
            let _ = opened.recv();
            Ok(())
        };
        tell(3, stalls).wait(within);
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
