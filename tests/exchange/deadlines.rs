//! Ranks that come late, or not at all.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use gpucomm::Error;
use gpucomm::exchange::{Exchange, Threads};

use crate::mine::Mine;
use crate::support::{everywhere, sites, slower};

const SHORT: Duration = Duration::from_millis(300);

#[track_caller]
fn timeout(error: &Error, parts: &[&str]) {
    assert!(matches!(error, Error::Timeout { timeout, .. } if *timeout == SHORT), "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "no {part:?} in: {error}");
    }
}

#[test]
fn who_is_late_is_listed() {
    let (both, all) = (Barrier::new(2), Barrier::new(4));
    everywhere(&[4], |x| {
        if x.rank() == 1 || x.rank() == 3 {
            all.wait();
        } else {
            both.wait();
            let start = Instant::now();
            timeout(
                &x.with_timeout(SHORT).barrier().unwrap_err(),
                &["Exchange::barrier", "ranks 1, 3 of 4 have not come"],
            );
            assert!(start.elapsed() < SHORT + slower(3.0), "{:?}", start.elapsed());
            timeout(&x.with_timeout(SHORT).get_from(1, "k").unwrap_err(), &["\"k\"", "rank 1 of 4 has not come"]);
            timeout(&x.with_timeout(SHORT).get("nobody").unwrap_err(), &["nobody has set [\"nobody\"]"]);
            all.wait();
        }
        // Who was late finds what it missed, and all go on.
        if x.rank() == 1 || x.rank() == 3 {
            x.barrier().unwrap();
        }
        assert_eq!(x.all_gather(&[x.rank() as u8]).unwrap(), [[0], [1], [2], [3]]);
    });
}

#[test]
fn a_vote_without_someone_has_one_answer() {
    let (both, all) = (Barrier::new(2), Barrier::new(3));
    everywhere(&[3], |x| {
        if x.rank() == 2 {
            all.wait();
        } else {
            both.wait();
        }
        let vote = x.with_timeout(SHORT).vote(Ok(())).unwrap();
        if x.rank() != 2 {
            all.wait();
        }
        assert_eq!((vote.no.len(), vote.missing.as_slice()), (0, &[(2, "has not come".to_owned())][..]));
        assert!(x.vote(Ok(())).unwrap().unanimous());
        assert!(x.all_gather(b"").unwrap().len() == 3);
    });
}

#[test]
fn votes_whose_deadlines_differ_have_one_answer() {
    everywhere(&[4], |x| {
        for round in 0..6 {
            let timeout = Duration::from_millis(10 + 20 * ((x.rank() as u64 + round) % 4));
            std::thread::sleep(Duration::from_millis(fastrand::u64(..60)));
            let vote = x.with_timeout(timeout).vote(Ok(())).unwrap();
            let all = x.all_gather(format!("{vote:?}").as_bytes()).unwrap();
            assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
        }
    });
}

#[test]
fn who_never_joins_is_listed() {
    for site in sites(4) {
        let texts = site.stores(&[0, 2], |_, store| Exchange::join_timeout(store, SHORT).unwrap_err());
        for error in texts {
            timeout(&error, &["Exchange::join", "ranks 1, 3 of 4 have not come"]);
        }
    }
    for site in sites(3) {
        let errors = site
            .place
            .without_rank_0()
            .then(|| site.stores(&[1, 2], |_, store| Exchange::join_timeout(store, SHORT).unwrap_err()));
        for error in errors.into_iter().flatten() {
            timeout(&error, &["Exchange::join", "rank 0 of 3 has not come"]);
        }
    }
}

#[test]
fn waiting_holds_up_nobody() {
    everywhere(&[1], |x| {
        std::thread::scope(|scope| {
            let waits: Vec<_> = (0..4)
                .map(|at| {
                    let x = x.clone();
                    scope.spawn(move || x.get(&format!("late/{at}")).unwrap())
                })
                .collect();
            std::thread::sleep(Duration::from_millis(30));
            for at in 0..4_u8 {
                x.set(&format!("late/{at}"), &[at]).unwrap();
            }
            for (at, wait) in waits.into_iter().enumerate() {
                assert_eq!(wait.join().unwrap(), [at as u8]);
            }
        });
    });
}

/// A broadcast in which all meet takes two rounds: who gives up in the first is no round behind the others.
#[test]
fn a_broadcast_that_nobody_could_end() {
    everywhere(&[2], |x| {
        // Each time three rounds: a meeting is in one of the broadcasts.
        for at in 0..24u64 {
            if x.rank() == 0 {
                // Where all meet, nobody else has come.
                let _ = x.with_timeout(Duration::from_millis(8)).broadcast(b"early", 0);
            } else {
                std::thread::sleep(Duration::from_millis(20));
                let _ = x.with_timeout(SHORT).broadcast(b"", 0);
            }
            x.barrier().unwrap();
            assert_eq!(x.all_gather(&at.to_le_bytes()).unwrap(), [at.to_le_bytes(); 2], "{at}");
        }
    });
}

/// A store that does not wait for values, or times out at once, is not asked again and again without a pause.
#[test]
fn a_store_that_does_not_wait() {
    for (says, times_out) in [("no value", false), ("a timeout", true)] {
        let (place, asked) = (Threads::new(2), Arc::new(AtomicUsize::new(0)));
        let store = |rank| {
            let asked = Arc::clone(&asked);
            Mine::getting(place.store(rank).unwrap(), move |store, keys, within| {
                asked.fetch_add(1, Ordering::Relaxed);
                let found = store.get(keys, Duration::ZERO)?;
                if times_out && found.iter().any(Option::is_none) {
                    return Err(Error::Timeout {
                        operation: "get",
                        timeout: within,
                        detail: String::new(),
                        rank: None,
                        peer: None,
                    });
                }
                Ok(found)
            })
        };
        let calls = |what: &str, late: Error| {
            assert!(matches!(late, Error::Timeout { .. }), "{late}");
            let calls = asked.swap(0, Ordering::Relaxed);
            assert!(calls < 5000, "{says}, {what}: asked {calls} times within {SHORT:?}");
        };
        for rank in [1, 0] {
            calls("join", Exchange::join_timeout(store(rank), SHORT).unwrap_err());
        }
        if times_out {
            // No exchange is joined without an answer.
            continue;
        }
        std::thread::scope(|scope| {
            let other = scope.spawn(|| Exchange::join(store(1)).unwrap());
            let x = Exchange::join(store(0)).unwrap().with_timeout(SHORT);
            let _other = other.join().unwrap();
            asked.store(0, Ordering::Relaxed);
            calls("get", x.get("nobody").unwrap_err());
            calls("barrier", x.barrier().unwrap_err());
        });
    }
}
