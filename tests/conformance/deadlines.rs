//! Everything that can hang has a deadline: init, enqueue, wait, close.

use std::time::{Duration, Instant};

use gpucomm::nccl::{AbortOutcome, InitOptions};
use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, group};

use crate::support::{Rig, assert_names, places, quick, rank_counts, skip, slower, still_works, watched};

fn options(timeout: Duration) -> InitOptions {
    InitOptions::new().with_timeout(timeout)
}

#[track_caller]
fn assert_timeout(error: &Error, operation: &str, timeout: Duration) {
    let Error::Timeout { timeout: says, .. } = error else { panic!("not a Timeout: {error:?}") };
    assert_eq!(*says, timeout, "{error}");
    assert_names(error, &[operation]);
}

#[test]
fn a_rank_that_never_comes() {
    watched(60.0, || {
        let limit = slower(2.0);
        for size in [2, 4, 17] {
            let id = UniqueId::new().unwrap();
            let start = Instant::now();
            // SAFETY: no other rank exists, so none issues anything.
            let result =
                unsafe { Communicator::init_rank_with(Device::new(0).unwrap(), size, &id, 0, &options(limit)) };
            let took = start.elapsed();
            let error = result.expect_err("a communicator without its other ranks");
            assert_timeout(&error, "init_rank", limit);
            assert!(took >= limit && took < limit + slower(5.0), "after {took:?}");
            still_works(1);
        }
        for ranks in rank_counts(&[2]) {
            still_works(ranks);
        }
    });
}

/// The other rank is late, but not too late.
#[test]
fn a_rank_that_comes_late() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let id = UniqueId::new().unwrap();
            std::thread::scope(|scope| {
                for rank in 0..ranks {
                    let id = &id;
                    scope.spawn(move || {
                        std::thread::sleep(Duration::from_millis(700) * rank as u32);
                        let device = Device::new(rank).unwrap();
                        // SAFETY: both ranks issue the same operation.
                        let comm =
                            unsafe { Communicator::init_rank_with(device, ranks, id, rank, &options(slower(20.0))) };
                        let comm = comm.unwrap();
                        let stream = Stream::new(device).unwrap();
                        let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 5]).unwrap();
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
                        assert_eq!(x.to_vec(&stream).unwrap(), [2; 5]);
                    });
                }
            });
        }
    });
}

/// Aborts a communicator with work that hangs: waits say that the work has no result, until the user takes that as it is.
fn assert_freed_by_abort(comm: &Communicator, stream: &Stream) -> Result<()> {
    assert_eq!(comm.aborter().abort("rank 0 gives up"), AbortOutcome::Done);
    for _ in 0..3 {
        let error = stream.synchronize_timeout(slower(20.0)).expect_err("work that was aborted counts as done");
        assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
        assert_names(&error, &["rank 0 gives up"]);
    }
    stream.accept();
    stream.synchronize_timeout(slower(20.0))
}

/// A peer that never issues its call: the wait ends in time, an abort frees the stream, and the thread can go on.
#[test]
fn a_call_that_a_peer_never_makes() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let limit = slower(1.0);
            rig.run(|comm, stream| {
                if comm.rank() != 0 {
                    return Ok(());
                }
                let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                assert!(!stream.query()?, "done without the other ranks");
                let error =
                    quick(limit, || stream.synchronize_timeout(limit)).expect_err("done without the other ranks");
                assert_timeout(&error, "synchronize_timeout", limit);
                let event = stream.record()?;
                let error =
                    quick(limit, || event.synchronize_timeout(limit)).expect_err("done without the other ranks");
                assert_timeout(&error, "synchronize_timeout", limit);
                assert_freed_by_abort(comm, stream)?;
                let error = comm.async_error().unwrap_err();
                assert_names(&error, &["rank 0 gives up"]);
                // Stream and buffer are as good as new.
                x.fill(stream, 8)?;
                assert_eq!(x.to_vec(stream)?, [8; 5]);
                Ok(())
            });
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// The same with the first operation of a communicator, in which NCCL waits for the peers before it returns: either the call
/// or the wait for its stream ends in time, with an error.
#[test]
fn a_first_call_that_a_peer_never_makes() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let devices = Device::all().unwrap();
            let limit = slower(1.0);
            let clique = Clique::init_all(&devices[..ranks]).unwrap();
            clique.rank(0).set_timeout(limit);
            let stream = Stream::new(devices[0]).unwrap();
            let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 5]).unwrap();
            let error = quick(limit + slower(10.0), || {
                clique
                    .rank(0)
                    .all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)
                    .and_then(|()| stream.synchronize_timeout(limit))
            })
            .expect_err("done without the other ranks");
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            drop(x);
            quick(slower(30.0), || drop(clique));
            still_works(ranks);
        }
    });
}

