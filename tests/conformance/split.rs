//! Communicators that are split off from others: which ranks are in them, and what they compute.

use std::sync::Barrier;
use std::time::Duration;

use gpucomm::nccl::CommState;
use gpucomm::{Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, group};

use crate::support::random::rng;
use crate::support::{Rig, assert_argument, assert_names, quick, rank_counts, slower, still_works, watched};

/// The numbers that the ranks have brought, in the order of ranks.
pub fn gathered(comm: &Communicator, stream: &Stream, number: usize) -> Result<Vec<usize>> {
    let mine = DeviceBuffer::from_slice(stream, &[number as u32])?;
    let mut all = DeviceBuffer::<u32>::zeroed(stream, comm.size())?;
    comm.all_gather((&mine, &mut all), stream)?;
    Ok(all.to_vec(stream)?.into_iter().map(|number| number as usize).collect())
}

pub fn sum(comm: &Communicator, stream: &Stream) -> Result<()> {
    let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    assert_eq!(x.to_vec(stream)?, vec![comm.size() as i32; 5]);
    Ok(())
}

/// Runs `body` as every rank of a new clique, each on a thread that owns its communicator.
pub fn owners<R: Send>(ranks: usize, body: impl Fn(Communicator, &Stream) -> R + Sync) -> Vec<R> {
    let comms = Rig::new(ranks).clique.into_ranks();
    let run = |comm: Communicator| {
        let stream = Stream::new(comm.device()).unwrap();
        body(comm, &stream)
    };
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(move || run(comm))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub fn whole(comm: &Communicator) -> Result<Communicator> {
    Ok(comm.split(Some(0), comm.rank())?.expect("a part"))
}

#[test]
fn parts_of_every_shape() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let mut rng = rng(&format!("parts of {ranks}"));
            let rounds: Vec<Vec<(Option<usize>, usize)>> = (0..6)
                .map(|_| {
                    (0..ranks).map(|_| (rng.usize(..3).checked_sub(1).map(|c| c * 1000), rng.usize(..3))).collect()
                })
                .collect();
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                for asks in &rounds {
                    let (color, key) = asks[comm.rank()];
                    let part = comm.split(color, key)?;
                    let mut want: Vec<_> = (0..ranks).filter(|&rank| asks[rank].0 == color).collect();
                    want.sort_by_key(|&rank| asks[rank].1);
                    assert_eq!(part.is_some(), color.is_some());
                    if let Some(part) = part {
                        assert_eq!((part.size(), part.device()), (want.len(), comm.device()));
                        assert_eq!(want[part.rank()], comm.rank());
                        assert_eq!(part.timeout(), comm.timeout());
                        assert_eq!(gathered(&part, stream, comm.rank())?, want);
                        part.close_timeout(slower(10.0))?;
                    }
                    sum(comm, stream)?;
                }
                Ok(())
            });
            rig.close();
        }
    });
}

#[test]
fn rows_and_columns() {
    watched(120.0, || {
        for ranks in rank_counts(&[4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let rank = comm.rank();
                let row = comm.split(Some(rank / 2), rank)?.expect("a row");
                let column = comm.split(Some(rank % 2), rank)?.expect("a column");
                assert_eq!((row.rank(), column.rank()), (rank % 2, rank / 2));
                let mut window = row.alloc::<u64>(stream, 700)?;
                let mut x = DeviceBuffer::<u64>::zeroed(stream, 700)?;
                for round in 0..200 {
                    window.fill(stream, (rank + round) as u64)?;
                    row.all_reduce(InPlace(&mut window), ReduceOp::Sum, stream)?;
                    x.copy_from(stream, &window)?;
                    column.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Min, stream)?;
                    if round % 50 == 0 {
                        assert_eq!(x.to_vec(stream)?, [5 + 2 * round as u64; 700]);
                    }
                }
                // Parts of parts.
                let alone = row.split(Some(rank), 0)?.expect("one rank");
                assert_eq!((alone.size(), alone.rank()), (1, 0));
                sum(&alone, stream)
            });
            rig.close();
        }
    });
}

