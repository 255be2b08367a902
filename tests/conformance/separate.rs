//! Ranks that were made one by one, whose calls nobody compares: what NCCL does inside the call, and what it says, stands in errors.

use std::sync::Barrier;

use gpucomm::known_bugs::TABLE;
use gpucomm::nccl::{AbortOutcome, InitOptions};
use gpucomm::version::built_nccl;
use gpucomm::{Backend, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, group};

use crate::support::{assert_names, quick, rank_counts, skip, slower, still_works, watched};

/// Both ranks, made by a thread each.
fn two() -> Vec<Communicator> {
    let id = UniqueId::new().unwrap();
    let start = |rank| {
        let device = Device::new(rank).unwrap();
        // SAFETY: each test issues the same operations in the same order on both ranks, or on one of them alone.
        unsafe { Communicator::init_rank(device, 2, &id, rank) }.unwrap()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|rank| scope.spawn(move || start(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn sum(comm: &Communicator, stream: &Stream, x: &mut DeviceBuffer<i32>) -> Result<()> {
    comm.all_reduce(InPlace(x), ReduceOp::Sum, stream)
}

/// What only the emulator knows.
fn assert_emulator_names(error: &Error, parts: &[&str]) {
    if gpucomm::backend() == Backend::Emulator {
        assert_names(error, parts);
    }
}

/// The first collective meets the peers inside the call: it ends, though the peer's would come after it. Five seconds are what a call
/// takes at the least before it counts as blocked.
#[test]
fn one_thread_without_a_group() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            if TABLE.iter().any(|bug| bug.name == "no-revoke" && bug.concerns(built_nccl().version)) {
                return skip("waking a thread that waits inside NCCL: needs 2.28.7");
            }
            let comms = two();
            let limit = slower(1.0);
            comms.iter().for_each(|comm| comm.set_timeout(limit));
            let stream = Stream::new(comms[0].device()).unwrap();
            let mut x = DeviceBuffer::from_slice(&stream, &[1; 5]).unwrap();
            let error =
                quick(limit + slower(7.0), || sum(&comms[0], &stream, &mut x)).expect_err("done without rank 1");
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            assert_names(&error, &["rank 0 waits inside NCCL"]);
            assert_emulator_names(
                &error,
                &["its first AllReduce of this kind", "for rank 1, which last finished CommInitRank"],
            );
            quick(slower(20.0), || drop((x, comms)));
            still_works(ranks);
        }
    });
}

/// NCCL leaves its own device current when a group fails; the thread has its own again.
#[test]
fn a_group_that_fails_leaves_the_current_device() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            if TABLE.iter().any(|bug| bug.name == "no-revoke" && bug.concerns(built_nccl().version)) {
                return skip("waking a thread that waits inside NCCL: needs 2.28.7");
            }
            let comms = two();
            comms.iter().for_each(|comm| comm.set_timeout(slower(1.0)));
            let other = comms[1].device();
            let _current = other.set_current().unwrap();
            let stream = Stream::new(comms[0].device()).unwrap();
            let mut parts = [[1; 5], [2; 5]].map(|values| DeviceBuffer::from_slice(&stream, &values).unwrap());
            let failed = quick(slower(10.0), || {
                group(|g| {
                    parts.iter_mut().try_for_each(|x| g.all_reduce(&comms[0], InPlace(x), ReduceOp::Sum, &stream))
                })
            });
            failed.expect_err("done without rank 1");
            assert_eq!(Device::current().unwrap(), other);
            quick(slower(20.0), || drop((parts, comms)));
            still_works(ranks);
        }
    });
}

/// Connected before: then the stream waits, and the error of a wait says for whom.
#[test]
fn a_call_that_the_peer_never_makes() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let comms = two();
            let work = |comm: &Communicator| {
                let stream = Stream::new(comm.device())?;
                let mut x = DeviceBuffer::from_slice(&stream, &[1; 5])?;
                sum(comm, &stream, &mut x)?;
                assert_eq!(x.to_vec(&stream)?, [2; 5]);
                Ok::<_, Error>((x, stream))
            };
            let works: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = comms.iter().map(|comm| scope.spawn(|| work(comm).unwrap())).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let mut works = works.into_iter();
            let (mut x, stream) = works.next().expect("that of rank 0");
            sum(&comms[0], &stream, &mut x).unwrap();
            let limit = slower(1.0);
            let error = quick(limit, || stream.synchronize_timeout(limit)).expect_err("done without rank 1");
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            let says =
                ["AllReduce of 5 elements (collective #2)", "rank 1, which last finished AllReduce of 5 elements"];
            assert_emulator_names(&error, &says);
            assert_eq!(comms[0].aborter().abort("the peer does not come"), AbortOutcome::Done);
            quick(slower(20.0), || drop((x, comms)));
            still_works(ranks);
        }
    });
}

/// A rank that is stopped leaves garbage to who waits for it on the device: so all ranks of the process end with it.
#[test]
fn ranks_of_one_process_end_together() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let comms = two();
            // Before and after it.
            let aborted = Barrier::new(2);
            let results: Vec<_> = std::thread::scope(|scope| {
                let work = |comm: &Communicator| {
                    let stream = Stream::new(comm.device())?;
                    let mut x = DeviceBuffer::from_slice(&stream, &[1; 5])?;
                    sum(comm, &stream, &mut x)?;
                    assert_eq!(x.to_vec(&stream)?, [2; 5]);
                    aborted.wait();
                    let first = comm.rank() == 0;
                    if first {
                        sum(comm, &stream, &mut x)?;
                        assert_eq!(comm.aborter().abort("rank 0 gives up"), AbortOutcome::Done);
                    }
                    aborted.wait();
                    assert!(!comm.is_active(), "rank {}", comm.rank());
                    let called = if first { Ok(()) } else { sum(comm, &stream, &mut x) };
                    called.and_then(|()| x.to_vec(&stream)).map(drop)
                };
                let threads: Vec<_> = comms.iter().map(|comm| scope.spawn(move || work(comm))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for result in results {
                let error = result.expect_err("a result of ranks that were aborted");
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                assert_names(&error, &["rank 0 gives up"]);
            }
            // Who was closed is not aborted any more, nor are the others with it.
            let mut comms = two().into_iter();
            let (one, other) = (comms.next().expect("rank 0"), comms.next().expect("rank 1"));
            let aborter = one.aborter();
            one.close_timeout(slower(10.0)).unwrap();
            assert_eq!(aborter.abort("too late"), AbortOutcome::Already);
            assert!(other.is_active());
            quick(slower(20.0), || drop(other));
            still_works(ranks);
        }
    });
}

/// A start says who has not come.
#[test]
fn a_start_without_the_others() {
    watched(60.0, || {
        let id = UniqueId::new().unwrap();
        let options = InitOptions::new().with_timeout(slower(1.0));
        // SAFETY: no other rank exists, so none issues anything.
        let start = || unsafe { Communicator::init_rank_with(Device::new(0).unwrap(), 3, &id, 0, &options) };
        let error = quick(slower(1.0), start).expect_err("a communicator without its other ranks");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        assert_names(&error, &["not all of the 3 ranks"]);
        assert_emulator_names(&error, &["rank 1, which has not come", "rank 2, which has not come"]);
        still_works(1);
    });
}
