//! Finds ranks that end or give up during a start over an exchange, before they have started.
//!
//! A separate thread asks the store, because a user's store may block or panic. Then only its own
//! answer is lost. A rank that has started leaves a note. It may end after that, even while another
//! rank is still inside NCCL. The first rank that gives up leaves a note for all, with its error.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::{Exchange, Reader, Writer, farewell};
use crate::nccl::rank::helper::cannot_start;

/// How often the thread asks the store.
const ASKS: Duration = Duration::from_millis(100);

/// How long a note may take, and how long the end of a start waits for a question to the store that
/// is under way.
const LAST: Duration = Duration::from_secs(1);

/// The key of the note of the first rank that has given up.
const GIVEN_UP: &str = "given up";

/// The thread calls it when the first rank has ended or given up.
type OnDeath = Box<dyn FnOnce(Error, &Running) + Send>;

/// The thread, before it is known which start it watches. It uses nothing of an exchange.
#[derive(Debug)]
pub(crate) struct DepartureThread {
    sender: Sender<Start>,
}

struct Start {
    operation: &'static str,
    exchange: Exchange,
    running: Running,
    on_death: OnDeath,
    /// Dropped last, after the thread has let go of the exchange.
    _left: Sender<()>,
}

/// Knows whether the start still goes on.
pub(crate) struct Running(Receiver<()>);

impl Running {
    /// Waits for the end of the start, at most that long. Returns whether the start still goes on.
    pub(super) fn goes_on(&self, within: Duration) -> bool {
        matches!(self.0.recv_timeout(within), Err(RecvTimeoutError::Timeout))
    }
}

impl DepartureThread {
    /// Starts the thread, before the other ranks rely on this one.
    pub(super) fn start(operation: &'static str) -> Result<Self> {
        let (sender, receiver) = mpsc::channel::<Start>();
        let run = move || {
            if let Ok(start) = receiver.recv() {
                start.watch();
            }
        };
        let started = thread::Builder::new().name("gpucomm-start".into()).spawn(run);
        started.map_err(|error| cannot_start(operation, &error))?;
        Ok(Self { sender })
    }

    /// Watches a start of the ranks of `exchange`. All of them know this start, and no other one, by
    /// `name`. Calls `on_death` at the first death.
    pub(super) fn watch(
        self,
        operation: &'static str,
        exchange: &Exchange,
        name: &[u8],
        on_death: impl FnOnce(Error, &Running) + Send + 'static,
    ) -> Result<DepartureWatch> {
        let exchange = exchange.named(name)?;
        let ((running, is_running), (left, has_left)) = (mpsc::channel(), mpsc::channel());
        let start = Start {
            operation,
            exchange: exchange.clone(),
            running: Running(is_running),
            on_death: Box::new(on_death),
            _left: left,
        };
        // The thread has started, and waits for this.
        let _ = self.sender.send(start);
        Ok(DepartureWatch { exchange, running: Some(running), left: has_left, last: None })
    }
}

impl Start {
    fn watch(self) {
        let Self { operation, exchange, running, on_death, _left } = self;
        let mut started = Vec::new();
        let has_started = |rank: usize| Ok(exchange.note_of_any(&key(rank), Duration::ZERO)?.is_some());
        // Many ranks share one store.
        let pause = ASKS.saturating_mul(u32::try_from(1 + exchange.size() / 128).unwrap_or(u32::MAX));
        while running.goes_on(pause) {
            if let Some((rank, why)) = given_up(&exchange).filter(|(rank, _)| *rank != exchange.rank()) {
                let (key, reason) = (format!("rank {rank}"), format!("it cannot go on: {why}"));
                return on_death(Error::Exchange { operation, key, reason }, &running);
            }
            if let Some((rank, how)) = exchange.departed(&mut started, ASKS, has_started) {
                return on_death(Error::Departed { operation, rank, how }, &running);
            }
        }
    }
}

/// The watch over one start, which ends when this is dropped.
pub(super) struct DepartureWatch {
    exchange: Exchange,
    running: Option<Sender<()>>,
    left: Receiver<()>,
    /// Until when the store may hold up the end of a start that has failed.
    last: Option<Deadline>,
}

impl DepartureWatch {
    /// Notes that this rank has started. Other ranks may still be inside NCCL. From now on they do not
    /// take the end of this rank for a death.
    pub(super) fn has_started(&self) {
        if self.exchange.size() > 1 {
            let _ = self.exchange.leave_note(&key(self.exchange.rank()), &[], LAST);
        }
    }
}

