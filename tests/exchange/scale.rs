//! Many ranks: what each asks the store for, and how long all of them take.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use gpucomm::exchange::{C10dPlace, Exchange, Store, TcpPlace, Threads};
use gpucomm::{Error, Result};

use crate::hooked_store::{HookedStore, Hooks};
use crate::support::{free_address, slower};

/// The stack of a thread that is a rank.
const STACK: usize = 256 << 10;

/// Runs `rank` as each of `size` ranks, and returns what they return, in the order of ranks.
fn as_ranks<R: Send>(size: usize, rank: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let rank = &rank;
    thread::scope(|scope| {
        let start = |at| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || rank(at)).unwrap();
        let ranks: Vec<_> = (0..size).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Counts the requests of one rank.
struct Counting<S> {
    store: S,
    requests: Arc<AtomicUsize>,
}

impl<S: Store> Hooks for Counting<S> {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn around<R>(
        &self,
        _method: &'static str,
        _keys: &[&str],
        _within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        call()
    }
}

/// The most requests that a rank makes for a gather and a barrier, when all ranks come together.
fn most_requests(size: usize) -> usize {
    let (place, start) = (Threads::new(size), Barrier::new(size));
    let (place, start) = (&place, &start);
    let counts = as_ranks(size, |rank| {
        let requests = Arc::new(AtomicUsize::new(0));
        let store = Counting { store: place.store(rank).unwrap(), requests: Arc::clone(&requests) };
        let exchange = Exchange::join_timeout(HookedStore(store), slower(60.0)).unwrap();
        // The first round has nothing to remove.
        exchange.barrier().unwrap();
        start.wait();
        let before = requests.load(Ordering::Relaxed);
        let all = exchange.all_gather(&rank.to_le_bytes()).unwrap();
        exchange.barrier().unwrap();
        let after = requests.load(Ordering::Relaxed);
        assert!(all.iter().enumerate().all(|(rank, value)| **value == rank.to_le_bytes()));
        start.wait();
        after - before
    });
    counts.into_iter().max().unwrap()
}

#[test]
fn the_requests_of_a_rank_do_not_grow_with_the_ranks() {
    for size in [2, 16, 17, 64, 65, 200, 400] {
        let most = most_requests(size);
        // Each of the two operations sets, counts, waits, and removes what the one before has set. A rank
        // that completes two groups reads and sets two values more. A slow machine waits several times.
        println!("{size} ranks: at most {most} requests");
        assert!(most <= 40, "{size} ranks: {most} requests");
    }
}

/// Values of any length come to all ranks, also those that are too long together for one value.
#[test]
fn values_of_many_ranks_of_any_length() {
    let seed =
        std::env::var("GPUCOMM_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("scale: GPUCOMM_TEST_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for (size, longest) in [(17, 100), (40, 3), (66, 10_000), (130, 0), (20, 2 << 20)] {
        let values: Vec<Vec<u8>> = (0..size)
            .map(|_| {
                let len = rng.usize(0..=longest);
                // One in two is as long as it may be.
                let len = if rng.bool() { longest } else { len };
                std::iter::repeat_with(|| rng.u8(..)).take(len.min(64)).chain(std::iter::repeat(7)).take(len).collect()
            })
            .collect();
        let (place, values) = (&Threads::new(size), &values);
        as_ranks(size, |rank| {
            let exchange = Exchange::join_timeout(place.store(rank).unwrap(), slower(60.0)).unwrap();
            for _ in 0..3 {
                let all = exchange.all_gather(&values[rank]).unwrap();
                assert!(all == *values, "rank {rank} of {size}");
                exchange.barrier().unwrap();
            }
        });
    }
}

/// One of many ranks is in another operation, or ends, and the others do not wait for their timeout.
#[test]
fn one_of_many_ranks_differs_or_ends() {
    const SIZE: usize = 30;
    for ends in [false, true] {
        let (place, begin) = (&Threads::new(SIZE), Instant::now());
        let errors = as_ranks(SIZE, |rank| {
            let exchange = Exchange::join_timeout(place.store(rank).unwrap(), slower(120.0)).unwrap();
            if rank != 7 {
                return Some(exchange.all_gather(&[0]).unwrap_err());
            }
            if ends {
                return None;
            }
            Some(exchange.barrier().unwrap_err())
        });
        for (rank, error) in errors.iter().enumerate() {
            match error {
                None => assert_eq!(rank, 7),
                Some(Error::Departed { rank: 7, .. }) => assert!(ends),
                Some(Error::Disagreement { .. }) => assert!(!ends),
                Some(error) => panic!("rank {rank}: {error:?}"),
            }
        }
        assert!(begin.elapsed() < slower(30.0), "{:?}", begin.elapsed());
    }
}

/// The first answer to a read of several keys at once comes too late.
struct LateOnce<S> {
    store: S,
    is_armed: Arc<AtomicBool>,
}

impl<S: Store> Hooks for LateOnce<S> {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn around<R>(
        &self,
        method: &'static str,
        keys: &[&str],
        within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let is_read = method == "get" && within.is_zero() && keys.len() > 1;
        if is_read && self.is_armed.swap(false, Ordering::Relaxed) {
            let detail = "no answer from the store".to_owned();
            return Err(Error::Timeout { operation: "get", timeout: within, detail, rank: None, peer: None });
        }
        call()
    }
}

#[test]
fn a_late_answer_ends_no_gather() {
    for size in [17, 70] {
        let (place, start, is_armed) = (&Threads::new(size), &Barrier::new(size), &Arc::new(AtomicBool::new(false)));
        as_ranks(size, |rank| {
            let store = LateOnce { store: place.store(rank).unwrap(), is_armed: Arc::clone(is_armed) };
            let exchange = Exchange::join_timeout(HookedStore(store), slower(60.0)).unwrap();
            start.wait();
            is_armed.store(true, Ordering::Relaxed);
            start.wait();
            let all = exchange.all_gather(&[7]).unwrap_or_else(|error| panic!("rank {rank} of {size}: {error}"));
            assert!(all.iter().all(|value| value == &[7]));
        });
        assert!(!is_armed.load(Ordering::Relaxed), "{size} ranks: no answer was late");
    }
}

/// Changes the values of a round that this rank reads.
struct Lies<S>(S, Arc<AtomicBool>);

impl<S: Store> Hooks for Lies<S> {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = self.0.get(keys, within)?;
        if self.1.load(Ordering::Relaxed) && keys.len() > 1 {
            values.iter_mut().flatten().filter_map(|value| value.last_mut()).for_each(|last| *last ^= 0x80);
        }
        Ok(values)
    }
}

/// The store of one rank answers it wrongly, also when that rank combines the values.
#[test]
fn a_wrong_answer_stays_with_its_rank() {
    for size in [16, 17, 60] {
        let (place, start) = (&Threads::new(size), &Barrier::new(size));
        let is_wrong = as_ranks(size, |rank| {
            let lies = Arc::new(AtomicBool::new(false));
            let store = HookedStore(Lies(place.store(rank).unwrap(), Arc::clone(&lies)));
            let exchange = Exchange::join_timeout(store, slower(60.0)).unwrap();
            lies.store(rank == 7, Ordering::Relaxed);
            start.wait();
            // It comes last, and so it combines.
            thread::sleep(Duration::from_millis(if rank == 7 { 20 } else { 0 }));
            let all = exchange.all_gather(&[rank as u8])?;
            Ok::<_, Error>(all.iter().enumerate().any(|(rank, value)| *value != [rank as u8]))
        });
        for (rank, wrong) in is_wrong.into_iter().enumerate().filter(|(rank, _)| *rank != 7) {
            assert!(matches!(wrong, Ok(false)), "rank {rank} of {size}: {wrong:?}");
        }
    }
}

/// How long `size` ranks take to meet, to gather 128 bytes each, and to pass a barrier.
pub fn timed(size: usize, join: impl Fn(usize) -> Result<Exchange> + Sync) -> Duration {
    let begin = Instant::now();
    let passed = as_ranks(size, |rank| {
        let exchange = join(rank).unwrap_or_else(|error| panic!("rank {rank}: {error}"));
        let value = |rank: usize| [u8::try_from(rank % 251).unwrap(); 128];
        let all = exchange.all_gather(&value(rank)).unwrap();
        assert!(all.iter().enumerate().all(|(rank, one)| *one == value(rank)));
        exchange.barrier().unwrap();
        begin.elapsed()
    });
    passed.into_iter().max().unwrap_or_default()
}

/// How many ranks are measured.
pub fn ranks() -> usize {
    std::env::var("GPUCOMM_TEST_RANKS").map_or(200, |size| size.parse().unwrap())
}

/// `GPUCOMM_TEST_RANKS=1000` measures more of them.
#[test]
fn many_ranks_meet_in_seconds() {
    let size = ranks();
    let (tcp, c10d, within) = (&free_address(), &free_address(), slower(60.0));
    let over_tcp = timed(size, |rank| {
        let store = TcpPlace::new(tcp).with_timeout(within).store(rank, size)?;
        Exchange::join_timeout(store, within)
    });
    let over_c10d = timed(size, |rank| {
        let store = C10dPlace::new(c10d).with_timeout(within).store(rank, size)?;
        Exchange::join_timeout(store, within)
    });
    println!("{size} ranks: {over_tcp:?} over tcp, {over_c10d:?} over c10d");
    assert!(over_tcp.max(over_c10d) < slower(30.0), "{over_tcp:?} over tcp, {over_c10d:?} over c10d");
}
