//! Ranks that close their communicators while others wait for them: those are told at once, who has left and how, and what was begun together ends well.

use std::sync::{Barrier, Mutex};
use std::time::Duration;

use gpucomm::version::Version;
use gpucomm::{Clique, Communicator, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Result, Stream};

use crate::support::{Rig, assert_names, places, quick, rank_counts, slower, still_works, watched};

/// Nobody waits for so long.
pub const TIMEOUT: Duration = Duration::from_secs(100);

/// The limit of what happens at once.
pub fn soon() -> Duration {
    slower(1.0)
}

pub fn all_reduce(comm: &Communicator, stream: &Stream) -> Result<DeviceBuffer<f32>> {
    let mut x = DeviceBuffer::from_slice(stream, &[1.0f32; 5])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    Ok(x)
}

#[track_caller]
fn assert_left(error: &Error, operation: &str, expected: &str, got: &[&str]) {
    let Error::Disagreement { rank: 1, peer: 0, operation: told, .. } = error else { panic!("{error:?}") };
    assert_eq!(*told, operation, "{error:?}");
    assert_names(error, &[expected]);
    assert_names(error, got);
}

/// A clique whose ranks have done so many all-reduces, with a stream each.
fn ranks(count: usize, before: usize) -> Vec<(Communicator, Stream)> {
    let clique = Clique::init_all(&places()[..count]).unwrap();
    clique.ranks().iter().for_each(|comm| comm.set_timeout(TIMEOUT));
    let work = |comm: &Communicator| {
        let stream = Stream::new(comm.device())?;
        (0..before).try_for_each(|_| all_reduce(comm, &stream).map(drop))?;
        stream.synchronize()?;
        Ok(stream)
    };
    let streams = clique.spmd(work).unwrap();
    clique.into_ranks().into_iter().zip(streams).collect()
}