/// Copies to the host wait with the default deadline, and never leave the device writing into the caller's slice.
#[test]
fn work_behind_a_hung_operation() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                if comm.rank() != 0 {
                    return Ok(());
                }
                let mut x = DeviceBuffer::from_slice(stream, &[7i32; 5])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                let aborter = comm.aborter();
                let helper = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(300));
                    aborter.abort("another thread gives up")
                });
                // Returns as soon as the abort has freed the stream, and does not pass off what it copied as a result.
                let mut host = [0i32; 5];
                let copied = quick(slower(10.0), || x.copy_to_slice(stream, &mut host));
                assert_eq!(helper.join().unwrap(), AbortOutcome::Done);
                let error = copied
                    .and_then(|()| stream.synchronize_timeout(slower(1.0)))
                    .expect_err("values of an aborted operation");
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                assert!(comm.async_error().is_err());
                Ok(())
            });
            drop(rig);
            still_works(ranks);
        }
    });
}

/// Thousands of calls without a peer: an enqueue ends with a Timeout before the queue of the device is full, and can be
/// aborted then.
fn enqueue_until_full(comm: &Communicator, stream: &Stream) -> Result<()> {
    let limit = slower(2.0);
    comm.set_timeout(limit);
    assert_eq!(comm.timeout(), limit);
    let mut x = DeviceBuffer::from_slice(stream, &[1.0f32; 5])?;
    let start = Instant::now();
    let (taken, error) = (0..5000)
        .find_map(|n| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).err().map(|error| (n, error)))
        .expect("5000 operations were taken although none can be done");
    let took = start.elapsed();
    assert_timeout(&error, "all_reduce", limit);
    assert!(took < limit + slower(10.0), "{took:?}");
    assert!(taken >= 32, "only {taken} operations may be on their way");
    // The call has ended the communicator, or leaves that to the caller. Either way the stream goes on.
    assert_ne!(comm.aborter().abort("rank 0 gives up"), AbortOutcome::StillRunning);
    let error = stream.synchronize_timeout(slower(20.0)).expect_err("work that was aborted counts as done");
    assert!(matches!(error, Error::Aborted { .. } | Error::Timeout { .. }), "{error:?}");
    assert!(!comm.is_active());
    stream.accept();
    stream.synchronize_timeout(slower(20.0))
}

#[test]
fn enqueues_do_not_block_for_ever() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| if comm.rank() == 0 { enqueue_until_full(comm, stream) } else { Ok(()) });
            drop(rig);
            still_works(ranks);
        }
    });
}

/// The same where ranks do not compare their calls, so that nothing but the queue itself bounds them.
#[test]
fn enqueues_of_separate_ranks_do_not_block_for_ever() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            let id = UniqueId::new().unwrap();
            let comms: Vec<Communicator> = std::thread::scope(|scope| {
                let start = |rank: usize| {
                    let id = &id;
                    // SAFETY: rank 1 issues one operation, which rank 0 issues too, and none after it.
                    move || unsafe { Communicator::init_rank(Device::new(rank).unwrap(), ranks, id, rank) }.unwrap()
                };
                let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(start(rank))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let streams: Vec<Stream> = comms.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
            // One that both make, so that connections exist: what a first call waits for is another matter.
            std::thread::scope(|scope| {
                for (comm, stream) in comms.iter().zip(&streams) {
                    scope.spawn(move || {
                        let mut x = DeviceBuffer::from_slice(stream, &[1.0f32; 5]).unwrap();
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).unwrap();
                        assert_eq!(x.to_vec(stream).unwrap(), [2.0; 5]);
                    });
                }
            });
            enqueue_until_full(&comms[0], &streams[0]).unwrap();
            quick(slower(15.0), || drop(comms));
            still_works(ranks);
        }
    });
}

/// `close` on one rank alone, with work that cannot end: it gives up in time.
#[test]
fn close_has_a_deadline() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let mut comms = Rig::new(ranks).clique.into_ranks();
            let first = comms.remove(0);
            let stream = Stream::new(first.device()).unwrap();
            let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32; 5]).unwrap();
            first.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
            let limit = slower(1.0);
            let error = quick(limit, || first.close_timeout(limit)).expect_err("closed with work that cannot end");
            assert_timeout(&error, "close", limit);
            quick(slower(10.0), || drop(x));
            quick(slower(10.0), || drop(comms));
            drop(stream);
            still_works(ranks);
        }
    });
}

/// Dropping a rank that hangs takes a bounded time, in whatever order, and so does dropping what it uses.
#[test]
fn drops_of_a_hung_communicator_are_bounded() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            for order in 0..3 {
                let mut comms = Rig::new(ranks).clique.into_ranks();
                let first = comms.remove(0);
                first.set_timeout(slower(1.0));
                let stream = Stream::new(first.device()).unwrap();
                let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32; 5]).unwrap();
                first.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
                quick(slower(15.0), || match order {
                    0 => drop((first, x, stream)),
                    1 => drop((x, stream, first)),
                    _ => drop((stream, first, x)),
                });
                quick(slower(15.0), || drop(comms));
                still_works(ranks);
            }
        }
    });
}

