//! Several communicators of one rank that start or end at once.

use std::sync::Barrier;
use std::time::Duration;

use gpucomm::nccl::{AbortOutcome, CommState, Config, InitOptions, abort_all, close_all_timeout};
use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, group};

use crate::split::{owners, sum, whole};
use crate::support::process::{Role, all_succeed, spawn};
use crate::support::random::rng;
use crate::support::{assert_argument, assert_names, places, quick, rank_counts, slower, still_works, watched};

const CHILD: &str = "several::child";

#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn(Role)); 2] = [("grid", grid), ("host", host)];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role);
            println!("finished");
        }
    }
}

/// Ranks that do not compare, of as many communicators, each on a thread with all of its own.
fn strangers<R: Send>(ranks: usize, count: usize, body: impl Fn(Vec<Communicator>, &Stream) -> R + Sync) -> Vec<R> {
    let ids: Vec<_> = (0..count).map(|_| UniqueId::new().unwrap()).collect();
    let run = |rank| {
        let device = Device::new(rank).unwrap();
        // SAFETY: all threads run this; where a rank leaves others waiting, no operation contradicts another.
        let start = |id| unsafe { Communicator::init_rank(device, ranks, id, rank) }.unwrap();
        let comms: Vec<_> = ids.iter().map(start).collect();
        let stream = Stream::new(device).unwrap();
        comms.iter().for_each(|comm| sum(comm, &stream).unwrap());
        body(comms, &stream)
    };
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn all_end_at_once_in_any_order() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            for seed in 0..3 {
                let watches = owners(ranks, |world, stream| {
                    let rank = world.rank();
                    let row = world.split(Some(rank / 2), rank).unwrap().expect("a row");
                    let column = world.split(Some(rank % 2), rank).unwrap().expect("a column");
                    let part = whole(&row).unwrap();
                    let mut comms = vec![world, row, column, part];
                    comms.iter().for_each(|comm| sum(comm, stream).unwrap());
                    let mut x = DeviceBuffer::from_slice(stream, &[1u32; 100_000]).unwrap();
                    comms[0].all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).unwrap();
                    // Each rank in an order of its own.
                    rng(&format!("ends {ranks} {seed} {rank}")).shuffle(&mut comms);
                    let watches: Vec<_> = comms.iter().map(Communicator::aborter).collect();
                    let answers = quick(Duration::from_secs(5), || close_all_timeout(comms, slower(20.0)));
                    assert_eq!(answers.len(), 4);
                    answers.into_iter().for_each(|answer| answer.unwrap());
                    assert_eq!(x.to_vec(stream).unwrap(), vec![ranks as u32; 100_000], "work of before is done");
                    watches
                });
                for watch in watches.iter().flatten() {
                    assert!(matches!(watch.state(), None | Some(CommState::Closed)), "{:?}", watch.state());
                }
            }
            assert!(close_all_timeout([], Duration::ZERO).is_empty());
            still_works(ranks);
        }
    });
}

#[test]
fn those_that_share_end_together() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let options = InitOptions::new().with_config(Config::new().with_split_share(true));
            let clique = Clique::init_all_with(&places()[..ranks], &options).unwrap();
            let ends = |world: Communicator| {
                let stream = Stream::new(world.device()).unwrap();
                let (one, other) = (whole(&world).unwrap(), whole(&world).unwrap());
                [&world, &one, &other].iter().for_each(|comm| sum(comm, &stream).unwrap());
                let watch = one.aborter();
                close_all_timeout([world, one, other], slower(20.0)).into_iter().for_each(|answer| answer.unwrap());
                watch
            };
            let watches: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    clique.into_ranks().into_iter().map(|world| scope.spawn(move || ends(world))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            // NCCL lets go of them with the last, of whatever rank.
            for watch in &watches {
                let end = std::time::Instant::now() + slower(5.0);
                while !matches!(watch.state(), None | Some(CommState::Closed)) {
                    assert!(std::time::Instant::now() < end, "{:?}", watch.state());
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    });
}

#[test]
fn one_that_has_failed_or_hangs_is_told_alone() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3]) {
            // Aborted before.
            let answers = strangers(ranks, 3, |comms, stream| {
                let _ = comms[1].aborter().abort("a test");
                comms[2].barrier(stream).unwrap();
                close_all_timeout(comms, slower(20.0))
            });
            for answers in &answers {
                assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
                let error = answers[1].as_ref().unwrap_err();
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                assert_names(error, &["close", "a test"]);
            }
            // Rank 0 waits for the others, which do not come before it has ended.
            let (begin, end) = (&Barrier::new(ranks), &Barrier::new(ranks));
            let answers = strangers(ranks, 3, |comms, _| {
                let stream = Stream::new(comms[0].device()).unwrap();
                begin.wait();
                let mut x = DeviceBuffer::from_slice(&stream, &[1u32; 5]).unwrap();
                if comms[0].rank() > 0 {
                    end.wait();
                    return close_all_timeout(comms, slower(20.0));
                }
                comms[1].all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
                let answers = quick(Duration::from_secs(3), || close_all_timeout(comms, Duration::from_secs(2)));
                end.wait();
                answers
            });
            let error = answers[0][1].as_ref().unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            assert_names(error, &["close", "all_reduce of 5 u32"]);
            // The others had nothing on their way.
            assert!(answers[0][0].is_ok() && answers[0][2].is_ok(), "{:?}", answers[0]);
            assert!(answers[1..].iter().all(|answers| answers[0].is_ok() && answers[2].is_ok()), "{answers:?}");
            still_works(ranks);
        }
    });
}

