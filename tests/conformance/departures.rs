//! Ranks that leave while others wait for them: those are told at once, who has left and how, and what was begun together ends well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use gpucomm::version::Version;
use gpucomm::{
    Clique, CommBuffer, Communicator, Device, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Result, Stream,
};

use crate::support::{Rig, assert_names, quick, rank_counts, slower, still_works, watched};

/// Nobody waits for so long.
const TIMEOUT: Duration = Duration::from_secs(100);

/// The limit of what happens at once.
fn soon() -> Duration {
    slower(1.0)
}

fn all_reduce(comm: &Communicator, stream: &Stream) -> Result<DeviceBuffer<f32>> {
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
    let clique = Clique::init_all(&Device::all().unwrap()[..count]).unwrap();
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
                        let _ = comm.close(slower(20.0));
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
                    stream.wait(TIMEOUT)
                });
                for error in &errors {
                    let Error::Disagreement { rank: 1, .. } = error else { panic!("{error:?}") };
                    let s = if before == 1 { "" } else { "s" };
                    let told = format!("rank 1 has closed its communicator, after {before} collective{s}");
                    assert_names(error, &["all_reduce of 5 f32, sum (its operation ", &told]);
                    // Where another rank was told first, it may be before the call of this one is through.
                    let met_by = ["all_reduce: ", "Stream::wait: "];
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
#[test]
fn every_wait_is_told_of_a_closed_rank() {
    watched(60.0, || {
        for count in rank_counts(&[2]) {
            let mut ranks = ranks(count, 1);
            let (_, (comm, stream)) = (ranks.pop().expect("rank 1"), ranks.pop().expect("rank 0"));
            let x = all_reduce(&comm, &stream).unwrap();
            let event = stream.record().unwrap();
            let mut pinned = PinnedBuffer::new(5).unwrap();
            x.copy_to_pinned(&stream, &mut pinned).unwrap();
            let told = [
                ("Event::wait", event.wait(TIMEOUT)),
                ("Stream::wait", stream.wait(TIMEOUT)),
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
                            comm.close(slower(20.0)).unwrap();
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
    stream.wait(TIMEOUT)
}

/// A rank leaves while its last operation is on its way: that is done, and well, before the end.
#[test]
fn what_is_on_its_way_when_a_rank_leaves_is_done() {
    watched(60.0, || {
        for count in rank_counts(&[2]) {
            let mut both = ranks(count, 1).into_iter();
            let [(zero, first), (one, second)] = [both.next().expect("rank 0"), both.next().expect("rank 1")];
            std::thread::scope(|scope| {
                scope.spawn(|| {
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
            let error = streams[0].wait(TIMEOUT).expect_err("done without rank 1");
            assert_names(&error, &["rank 1 has closed its communicator"]);
            still_works(count);
        }
    });
}

#[test]
fn a_rank_whose_program_has_returned() {
    watched(120.0, || {
        for count in rank_counts(&[2, 4]) {
            for before in [0, 3] {
                for message in [false, true] {
                    let rig = Rig::unconnected(count);
                    rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(TIMEOUT));
                    let error = quick(soon(), || {
                        rig.run_and_leave(|comm, stream| {
                            (0..before).try_for_each(|_| all_reduce(comm, stream).map(drop))?;
                            match comm.rank() {
                                1 => return Ok(()),
                                0 if message => comm.recv(&mut DeviceBuffer::<u8>::zeroed(stream, 7)?, 1, stream)?,
                                _ if message => return Ok(()),
                                _ => drop(all_reduce(comm, stream)?),
                            }
                            stream.wait(TIMEOUT)
                        })
                    })
                    .expect_err("done without rank 1");
                    let what = if message { "recv of 7 u8 from rank 1 (its" } else { "all_reduce of 5 f32, sum (its" };
                    let Error::Disagreement { rank: 1, .. } = error else { panic!("{error:?}") };
                    let told = format!("rank 1 has left, as its program has returned, after {before} collectives");
                    assert_names(&error, &[what, &told]);
                    quick(soon(), || drop(rig));
                    still_works(count);
                }
            }
        }
    });
}

/// Behind what is in vain, a rank waits also for room, for memory to copy through, and for uses of memory that it has dropped.
#[test]
fn waits_for_what_is_behind_are_told_of_a_rank_whose_program_has_returned() {
    type Body = fn(&Communicator, &Stream, CommBuffer<'_, u8>) -> Result<()>;
    let bodies: [(&str, Body); 5] = [
        ("operations", |comm, stream, _| (0..400).try_for_each(|_| all_reduce(comm, stream).map(drop))),
        ("fills", |_, stream, mut x| (0..2000).try_for_each(|_| x.fill(stream, 3))),
        ("copies", |_, stream, _| DeviceBuffer::from_slice(stream, &vec![0u8; 68 << 20]).map(drop)),
        ("alloc", |comm, stream, x| {
            drop(x);
            comm.alloc::<u8>(stream, 5).map(drop)
        }),
        ("reclaim", |comm, _, x| {
            drop(x);
            comm.reclaim()
        }),
    ];
    watched(120.0, move || {
        for count in rank_counts(&[2, 4]) {
            for (what, body) in bodies {
                let rig = Rig::new(count);
                rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(TIMEOUT));
                let error = quick(soon(), || {
                    rig.run_and_leave(|comm, stream| {
                        let mut x = comm.alloc(stream, 5)?;
                        if comm.rank() == 1 {
                            return Ok(());
                        }
                        let _y = all_reduce(comm, stream)?;
                        x.fill(stream, 2)?;
                        body(comm, stream, x)?;
                        stream.wait(TIMEOUT)
                    })
                })
                .expect_err("done without rank 1");
                let Error::Disagreement { rank: 1, .. } = error else { panic!("{what}: {error:?}") };
                assert_names(&error, &["all_reduce of 5 f32, sum (", "rank 1 has left, as its program has returned"]);
                quick(soon(), || drop(rig));
                still_works(count);
            }
        }
    });
}

/// What comes out says whose it is, whatever it is.
#[test]
fn errors_of_programs_name_their_rank() {
    watched(60.0, || {
        for count in rank_counts(&[2, 4]) {
            for what in 0..4 {
                let rig = Rig::new(count);
                let last = count - 1;
                let error = rig
                    .run_and_leave(|comm, stream| {
                        if comm.rank() == last {
                            let mut x = DeviceBuffer::from_slice(stream, &[1.0f32; 5])?;
                            match what {
                                0 => comm.broadcast(InPlace(&mut x), 77, stream)?,
                                1 => return Err(Error::Aborted { operation: "test", reason: String::from("enough") }),
                                2 => drop(DeviceBuffer::<u8>::zeroed(stream, usize::MAX / 2)?),
                                _ => drop(Clique::init_all(&[])?),
                            }
                        }
                        Ok(())
                    })
                    .expect_err("a rank has failed");
                assert!(error.to_string().ends_with(&format!(" (of rank {last})")), "{error}");
                drop(rig);
            }
            still_works(count);
        }
    });
}

/// What nobody waits for may be for the next program.
#[test]
fn a_later_program_brings_the_other_end() {
    watched(60.0, || {
        for count in rank_counts(&[2]) {
            let rig = Rig::new(count);
            let begin = |comm: &Communicator, stream: &Stream| {
                if comm.rank() == 1 {
                    return Ok(None);
                }
                let x = all_reduce(comm, stream)?;
                std::thread::sleep(slower(0.4));
                Ok(Some(x))
            };
            let begun = rig.run_and_leave(begin).unwrap();
            let sums = rig.run_and_leave(|comm, stream| match &begun[comm.rank()] {
                Some(x) => x.to_vec(stream),
                None => all_reduce(comm, stream)?.to_vec(stream),
            });
            assert_eq!(sums.unwrap(), vec![vec![count as f32; 5]; count]);
            drop(begun);
            rig.close();
        }
    });
}

/// Who runs no program may wait for what a later run of the programs brings.
#[test]
fn who_waits_outside_waits_for_later_programs() {
    watched(90.0, || {
        for count in rank_counts(&[2]) {
            let rig = Rig::new(count);
            rig.run(|comm, stream| all_reduce(comm, stream).map(drop));
            let begin = |comm: &Communicator, stream: &Stream| {
                (comm.rank() == 0).then(|| Ok((all_reduce(comm, stream)?, stream.clone()))).transpose()
            };
            let begun = rig.run_and_leave(begin).unwrap();
            let (_, stream) = begun[0].as_ref().unwrap();
            let waited = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let sum = scope.spawn(|| {
                    let result = stream.wait(TIMEOUT);
                    waited.store(true, Ordering::Relaxed);
                    result
                });
                // Rank 1 returns while the program of rank 0 goes on: rank 1 will come all the same.
                rig.run_and_leave(|comm, _| {
                    if comm.rank() == 0 {
                        std::thread::sleep(slower(0.5));
                    }
                    Ok(())
                })
                .unwrap();
                assert!(!waited.load(Ordering::Relaxed), "done without rank 1");
                rig.run_and_leave(|comm, stream| (comm.rank() == 1).then(|| all_reduce(comm, stream)).transpose())
                    .unwrap();
                sum.join().unwrap().unwrap();
            });
            drop(begun);
            rig.close();
        }
    });
}

/// Who waits for the operation of another rank, which has returned as well, is told of the one that has not come to it.
#[test]
fn who_waits_for_the_operation_of_another_rank() {
    watched(60.0, || {
        for count in rank_counts(&[3]) {
            let rig = Rig::new(count);
            rig.run(|comm, stream| all_reduce(comm, stream).map(drop));
            rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(TIMEOUT));
            let events = Mutex::new(None);
            let both = Barrier::new(2);
            let error = rig.run_and_leave(|comm, stream| {
                match comm.rank() {
                    0 => {
                        let x = all_reduce(comm, stream)?;
                        *events.lock().unwrap() = Some((x, stream.record()?));
                        both.wait();
                    }
                    2 => {
                        both.wait();
                        let (x, event) = events.lock().unwrap().take().unwrap();
                        let waited = quick(soon(), || event.wait(TIMEOUT));
                        drop(x);
                        waited?;
                    }
                    _ => {}
                }
                Ok(())
            });
            let error = error.expect_err("done without rank 1");
            assert!(matches!(error, Error::Disagreement { rank: 1, .. }), "{error:?}");
            assert_names(&error, &["rank 1 has left, as its program has returned"]);
        }
    });
}