#[test]
fn a_group_that_a_peer_never_makes() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let limit = slower(1.0);
            rig.run(|comm, stream| {
                if comm.rank() == 0 {
                    return Ok(());
                }
                let mut x = DeviceBuffer::from_slice(stream, &[1.0f32; 5])?;
                let mut y = DeviceBuffer::from_slice(stream, &[1.0f32; 5])?;
                group(|g| {
                    g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
                    g.recv(comm, &mut y, 0, stream)
                })?;
                let error = quick(limit, || stream.synchronize_timeout(limit)).expect_err("done without rank 0");
                assert_timeout(&error, "synchronize_timeout", limit);
                assert_eq!(comm.aborter().abort("rank 1 gives up"), AbortOutcome::Done);
                Ok(())
            });
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// An abort from a thread that does nothing else, while all ranks are busy enqueuing.
#[test]
fn an_abort_in_the_middle_of_everything() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            for after in [0, 1, 7, 30] {
                let rig = Rig::new(ranks);
                let aborters: Vec<_> = rig.clique.ranks().iter().map(Communicator::aborter).collect();
                let helper = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(after));
                    aborters.iter().for_each(|aborter| drop(aborter.abort("in the middle")));
                });
                let result: Result<Vec<()>> = quick(slower(20.0), || {
                    rig.try_run(|comm, stream| {
                        let mut x = DeviceBuffer::from_slice(stream, &vec![1i32; 1000])?;
                        loop {
                            comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                        }
                    })
                });
                helper.join().unwrap();
                let error = result.expect_err("an endless loop has ended");
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                drop(rig);
                still_works(ranks);
            }
        }
    });
}

#[test]
fn a_clique_that_cannot_form_in_no_time() {
    watched(60.0, || {
        if crate::support::harness::devices() < 2 {
            return skip("a clique of two: this machine has one device");
        }
        let devices = &places()[..2];
        let timeout = Duration::from_nanos(1);
        match quick(slower(10.0), || Clique::init_all_with(devices, &options(timeout))) {
            // Quicker than the first look at the clock is not impossible.
            Ok(clique) => drop(clique),
            Err(error) => assert_timeout(&error, "init_all", timeout),
        }
        still_works(2);
    });
}

/// A communicator that has ended because somebody waited too long: later waits and calls say that it is over, and not that they
/// have waited as long.
#[test]
fn what_comes_after_a_timeout() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let limit = slower(0.5);
            rig.run(|comm, stream| {
                comm.set_timeout(limit);
                if comm.rank() != 0 {
                    return Ok(());
                }
                let (mut x, mut large) =
                    (DeviceBuffer::<f32>::zeroed(stream, 5)?, DeviceBuffer::<f32>::zeroed(stream, 1 << 20)?);
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                // Its first of this size, for which the ranks meet.
                let error =
                    comm.all_reduce(InPlace(&mut large), ReduceOp::Max, stream).expect_err("done without rank 1");
                assert_timeout(&error, "all_reduce", limit);
                let over = |result: Result<()>, operation: &str| match result {
                    Err(Error::Aborted { operation: by, reason }) => {
                        assert_eq!(by, operation);
                        assert!(reason.contains("all_reduce: not done within "), "{reason}");
                        assert!(reason.contains("rank 1"), "{reason}");
                    }
                    other => panic!("{operation}: {other:?}"),
                };
                quick(slower(5.0), || over(stream.synchronize_timeout(slower(50.0)), "Stream::synchronize_timeout"));
                over(x.to_vec(stream).map(drop), "Slice::to_vec");
                over(comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream), "all_reduce");
                over(comm.async_error(), "async_error");
                Ok(())
            });
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// No time, hardly any, and more than there is: each is a time like others, for whatever takes one.
#[test]
fn times_of_every_length() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            let devices = &places()[..ranks];
            for time in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
                let is_long = time > Duration::from_secs(1);
                // Where there is no time, what takes none may be done all the same.
                let fits = |what: &str, result: Result<()>| match result {
                    Err(error) if is_long => panic!("{what}, {time:?}: {error}"),
                    Err(error) => assert!(matches!(error, Error::Timeout { .. }), "{what}, {time:?}: {error:?}"),
                    Ok(()) => {}
                };
                quick(slower(5.0), || fits("init_all", Clique::init_all_with(devices, &options(time)).map(drop)));
                let clique = Clique::init_all(devices).unwrap();
                clique.ranks().iter().for_each(|comm| comm.set_timeout(time));
                let steps = clique.spmd(|comm| {
                    let stream = Stream::new(comm.device())?;
                    let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 5])?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                    stream.synchronize_timeout(time)
                });
                // Another rank may have ended first.
                match steps {
                    Err(Error::Aborted { .. }) if !is_long => {}
                    steps => fits("all_reduce", steps.map(drop)),
                }
                quick(slower(5.0), || drop(clique));
                let clique = Clique::init_all(devices).unwrap();
                quick(slower(5.0), || fits("close", clique.close_timeout(time)));
            }
            still_works(ranks);
        }
    });
}
