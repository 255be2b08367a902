//! What ends the wait of a grow over an exchange: an abort at any time, a rank that has closed, and both over stores that
//! are slow.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, Store, Threads};
use gpucomm::nccl::{Aborter, InitOptions};
use gpucomm::{Communicator, Error, Result};

use crate::grow::FIRST;
use crate::support::hooked_store::{HookedStore, Hooks};
use crate::support::newer::since;
use crate::support::{assert_names, places, rank_counts, slower};

/// How long calls may take: far longer than it takes to hear of an end.
const PATIENT: f64 = 60.0;

/// What happens at the calls of a store of one rank.
#[derive(Default)]
struct Events {
    /// How many calls are left until this rank's communicator is aborted.
    until_abort: Mutex<Option<(usize, Aborter)>>,
    calls: AtomicUsize,
    stalls: AtomicBool,
}

struct Watched<S> {
    store: S,
    events: Arc<Events>,
}

impl<S: Store> Hooks for Watched<S> {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn around<R>(
        &self,
        _method: &'static str,
        _keys: &[&str],
        within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        self.events.calls.fetch_add(1, Ordering::Relaxed);
        let due = {
            let mut until_abort = self.events.until_abort.lock().unwrap();
            match &mut *until_abort {
                Some((0, _)) => until_abort.take(),
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
                None => None,
            }
        };
        if let Some((_, aborter)) = due {
            let _ = aborter.abort("the test ends it");
        }
        if self.events.stalls.load(Ordering::Relaxed) {
            std::thread::sleep(within);
            let detail = "the store stalls".into();
            let late = Error::Timeout { operation: "Stalling", timeout: within, detail, rank: None, peer: None };
            return Err(late);
        }
        call()
    }
}

/// One rank that grows, or joins if it has no communicator.
struct Rank {
    exchange: Exchange,
    events: Arc<Events>,
    comm: Option<Communicator>,
}

/// Ranks of an exchange, all but the last of which have a communicator.
fn ranks(size: usize, checked: bool) -> Vec<Rank> {
    let place = Threads::new(size);
    let start = |rank: usize| {
        let events = Arc::new(Events::default());
        let store = HookedStore(Watched { store: place.store(rank).unwrap(), events: Arc::clone(&events) });
        let exchange = Exchange::join(store).unwrap().with_timeout(slower(PATIENT));
        let old: Vec<_> = (0..size - 1).collect();
        let comm = (rank + 1 < size).then(|| {
            let options = InitOptions::new().with_timeout(slower(PATIENT)).with_checked(checked);
            let exchange = exchange.subset(&old).unwrap();
            // SAFETY: all ranks do the same.
            unsafe { Communicator::init_rank_over(places()[rank], &exchange, &options) }.unwrap()
        });
        Rank { exchange, events, comm }
    };
    std::thread::scope(|scope| {
        let start = &start;
        let all: Vec<_> = (0..size).map(|rank| scope.spawn(move || start(rank))).collect();
        all.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

impl Rank {
    fn grow(&self, rank: usize) -> Result<Communicator> {
        match &self.comm {
            Some(comm) => comm.grow_over(&self.exchange),
            None => {
                let options = InitOptions::new().with_timeout(slower(PATIENT));
                // SAFETY: all ranks do the same.
                unsafe { Communicator::join_over(places()[rank], &self.exchange, &options) }
            }
        }
    }
}

/// An abort of one rank at any of its calls of the store ends the grow of all ranks soon.
#[test]
fn an_abort_at_any_time_ends_the_grow_of_all() {
    since(FIRST, 300.0, || {
        for size in rank_counts(&[3]) {
            for aborted in 0..size - 1 {
                for at in 0.. {
                    let all = ranks(size, false);
                    let comm = all[aborted].comm.as_ref().unwrap();
                    *all[aborted].events.until_abort.lock().unwrap() = Some((at, comm.aborter()));
                    let begin = Instant::now();
                    let results: Vec<_> = std::thread::scope(|scope| {
                        let grow = |(rank, one)| scope.spawn(move || Rank::grow(one, rank));
                        let all: Vec<_> = all.iter().enumerate().map(grow).collect();
                        all.into_iter().map(|rank| rank.join().unwrap()).collect()
                    });
                    let took = begin.elapsed();
                    let what = format!("rank {aborted} at call {at}: {took:?}: {results:?}");
                    assert!(took < slower(PATIENT / 3.0), "{what}");
                    if all[aborted].events.until_abort.lock().unwrap().is_some() {
                        // It had grown before.
                        assert!(results.iter().all(Result::is_ok), "{what}");
                        break;
                    }
                }
            }
        }
    });
}

/// A rank of a checked communicator that has closed does not come to a grow.
#[test]
fn a_rank_that_has_closed_ends_a_grow() {
    since(FIRST, 120.0, || {
        for size in rank_counts(&[3]) {
            let mut all = ranks(size, true);
            let leaver = all[1].comm.take().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || drop(leaver));
                let begin = Instant::now();
                let error = all[0].grow(0).map(drop).unwrap_err();
                assert!(begin.elapsed() < slower(PATIENT / 3.0), "{:?}: {error}", begin.elapsed());
                assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
                assert_names(&error, &["rank 1 has closed its communicator"]);
            });
        }
    });
}

/// An abort ends a grow that waits for ranks beside a store that stalls.
#[test]
fn an_abort_ends_a_grow_beside_a_store_that_stalls() {
    since(FIRST, 120.0, || {
        for size in rank_counts(&[2]) {
            let all = ranks(size, false);
            let aborter = all[0].comm.as_ref().unwrap().aborter();
            std::thread::scope(|scope| {
                let events = &all[0].events;
                scope.spawn(move || {
                    // The grow has asked for the others.
                    let before = events.calls.load(Ordering::Relaxed);
                    while events.calls.load(Ordering::Relaxed) < before + 4 {
                        std::thread::yield_now();
                    }
                    events.stalls.store(true, Ordering::Relaxed);
                    let _ = aborter.abort("the test ends it");
                });
                let begin = Instant::now();
                let error = all[0].grow(0).map(drop).unwrap_err();
                assert!(begin.elapsed() < slower(PATIENT / 3.0), "{:?}: {error}", begin.elapsed());
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                events.stalls.store(false, Ordering::Relaxed);
            });
        }
    });
}