#[test]
fn all_are_aborted_at_once() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let (begin, end) = (&Barrier::new(ranks), &Barrier::new(ranks));
            strangers(ranks, 3, |comms, _| {
                let rank = comms[0].rank();
                let streams: Vec<_> = comms.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
                let mut memory: Vec<_> =
                    streams.iter().map(|stream| DeviceBuffer::from_slice(stream, &[1u32; 5]).unwrap()).collect();
                begin.wait();
                // Each rank hangs in all of them, as the last does not come.
                if rank + 1 < ranks {
                    for ((comm, stream), x) in comms.iter().zip(&streams).zip(&mut memory) {
                        comm.all_reduce(InPlace(x), ReduceOp::Sum, stream).unwrap();
                    }
                }
                begin.wait();
                if rank == 0 {
                    let outcomes = quick(Duration::from_secs(5), || abort_all(&comms, "a test of all"));
                    assert_eq!(outcomes, [AbortOutcome::Done; 3]);
                    let aborters: Vec<_> = comms.iter().map(Communicator::aborter).collect();
                    assert_eq!(abort_all(&aborters, "once more"), [AbortOutcome::Already; 3]);
                }
                end.wait();
                for ((comm, stream), x) in comms.iter().zip(&streams).zip(&memory) {
                    assert!(!comm.is_active());
                    if rank + 1 < ranks {
                        let error = x.to_vec(stream).unwrap_err();
                        assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                        assert_names(&error, &["a test of all"]);
                    }
                }
                let aborters: Vec<_> = comms.iter().map(Communicator::aborter).collect();
                drop(comms);
                end.wait();
                assert_eq!(abort_all(aborters, "after the end"), [AbortOutcome::Already; 3]);
            });
            still_works(ranks);
        }
        assert!(abort_all::<&Communicator>([], "nobody").is_empty());
    });
}

#[test]
fn one_thread_starts_some_ranks() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            for cut in 0..ranks {
                let id = &UniqueId::new().unwrap();
                let hosts: Vec<Vec<usize>> = [(0..cut).rev().collect(), (cut..ranks).collect()]
                    .into_iter()
                    .filter(|host: &Vec<_>| !host.is_empty())
                    .collect();
                std::thread::scope(|scope| {
                    for host in hosts {
                        scope.spawn(move || drives(&host, ranks, id));
                    }
                });
            }
        }
        let device = Device::new(0).unwrap();
        let id = UniqueId::new().unwrap();
        let refused = |ranks: &[(Device, usize)], size, expected, got| {
            // SAFETY: refused before anybody else is concerned.
            let made = unsafe { Communicator::init_ranks(ranks, size, &id, &InitOptions::default()) };
            assert_argument(made, "init_ranks", expected, got);
        };
        refused(&[], 2, "at least one rank", "none");
        refused(&[(device, 0)], 0, "1 to", "0");
        refused(&[(device, 2)], 2, "a rank below 2", "2");
        refused(&[(device, 1), (device, 0)], 2, "each device once", "twice");
        if let Ok(other) = Device::new(1) {
            refused(&[(device, 1), (other, 1)], 2, "each rank once", "rank 1 twice");
        }
    });
}

/// Starts `host`, of so many ranks, and computes with them, as one thread.
fn drives(host: &[usize], ranks: usize, id: &UniqueId) {
    let own: Vec<_> = host.iter().map(|&rank| (Device::new(rank).unwrap(), rank)).collect();
    // SAFETY: all threads, or processes, of a test run this.
    let comms = unsafe { Communicator::init_ranks(&own, ranks, id, &InitOptions::default()) }.unwrap();
    assert!(comms.iter().map(|comm| (comm.device(), comm.rank())).eq(own));
    let streams: Vec<_> = comms.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
    let brought = |(comm, stream): (&Communicator, _)| DeviceBuffer::from_slice(stream, &[1u64 << comm.rank(); 333]);
    let mut sums: Vec<_> = comms.iter().zip(&streams).map(brought).collect::<Result<_>>().unwrap();
    group(|g| {
        let all = comms.iter().zip(&streams).zip(&mut sums);
        all.into_iter().try_for_each(|((comm, stream), x)| g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream))
    })
    .unwrap();
    for (x, stream) in sums.iter().zip(&streams) {
        assert_eq!(x.to_vec(stream).unwrap(), [(1u64 << ranks) - 1; 333]);
    }
    close_all_timeout(comms, slower(20.0)).into_iter().for_each(|answer| answer.unwrap());
}

/// Processes that end what they have in different orders.
#[test]
fn processes_end_all_in_any_order() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let id = UniqueId::new().unwrap();
            let children = (0..ranks).map(|rank| spawn(CHILD, "grid", (rank, ranks), &id, &[]));
            all_succeed(children.collect(), slower(60.0));
        }
        for ranks in rank_counts(&[4]) {
            let id = UniqueId::new().unwrap();
            let children = (0..2).map(|at| spawn(CHILD, "host", (at, ranks), &id, &[]));
            all_succeed(children.collect(), slower(60.0));
        }
    });
}

fn grid(role: Role) {
    let world = role.join().unwrap();
    let (rank, stream) = (role.rank, Stream::new(world.device()).unwrap());
    let row = world.split(Some(rank / 2), rank).unwrap().expect("a row");
    let column = world.split(Some(rank % 2), rank).unwrap().expect("a column");
    let mut comms = vec![world, row, column];
    comms.iter().for_each(|comm| sum(comm, &stream).unwrap());
    comms.rotate_left(rank % 3);
    let answers = quick(Duration::from_secs(5), || close_all_timeout(comms, slower(20.0)));
    answers.into_iter().for_each(|answer| answer.unwrap());
}

/// Half of the ranks.
fn host(role: Role) {
    let half = role.size / 2;
    let own: Vec<_> = (role.rank * half..(role.rank + 1) * half).collect();
    drives(&own, role.size, &role.id);
}
