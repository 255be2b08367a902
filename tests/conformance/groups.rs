//! Groups: recorded first, submitted as one block, or not at all.

use gpucomm::{Clique, Device, DeviceBuffer, Error, InPlace, ReduceOp, SendOnly, Stream, group};

use crate::support::{Rig, assert_names, each_type, rank_counts, still_works, watched};

#[test]
fn many_operations_in_one_group() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let rank = comm.rank() as i64;
                let mut sums = (0..8)
                    .map(|n| DeviceBuffer::from_slice(stream, &vec![rank + n; 10 + n as usize]))
                    .collect::<gpucomm::Result<Vec<_>>>()?;
                let own = DeviceBuffer::from_slice(stream, &[rank as u8; 3])?;
                let mut all = DeviceBuffer::<u8>::zeroed(stream, 3 * comm.size())?;
                let mut least = DeviceBuffer::from_slice(stream, &[rank as f32 + 1.0; 5])?;
                group(|g| {
                    for sum in &mut sums {
                        g.all_reduce(comm, InPlace(sum), ReduceOp::Sum, stream)?;
                    }
                    g.all_gather(comm, (&own, &mut all), stream)?;
                    g.all_reduce(comm, InPlace(&mut least), ReduceOp::Min, stream)
                })?;
                let total = (ranks * (ranks - 1) / 2) as i64;
                for (n, sum) in sums.iter().enumerate() {
                    assert_eq!(sum.to_vec(stream)?, vec![total + (n * ranks) as i64; 10 + n]);
                }
                let everybody: Vec<u8> = (0..ranks as u8).flat_map(|rank| [rank; 3]).collect();
                assert_eq!(all.to_vec(stream)?, everybody);
                assert_eq!(least.to_vec(stream)?, [1.0; 5]);
                Ok(())
            });
            rig.close();
        }
    });
}

fn every_operation_of<T: crate::support::Number>(rig: &Rig) {
    let ranks = rig.size();
    if !T::holds_sums_of(ranks) {
        return;
    }
    rig.run(|comm, stream| {
        let rank = comm.rank();
        let own = DeviceBuffer::from_slice(stream, &[T::of(rank as u8 + 1); 4])?;
        let many = DeviceBuffer::from_slice(stream, &vec![T::of(rank as u8 + 1); 4 * ranks])?;
        let make = |len| DeviceBuffer::<T>::zeroed(stream, len);
        let (mut sum, mut root_sum, mut part) = (make(4)?, make(4)?, make(4)?);
        let (mut all, mut gathered, mut scattered, mut turned) =
            (make(4 * ranks)?, make(4 * ranks)?, make(4)?, make(4 * ranks)?);
        let mut cast = DeviceBuffer::from_slice(stream, &[T::of(rank as u8 + 1); 4])?;
        group(|g| {
            g.all_reduce(comm, (&own, &mut sum), ReduceOp::Sum, stream)?;
            if rank == 0 {
                g.reduce(comm, (&own, &mut root_sum), ReduceOp::Max, 0, stream)?;
            } else {
                g.reduce(comm, SendOnly(&own), ReduceOp::Max, 0, stream)?;
            }
            g.broadcast(comm, InPlace(&mut cast), ranks - 1, stream)?;
            g.all_gather(comm, (&own, &mut all), stream)?;
            g.reduce_scatter(comm, (&many, &mut part), ReduceOp::Sum, stream)
        })?;
        group(|g| {
            g.all_to_all(comm, (&many, &mut turned), stream)?;
            if rank == 0 {
                g.gather(comm, (&own, &mut gathered), 0, stream)?;
                g.scatter(comm, (&many, &mut scattered), 0, stream)
            } else {
                g.gather(comm, SendOnly(&own), 0, stream)?;
                g.scatter(comm, gpucomm::RecvOnly(&mut scattered), 0, stream)
            }
        })?;
        let total = T::of((ranks * (ranks + 1) / 2) as u8);
        let everybody: Vec<T> = (0..ranks as u8).flat_map(|rank| [T::of(rank + 1); 4]).collect();
        assert_eq!(sum.to_vec(stream)?, [total; 4]);
        assert_eq!(part.to_vec(stream)?, [total; 4]);
        assert_eq!(cast.to_vec(stream)?, [T::of(ranks as u8); 4]);
        assert_eq!(all.to_vec(stream)?, everybody);
        assert_eq!(turned.to_vec(stream)?, everybody);
        assert_eq!(scattered.to_vec(stream)?, [T::of(1); 4]);
        if rank == 0 {
            assert_eq!(root_sum.to_vec(stream)?, [T::of(ranks as u8); 4]);
            assert_eq!(gathered.to_vec(stream)?, everybody);
        }
        Ok(())
    });
}

