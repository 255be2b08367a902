//! No wait says `Ok` over work that has failed: not the first one, not the tenth, on no stream; and nobody else is
//! disturbed.

use std::sync::Barrier;
use std::time::Duration;

use gpucomm::nccl::AbortOutcome;
use gpucomm::{
    Clique, Communicator, Device, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Result, SendOnly, Stream,
};

use crate::support::{Rig, assert_names, quick, rank_counts, slower, still_works, watched};

const REASON: &str = "rank 0 gives up";

/// A clique of which rank 0 alone reduces `[7; 4]` in place on its stream; then it is aborted, after `meanwhile` was run.
fn with_an_abort(
    body: impl Fn(&Communicator, &Stream, DeviceBuffer<i32>) -> Result<()> + Send + Sync + Copy + 'static,
) {
    watched(90.0, move || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                if comm.rank() != 0 {
                    return Ok(());
                }
                let mut x = DeviceBuffer::from_slice(stream, &[7; 4])?;
                stream.synchronize()?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                body(comm, stream, x)
            });
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

fn abort(comm: &Communicator) {
    assert_eq!(comm.aborter().abort(REASON), AbortOutcome::Done);
}

#[track_caller]
fn assert_aborted<V: std::fmt::Debug>(result: Result<V>) {
    let error = result.expect_err("work that was aborted counts as done");
    assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
    assert_names(&error, &[REASON]);
}

#[test]
fn every_wait_for_a_stream_tells_of_an_abort() {
    with_an_abort(|comm, stream, x| {
        abort(comm);
        for _ in 0..10 {
            assert_aborted(stream.wait(slower(20.0)));
            assert_aborted(stream.query());
            assert_aborted(x.to_vec(stream));
        }
        Ok(())
    });
}

#[test]
fn another_stream_does_not_hand_out_what_was_not_reduced() {
    with_an_abort(|comm, stream, x| {
        let other = Stream::new(comm.device())?;
        abort(comm);
        for _ in 0..3 {
            assert_aborted(x.to_vec(&other));
            assert_aborted(x.slice(1..3).to_vec(&other));
        }
        // It has nothing to do with the failure, otherwise.
        other.wait(slower(20.0))?;
        assert_aborted(stream.wait(slower(20.0)));
        Ok(())
    });
}

/// The same where the copy waits while another thread aborts.
#[test]
fn a_copy_on_another_stream_that_waits_for_the_abort() {
    with_an_abort(|comm, _, x| {
        let other = Stream::new(comm.device())?;
        let aborter = comm.aborter();
        let helper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            aborter.abort(REASON)
        });
        assert_aborted(quick(slower(15.0), || x.to_vec(&other)));
        assert_eq!(helper.join().unwrap(), AbortOutcome::Done);
        Ok(())
    });
}

#[test]
fn events_tell_of_an_abort() {
    with_an_abort(|comm, stream, x| {
        let early = stream.record()?;
        let mut host = PinnedBuffer::from_slice(&[1; 4])?;
        abort(comm);
        let late = stream.record()?;
        let other = Stream::new(comm.device())?;
        other.wait_event(&early)?;
        for _ in 0..3 {
            assert_aborted(early.wait(slower(20.0)));
            assert_aborted(early.query());
            assert_aborted(late.synchronize());
            assert_aborted(other.wait(slower(20.0)));
        }
        // The waits before have told; the copy is marked all the same.
        x.copy_to_pinned(stream, &mut host)?;
        for _ in 0..3 {
            assert_aborted(host.as_slice().map(<[i32]>::to_vec));
            assert_aborted(host.as_mut_slice().map(|values| values.to_vec()));
        }
        host.accept();
        assert_eq!(host.as_slice()?, [7; 4]);
        // Recorded anew, behind nothing that failed.
        other.accept();
        late.record(&other)?;
        late.wait(slower(20.0))
    });
}

