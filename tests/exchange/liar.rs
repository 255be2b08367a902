//! Stores that break their rules: an error says so, and nothing panics or waits for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, FdSocket, MAX_VALUE, Store, Swap, ThreadStore, Threads};
use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, Device, Error, Result};

use crate::hooked_store::{HookedStore, Hooks};
use crate::support::{seed, slower};

/// What is wrong with an answer now and then.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    FewerValues,
    MoreValues,
    NoValues,
    EmptyValues,
    Junk,
    TooLong,
    Sums,
    Swaps,
    FewerEnds,
    MoreEnds,
    Panics,
}

const LIES: [Lie; 11] = [
    Lie::FewerValues,
    Lie::MoreValues,
    Lie::NoValues,
    Lie::EmptyValues,
    Lie::Junk,
    Lie::TooLong,
    Lie::Sums,
    Lie::Swaps,
    Lie::FewerEnds,
    Lie::MoreEnds,
    Lie::Panics,
];

struct Liar {
    inner: ThreadStore,
    lie: Lie,
    rng: AtomicU64,
    /// One of so many answers is wrong, once this has begun.
    one_of: u32,
    begun: AtomicBool,
}

impl Liar {
    fn lies(&self) -> bool {
        if !self.begun.load(Ordering::Relaxed) {
            return false;
        }
        let number = self.rng.fetch_add(1, Ordering::Relaxed);
        fastrand::Rng::with_seed(number).u32(..self.one_of) == 0
    }
}

impl Hooks for Liar {
    fn store(&self) -> &dyn Store {
        &self.inner
    }

    fn around<R>(
        &self,
        _method: &'static str,
        _keys: &[&str],
        _within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        if self.lie == Lie::Panics && self.lies() {
            std::panic::resume_unwind(Box::new("out of answers"));
        }
        call()
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = self.inner.get(keys, within)?;
        let there = |values: &mut Vec<Option<Vec<u8>>>, new: Vec<u8>| {
            values.iter_mut().flatten().for_each(|value| value.clone_from(&new));
        };
        match self.lie {
            Lie::FewerValues if self.lies() => drop(values.pop()),
            Lie::MoreValues if self.lies() => values.push(None),
            Lie::NoValues if self.lies() => values.clear(),
            Lie::EmptyValues if self.lies() => there(&mut values, Vec::new()),
            Lie::Junk if self.lies() => there(&mut values, vec![0xff; 77]),
            Lie::TooLong if self.lies() => there(&mut values, vec![1; MAX_VALUE + 1]),
            _ => {}
        }
        Ok(values)
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        let sum = self.inner.add(key, by, within)?;
        Ok(if self.lie == Lie::Sums && self.lies() { i64::MIN } else { sum })
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        let swap = self.inner.compare_and_set(key, expected, value, within)?;
        Ok(if self.lie == Lie::Swaps && self.lies() { Swap::Found(None) } else { swap })
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        let mut ends = self.inner.ended(ids, within)?;
        match self.lie {
            Lie::FewerEnds if self.lies() => drop(ends.pop()),
            Lie::MoreEnds if self.lies() => ends.push(None),
            _ => {}
        }
        Ok(ends)
    }
}

fn everything(store: HookedStore<Liar>) -> Result<()> {
    let x = Exchange::join_timeout(store, Duration::from_millis(700))?;
    for round in 0..4u8 {
        x.all_gather(&[round; 5])?;
        x.barrier()?;
        x.broadcast(&[1, 2], 0)?;
        x.vote(if round == 2 { Err("no".into()) } else { Ok(()) })?;
        if let Some(part) = x.split(Some(0), 0)? {
            part.barrier()?;
        }
        x.subset(&[0, 1])?.barrier()?;
        x.set("k", b"v")?;
        x.get("k")?;
        x.add("n", 1)?;
        x.get_all(&["k", "k"])?;
        x.try_get("z")?;
    }
    x.survivors()?.barrier()
}

