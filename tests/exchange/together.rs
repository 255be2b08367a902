//! What all ranks do together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, MAX_VALUE, Store, ThreadStore, Threads};
use gpucomm::{Error, Result};

use crate::hooked_store::{HookedStore, Hooks};
use crate::support::{everywhere, slower};

#[test]
fn gather_broadcast_barrier() {
    everywhere(&[1, 2, 5], |x| {
        for round in 0..10_usize {
            // Lengths differ, and some are 0.
            let of = |rank: usize| vec![(rank + round) as u8; (rank * 7 + round) % 5 * rank];
            let all = x.all_gather(&of(x.rank())).unwrap();
            assert_eq!(all, (0..x.size()).map(of).collect::<Vec<_>>());
            let root = round % x.size();
            assert_eq!(x.broadcast(&[x.rank() as u8, 9], root).unwrap(), [root as u8, 9]);
        }
        // Past the rounds in which broadcasts meet.
        for round in 0..150_u32 {
            assert_eq!(x.broadcast(&round.to_le_bytes(), 0).unwrap(), round.to_le_bytes());
        }
        x.barrier().unwrap();
        assert!(x.broadcast(b"", x.size()).is_err());
    });
}

/// Counts what a rank sets.
struct Sets {
    store: ThreadStore,
    count: Arc<AtomicUsize>,
}

impl Hooks for Sets {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn around<R>(&self, method: &'static str, _: &[&str], _: Duration, call: impl FnOnce() -> Result<R>) -> Result<R> {
        let done = call();
        self.count.fetch_add(usize::from(method == "set"), Ordering::SeqCst);
        done
    }
}