impl DepartureWatch {
    /// Tells the other ranks, which may be inside NCCL and wait there for this one, that it has given up the start.
    pub(super) fn has_failed(&mut self, error: &Error) {
        self.last = Some(Deadline::after(LAST));
        if self.exchange.size() > 1 {
            let exchange = self.exchange.clone();
            let note = Writer::default().count(exchange.rank()).text(&error.to_string()).0;
            let tell = move || exchange.leave_first("start", GIVEN_UP, &note, LAST).map(drop);
            farewell::tell(self.exchange.store_number(), tell).wait(LAST);
        }
    }
}

/// The first rank that has given up the start, and why.
fn given_up(exchange: &Exchange) -> Option<(usize, String)> {
    let note = exchange.note_of_any(GIVEN_UP, Duration::ZERO).ok()??;
    let mut reader = Reader(&note);
    let (rank, why) = (reader.count()?, reader.text()?.to_owned());
    reader.end((rank, why))
}

impl Drop for DepartureWatch {
    /// Waits until the thread has let go of the exchange, because the caller may leave it at once.
    /// Does not wait for a store that blocks.
    fn drop(&mut self) {
        drop(self.running.take());
        let within = self.last.map_or(LAST, |last| last.remaining());
        let _ = self.left.recv_timeout(within);
    }
}

fn key(rank: usize) -> String {
    format!("started/{rank}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::exchange::{Store, Swap, ThreadStore, Threads};

    /// Longer than anything here may take.
    const LONG: Duration = Duration::from_secs(60);

    fn watch(exchange: &Exchange) -> (DepartureWatch, Receiver<Error>) {
        let (sender, receiver) = mpsc::channel();
        let on_death = move |error, _: &Running| {
            let _ = sender.send(error);
        };
        (DepartureThread::start("test").unwrap().watch("test", exchange, b"a start", on_death).unwrap(), receiver)
    }

    #[test]
    fn an_end_after_the_start_is_no_death() {
        let place = Threads::new(3);
        let [own, slow, quick] = std::thread::scope(|scope| {
            let join = |rank| Exchange::join(place.store(rank).unwrap()).unwrap();
            [0, 1, 2].map(|rank| scope.spawn(move || join(rank))).map(|one| one.join().unwrap())
        });
        let (departures, deaths) = watch(&own);
        let (its, _) = watch(&quick);
        its.has_started();
        drop((its, quick));
        assert!(deaths.recv_timeout(10 * ASKS).is_err(), "it had started");
        drop(slow);
        assert!(matches!(deaths.recv_timeout(LONG), Ok(Error::Departed { rank: 1, .. })));
        drop(departures);
    }

    /// A store that panics, or blocks, when it is asked which ranks have ended.
    #[derive(Debug)]
    struct Bad(ThreadStore, bool, Arc<AtomicBool>);

    impl Store for Bad {
        fn rank(&self) -> usize {
            self.0.rank()
        }

        fn size(&self) -> usize {
            self.0.size()
        }

        fn id(&self) -> u64 {
            self.0.id()
        }

        fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
            self.0.set(key, value, within)
        }

        fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
            self.0.get(keys, within)
        }

        fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
            self.0.add(key, by, within)
        }

        fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
            self.0.compare_and_set(key, expected, value, within)
        }

        fn delete(&self, key: &str, within: Duration) -> Result<bool> {
            self.0.delete(key, within)
        }

        fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
            self.0.clear(prefix, within)
        }

        fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
            if self.2.load(Ordering::Acquire) {
                assert!(!self.1, "the test wants it");
                std::thread::sleep(10 * LONG);
            }
            self.0.ended(ids, within)
        }
    }

    #[test]
    fn a_store_that_panics_or_blocks_holds_up_nobody() {
        for panics in [true, false] {
            let (place, is_bad) = (Threads::new(2), Arc::new(AtomicBool::new(false)));
            let own = std::thread::scope(|scope| {
                let other = scope.spawn(|| Exchange::join(place.store(1).unwrap()).unwrap());
                let own = Exchange::join(Bad(place.store(0).unwrap(), panics, Arc::clone(&is_bad))).unwrap();
                drop(other.join());
                own
            });
            is_bad.store(true, Ordering::Release);
            let (departures, deaths) = watch(&own);
            let heard = deaths.recv_timeout(10 * ASKS);
            assert!(heard.is_err(), "{heard:?}");
            let begin = Instant::now();
            departures.has_started();
            drop(departures);
            assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
        }
    }
}