#[test]
fn nothing_panics_or_waits_for_ever() {
    let (seed, mut told, mut panics) = (seed(), 0, 0);
    for round in 0..44u64 {
        let lie = LIES[usize::try_from(round).unwrap() % LIES.len()];
        let (place, start) = (Threads::new(2), Instant::now());
        let results: Vec<_> = std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..2)
                .map(|rank| {
                    let rng = AtomicU64::new(seed.wrapping_add(1000 * round + 500_000 * rank as u64));
                    let store = HookedStore(Liar {
                        inner: place.store(rank).unwrap(),
                        lie,
                        rng,
                        one_of: 6,
                        begun: AtomicBool::new(true),
                    });
                    scope.spawn(move || everything(store))
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join()).collect()
        });
        for result in results {
            let result = result.unwrap_or_else(|_| panic!("{lie:?}, round {round}: a panic"));
            if let (Lie::Panics, Err(Error::Exchange { reason, .. })) = (lie, &result) {
                panics += usize::from(reason.contains("the store has panicked: out of answers"));
            } else if let Err(Error::Exchange { operation: "Store::get" | "Store::ended", reason, .. }) = &result {
                assert!(reason.contains("the store has broken its rules: expected "), "{reason}");
                told += 1;
            }
        }
        assert!(start.elapsed() < slower(20.0), "{lie:?}, round {round}: {:?}", start.elapsed());
    }
    assert!(told > 0, "no error named the wrong answer of a store");
    assert!(panics > 0, "no error named the panic of a store");
}

#[test]
fn a_number_of_ranks_that_cannot_be_is_refused() {
    for size in [usize::MAX, 1 << 40, (1 << 20) + 1] {
        let joined = Threads::new(size).store(0).and_then(|store| Exchange::join_timeout(store, slower(0.3)));
        let error = joined.expect_err("so many ranks");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(&format!("at most 1048576 ranks, got {size}")), "{error}");
    }
}

/// What communicators and sockets are made over: the store is honest until the ranks have met.
fn starts(store: HookedStore<Liar>) -> Result<()> {
    let (rank, store) = (store.rank(), Arc::new(store));
    let x = Exchange::join_timeout(Arc::clone(&store), slower(20.0))?.with_timeout(Duration::from_millis(500));
    store.0.begun.store(true, Ordering::Relaxed);
    let sent = FdSocket::new(&x, std::env::temp_dir()).and_then(|socket| {
        let file = std::fs::File::open("/dev/null").expect("a file");
        socket.send(1 - rank, "f", &[std::os::fd::AsFd::as_fd(&file)])?;
        socket.receive(1 - rank, "f").map(drop)
    });
    let options = InitOptions::new().with_timeout(Duration::from_millis(500));
    // SAFETY: both ranks do the same.
    let made = unsafe { Communicator::init_rank_over(Device::new(rank)?, &x, &options) };
    sent.and(made.map(drop))
}

#[test]
fn starts_and_sockets_over_a_liar() {
    let (seed, start) = (seed(), Instant::now());
    std::thread::scope(|scope| {
        let mut ranks = Vec::new();
        for (round, (lie, one_of)) in (0..).zip(LIES.into_iter().flat_map(|lie| [(lie, 1), (lie, 6)])) {
            let place = Threads::new(2);
            for rank in 0..2 {
                let rng = AtomicU64::new(seed.wrapping_add(1000 * round + 500_000 * rank as u64));
                let inner = place.store(rank).unwrap();
                let store = HookedStore(Liar { inner, lie, rng, one_of, begun: AtomicBool::new(false) });
                ranks.push((lie, one_of, scope.spawn(move || starts(store))));
            }
        }
        for (lie, one_of, rank) in ranks {
            let result = rank.join().unwrap_or_else(|_| panic!("{lie:?}: a panic"));
            if one_of == 1 && matches!(lie, Lie::FewerValues | Lie::MoreValues | Lie::NoValues) {
                let Err(Error::Exchange { operation: "Store::get", reason, .. }) = &result else {
                    panic!("{result:?}")
                };
                assert!(reason.contains("the store has broken its rules: expected "), "{reason}");
            }
        }
    });
    assert!(start.elapsed() < slower(20.0), "{:?}", start.elapsed());
}