#[test]
fn every_operation_in_a_group() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            each_type!(every_operation_of(&rig));
            rig.close();
        }
    });
}

/// One thread drives all ranks, which only a group can do without waiting for itself.
#[test]
fn one_thread_drives_all_ranks() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            let comms = rig.clique.ranks();
            let streams: Vec<Stream> = comms.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
            let mut buffers: Vec<DeviceBuffer<i32>> = comms
                .iter()
                .map(|comm| DeviceBuffer::from_slice(&streams[comm.rank()], &[comm.rank() as i32 + 1; 1021]).unwrap())
                .collect();
            group(|g| {
                for ((comm, buffer), stream) in comms.iter().zip(&mut buffers).zip(&streams) {
                    g.all_reduce(comm, InPlace(buffer), ReduceOp::Prod, stream)?;
                }
                Ok(())
            })
            .unwrap();
            let want: i32 = (1..=ranks as i32).product();
            for (buffer, stream) in buffers.iter().zip(&streams) {
                assert!(buffer.to_vec(stream).unwrap().iter().all(|value| *value == want));
            }
            rig.close();
        }
    });
}

#[test]
fn an_empty_group_is_fine_and_a_group_returns_its_value() {
    watched(30.0, || {
        assert_eq!(group(|_| Ok(17)).unwrap(), 17);
        still_works(1);
    });
}

/// A group whose closure fails submits nothing, on any rank, and the communicator goes on.
#[test]
fn an_error_in_the_closure_submits_nothing() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[5i32; 9])?;
                let result = group(|g| -> gpucomm::Result<()> {
                    g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
                    Err(Error::InvalidUsage { operation: "the closure", reason: "of its own accord".into() })
                });
                let error = result.unwrap_err();
                assert!(matches!(error, Error::InvalidUsage { operation: "the closure", .. }), "{error:?}");
                assert_eq!(x.to_vec(stream)?, [5; 9], "submitted although the closure failed");
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                assert_eq!(x.to_vec(stream)?, [5 * ranks as i32; 9]);
                Ok(())
            });
            rig.close();
            still_works(ranks);
        }
    });
}

/// Bad input to an operation of a group is found when it is recorded; the group submits nothing.
#[test]
fn bad_input_in_a_group_submits_nothing() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[5i32; 9])?;
                let y = DeviceBuffer::from_slice(stream, &[1i32])?;
                let result = group(|g| {
                    g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
                    g.send(comm, &y, 2, stream)
                });
                let error = result.unwrap_err();
                assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
                assert_names(&error, &["send", "2"]);
                assert_eq!(x.to_vec(stream)?, [5; 9]);
                Ok(())
            });
            rig.close();
        }
    });
}

#[test]
fn a_group_in_a_group_is_an_error_and_the_outer_one_submits_nothing() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1i32; 4])?;
                let error = group(|g| {
                    g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
                    group(|_| Ok(()))
                })
                .unwrap_err();
                assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                assert_names(&error, &["group"]);
                assert_eq!(x.to_vec(stream)?, [1; 4]);
                // The depth is back to nothing: both forms work.
                group(|g| g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream))?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                assert_eq!(x.to_vec(stream)?, [(ranks * ranks) as i32; 4]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// Messages may be grouped as one likes, also beside collectives, and differently on each rank.
#[test]
fn messages_may_be_grouped_differently() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            for connected in [true, false] {
                let rig = if connected { Rig::new(ranks) } else { Rig::unconnected(ranks) };
                rig.run(|comm, stream| {
                    let (rank, n) = (comm.rank(), comm.size());
                    let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
                    let x = DeviceBuffer::from_slice(stream, &[rank as u16 as i32; 300])?;
                    let mut y = DeviceBuffer::<i32>::zeroed(stream, 300)?;
                    let mut sum = DeviceBuffer::from_slice(stream, &[1i32; 5])?;
                    // Rank 0 sends and receives at once, the others one after the other.
                    if rank == 0 {
                        group(|g| {
                            g.send(comm, &x, next, stream)?;
                            g.recv(comm, &mut y, before, stream)
                        })?;
                    } else {
                        comm.recv(&mut y, before, stream)?;
                        comm.send(&x, next, stream)?;
                    }
                    assert_eq!(y.to_vec(stream)?, [before as i32; 300]);
                    // Beside a collective here, after it there.
                    if rank == 0 {
                        group(|g| {
                            g.send(comm, x.slice(0..7), next, stream)?;
                            g.all_reduce(comm, InPlace(&mut sum), ReduceOp::Sum, stream)
                        })?;
                        comm.recv(y.slice_mut(0..7), before, stream)?;
                    } else {
                        comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, stream)?;
                        group(|g| {
                            g.recv(comm, y.slice_mut(0..7), before, stream)?;
                            g.send(comm, x.slice(0..7), next, stream)
                        })?;
                    }
                    assert_eq!(sum.to_vec(stream)?, [n as i32; 5]);
                    assert_eq!(y.to_vec(stream)?, [before as i32; 300]);
                    // Before an operation in the group that is messages to NCCL, and after it.
                    let from = DeviceBuffer::from_slice(stream, &vec![rank as i32; n])?;
                    let (turned, last) = y.slice_mut(100..100 + n + 1).into_split(n);
                    if rank == 1 {
                        group(|g| {
                            g.send(comm, x.slice(0..1), next, stream)?;
                            g.recv(comm, last, before, stream)?;
                            g.all_to_all(comm, (&from, turned), stream)
                        })?;
                    } else {
                        group(|g| {
                            g.all_to_all(comm, (&from, turned), stream)?;
                            g.send(comm, x.slice(0..1), next, stream)?;
                            g.recv(comm, last, before, stream)
                        })?;
                    }
                    let got = y.to_vec(stream)?;
                    assert_eq!(got[100..100 + n], (0..n as i32).collect::<Vec<_>>());
                    assert_eq!(got[100 + n], before as i32);
                    Ok(())
                });
                rig.close();
            }
        }
    });
}