#[test]
fn one_thread_splits_all_ranks() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            let parts = rig.clique.split(|rank| (rank > 0 || ranks == 1).then_some((rank % 2, 10 - rank))).unwrap();
            assert_eq!(parts.len(), (ranks - 1).clamp(1, 2));
            for (color, part) in &parts {
                let mut want: Vec<_> =
                    (0..ranks).filter(|rank| (*rank > 0 || ranks == 1) && rank % 2 == *color).collect();
                want.reverse();
                let devices: Vec<_> = part.ranks().iter().map(Communicator::device).collect();
                assert_eq!(devices, want.iter().map(|&rank| rig.clique.rank(rank).device()).collect::<Vec<_>>());
                part.spmd(|comm| sum(comm, &Stream::new(comm.device())?)).unwrap();
            }
            // The whole first.
            rig.close();
            parts.into_values().for_each(|part| part.close_timeout(slower(10.0)).unwrap());
        }
    });
}

#[test]
fn ranks_of_a_part_compare() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let alive = owners(ranks, |comm, stream| {
                let part = whole(&comm).unwrap();
                let mut x = DeviceBuffer::<u8>::zeroed(stream, 9).unwrap();
                let len = if part.rank() == 1 { 8 } else { 9 };
                let done = part.all_reduce(InPlace(&mut x.slice_mut(..len)), ReduceOp::Sum, stream);
                let error = done.and_then(|()| stream.synchronize_timeout(slower(10.0))).expect_err("a rank differs");
                assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
                assert_names(&error, &["(ranks of \"world/split(color=0)\")"]);
                assert!(!part.is_active());
                drop(part);
                // What a part fails at is not the whole's.
                stream.accept();
                sum(&comm, stream).unwrap();
                comm.is_active()
            });
            assert!(alive.into_iter().all(|alive| alive));
        }
    });
}

#[test]
fn a_rank_that_does_something_else() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let error = rig
                .try_run(|comm, stream| match comm.rank() {
                    1 => sum(comm, stream),
                    _ => comm.split(Some(0), 0).map(drop),
                })
                .expect_err("rank 1 does not split");
            assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
            assert_names(&error, &["split", "all_reduce of 5 i32"]);
            still_works(ranks);
        }
    });
}

#[test]
fn a_rank_that_never_comes() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let limit = slower(1.0);
            rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(limit));
            let error = quick(limit, || {
                rig.try_run(|comm, _| match comm.rank() {
                    1 => Ok(()),
                    _ => comm.split(Some(0), 0).map(drop),
                })
            });
            let error = error.expect_err("rank 1 does not come");
            assert!(matches!(error, Error::Timeout { operation: "split", .. }), "{error:?}");
            assert_names(&error, &["waits for split (collective", "rank 1 has come to"]);
            assert_eq!(rig.clique.rank(1).state(), CommState::Aborted);
            still_works(ranks);
        }
    });
}

/// The numbers of ranks in errors are those of the part, and it is named.
#[test]
fn a_rank_of_a_part_that_never_comes() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let (all, barrier) = (Barrier::new(ranks), Barrier::new(ranks - 1));
            owners(ranks, |comm, stream| {
                let part = comm.split(Some(7), ranks - comm.rank()).unwrap().expect("a part");
                sum(&part, stream).unwrap();
                all.wait();
                part.set_timeout(slower(0.5));
                // Rank 0 of all, the last one there.
                if comm.rank() == 0 {
                    while part.is_active() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    return;
                }
                let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5]).unwrap();
                let done = part.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream);
                let error = done.and_then(|()| stream.synchronize_timeout(slower(0.5))).expect_err("one does not come");
                barrier.wait();
                let _ = part.aborter().abort("the test is over");
                assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                let waits = format!("rank {} of \"world/split(color=7)\" waits for all_reduce", part.rank());
                assert_names(&error, &[&waits, &format!("rank {} has not come", ranks - 1)]);
            });
            still_works(ranks);
        }
    });
}

/// Work that is not done is no reason to end anything.
#[test]
fn work_that_is_not_done() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let comm = rig.clique.rank(0);
            let stream = Stream::new(comm.device()).unwrap();
            comm.set_timeout(slower(0.5));
            rig.clique.rank(1).set_timeout(slower(0.5));
            let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 5]).unwrap();
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
            let error = comm.split(None, 0).expect_err("the sum is not done");
            assert!(matches!(error, Error::Timeout { operation: "split", .. }), "{error:?}");
            assert_names(&error, &["rank 0 has work in flight", "all_reduce of 5 i32", "rank 1"]);
            rig.run(|comm, stream| if comm.rank() == 1 { sum(comm, stream) } else { Ok(()) });
            assert_eq!(x.to_vec(&stream).unwrap(), [2; 5]);
            rig.run(|comm, stream| sum(&whole(comm)?, stream));
            rig.close();
        }
    });
}