/// Copies, and operations of others, carry the mark on; whole overwrites clear it.
#[test]
fn marks_travel() {
    with_an_abort(|comm, stream, mut x| {
        abort(comm);
        let other = Stream::new(comm.device())?;
        let mut y = DeviceBuffer::from_slice(&other, &[1; 8])?;
        y.slice_mut(2..6).copy_from(&other, &x)?;
        let mut z = DeviceBuffer::from_slice(&other, &[1; 8])?;
        z.copy_from(stream, &y)?;
        let mut host = PinnedBuffer::<i32>::new(8)?;
        z.copy_to_pinned(stream, &mut host)?;
        let mut back = DeviceBuffer::from_slice(&other, &[1; 8])?;
        back.copy_from_pinned(&other, &host)?;
        for buffer in [&y, &z, &back] {
            assert_aborted(buffer.to_vec(&other));
        }
        assert_aborted(other.wait(slower(20.0)));
        // A part is not enough, the whole is.
        z.slice_mut(..7).fill(&other, 3)?;
        assert_aborted(z.to_vec(stream));
        z.fill(stream, 4)?;
        assert_eq!(z.to_vec(&other)?, [4; 8]);
        y.copy_from_slice(&other, &[5; 8])?;
        assert_eq!(y.to_vec(&other)?, [5; 8]);
        back.copy_from(&other, &y)?;
        assert_eq!(back.to_vec(stream)?, [5; 8]);
        y.copy_to_pinned(stream, &mut host)?;
        assert_eq!(host.as_slice()?, [5; 8]);
        // What is accepted is as it is.
        x.slice_mut(..2).accept();
        assert_aborted(x.to_vec(stream));
        x.accept();
        assert_eq!(x.to_vec(stream)?, [7; 4]);
        Ok(())
    });
}

/// What was waited for before the abort keeps its result, and so does what the operation only read.
#[test]
fn what_was_done_before_stays() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let all = Barrier::new(ranks);
            rig.run(|comm, stream| {
                let sum = ranks as i32 * 7;
                let mut first = DeviceBuffer::from_slice(stream, &[7; 4])?;
                let mut second = comm.alloc_from(stream, &[7; 4])?;
                let (mut third, mut fourth) = (DeviceBuffer::zeroed(stream, 4)?, DeviceBuffer::zeroed(stream, 4)?);
                comm.all_reduce(InPlace(&mut first), ReduceOp::Sum, stream)?;
                comm.all_reduce(InPlace(&mut second), ReduceOp::Sum, stream)?;
                comm.all_reduce((&second, &mut third), ReduceOp::Max, stream)?;
                assert_eq!(second.to_vec(stream)?, [sum; 4]);
                stream.record()?.wait(slower(20.0))?;
                all.wait();
                if comm.rank() != 0 {
                    return Ok(());
                }
                comm.all_reduce((&first, &mut fourth), ReduceOp::Sum, stream)?;
                abort(comm);
                assert_eq!(first.to_vec(stream)?, [sum; 4]);
                assert_eq!(second.to_vec(stream)?, [sum; 4]);
                assert_eq!(third.to_vec(stream)?, [sum; 4]);
                assert_aborted(fourth.to_vec(stream));
                Ok(())
            });
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// Two cliques on the same streams: the one that is aborted takes nothing of the other with it.
#[test]
fn two_communicators_on_one_stream() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let devices = &Device::all().unwrap()[..ranks];
            let (first, second) = (Clique::init_all(devices).unwrap(), Clique::init_all(devices).unwrap());
            let others = second.ranks();
            let all = Barrier::new(ranks);
            let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
            first
                .spmd(|comm| {
                    let (other, stream) = (&others[comm.rank()], &streams[comm.rank()]);
                    let mut x = DeviceBuffer::from_slice(stream, &[7; 4])?;
                    let mut y = DeviceBuffer::from_slice(stream, &[1; 4])?;
                    other.all_reduce(InPlace(&mut y), ReduceOp::Sum, stream)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    stream.synchronize()?;
                    all.wait();
                    if comm.rank() == 0 {
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                        abort(comm);
                    }
                    other.all_reduce(InPlace(&mut y), ReduceOp::Sum, stream)?;
                    assert_eq!(y.to_vec(stream)?, [(ranks * ranks) as i32; 4]);
                    if comm.rank() == 0 {
                        assert_aborted(stream.synchronize());
                        assert_aborted(stream.synchronize());
                        assert_aborted(x.to_vec(stream));
                    }
                    // The other one goes on, and the failure was told.
                    other.all_reduce(InPlace(&mut y), ReduceOp::Max, stream)?;
                    stream.synchronize()
                })
                .unwrap();
            second.close(gpucomm::default_timeout()).unwrap();
            quick(slower(20.0), || drop(first));
            still_works(ranks);
        }
    });
}