/// What rank 0 gets, of ranks of which the second closes its communicator; the others come too.
fn closed(
    count: usize,
    before: usize,
    later: bool,
    body: impl Fn(&Communicator, &Stream) -> Result<()> + Sync,
) -> Vec<Error> {
    let all = Barrier::new(count);
    let errors: Vec<_> = std::thread::scope(|scope| {
        let spawn = |(comm, stream): (Communicator, Stream)| {
            let (all, body) = (&all, &body);
            scope.spawn(move || {
                if comm.rank() == 1 {
                    if later {
                        std::thread::sleep(slower(0.3));
                    }
                    if before.is_multiple_of(2) {
                        drop(comm);
                    } else {
                        let _ = comm.close_timeout(slower(20.0));
                    }
                    all.wait();
                    return None;
                }
                let error = quick(soon(), || body(&comm, &stream)).expect_err("done without rank 1");
                all.wait();
                assert!(!comm.is_active());
                Some(error)
            })
        };
        let threads: Vec<_> = ranks(count, before).into_iter().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    still_works(count);
    errors.into_iter().flatten().collect()
}

/// Where the ranks meet, and on the device; before the others come, and while they wait.
#[test]
fn a_collective_to_which_a_closed_rank_has_not_come() {
    watched(120.0, || {
        for count in rank_counts(&[2, 4]) {
            for (before, later) in [(0, false), (0, true), (1, true), (4, false), (5, true)] {
                let errors = closed(count, before, later, |comm, stream| {
                    all_reduce(comm, stream)?;
                    stream.synchronize_timeout(TIMEOUT)
                });
                for error in &errors {
                    let Error::Disagreement { rank: 1, .. } = error else { panic!("{error:?}") };
                    let s = if before == 1 { "" } else { "s" };
                    let told = format!("rank 1 has closed its communicator, after {before} collective{s}");
                    assert_names(error, &["all_reduce of 5 f32, sum (its operation ", &told]);
                    // Where another rank was told first, it may be before the call of this one is through.
                    let met_by = ["all_reduce: ", "Stream::synchronize_timeout: "];
                    let some = if before == 0 { &met_by[..1] } else { &met_by };
                    assert!(some.iter().any(|operation| error.to_string().starts_with(operation)), "{error}");
                    assert_names(
                        error,
                        &[if before == 0 { "" } else { ", the last of them all_reduce of 5 f32, sum" }],
                    );
                }
                assert_eq!(errors.len(), count - 1);
            }
        }
    });
}

/// Who leaves without it is told as well, by the call in which it does.
#[test]
fn a_close_that_leaves_others_waiting() {
    watched(60.0, || {
        for count in rank_counts(&[2, 4]) {
            let mut all = ranks(count, 1);
            let (leaves, _) = all.remove(1);
            std::thread::scope(|scope| {
                let spawn = |(comm, stream): &(Communicator, Stream)| all_reduce(comm, stream).map(drop).unwrap();
                all.iter().for_each(|one| drop(scope.spawn(move || spawn(one))));
            });
            let error = quick(soon(), || leaves.close_timeout(slower(20.0))).expect_err("the others wait");
            assert_left(&error, "close", "all_reduce of 5 f32", &["rank 1 has closed its communicator"]);
            all.iter().for_each(|(comm, _)| assert!(!comm.is_active()));
        }
    });
}

#[test]
fn a_message_to_which_a_closed_rank_has_not_come() {
    watched(120.0, || {
        for count in rank_counts(&[2]) {
            for (send, later) in [(true, false), (false, true)] {
                let errors = closed(count, 1, later, |comm, stream| {
                    let mut x = DeviceBuffer::<u8>::zeroed(stream, 7)?;
                    if send { comm.send(&x, 1, stream) } else { comm.recv(&mut x, 1, stream) }
                });
                let (operation, what) =
                    if send { ("send", "send of 7 u8 to rank 1") } else { ("recv", "recv of 7 u8 from rank 1") };
                assert_left(&errors[0], operation, what, &["rank 1 has closed its communicator, after 1 collective,"]);
            }
        }
    });
}

/// However it is waited for, and though nobody waits when the rank leaves.
/// The first of a communicator, and a message to a rank that it has had nothing to do with, whatever came before.
#[test]
fn what_is_captured_to_which_a_closed_rank_has_not_come() {
    watched(120.0, || {
        for count in rank_counts(&[2]) {
            for (before, later) in [(0, false), (0, true), (1, false), (2, true)] {
                let errors = closed(count, before, later, |comm, stream| {
                    let mut x = DeviceBuffer::<f32>::zeroed(stream, 7)?;
                    let captured = stream.capture(|stream| match before {
                        0 => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream),
                        _ => comm.send(&x, 1, stream),
                    });
                    captured.map(drop)
                });
                let operation = if before == 0 { "all_reduce" } else { "send" };
                assert_left(&errors[0], operation, operation, &["rank 1 has closed its communicator, after "]);
            }
        }
    });
}

#[test]
fn every_wait_is_told_of_a_closed_rank() {
    watched(60.0, || {
        for count in rank_counts(&[2]) {
            let mut ranks = ranks(count, 1);
            let (_, (comm, stream)) = (ranks.pop().expect("rank 1"), ranks.pop().expect("rank 0"));
            let x = all_reduce(&comm, &stream).unwrap();
            let event = stream.record().unwrap();
            let mut pinned = PinnedBuffer::zeroed(5).unwrap();
            x.copy_to_pinned(&stream, &mut pinned).unwrap();
            let told = [
                ("Event::synchronize_timeout", event.synchronize_timeout(TIMEOUT)),
                ("Stream::synchronize_timeout", stream.synchronize_timeout(TIMEOUT)),
                ("PinnedBuffer::as_slice", pinned.as_slice().map(drop)),
                ("copy_to_slice", x.to_vec(&stream).map(drop)),
            ];
            for (operation, result) in told {
                let error = result.expect_err("done without rank 1");
                let Error::Disagreement { rank: 1, peer: 0, .. } = error else { panic!("{operation}: {error:?}") };
                assert_names(&error, &["rank 1 has closed its communicator, after 1 collective"]);
            }
            quick(soon(), || drop((x, comm)));
            still_works(count);
        }
    });
}

/// What it has enqueued is its part, though it is gone when the others come.
#[test]
fn what_a_rank_has_enqueued_before_it_left_is_done() {
    watched(60.0, || {
        for count in rank_counts(&[2, 4]) {
            std::thread::scope(|scope| {
                for (comm, stream) in ranks(count, 1) {
                    scope.spawn(move || {
                        if comm.rank() == 1 {
                            let x = all_reduce(&comm, &stream).unwrap();
                            drop(comm);
                            assert_eq!(x.to_vec(&stream).unwrap(), [count as f32; 5]);
                        } else {
                            std::thread::sleep(slower(0.3));
                            let x = all_reduce(&comm, &stream).unwrap();
                            std::thread::sleep(slower(0.3));
                            assert_eq!(x.to_vec(&stream).unwrap(), [count as f32; 5]);
                            assert!(comm.is_active());
                            comm.close_timeout(slower(20.0)).unwrap();
                        }
                    });
                }
            });
        }
    });
}

/// Rank 0 is late, and has issued one operation more than the others.
fn late_and_ahead(comm: &Communicator, stream: &Stream) -> Result<()> {
    stream.launch_host(|| std::thread::sleep(slower(0.7)))?;
    let _x = all_reduce(comm, stream)?;
    let _y = all_reduce(comm, stream)?;
    stream.synchronize_timeout(TIMEOUT)
}

/// A rank closes its communicator while its last operation is running: that operation completes, also where the rank has left
/// before the others came to it.
#[test]
fn inflight_operation_completes_when_peer_closes() {
    watched(60.0, || {
        for (count, pause) in rank_counts(&[2]).into_iter().flat_map(|count| [(count, 0.0), (count, 0.3)]) {
            let mut both = ranks(count, 1).into_iter();
            let [(zero, first), (one, second)] = [both.next().expect("rank 0"), both.next().expect("rank 1")];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(slower(pause));
                    let error = quick(soon(), || late_and_ahead(&zero, &first)).expect_err("done without rank 1");
                    assert_names(&error, &["rank 1 has closed its communicator, after 2 collectives"]);
                });
                scope.spawn(|| {
                    let x = all_reduce(&one, &second).unwrap();
                    drop(one);
                    assert_eq!(x.to_vec(&second).unwrap(), [count as f32; 5]);
                });
            });
            drop(zero);
            // The same with programs.
            let (rig, kept) = (Rig::new(count), Mutex::new(None));
            let error = rig
                .run_and_leave(|comm, stream| match comm.rank() {
                    0 => late_and_ahead(comm, stream),
                    _ => {
                        *kept.lock().unwrap() = Some((all_reduce(comm, stream)?, stream.clone()));
                        Ok(())
                    }
                })
                .expect_err("done without rank 1");
            assert_names(&error, &["rank 1 has left, as its program has returned"]);
            let (x, stream) = kept.into_inner().unwrap().expect("of rank 1");
            assert_eq!(x.to_vec(&stream).unwrap(), [count as f32; 5]);
            drop((x, rig));
            still_works(count);
        }
    });
}