/// A message to oneself needs its other end in the same group. Without it nothing is submitted, and the communicator goes
/// on.
#[test]
fn messages_to_oneself() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let rank = comm.rank();
                let x = DeviceBuffer::from_slice(stream, &[rank as i32 + 7; 9])?;
                let mut y = DeviceBuffer::<i32>::zeroed(stream, 9)?;
                let mut other = DeviceBuffer::<f32>::zeroed(stream, 9)?;
                let alone = |result: gpucomm::Result<()>, operation, got: &str| {
                    let error = result.expect_err("a message to oneself without its other end");
                    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
                    assert_names(&error, &[operation, "group", got]);
                };
                alone(comm.send(&x, rank, stream), "send", &format!("rank {rank} itself"));
                alone(comm.recv(&mut y, rank, stream), "recv", &format!("rank {rank} itself"));
                alone(group(|g| g.send(comm, &x, rank, stream)), "send", "a send of 9 i32");
                alone(group(|g| g.recv(comm, &mut y, rank, stream)), "recv", "a recv of 9 i32");
                let differ = |result: gpucomm::Result<()>, got: &str| {
                    let error = result.expect_err("two ends of a message that differ");
                    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
                    assert_names(&error, &["recv", "9 i32, as it sends itself", got]);
                };
                differ(
                    group(|g| {
                        g.send(comm, &x, rank, stream)?;
                        g.recv(comm, y.slice_mut(0..8), rank, stream)
                    }),
                    "8 i32",
                );
                differ(
                    group(|g| {
                        g.recv(comm, &mut other, rank, stream)?;
                        g.send(comm, &x, rank, stream)
                    }),
                    "9 f32",
                );
                let (mut one, mut two) =
                    (DeviceBuffer::<i32>::zeroed(stream, 9)?, DeviceBuffer::<i32>::zeroed(stream, 4)?);
                group(|g| {
                    g.recv(comm, &mut one, rank, stream)?;
                    g.send(comm, &x, rank, stream)?;
                    g.send(comm, x.slice(0..4), rank, stream)?;
                    g.recv(comm, &mut two, rank, stream)
                })?;
                assert_eq!((one.to_vec(stream)?, two.to_vec(stream)?), (x.to_vec(stream)?, vec![rank as i32 + 7; 4]));
                let mut sum = DeviceBuffer::from_slice(stream, &[1u32; 3])?;
                comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, stream)?;
                assert_eq!(sum.to_vec(stream)?, [ranks as u32; 3]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// Each locks both communicators, in one order whatever order they are named in.
#[test]
fn two_threads_name_communicators_in_opposite_orders() {
    watched(60.0, || {
        let device = Device::new(0).unwrap();
        let cliques = [(); 2].map(|()| Clique::init_all(&[device]).unwrap());
        std::thread::scope(|scope| {
            for order in [[0, 1], [1, 0]] {
                let comms = order.map(|at: usize| cliques[at].rank(0));
                scope.spawn(move || {
                    let stream = Stream::new(device).unwrap();
                    let mut buffers = [(); 2].map(|()| DeviceBuffer::<u32>::zeroed(&stream, 5).unwrap());
                    for _ in 0..3000 {
                        group(|group| {
                            for (comm, buffer) in comms.iter().zip(&mut buffers) {
                                group.all_reduce(comm, InPlace(buffer), ReduceOp::Sum, &stream)?;
                            }
                            Ok(())
                        })
                        .unwrap();
                    }
                    stream.synchronize().unwrap();
                });
            }
        });
    });
}
