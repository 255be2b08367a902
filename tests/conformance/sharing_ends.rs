//! How communicators end that share their resources.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpucomm::nccl::{AbortOutcome, CommState, Config, InitOptions};
use gpucomm::{Clique, Communicator, DeviceBuffer, InPlace, ReduceOp, Stream, group};

use crate::sharing::{owners, sharing};
use crate::split::{sum, whole};
use crate::split_ends::dropped_in_order;
use crate::support::{assert_names, places, quick, rank_counts, slower, still_works, watched};

/// One of them is aborted, on one rank: so are all others, and say why.
#[test]
fn an_end_of_one_is_that_of_all() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            for which in 0..4 {
                let barrier = Barrier::new(ranks);
                let (threads, fires) = (&barrier, AtomicBool::new(true));
                owners(ranks, |comm, stream| {
                    let (rank, part) = (comm.rank(), whole(&comm).unwrap());
                    let half = comm.split(Some(rank / 2), rank).unwrap().expect("a half");
                    let of_part = whole(&part).unwrap();
                    let all = [&comm, &part, &half, &of_part];
                    all.iter().for_each(|comm| sum(comm, stream).unwrap());
                    threads.wait();
                    if rank == 0 {
                        // One of them hangs.
                        let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5]).unwrap();
                        if ranks > 1 {
                            part.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).unwrap();
                        }
                        let outcome = quick(slower(4.0), || all[which].aborter().abort("one gives up"));
                        assert_eq!(outcome, AbortOutcome::Done);
                        fires.store(false, Ordering::Release);
                    }
                    while fires.load(Ordering::Acquire) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    let part = "of communicator \"world/split(color=0)\"";
                    let names = [
                        "of communicator \"world\"",
                        part,
                        part,
                        "of communicator \"world/split(color=0)/split(color=0)\"",
                    ];
                    for (at, comm) in all.iter().enumerate() {
                        let error = sum(comm, stream).expect_err("one was aborted");
                        assert_names(&error, &["one gives up"]);
                        let told = error.to_string().contains("which shares its resources");
                        // The other half is another part.
                        let itself = at == which && (which != 2 || rank < 2);
                        let below = which == 0 || (which == 1 && at == 3);
                        assert_eq!(told, !itself && !below, "{which} {at}: {error}");
                        if told {
                            assert_names(&error, &[names[which]]);
                        }
                        assert_eq!(comm.state(), CommState::Aborted);
                    }
                });
                still_works(ranks);
            }
        }
    });
}

/// What was closed rests until the last is closed.
#[test]
fn closed_ones_rest() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let barrier = Barrier::new(ranks);
            owners(ranks, |comm, stream| {
                let (part, other) = (whole(&comm).unwrap(), whole(&comm).unwrap());
                let (whole_aborter, part_aborter) = (comm.aborter(), part.aborter());
                quick(slower(2.0), || part.close_timeout(slower(10.0)).unwrap());
                barrier.wait();
                assert_eq!(part_aborter.state(), Some(CommState::Closing));
                let outcome = quick(slower(2.0), || part_aborter.abort("too late"));
                assert_eq!(outcome, AbortOutcome::StillRunning);
                sum(&comm, stream).unwrap();
                quick(slower(2.0), || drop(comm));
                assert_eq!(whole_aborter.state(), Some(CommState::Closing));
                sum(&other, stream).unwrap();
                barrier.wait();
                quick(slower(3.0), || other.close_timeout(slower(10.0)).unwrap());
                barrier.wait();
                for aborter in [whole_aborter, part_aborter] {
                    assert!(matches!(aborter.state(), None | Some(CommState::Closed)), "{:?}", aborter.state());
                }
            });
            still_works(ranks);
        }
    });
}

/// What rests is taken down with those that are aborted.
#[test]
fn an_abort_beside_closed_ones() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let clique = sharing(ranks);
            let parts: Vec<_> = (0..3).map(|_| clique.split(|_| Some((5, 0))).unwrap().remove(&5).unwrap()).collect();
            let aborters: Vec<_> = parts.iter().flat_map(Clique::ranks).map(Communicator::aborter).collect();
            let mut parts = parts.into_iter();
            let last = parts.next().unwrap();
            parts.for_each(|part| part.close_timeout(slower(10.0)).unwrap());
            clique.close_timeout(slower(10.0)).unwrap();
            assert_eq!(last.abort("the last one gives up"), AbortOutcome::Done);
            let ended = |state| matches!(state, None | Some(CommState::Closed | CommState::Aborted));
            assert!(aborters.iter().all(|aborter| ended(aborter.state())));
            still_works(ranks);
        }
    });
}

