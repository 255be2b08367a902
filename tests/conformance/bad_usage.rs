//! Calls at the wrong time: after an abort, after a failure, on a communicator that a rank has left.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpucomm::nccl::AbortOutcome;
use gpucomm::{DeviceBuffer, Error, InPlace, Layout, RecvOnly, ReduceOp, SendOnly, group};

use crate::support::{Rig, assert_names, each_type, quick, rank_counts, slower, still_works, watched};

fn after_abort_of<T: crate::support::Number>(rig: &Rig) {
    rig.clique.ranks().iter().for_each(|comm| {
        let stream = gpucomm::Stream::new(comm.device()).unwrap();
        let ranks = comm.size();
        let x = DeviceBuffer::<T>::zeroed(&stream, 4 * ranks).unwrap();
        let mut y = DeviceBuffer::<T>::zeroed(&stream, 16 * ranks).unwrap();
        let mut part = DeviceBuffer::<T>::zeroed(&stream, 4).unwrap();
        let counts = vec![1; ranks];
        let layout = Layout { counts: &counts, offsets: None };
        let (s, sum) = (&stream, ReduceOp::Sum);
        let root = comm.rank();
        let one = || x.slice(0..1);
        let results = [
            ("all_reduce", comm.all_reduce((&x, &mut y), sum, s)),
            ("reduce", comm.reduce((&x, &mut y), sum, root, s)),
            ("broadcast", comm.broadcast((&x, y.slice_mut(..4 * ranks)), root, s)),
            ("all_gather", comm.all_gather((&x, &mut y), s)),
            ("reduce_scatter", comm.reduce_scatter((&x, &mut y), sum, s)),
            ("all_to_all", comm.all_to_all((&x, &mut y), s)),
            ("gather", comm.gather((&x, &mut y), root, s)),
            ("scatter", comm.scatter((&x, &mut part), root, s)),
            ("send", comm.send(&x, (root + 1) % ranks, s)),
            ("recv", comm.recv(&mut y, (root + 1) % ranks, s)),
            ("all_to_all_v", comm.all_to_all_v((&x, &mut y), layout, layout, s)),
            ("all_gather_v", comm.all_gather_v((one(), &mut y), layout, s)),
            ("reduce_scatter_v", comm.reduce_scatter_v((&x, &mut y), layout, sum, s)),
            ("gather_v", comm.gather_v((one(), &mut y), layout, root, s)),
            ("scatter_v", comm.scatter_v((&x, &mut y), layout, root, s)),
            ("group", group(|g| g.all_reduce(comm, (&x, &mut y), sum, s))),
            ("async_error", comm.async_error()),
            ("alloc", comm.alloc::<T>(s, 10).map(drop)),
            ("alloc_local", comm.alloc_local::<T>(s, 10).map(drop)),
            ("pre_mul_sum", comm.pre_mul_sum(T::of(1)).map(drop)),
        ];
        for (operation, result) in results {
            let error = result.expect_err(operation);
            if ranks == 1 && matches!(operation, "send" | "recv") {
                // To itself, outside of a group.
                assert!(matches!(error, Error::InvalidArgument { .. }), "{operation}: {error:?}");
                continue;
            }
            assert!(matches!(error, Error::Aborted { .. }), "{operation}: {error:?}");
            assert_names(&error, &["because of the test"]);
            if operation != "group" {
                assert_names(&error, &[operation]);
            }
        }
    });
}

#[test]
fn every_call_after_an_abort() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            assert_eq!(rig.clique.rank(0).aborter().abort("because of the test"), AbortOutcome::Done);
            rig.clique.ranks().iter().for_each(|comm| {
                assert_eq!(comm.aborter().abort("once more"), AbortOutcome::Already);
            });
            each_type!(after_abort_of(&rig));
            still_works(ranks);
            drop(rig);
            still_works(ranks);
        }
    });
}

/// Each rank aborts, and one of them is the first; memory and streams go on.
#[test]
fn buffers_of_an_aborted_communicator_are_still_memory() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            let (all, done) = (Barrier::new(ranks), AtomicUsize::new(0));
            rig.run(|comm, stream| {
                let mut window = comm.alloc_from(stream, &[1.5f32; 100])?;
                stream.synchronize()?;
                all.wait();
                let outcome = comm.aborter().abort("because of the test");
                assert_ne!(outcome, AbortOutcome::StillRunning);
                done.fetch_add((outcome == AbortOutcome::Done).into(), Ordering::Relaxed);
                assert_eq!(window.to_vec(stream)?, [1.5; 100]);
                window.fill(stream, 2.5)?;
                assert_eq!(window.to_vec(stream)?, [2.5; 100]);
                Ok(())
            });
            assert_eq!(done.into_inner(), 1);
            drop(rig);
            still_works(ranks);
        }
    });
}

/// `spmd` on a clique whose ranks are gone says so on every rank and does not hang.
#[test]
fn spmd_after_an_abort() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            assert_eq!(rig.clique.rank(0).aborter().abort("because of the test"), AbortOutcome::Done);
            let result = quick(slower(20.0), || {
                rig.try_run(|comm, stream| {
                    let mut x = DeviceBuffer::<f32>::zeroed(stream, 4)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    stream.synchronize_timeout(slower(10.0))?;
                    comm.async_error()
                })
            });
            let error = result.expect_err("a clique without rank 0 worked");
            assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
            drop(rig);
            still_works(ranks);
        }
    });
}

/// The first error of a rank ends the others, which would wait for it.
#[test]
fn a_rank_that_returns_an_error_ends_the_others() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            let result = quick(slower(10.0), || {
                rig.try_run(|comm, stream| {
                    if comm.rank() == 1 {
                        return Err(Error::InvalidUsage { operation: "rank 1", reason: "of its own accord".into() });
                    }
                    let mut x = DeviceBuffer::<f32>::zeroed(stream, 4)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    stream.synchronize_timeout(slower(30.0))?;
                    comm.async_error()
                })
            });
            let error = result.expect_err("rank 1 failed");
            assert!(matches!(error, Error::InvalidUsage { operation: "rank 1", .. }), "not the first error: {error:?}");
            drop(rig);
            still_works(ranks);
        }
    });
}

/// Sides that nobody uses: a rank that is not the root may give only what it has, and what it must not give is refused.
#[test]
fn a_rank_that_is_not_the_root_gives_its_own_side() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let x = DeviceBuffer::from_slice(stream, &[comm.rank() as i32 + 1; 4])?;
                let mut y = DeviceBuffer::<i32>::zeroed(stream, 4 * ranks)?;
                if comm.rank() == 0 {
                    comm.gather((&x, &mut y), 0, stream)?;
                    assert_eq!(y.to_vec(stream)?, [1, 1, 1, 1, 2, 2, 2, 2]);
                    comm.scatter((&y, y_of(stream)?.slice_mut(0..4)), 0, stream)?;
                } else {
                    comm.gather(SendOnly(&x), 0, stream)?;
                    comm.scatter(RecvOnly(y.slice_mut(0..4)), 0, stream)?;
                    assert_eq!(y.to_vec(stream)?[..4], [2; 4]);
                }
                Ok(())
            });
            rig.close();
        }
    });
}

fn y_of(stream: &gpucomm::Stream) -> gpucomm::Result<DeviceBuffer<i32>> {
    DeviceBuffer::zeroed(stream, 4)
}
