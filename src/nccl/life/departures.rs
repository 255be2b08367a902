//! Which ranks of a start over an exchange have ended before they had started.
//!
//! A thread of its own asks the store: a user's store may block, or panic, and only its own answer suffers. A rank that has started
//! leaves a note, and may end then, also where another one is still inside NCCL.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::nccl::state::helper::cannot_start;

/// How often the store is asked.
const ASKS: Duration = Duration::from_millis(100);

/// How long a note may take, and how long the end of a start waits for a question that is under way.
const LAST: Duration = Duration::from_secs(1);

/// Who hears of a death.
type Told = Box<dyn FnOnce(Error, &Over) + Send>;

/// The thread, before it is known what is started. It holds nothing of an exchange.
#[derive(Debug)]
pub(crate) struct Asker {
    sender: Sender<Start>,
}

struct Start {
    operation: &'static str,
    exchange: Exchange,
    over: Over,
    told: Told,
    /// Dropped last: the thread has let go of the exchange.
    _left: Sender<()>,
}

/// Whether the start is over.
pub(crate) struct Over(Receiver<()>);

impl Over {
    /// Waits so long; whether it goes on still.
    pub(super) fn goes_on(&self, within: Duration) -> bool {
        matches!(self.0.recv_timeout(within), Err(RecvTimeoutError::Timeout))
    }
}

impl Asker {
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

    /// Asks during the start of the ranks of `exchange` that all of them know by `name`, and no other one. `told` hears of the first death.
    pub(super) fn ask(
        self,
        operation: &'static str,
        exchange: &Exchange,
        name: &[u8],
        told: impl FnOnce(Error, &Over) + Send + 'static,
    ) -> Result<Departures> {
        let exchange = exchange.named(name)?;
        let ((over, is_over), (left, has_left)) = (mpsc::channel(), mpsc::channel());
        let start =
            Start { operation, exchange: exchange.clone(), over: Over(is_over), told: Box::new(told), _left: left };
        // The thread is there: it waits for this.
        let _ = self.sender.send(start);
        Ok(Departures { exchange, over: Some(over), left: has_left })
    }
}

impl Start {
    fn watch(self) {
        let Self { operation, exchange, over, told, _left } = self;
        let mut started = Vec::new();
        let has_started = |rank: usize| Ok(exchange.note_of_any(&key(rank), Duration::ZERO)?.is_some());
        while over.goes_on(ASKS) {
            if let Some((rank, how)) = exchange.departed(&mut started, ASKS, has_started) {
                return told(Error::Gone { operation, rank, how }, &over);
            }
        }
    }
}

/// The questions of one start, which end with this value.
pub(super) struct Departures {
    exchange: Exchange,
    over: Option<Sender<()>>,
    left: Receiver<()>,
}

impl Departures {
    /// This rank has started. Others may still be inside NCCL, and do not take its end for a death.
    pub(super) fn has_started(&self) {
        if self.exchange.size() > 1 {
            let _ = self.exchange.leave_note(&key(self.exchange.rank()), &[], LAST);
        }
    }
}

impl Drop for Departures {
    /// Waits until the thread has let go of the exchange, which the caller may leave at once; not for a store that blocks.
    fn drop(&mut self) {
        drop(self.over.take());
        let _ = self.left.recv_timeout(LAST);
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

    fn asks(exchange: &Exchange) -> (Departures, Receiver<Error>) {
        let (sender, receiver) = mpsc::channel();
        let told = move |error, _: &Over| {
            let _ = sender.send(error);
        };
        (Asker::start("test").unwrap().ask("test", exchange, b"a start", told).unwrap(), receiver)
    }

    #[test]
    fn an_end_after_the_start_is_no_death() {
        let place = Threads::new(3);
        let [own, slow, quick] = std::thread::scope(|scope| {
            let join = |rank| Exchange::join(place.store(rank).unwrap()).unwrap();
            [0, 1, 2].map(|rank| scope.spawn(move || join(rank))).map(|one| one.join().unwrap())
        });
        let (departures, told) = asks(&own);
        let (its, _) = asks(&quick);
        its.has_started();
        drop((its, quick));
        assert!(told.recv_timeout(10 * ASKS).is_err(), "it had started");
        drop(slow);
        assert!(matches!(told.recv_timeout(LONG), Ok(Error::Gone { rank: 1, .. })));
        drop(departures);
    }

    /// A store whose answers to who has ended panic, or never come.
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
            let (departures, told) = asks(&own);
            let heard = told.recv_timeout(10 * ASKS);
            assert!(heard.is_err(), "{heard:?}");
            let begin = Instant::now();
            departures.has_started();
            drop(departures);
            assert!(begin.elapsed() < LONG, "{:?}", begin.elapsed());
        }
    }
}
