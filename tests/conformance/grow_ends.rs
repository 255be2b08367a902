//! Communicators to which ranks are added, where some do not come, or end.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use gpucomm::nccl::{Config, InitOptions};
use gpucomm::{Clique, Communicator, Error, Result, Stream};

use crate::grow::{FIRST, clique, use_it};
use crate::support::newer::since;
use crate::support::{assert_names, places, rank_counts, slower, still_works};

/// A new rank that never comes: the others are told, each at its deadline.
#[test]
fn a_new_rank_that_never_comes() {
    since(FIRST, 120.0, || {
        for ranks in rank_counts(&[2, 3]) {
            for accepts in [false, true] {
                let devices = &places()[..ranks];
                let old = clique(&devices[..ranks - 1]);
                old.spmd(use_it).unwrap();
                old.ranks().iter().for_each(|comm| comm.set_timeout(slower(1.0)));
                // Of two one may come.
                let mut invitations = old.rank(0).invite(2).unwrap();
                std::thread::scope(|scope| {
                    let begin = Instant::now();
                    let told = move |result: Result<Communicator>| {
                        let error = result.map(drop).unwrap_err();
                        let fits = matches!(error, Error::Timeout { .. } | Error::Aborted { .. });
                        assert!(fits, "{error:?}");
                        assert!(begin.elapsed() < slower(2.0) + Duration::from_secs(10), "{error}");
                    };
                    if accepts {
                        let (invitation, device) = (invitations.remove(0), devices[ranks - 1]);
                        scope.spawn(move || told(invitation.accept(device)));
                    }
                    for comm in old.ranks() {
                        scope.spawn(move || {
                            told(comm.grow(2));
                            assert!(!comm.is_active());
                        });
                    }
                });
                drop((old, invitations));
                still_works(ranks);
            }
        }
    });
}

/// A rank that there is never comes: nothing has happened to the others; who is invited is told at its deadline.
#[test]
fn an_old_rank_that_never_comes() {
    since(FIRST, 90.0, || {
        for ranks in rank_counts(&[3]) {
            let devices = &places()[..ranks];
            let old = clique(&devices[..2]);
            old.spmd(use_it).unwrap();
            old.ranks().iter().for_each(|comm| comm.set_timeout(slower(1.0)));
            let invitation = old.rank(0).invite(1).unwrap().pop().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let error = invitation.accept(devices[2]).map(drop).unwrap_err();
                    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                });
                let error = old.rank(0).grow(1).map(drop).unwrap_err();
                assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                assert_names(&error, &["rank 1 has not come to a grow by 1"]);
                assert!(old.rank(0).is_active());
            });
            old.spmd(use_it).unwrap();
            drop(old);
            still_works(ranks);
        }
    });
}

/// Ranks count what is made of a communicator, by which those that come find it; one that was left out of a shrink has not made that.
#[test]
fn who_was_left_out_of_a_shrink_grows_with_the_others() {
    since(FIRST, 90.0, || {
        for ranks in rank_counts(&[3, 4]) {
            let devices = &places()[..ranks];
            for left_out in [0, ranks - 2] {
                let old = clique(&devices[..ranks - 1]);
                let rest = old.shrink(&[left_out]).unwrap();
                rest.spmd(use_it).unwrap();
                old.spmd(use_it).unwrap();
                let grown = old.grow(&devices[ranks - 1..]).unwrap();
                grown.spmd(use_it).unwrap();
                old.split(|rank| Some((rank % 2, 0)))
                    .unwrap()
                    .values()
                    .for_each(|part| part.spmd(use_it).map(drop).unwrap());
                drop((old, rest));
                grown.spmd(use_it).unwrap();
            }
            still_works(ranks);
        }
    });
}

