//! Before what NCCL connects the ranks of a clique for, they meet: nobody blocks inside NCCL, and who waits says for whom.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use gpucomm::nccl::AbortOutcome;
use gpucomm::{Backend, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, group};

use crate::support::{Rig, assert_names, quick, rank_counts, slower, still_works, watched};

fn all_reduce(comm: &Communicator, stream: &Stream, len: usize) -> Result<Vec<f32>> {
    let mut x = DeviceBuffer::from_slice(stream, &vec![1.0f32; len])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    x.to_vec(stream)
}

/// What rank 0 gets, which is alone with what it does.
fn alone(ranks: usize, limit: Duration, body: impl Fn(&Communicator, &Stream) -> Result<()> + Sync) -> Error {
    let rig = Rig::unconnected(ranks);
    let mut results = quick(limit, || {
        rig.run(|comm, stream| {
            comm.set_timeout(limit);
            Ok(body(comm, stream).err())
        })
    });
    quick(slower(20.0), || drop(rig));
    still_works(ranks);
    results.swap_remove(0).expect("done without the other ranks")
}

#[test]
fn a_first_collective_says_who_has_not_come() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let limit = slower(1.0);
            let error = alone(ranks, limit, |comm, stream| match comm.rank() {
                0 => all_reduce(comm, stream, 10).map(drop),
                _ => Ok(()),
            });
            assert!(matches!(error, Error::Timeout { operation: "all_reduce", .. }), "{error:?}");
            assert_names(&error, &["rank 1 has come to no collective"]);
            // Each rank has a thread of its own here.
            assert!(!error.to_string().contains("one group"), "{error}");
        }
    });
}

/// The others have gone on with something that is not new.
#[test]
fn a_first_collective_of_another_size_says_where_the_others_are() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let limit = slower(1.0);
            let error = alone(ranks, limit, |comm, stream| {
                (0..3).try_for_each(|_| all_reduce(comm, stream, 10).map(drop))?;
                if comm.rank() == 0 { all_reduce(comm, stream, 1_000_000).map(drop) } else { Ok(()) }
            });
            assert!(matches!(error, Error::Timeout { operation: "all_reduce", .. }), "{error:?}");
            assert_names(&error, &["rank 1 has come to 3 collectives", "all_reduce of 10 f32, sum"]);
        }
    });
}

#[test]
fn a_first_message_says_who_has_not_come() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let limit = slower(1.0);
            let error = alone(ranks, limit, |comm, stream| {
                all_reduce(comm, stream, 10)?;
                if comm.rank() == 0 { comm.send(&DeviceBuffer::<u8>::zeroed(stream, 8)?, 1, stream) } else { Ok(()) }
            });
            assert!(matches!(error, Error::Timeout { operation: "send", .. }), "{error:?}");
            assert_names(&error, &["rank 0", "rank 1 has come to 1 collective"]);
        }
    });
}

