//! Ranks whose program returns from `spmd` while others wait for them: those are told at once, unless a later program may bring the
//! other end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};

use gpucomm::{Clique, CommBuffer, Communicator, DeviceBuffer, Error, InPlace, Result, Stream};

use crate::departures::{TIMEOUT, all_reduce, soon};
use crate::support::{Rig, assert_names, quick, rank_counts, slower, still_works, watched};

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
                            stream.synchronize_timeout(TIMEOUT)
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
                        stream.synchronize_timeout(TIMEOUT)
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
                                1 => return Err(Error::Aborted { operation: "test", reason: "enough".into() }),
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
                    let result = stream.synchronize_timeout(TIMEOUT);
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
                        let waited = quick(soon(), || event.synchronize_timeout(TIMEOUT));
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