#[test]
fn what_is_refused() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                // The others are for ranks that will be in no part.
                let most = (1 << 31) - 1 - ranks;
                for color in [most + 1, most + ranks, 1 << 31, usize::MAX] {
                    let expected = format!("at most {most}");
                    assert_argument(comm.split(Some(color), 0), "split", &expected, &color.to_string());
                }
                assert_argument(comm.split(None, usize::MAX), "split", "at most 2147483647", &usize::MAX.to_string());
                let error = group(|_| comm.split(Some(0), 0).map(drop)).expect_err("a split in a group");
                assert!(matches!(error, Error::InvalidUsage { operation: "split", .. }), "{error:?}");
                // The largest, beside a rank that will be in no part.
                let part = comm.split((comm.rank() == 0).then_some(most), 0)?;
                assert_eq!(part.map(|part| part.size()), (comm.rank() == 0).then_some(1));
                sum(comm, stream)
            });
            rig.close();
        }
    });
}

/// Both parts hold both ranks, whose operations come in opposite orders on one stream.
#[test]
fn opposite_orders() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            owners(ranks, |comm, stream| {
                let parts = [whole(&comm).unwrap(), whole(&comm).unwrap()];
                parts.iter().for_each(|part| sum(part, stream).unwrap());
                parts.iter().for_each(|part| part.set_timeout(slower(1.0)));
                let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5]).unwrap();
                let mut wait = || {
                    for at in [0, 1] {
                        parts[at ^ comm.rank()].all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    }
                    stream.synchronize_timeout(slower(1.0))
                };
                let error = quick(slower(2.0), &mut wait).expect_err("each waits for the other");
                assert!(matches!(error, Error::Timeout { .. } | Error::Aborted { .. }), "{error:?}");
            });
            still_works(ranks);
        }
    });
}

/// Ranks that were made one by one compare nothing, and meet in NCCL.
#[test]
fn ranks_that_were_made_one_by_one() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            for (comes, color) in [(true, Some(7)), (false, Some(0)), (false, None)] {
                let id = UniqueId::new().unwrap();
                std::thread::scope(|scope| {
                    for rank in 0..ranks {
                        scope.spawn(move || {
                            let device = Device::new(rank).unwrap();
                            // SAFETY: both ranks issue the same operations in the same order, or one of them none.
                            let comm = unsafe { Communicator::init_rank(device, ranks, &id, rank) }.unwrap();
                            let stream = Stream::new(device).unwrap();
                            sum(&comm, &stream).unwrap();
                            if comes {
                                let part = comm.split(color, ranks - rank).unwrap().expect("a part");
                                assert_eq!(part.rank(), ranks - 1 - rank);
                                drop(comm);
                                return sum(&part, &stream).unwrap();
                            }
                            comm.set_timeout(slower(1.0));
                            if rank == 0 {
                                let error = quick(slower(8.0), || comm.split(color, 0)).expect_err("rank 1 stays away");
                                assert!(matches!(error, Error::Timeout { operation: "split", .. }), "{error:?}");
                                assert_names(&error, &["rank 0 waits inside NCCL", "split"]);
                            }
                            while comm.is_active() {
                                std::thread::sleep(Duration::from_millis(10));
                            }
                        });
                    }
                });
                still_works(ranks);
            }
        }
    });
}

/// In one group, the order of communicators is none.
#[test]
fn several_in_one_group_in_any_order() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let (a, b) = (comm.split(Some(0), 0)?.expect("a part"), comm.split(Some(0), 0)?.expect("a part"));
                let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5])?;
                let mut y = DeviceBuffer::from_slice(stream, &[2i32; 7])?;
                for _ in 0..3 {
                    group(|group| {
                        if comm.rank() % 2 == 0 {
                            group.all_reduce(&a, InPlace(&mut x), ReduceOp::Max, stream)?;
                            group.all_reduce(&b, InPlace(&mut y), ReduceOp::Max, stream)
                        } else {
                            group.all_reduce(&b, InPlace(&mut y), ReduceOp::Max, stream)?;
                            group.all_reduce(&a, InPlace(&mut x), ReduceOp::Max, stream)
                        }
                    })?;
                }
                assert_eq!((x.to_vec(stream)?, y.to_vec(stream)?), (vec![1; 5], vec![2; 7]));
                Ok(())
            });
            rig.close();
        }
    });
}