/// NCCL would have the new communicator use what the old one shares with its parts. The parts grow, until they have parts.
#[test]
fn what_shares_with_parts_does_not_grow() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[3, 4]) {
            let devices = &places()[..ranks];
            let options = InitOptions::new().with_config(Config::new().with_split_share(true));
            let old = Clique::init_all_with(&devices[..ranks - 1], &options).unwrap();
            let newcomers = &devices[ranks - 1..];
            old.grow(newcomers).unwrap().spmd(use_it).unwrap();
            let refused = |clique: &Clique| {
                let all = [
                    clique.grow(newcomers).map(drop),
                    clique.rank(0).invite(1).map(drop),
                    clique.rank(0).grow(1).map(drop),
                ];
                for error in all.map(Result::unwrap_err) {
                    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                    assert_names(&error, &["shares its resources with what was split off"]);
                }
            };
            let part = old.split(|_| Some((0, 0))).unwrap().remove(&0).unwrap();
            refused(&old);
            part.grow(newcomers).unwrap().spmd(use_it).unwrap();
            drop(part.split(|_| Some((0, 0))).unwrap());
            refused(&part);
            drop(part);
            refused(&old);
            // Nothing has happened.
            old.spmd(use_it).unwrap();
            old.close_timeout(slower(10.0)).unwrap();
            still_works(ranks);
        }
    });
}

#[test]
fn forgotten_dropped_and_unwound() {
    since(FIRST, 120.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let devices = &places()[..ranks];
            for order in 0..4 {
                let old = clique(&devices[..1]);
                let grown = old.grow(&devices[1..]).unwrap();
                grown.spmd(use_it).unwrap();
                match order {
                    0 => drop((old, grown)),
                    1 => drop((grown, old)),
                    2 => {
                        std::mem::forget(old);
                        grown.spmd(use_it).unwrap();
                    }
                    _ => {
                        std::mem::forget(grown);
                        old.spmd(use_it).unwrap();
                    }
                }
            }
            let old = clique(&devices[..1]);
            std::mem::forget(old.rank(0).invite(1).unwrap());
            drop(old);
            let end = std::panic::catch_unwind(|| {
                let old = clique(&devices[..1]);
                let _invited = old.rank(0).invite(1).unwrap();
                panic!("the test panics")
            });
            assert!(end.is_err());
            let end = std::panic::catch_unwind(|| {
                let old = clique(&devices[..1]);
                let grown = old.grow(&devices[1..]).unwrap();
                grown.spmd(|comm| {
                    use_it(comm)?;
                    if comm.rank() == 0 {
                        panic!("the test panics")
                    }
                    Ok(())
                })
            });
            assert!(end.is_err());
            still_works(ranks);
        }
    });
}

#[test]
fn an_abort_stops_it() {
    since(FIRST, 90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let devices = &places()[..ranks];
            for round in 0..8 {
                let old = clique(&devices[..ranks - 1]);
                let aborter = old.rank(0).aborter();
                let thread = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_micros(500 * round));
                    aborter.abort("the test aborts")
                });
                // It may come too late.
                match old.grow(&devices[ranks - 1..]) {
                    Ok(grown) => grown.spmd(use_it).map(drop).unwrap(),
                    Err(error) => assert!(!matches!(error, Error::Timeout { .. }), "{error:?}"),
                }
                let _ = thread.join().unwrap();
            }
            still_works(ranks);
        }
    });
}

/// Nobody is invited before what was enqueued is done: an invitation by which nobody grows stays open.
#[test]
fn a_clique_that_was_busy_grows_later() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[3]) {
            let devices = &places()[..ranks];
            let old = clique(&devices[..2]);
            old.ranks().iter().for_each(|comm| comm.set_timeout(slower(0.5)));
            let streams: Vec<_> = devices[..2].iter().map(|device| Stream::new(*device).unwrap()).collect();
            old.barrier(&streams).unwrap();
            let (sender, receiver) = mpsc::channel::<()>();
            streams[0].launch_host(move || drop(receiver.recv())).unwrap();
            old.barrier_on_stream(&streams).unwrap();
            let error = old.grow(&devices[2..]).unwrap_err();
            assert!(matches!(error, Error::Timeout { operation: "Clique::grow", .. }), "{error:?}");
            drop(sender);
            old.barrier(&streams).unwrap();
            old.split(|rank| Some((0, rank))).unwrap()[&0].spmd(use_it).unwrap();
            old.grow(&devices[2..]).unwrap().spmd(use_it).unwrap();
        }
    });
}