/// An allocation is something to come to as well.
#[test]
fn an_allocation_to_which_a_rank_does_not_come() {
    watched(60.0, || {
        for count in rank_counts(&[2]) {
            let rig = Rig::new(count);
            rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(TIMEOUT));
            let allocated = quick(soon(), || {
                rig.run_and_leave(|comm, stream| match comm.rank() {
                    0 => comm.alloc::<f32>(stream, 5).map(drop),
                    _ => Ok(()),
                })
            });
            match allocated {
                Err(error) => assert_names(&error, &["alloc", "rank 1 has left, as its program has returned"]),
                // Where there are no windows, each rank allocates by itself.
                Ok(_) => assert!(gpucomm::nccl::built_version() < Version::new(2, 27, 0)),
            }
            drop(rig);
            still_works(count);
        }
    });
}

/// Dropping a clique in which ranks have come to different things does not wait for what nobody comes to any more.
#[test]
fn a_clique_is_dropped_at_once() {
    watched(60.0, || {
        for count in rank_counts(&[2, 4]) {
            let rig = Rig::new(count);
            rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(TIMEOUT));
            let streams = rig.run(|comm, stream| {
                if comm.rank() != 1 {
                    all_reduce(comm, stream)?;
                }
                Ok(stream.clone())
            });
            quick(soon(), || drop(rig));
            let error = streams[0].synchronize_timeout(TIMEOUT).expect_err("done without rank 1");
            assert_names(&error, &["rank 1 has closed its communicator"]);
            still_works(count);
        }
    });
}

/// Rank 1 waits for a message of rank 2. On another stream it waits for one of rank 0, which has returned: NCCL does that one first.
#[test]
fn a_message_on_another_stream_of_a_rank_that_has_returned() {
    watched(60.0, || {
        for ranks in rank_counts(&[3]) {
            let clique = Clique::init_all(&places()[..ranks]).unwrap();
            clique.ranks().iter().for_each(|comm| comm.set_timeout(TIMEOUT));
            let ran = clique.spmd(|comm| {
                let streams = [0, 1, 2].map(|_| Stream::new(comm.device()).unwrap());
                let mut x = [0, 1, 2].map(|at| DeviceBuffer::<f32>::zeroed(&streams[at], 12).unwrap());
                // Connected in the first round, so that nobody waits inside NCCL.
                for round in 0..2 {
                    match comm.rank() {
                        1 => {
                            comm.recv(&mut x[0], 0, &streams[0])?;
                            comm.recv(&mut x[1 + round], 2, &streams[1 + round])?;
                        }
                        rank if (rank, round) != (0, 1) => comm.send(&x[0], 1, &streams[0])?,
                        _ => {}
                    }
                    if round == 0 {
                        streams.iter().try_for_each(Stream::synchronize)?;
                    }
                }
                if comm.rank() == 0 {
                    Ok(())
                } else {
                    streams[if comm.rank() == 1 { 2 } else { 0 }].synchronize_timeout(TIMEOUT)
                }
            });
            let error = ran.expect_err("rank 0 has returned");
            assert_names(&error, &["rank 0", "recv of 12 f32 from rank 0"]);
            still_works(ranks);
        }
    });
}
