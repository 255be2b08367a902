//! What has failed disturbs nobody else: other communicators, streams and buffers that are kept, results that are there.

use std::sync::{Barrier, Mutex};
use std::time::Duration;

use gpucomm::cuda::Slice;
use gpucomm::{Clique, DeviceBuffer, Error, InPlace, RecvOnly, ReduceOp, SendOnly, Stream, group};

use crate::failures::{REASON, abort, assert_aborted};
use crate::support::{Rig, assert_names, places, quick, rank_counts, slower, still_works, watched};

/// Two cliques on the same streams: the one that is aborted takes nothing of the other with it.
#[test]
fn two_communicators_on_one_stream() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let devices = &places()[..ranks];
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
                    }
                    // Behind what hangs here: an abort that found it waiting for this very thread would wait as well.
                    other.all_reduce(InPlace(&mut y), ReduceOp::Sum, stream)?;
                    if comm.rank() == 0 {
                        abort(comm);
                    }
                    assert_eq!(y.to_vec(stream)?, [(ranks * ranks) as i32; 4]);
                    if comm.rank() == 0 {
                        assert_aborted(stream.synchronize());
                        assert_aborted(stream.synchronize());
                        assert_aborted(x.to_vec(stream));
                    }
                    // Not before: the end of the abort would wait for what waits for rank 0.
                    all.wait();
                    // The other one goes on, and the failure was told.
                    other.all_reduce(InPlace(&mut y), ReduceOp::Max, stream)?;
                    stream.synchronize()
                })
                .unwrap();
            second.close_timeout(gpucomm::default_timeout()).unwrap();
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
            let devices = &places()[..ranks];
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
                        assert!(matches!(
                            stream.synchronize_timeout(Duration::from_millis(100)),
                            Err(Error::Timeout { .. })
                        ));
                    }
                    Ok(Mutex::new(x))
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
            new.close_timeout(gpucomm::default_timeout()).unwrap();
        }
    });
}

/// Who waits for a kept stream is told that what has failed there is past, and how to go on.
#[test]
fn a_kept_stream_tells_of_an_earlier_communicator() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            for new in [false, true] {
                let devices = &places()[..ranks];
                let stream = Stream::new(devices[0]).unwrap();
                let rig = Rig::new(ranks);
                let mut x = DeviceBuffer::from_slice(&stream, &[7; 4]).unwrap();
                rig.clique.rank(0).all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
                abort(rig.clique.rank(0));
                let again = stream
                    .synchronize_timeout(slower(5.0))
                    .expect_err("work of an aborted communicator counts as done");
                assert!(!again.to_string().contains("accept"), "it may be the one in use: {again}");
                drop(rig);
                // Who looks after it lets go of it.
                std::thread::sleep(slower(0.2));
                // Whether another one takes its place or not.
                let made = new.then(|| Rig::new(ranks));
                let event = stream.record().unwrap();
                let waits = [
                    stream.synchronize_timeout(slower(5.0)),
                    event.synchronize_timeout(slower(5.0)),
                    x.to_vec(&stream).map(drop),
                ];
                for error in waits.map(|waited| waited.expect_err("work of an aborted communicator counts as done")) {
                    let told =
                        "(of an earlier communicator, which is gone: accept, of the stream or the buffer, goes on";
                    assert_names(&error, &[REASON, told]);
                }
                stream.accept();
                stream.synchronize_timeout(slower(5.0)).unwrap();
                x.accept();
                x.to_vec(&stream).unwrap();
                drop(made);
            }
        }
    });
}

/// An operation of a sound communicator on data of a failed one: its result is marked, on the rank whose data that is.
#[test]
fn sound_operations_on_failed_data() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let devices = &places()[..ranks];
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
                other.all_to_all_v((&x, &mut y), &counts, &counts, &fresh)?;
                assert_eq!(y.to_vec(&fresh)?, [2; 4]);
                Ok(())
            });
            second.close_timeout(gpucomm::default_timeout()).unwrap();
            quick(slower(20.0), || drop(first));
        }
    });
}