/// A rank revokes the communicator while the others wait for it in a grow.
#[test]
fn a_revoke_ends_the_wait_of_a_grow() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[3]) {
            let devices = &places()[..ranks];
            let old = clique(devices);
            old.spmd(use_it).unwrap();
            let _invitations = old.rank(0).invite(1).unwrap();
            let (waits, waiting) = mpsc::channel();
            std::thread::scope(|scope| {
                for comm in &old.ranks()[1..] {
                    let waits = waits.clone();
                    scope.spawn(move || {
                        waits.send(()).unwrap();
                        let begin = Instant::now();
                        let error = comm.grow(1).map(drop).unwrap_err();
                        assert!(error.to_string().contains("revoked"), "{error}");
                        assert!(begin.elapsed() < slower(10.0), "{:?}", begin.elapsed());
                    });
                }
                (1..ranks).for_each(|_| waiting.recv().unwrap());
                // Before or after they wait for it.
                std::thread::sleep(Duration::from_millis(fastrand::u64(..100)));
                old.rank(0).revoke("a test").unwrap();
            });
            drop(old);
            still_works(ranks);
        }
    });
}

/// A new rank learns at once that the clique which has invited it will not grow.
#[test]
fn a_new_rank_is_told_that_the_clique_has_ended() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[3]) {
            for ends in ["revoke", "abort", "drop"] {
                let devices = &places()[..ranks];
                let old = clique(&devices[..ranks - 1]);
                old.ranks().iter().for_each(|comm| comm.set_timeout(slower(40.0)));
                let invitation = old.rank(0).invite(1).unwrap().remove(0);
                std::thread::scope(|scope| {
                    let new = devices[ranks - 1];
                    let comes =
                        scope.spawn(move || invitation.accept(new).map(drop).expect_err("the clique has ended"));
                    // Before or after it waits.
                    std::thread::sleep(Duration::from_millis(fastrand::u64(..100)));
                    let begin = Instant::now();
                    match ends {
                        "revoke" => drop(old.rank(1).revoke("a test").unwrap()),
                        "abort" => drop(old.rank(1).aborter().abort("a test")),
                        _ => drop(old),
                    }
                    let error = comes.join().unwrap();
                    assert!(matches!(error, Error::Revoked { .. } | Error::Aborted { .. }), "{ends}: {error:?}");
                    assert!(begin.elapsed() < slower(10.0), "{ends}: {:?}", begin.elapsed());
                });
            }
            still_works(ranks - 1);
        }
    });
}

/// All ranks are inside NCCL in a grow, to which the new rank never comes. A revoke ends that, and the communicator with it.
#[test]
fn a_revoke_ends_a_grow_inside_nccl() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let devices = &places()[..ranks];
            let old = clique(&devices[..ranks - 1]);
            old.spmd(use_it).unwrap();
            let _invitation = old.rank(0).invite(1).unwrap();
            std::thread::scope(|scope| {
                let grows: Vec<_> =
                    old.ranks().iter().map(|comm| scope.spawn(|| comm.grow(1).map(drop).unwrap_err())).collect();
                // They are inside NCCL, which says so to nobody.
                std::thread::sleep(slower(1.0));
                let begin = Instant::now();
                let revoked = old.rank(0).revoke("a test").map(drop).unwrap_err();
                assert!(matches!(revoked, Error::Aborted { .. }), "{revoked:?}");
                for grow in grows {
                    let error = grow.join().unwrap();
                    assert!(error.to_string().contains("revoked"), "{error}");
                }
                assert!(begin.elapsed() < slower(10.0), "{:?}", begin.elapsed());
            });
        }
    });
}