/// A new clique on the streams and in the buffers of one that was aborted.
#[test]
fn an_old_abort_does_not_fail_a_new_clique() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let devices = &Device::all().unwrap()[..ranks];
            let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
            let make = || {
                let clique = Clique::init_all(devices).unwrap();
                clique.spmd(|comm| {
                    let stream = &streams[comm.rank()];
                    let mut x = DeviceBuffer::from_slice(stream, &[1; 4])?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    assert_eq!(x.to_vec(stream)?, [ranks as i32; 4]);
                    Ok(())
                })?;
                Ok::<_, Error>(clique)
            };
            let old = make().unwrap();
            let kept: Vec<_> = old
                .spmd(|comm| {
                    let stream = &streams[comm.rank()];
                    let mut x = DeviceBuffer::from_slice(stream, &[7; 4])?;
                    if comm.rank() == 0 {
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                        assert!(matches!(stream.wait(Duration::from_millis(100)), Err(Error::Timeout { .. })));
                    }
                    Ok(std::sync::Mutex::new(x))
                })
                .unwrap();
            let _ = old.abort(REASON);
            let new = make().unwrap();
            new.spmd(|comm| {
                let (rank, stream) = (comm.rank(), &streams[comm.rank()]);
                let mut x = kept[rank].lock().unwrap();
                if rank == 0 {
                    assert_aborted(x.to_vec(stream));
                }
                // Rank 0 has the values of the others.
                let last = comm.size() - 1;
                comm.broadcast(InPlace(&mut *x), last, stream)?;
                stream.synchronize()?;
                assert_eq!(x.to_vec(stream)?, [7; 4]);
                comm.all_reduce(InPlace(&mut *x), ReduceOp::Sum, stream)?;
                assert_eq!(x.to_vec(stream)?, [ranks as i32 * 7; 4]);
                Ok(())
            })
            .unwrap();
            new.close(gpucomm::default_timeout()).unwrap();
        }
    });
}

/// An operation of a sound communicator on data of a failed one: its result is marked, on the rank whose data that is.
#[test]
fn sound_operations_on_failed_data() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let devices = &Device::all().unwrap()[..ranks];
            let (first, second) = (Rig::new(ranks), Clique::init_all(devices).unwrap());
            let others = second.ranks();
            first.run(|comm, stream| {
                let (other, fresh) = (&others[comm.rank()], Stream::new(comm.device())?);
                let mut x = DeviceBuffer::from_slice(stream, &[7; 4])?;
                if comm.rank() == 0 {
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    abort(comm);
                }
                let mut y = DeviceBuffer::<i32>::zeroed(&fresh, 4)?;
                other.all_reduce((&x, &mut y), ReduceOp::Sum, &fresh)?;
                if comm.rank() == 0 {
                    assert_aborted(fresh.synchronize());
                    assert_aborted(y.to_vec(&fresh));
                    other.reduce(SendOnly(&x), ReduceOp::Sum, comm.size() - 1, &fresh)?;
                } else if comm.rank() == comm.size() - 1 {
                    other.reduce((&x, &mut y), ReduceOp::Sum, comm.rank(), &fresh)?;
                } else {
                    other.reduce(SendOnly(&x), ReduceOp::Sum, comm.size() - 1, &fresh)?;
                }
                fresh.accept();
                fresh.synchronize()?;
                // In parts, but all of it, in one operation.
                let counts = vec![4 / comm.size(); comm.size()];
                x.fill(&fresh, 2)?;
                other.all_to_all_v(&x, &counts, &mut y, &counts, &fresh)?;
                assert_eq!(y.to_vec(&fresh)?, [2; 4]);
                Ok(())
            });
            second.close(gpucomm::default_timeout()).unwrap();
            quick(slower(20.0), || drop(first));
        }
    });
}

/// A clique that is closed in order leaves results behind that nobody has asked for yet.
#[test]
fn results_outlive_their_communicator() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            let kept = rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[7; 4])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                Ok((x, stream.clone(), stream.record()?))
            });
            rig.close();
            for (x, stream, event) in kept {
                event.synchronize().unwrap();
                stream.synchronize().unwrap();
                assert_eq!(x.to_vec(&stream).unwrap(), [7 * ranks as i32; 4]);
            }
        }
    });
}