/// Operations of a sound communicator clear the mark of what they overwrite as a whole, and of nothing else.
#[test]
fn what_overwrites_a_buffer() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let devices = &places()[..ranks];
            let (first, second) = (Rig::new(ranks), Clique::init_all(devices).unwrap());
            let others = second.ranks();
            let all = Barrier::new(ranks);
            first.run(|comm, stream| {
                let (rank, last, len) = (comm.rank(), comm.size() - 1, 2 * comm.size());
                let (other, fresh) = (&others[rank], Stream::new(comm.device())?);
                let clean = DeviceBuffer::from_slice(&fresh, &vec![1; len])?;
                // The memory of a window is longer than what it holds.
                let mut window = other.alloc(&fresh, len)?;
                let mut marked =
                    (0..7).map(|_| DeviceBuffer::from_slice(stream, &vec![7; len])).collect::<Result<Vec<_>, _>>()?;
                stream.synchronize()?;
                all.wait();
                if rank == 0 {
                    for x in &mut marked {
                        comm.all_reduce(InPlace(x), ReduceOp::Sum, stream)?;
                    }
                    abort(comm);
                }
                let tells = |x: Slice<'_, i32>| {
                    if rank == 0 {
                        assert_aborted(x.to_vec(&fresh));
                    }
                };
                let sum = |x: Slice<'_, i32>, want: i32| {
                    assert_eq!(x.to_vec(&fresh).unwrap(), vec![want; len]);
                };
                let [a, b, c, d, e, f, g] = &mut marked[..] else { unreachable!() };
                // Longer than the result, by one element.
                other.all_reduce((clean.slice(1..), &mut *a), ReduceOp::Sum, &fresh)?;
                tells(a.as_slice());
                other.all_reduce((&clean, &mut *a), ReduceOp::Sum, &fresh)?;
                sum(a.as_slice(), ranks as i32);
                other.all_gather((clean.slice(..1), b.slice_mut(..ranks)), &fresh)?;
                tells(b.as_slice());
                other.all_gather((clean.slice(..2), &mut *b), &fresh)?;
                sum(b.as_slice(), 1);
                other.all_gather(InPlace(&mut *c), &fresh)?;
                tells(c.as_slice());
                other.broadcast((&clean, &mut *c), last, &fresh)?;
                sum(c.as_slice(), 1);
                let counts = vec![2; ranks];
                other.all_gather_v((clean.slice(..2), &mut *d), &counts, &fresh)?;
                sum(d.as_slice(), 1);
                other.scatter((&clean, e.slice_mut(..2)), last, &fresh)?;
                tells(e.as_slice());
                let (right, left) = ((rank + 1) % ranks, (rank + last) % ranks);
                let (front, back) = e.split_at_mut(1);
                group(|g| {
                    g.send(other, clean.slice(..1), right, &fresh)?;
                    g.recv(other, front, left, &fresh)?;
                    g.send(other, clean.slice(1..), right, &fresh)?;
                    g.recv(other, back, left, &fresh)
                })?;
                sum(e.as_slice(), 1);
                // Only the root reads what it broadcasts in place.
                other.broadcast(InPlace(&mut *f), last, &fresh)?;
                sum(f.as_slice(), 7);
                other.broadcast(InPlace(&mut *g), 0, &fresh)?;
                tells(g.as_slice());
                window.copy_from(&fresh, &*g)?;
                tells(window.as_slice());
                other.all_reduce((&clean, &mut window), ReduceOp::Max, &fresh)?;
                sum(window.as_slice(), 1);
                Ok(())
            });
            drop(second);
            quick(slower(20.0), || drop(first));
        }
    });
}

/// What a rank sends itself, or leaves where it is, keeps its mark.
#[test]
fn what_stays_with_a_rank() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let devices = &places()[..ranks];
            let (first, second) = (Rig::new(ranks), Clique::init_all(devices).unwrap());
            let others = second.ranks();
            let all = Barrier::new(ranks);
            first.run(|comm, stream| {
                let (rank, fresh) = (comm.rank(), Stream::new(comm.device())?);
                let (other, counts) = (&others[rank], &vec![2; ranks]);
                let mut x = DeviceBuffer::from_slice(stream, &vec![7; 2 * ranks])?;
                let mut y = DeviceBuffer::<i32>::zeroed(&fresh, 2 * ranks)?;
                // All that a rank sends another one is clean.
                let clean = DeviceBuffer::from_slice(&fresh, &[1; 2])?;
                fresh.synchronize()?;
                stream.synchronize()?;
                all.wait();
                if rank == 0 {
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    abort(comm);
                }
                let tells = |what: &str, x: &mut DeviceBuffer<i32>| {
                    if rank == 0 {
                        println!("{what}, {ranks} ranks");
                        assert_aborted(x.to_vec(&fresh));
                        assert_aborted(fresh.synchronize());
                    }
                    // What is read is not what was written.
                    fresh.accept();
                    x.fill(&fresh, 0).unwrap();
                };
                other.all_to_all_v((&x, &mut y), counts, counts, &fresh)?;
                tells("all_to_all_v", &mut y);
                other.all_to_all((&x, &mut y), &fresh)?;
                tells("all_to_all", &mut y);
                if rank == 0 {
                    other.gather_v((x.slice(..2), &mut y), counts, 0, &fresh)?;
                    tells("gather_v", &mut y);
                    other.gather((x.slice(..2), &mut y), 0, &fresh)?;
                    tells("gather", &mut y);
                    other.scatter_v((&x, y.slice_mut(..2)), counts, 0, &fresh)?;
                    tells("scatter_v", &mut y);
                    other.scatter((&x, y.slice_mut(..2)), 0, &fresh)?;
                    tells("scatter", &mut y);
                } else {
                    other.gather_v(SendOnly(&clean), counts, 0, &fresh)?;
                    other.gather(SendOnly(&clean), 0, &fresh)?;
                    other.scatter_v(RecvOnly(y.slice_mut(..2)), counts, 0, &fresh)?;
                    other.scatter(RecvOnly(y.slice_mut(..2)), 0, &fresh)?;
                }
                // The second receive from itself gets what was sent second, on streams of their own.
                let second = Stream::new(comm.device())?;
                let mut z = DeviceBuffer::<i32>::zeroed(&second, 2)?;
                group(|g| {
                    g.send(other, &clean, rank, &fresh)?;
                    g.recv(other, z.as_slice_mut(), rank, &fresh)?;
                    g.recv(other, y.slice_mut(..2), rank, &second)?;
                    g.send(other, x.slice(..2), rank, &fresh)
                })?;
                assert_eq!(z.to_vec(&fresh)?, [1; 2]);
                if rank == 0 {
                    assert_aborted(second.synchronize());
                }
                tells("send and recv", &mut y);
                other.all_gather_v(InPlace(&mut x), counts, &fresh)?;
                tells("all_gather_v", &mut x);
                assert_eq!(x.to_vec(&fresh)?, vec![0; 2 * ranks]);
                Ok(())
            });
            second.close_timeout(gpucomm::default_timeout()).unwrap();
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