/// The ranks of an exchange between threads, with the count of what each has set, and what each of them returns.
fn ranks_that_count<R: Send>(
    size: usize,
    within: Duration,
    rank: impl Fn(Exchange, Arc<AtomicUsize>) -> R + Sync,
) -> Vec<R> {
    let (place, rank) = (&Threads::new(size), &rank);
    std::thread::scope(|scope| {
        let start = |at| {
            scope.spawn(move || {
                let count = Arc::<AtomicUsize>::default();
                let store = Sets { store: place.store(at).unwrap(), count: Arc::clone(&count) };
                rank(Exchange::join_timeout(HookedStore(store), within).unwrap(), count)
            })
        };
        let all: Vec<_> = (0..size).map(start).collect();
        all.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn ranks<R: Send>(size: usize, within: Duration, rank: impl Fn(Exchange) -> R + Sync) -> Vec<R> {
    ranks_that_count(size, within, |x, _| rank(x))
}

fn wait_for_a_set(sets: &AtomicUsize, before: usize) {
    let begin = Instant::now();
    while sets.load(Ordering::SeqCst) == before {
        assert!(begin.elapsed() < slower(20.0), "nothing is set");
        std::thread::yield_now();
    }
}

fn is_right(x: &Exchange, what: &str) {
    let of = |rank: usize| format!("{what} of rank {rank}").into_bytes();
    assert_eq!(x.all_gather(&of(x.rank())).unwrap(), (0..x.size()).map(of).collect::<Vec<_>>());
}

/// Whatever goes wrong in a round, also in one in which broadcasts meet, all ranks are in the same round behind it.
#[test]
fn after_an_error_all_ranks_are_in_the_same_round() {
    for (size, round) in [(2, 10), (2, 64), (3, 64), (20, 64)] {
        for vote in [false, true] {
            ranks(size, slower(10.0), |x| {
                (1..round).for_each(|_| x.barrier().unwrap());
                match (x.rank(), vote) {
                    (0, _) => assert!(x.broadcast(b"value", 1).is_err()),
                    (_, false) => assert!(x.all_gather(b"value").is_err()),
                    (_, true) => assert!(!x.vote(Ok(())).unwrap().unanimous()),
                }
                (0..3).for_each(|next| is_right(&x, &format!("call {next}")));
            });
        }
        // A call that one rank refuses fails on the others at once, and is one on all of them.
        for broadcast in [false, true] {
            ranks(size, slower(60.0), |x| {
                (1..round).for_each(|_| x.barrier().unwrap());
                let (long, begin) = (vec![0; MAX_VALUE], Instant::now());
                let own = if x.rank() == 0 { &long[..] } else { b"own" };
                let error = match broadcast {
                    false => x.all_gather(own).unwrap_err(),
                    true => x.broadcast(own, 0).unwrap_err(),
                };
                match &error {
                    Error::InvalidArgument { what: "value", .. } => assert_eq!(x.rank(), 0),
                    Error::Disagreement { rank: 0, got, .. } => assert!(got.contains("failed there"), "{error}"),
                    _ => panic!("{error}"),
                }
                assert!(begin.elapsed() < slower(20.0), "{:?}", begin.elapsed());
                is_right(&x, "the next call");
                if x.rank() == 0 {
                    assert!(matches!(x.broadcast(&[], size), Err(Error::InvalidArgument { what: "rank", .. })));
                } else {
                    assert!(x.barrier().is_err());
                }
                is_right(&x, "the next call");
                // Of the root alone: the values of the others are ignored, whatever they are.
                let own = if x.rank() == 1 { b"it" } else { &long[..] };
                assert_eq!(x.broadcast(own, 1).unwrap(), b"it");
            });
        }
    }
}

/// A late rank gets the value of a broadcast, also in a round in which all meet.
#[test]
fn a_broadcast_reaches_a_late_rank() {
    for round in [10, 64] {
        ranks(2, slower(10.0), |x| {
            (1..round).for_each(|_| x.barrier().unwrap());
            if x.rank() == 0 {
                let short = x.with_timeout(Duration::from_millis(100));
                assert_eq!(short.broadcast(b"value", 0).is_ok(), round != 64);
                x.set("over", b"").unwrap();
            } else {
                x.get("over").unwrap();
                assert_eq!(x.broadcast(&[], 0).unwrap(), b"value");
            }
            is_right(&x, "the next call");
        });
    }
}

/// Calls of two threads of a rank that overlap: the second waits for the first.
#[test]
fn calls_of_several_threads() {
    for size in [3, 20] {
        ranks_that_count(size, slower(20.0), |x, sets| {
            for _ in 0..10 {
                x.barrier().unwrap();
                if x.rank() == 2 {
                    let before = sets.load(Ordering::SeqCst);
                    std::thread::scope(|scope| {
                        let first = scope.spawn(|| is_right(&x, "the first"));
                        wait_for_a_set(&sets, before);
                        is_right(&x, "the second");
                        first.join().unwrap();
                    });
                } else {
                    // Both of the other rank are under way then.
                    std::thread::sleep(Duration::from_millis(20));
                    is_right(&x, "the first");
                    is_right(&x, "the second");
                }
            }
        });
    }
    // One that waits too long says for what, and the next call is right.
    ranks_that_count(2, slower(20.0), |x, sets| {
        if x.rank() == 0 {
            let before = sets.load(Ordering::SeqCst);
            std::thread::scope(|scope| {
                let first = scope.spawn(|| is_right(&x, "the first"));
                wait_for_a_set(&sets, before);
                let error = x.with_timeout(Duration::from_millis(50)).all_gather(&[]).unwrap_err();
                let text = "rank 0: another thread of this rank is in round 1 still, before round 2";
                assert!(error.to_string().contains(text), "{error}");
                x.set("go", b"").unwrap();
                first.join().unwrap();
            });
        } else {
            x.get("go").unwrap();
            is_right(&x, "the first");
            // The other rank could not make it.
            let error = x.all_gather(&[]).unwrap_err();
            assert!(matches!(error, Error::Disagreement { rank: 0, .. }), "{error}");
        }
        is_right(&x, "the next call");
    });
}

#[test]
fn a_barrier_holds_all() {
    everywhere(&[4], |x| {
        for round in 1..=20 {
            std::thread::sleep(Duration::from_micros(fastrand::u64(..300)));
            x.add("came", 1).unwrap();
            x.barrier().unwrap();
            let came: i64 = String::from_utf8(x.get("came").unwrap()).unwrap().parse().unwrap();
            assert!(came >= round * 4, "{came} in round {round}");
            x.barrier().unwrap();
        }
    });
}

#[test]
fn votes() {
    everywhere(&[1, 2, 5], |x| {
        let vote = x.vote(Ok(())).unwrap();
        assert!(vote.unanimous(), "{vote}");
        assert_eq!(vote.to_string(), "unanimous");
        let last = x.size() - 1;
        let ballot = if x.rank() == last { Err("no memory".to_owned()) } else { Ok(()) };
        let vote = x.vote(ballot).unwrap();
        assert_eq!((vote.no.as_slice(), vote.missing.len()), (&[(last, "no memory".to_owned())][..], 0));
        assert_eq!(vote.to_string(), format!("rank {last} says no: no memory"));
        let vote = x.vote(Err("ü".repeat(2000))).unwrap();
        assert_eq!(vote.no.len(), x.size());
        assert_eq!(vote.no[0].1, "ü".repeat(512));
        assert!(x.vote(Ok(())).unwrap().unanimous());
    });
}

/// One that waits for all, beside one that waits for the root alone, who may be the one or the other.
#[test]
fn who_does_something_else_is_named_at_once() {
    everywhere(&[3], |x| {
        for root in [0, 1] {
            let start = Instant::now();
            let result = if x.rank() == 0 { x.barrier() } else { x.broadcast(b"v", root).map(drop) };
            // A root waits for nobody.
            if x.rank() != 0 && x.rank() == root {
                result.unwrap();
            } else if x.rank() == 0 || root == 0 {
                let error = result.unwrap_err();
                let Error::Disagreement { got, .. } = &error else { panic!("{error}") };
                assert_eq!(&**got, ["broadcast", "barrier"][usize::from(x.rank() != 0)], "{error}");
            } else {
                result.unwrap();
            }
            assert!(start.elapsed() < slower(5.0), "after {:?}", start.elapsed());
            x.barrier().unwrap();
        }
    });
}

#[test]
fn who_does_something_else_is_named() {
    everywhere(&[2], |x| {
        let error = match x.rank() {
            0 => x.barrier().unwrap_err(),
            _ => x.all_gather(b"x").unwrap_err(),
        };
        let Error::Disagreement { rank, expected, got, .. } = &error else { panic!("{error}") };
        let names = ["barrier", "all_gather"];
        assert_eq!((*rank, &**got), (1 - x.rank(), names[1 - x.rank()]), "{error}");
        assert_eq!(*expected, format!("{} as round 1", names[x.rank()]));
        // They are in step again.
        x.barrier().unwrap();
        let vote = if x.rank() == 0 {
            x.vote(Ok(()))
        } else {
            x.barrier().unwrap_err();
            return;
        };
        let vote = vote.unwrap();
        assert_eq!(vote.no, [(1, "expected vote as round 3, got barrier".to_owned())]);
    });
}