/// One thread that drives two ranks, one after the other: on a GPU it would hang inside NCCL.
#[test]
fn one_thread_without_a_group() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::unconnected(ranks);
            let limit = slower(1.0);
            let comms = rig.clique.ranks();
            comms.iter().for_each(|comm| comm.set_timeout(limit));
            let stream = Stream::new(comms[0].device()).unwrap();
            let error = quick(limit, || all_reduce(&comms[0], &stream, 10)).unwrap_err();
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            assert_names(&error, &["rank 1", "one group"]);
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// Whoever waits there is woken by an abort, at once and without an interrupt.
#[test]
fn an_abort_wakes_those_who_wait() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::unconnected(ranks);
            let took = rig.run(|comm, stream| {
                if comm.rank() == 1 {
                    return Ok(Duration::ZERO);
                }
                let (aborter, rank) = (comm.aborter(), comm.rank());
                let helper = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(200));
                    let begin = std::time::Instant::now();
                    let _ = aborter.abort("the test aborts");
                    begin
                });
                let error = match rank {
                    0 => comm.send(&DeviceBuffer::<u8>::zeroed(stream, 8)?, 1, stream).unwrap_err(),
                    _ => all_reduce(comm, stream, 10).unwrap_err(),
                };
                let took = helper.join().expect("an abort").elapsed();
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                assert_names(&error, &["the test aborts"]);
                Ok(took)
            });
            assert!(took.iter().all(|took| *took < slower(5.0)), "{took:?}");
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// An abort at any moment of a first call: either all ranks go on into NCCL or none, so nobody has to be woken there, which takes a
/// second.
#[test]
fn aborts_at_any_moment_of_a_first_call() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            // Long enough for some to hit the moment in question.
            let (rounds, limit) = match gpucomm::backend() {
                Backend::Nvidia => (20, slower(1.5)),
                _ => (100, slower(0.9)),
            };
            for round in 0..rounds {
                let rig = Rig::unconnected(ranks);
                let (aborter, all) = (rig.clique.rank(0).aborter(), Barrier::new(ranks + 1));
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let ended = rig.try_run(|comm, stream| {
                            let (rank, last) = (comm.rank(), comm.size() - 1);
                            let mut x = DeviceBuffer::from_slice(stream, &[1u8; 8])?;
                            all.wait();
                            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                            match round % 2 {
                                0 if rank == 0 => comm.send(&x, last, stream)?,
                                0 if rank == last => comm.recv(&mut x, 0, stream)?,
                                _ => comm.broadcast(InPlace(&mut x), 0, stream)?,
                            }
                            stream.synchronize()
                        });
                        assert!(matches!(ended, Ok(_) | Err(Error::Aborted { .. })), "{ended:?}");
                    });
                    all.wait();
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_micros(10 * round) {
                        std::hint::spin_loop();
                    }
                    let begin = Instant::now();
                    assert_eq!(aborter.abort("the test aborts"), AbortOutcome::Done);
                    assert!(begin.elapsed() < limit, "round {round}: {:?}", begin.elapsed());
                });
            }
            still_works(ranks);
        }
    });
}

/// First messages of every kind of grouping that two ranks may have.
#[test]
fn two_ranks_connect_however_they_group() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            for case in 0..4 {
                let rig = Rig::unconnected(ranks);
                rig.run(|comm, stream| {
                    let (rank, peer) = (comm.rank(), 1 - comm.rank());
                    let x = DeviceBuffer::from_slice(stream, &[rank as u32 + 5; 3])?;
                    let mut y = DeviceBuffer::<u32>::zeroed(stream, 3)?;
                    let mut sum = DeviceBuffer::from_slice(stream, &[1u64; 3])?;
                    match (case, rank) {
                        // One exchanges, the other receives first.
                        (0, 1) | (1, 1) | (2, 1) => {
                            if case == 2 {
                                comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, stream)?;
                            }
                            comm.recv(&mut y, peer, stream)?;
                            comm.send(&x, peer, stream)?;
                        }
                        (1, 0) => {
                            comm.send(&x, peer, stream)?;
                            comm.recv(&mut y, peer, stream)?;
                        }
                        // Together with a collective, which the other has not grouped.
                        (2, 0) => group(|g| {
                            g.send(comm, &x, peer, stream)?;
                            g.recv(comm, &mut y, peer, stream)?;
                            g.all_reduce(comm, InPlace(&mut sum), ReduceOp::Sum, stream)
                        })?,
                        _ => group(|g| {
                            g.send(comm, &x, peer, stream)?;
                            g.recv(comm, &mut y, peer, stream)
                        })?,
                    }
                    assert_eq!(y.to_vec(stream)?, [peer as u32 + 5; 3], "case {case}");
                    let want = if case == 2 { 2 } else { 1 };
                    assert_eq!(sum.to_vec(stream)?, [want; 3], "case {case}");
                    Ok(())
                });
                rig.close();
            }
        }
    });
}

/// A first group of so many messages that it goes in parts; the other rank makes one call a message.
#[test]
fn a_group_in_parts_connects_first() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::unconnected(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &(0..1000u32).map(|at| at * at).collect::<Vec<_>>())?;
                if comm.rank() == 0 {
                    group(|g| (0..1000).try_for_each(|at| g.send(comm, x.slice(at..at + 1), 1, stream)))?;
                } else {
                    x.fill(stream, 0)?;
                    (0..1000).try_for_each(|at| comm.recv(x.slice_mut(at..at + 1), 0, stream))?;
                }
                assert!(x.to_vec(stream)?.iter().enumerate().all(|(at, x)| *x as usize == at * at));
                Ok(())
            });
            rig.close();
        }
    });
}