#[test]
fn drops_in_every_order() {
    watched(200.0, || {
        for ranks in rank_counts(&[1, 2]) {
            for order in (0..24).map(permutation) {
                owners(ranks, |comm, stream| dropped_in_order(&order, comm, stream));
            }
            still_works(ranks);
        }
    });
}

/// The orders of four things.
fn permutation(number: usize) -> Vec<usize> {
    let mut left: Vec<_> = (0..4).collect();
    [6, 2, 1, 1].iter().map(|divisor| left.remove(number / divisor % left.len())).collect()
}

#[test]
fn forgotten_and_dropped_while_unwinding() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2]) {
            for forgets_part in [true, false] {
                owners(ranks, |comm, stream| {
                    let part = whole(&comm).unwrap();
                    sum(&part, stream).unwrap();
                    let (kept, forgotten) = if forgets_part { (comm, part) } else { (part, comm) };
                    std::mem::forget(forgotten);
                    sum(&kept, stream).unwrap();
                    quick(slower(2.0), || drop(kept));
                });
            }
            let clique = sharing(ranks);
            let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                clique.spmd(|comm| {
                    let (part, stream) = (whole(comm)?, Stream::new(comm.device())?);
                    sum(&part, &stream)?;
                    if comm.rank() == 0 {
                        panic!("the test panics")
                    }
                    sum(&part, &stream)
                })
            }));
            assert!(end.is_err());
            still_works(ranks);
        }
    });
}

/// What aborts one raises the flags of all before it waits for a device: here that of rank 0, whose work lies behind that of rank 1, which
/// waits for rank 2.
#[test]
fn an_abort_of_a_part_behind_another_device() {
    watched(60.0, || {
        for _ in rank_counts(&[3]) {
            let clique = sharing(3);
            let parts = clique.split(|rank| Some((rank, 0))).unwrap();
            let streams: Vec<_> = clique.ranks().iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
            let ones = |stream| DeviceBuffer::from_slice(stream, &[1i64; 100]).unwrap();
            let mut xs: Vec<_> = streams.iter().map(ones).collect();
            group(|group| {
                let mut ranks = clique.ranks().iter().zip(&mut xs).zip(&streams);
                ranks.try_for_each(|((comm, x), stream)| group.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream))
            })
            .unwrap();
            streams.iter().for_each(|stream| stream.synchronize_timeout(slower(10.0)).unwrap());
            let (first, rest) = xs.split_at_mut(1);
            clique.rank(1).all_reduce(InPlace(&mut rest[0]), ReduceOp::Sum, &streams[1]).unwrap();
            first[0].copy_from(&streams[0], &rest[0]).unwrap();
            clique.rank(0).all_reduce(InPlace(&mut first[0]), ReduceOp::Sum, &streams[0]).unwrap();
            let outcome = parts[&0].rank(0).aborter().abort("the part gives up");
            assert_eq!(outcome, AbortOutcome::Done);
            let mut all = clique.ranks().iter().chain(parts.values().flat_map(Clique::ranks));
            assert!(all.all(|comm| comm.state() == CommState::Aborted));
        }
    });
}

/// Sharers that have windows and registered memory: NCCL has to be stopped on all ranks before it gives these up, and stops a rank only
/// when the others have let go of it.
#[test]
fn an_abort_of_those_that_have_windows() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            for which in 0..2 {
                // SAFETY: what is registered is freed after its communicator.
                let config = unsafe { Config::new().with_force_windows() }.with_split_share(true);
                let options = InitOptions::new().with_timeout(slower(10.0)).with_config(config);
                let clique = Clique::init_all_with(&places()[..ranks], &options).unwrap();
                let fires = Barrier::new(ranks);
                clique
                    .spmd(|comm| {
                        let stream = Stream::new(comm.device())?;
                        let part = whole(comm)?;
                        let mut x = comm.alloc::<u32>(&stream, 1000)?;
                        let mut y = part.alloc::<u32>(&stream, 1000)?;
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Max, &stream)?;
                        part.all_reduce(InPlace(&mut y), ReduceOp::Max, &stream)?;
                        stream.synchronize()?;
                        fires.wait();
                        let aborted = if which == 0 { comm } else { &part };
                        if comm.rank() == 0 {
                            let outcome = quick(slower(6.0), || aborted.aborter().abort("the test aborts"));
                            assert_eq!(outcome, AbortOutcome::Done);
                        }
                        fires.wait();
                        assert_eq!((comm.state(), part.state()), (CommState::Aborted, CommState::Aborted));
                        Ok(())
                    })
                    .unwrap();
                still_works(ranks);
            }
        }
    });
}
