//! Groups of which only the time is asked.

use std::time::Duration;

use gpucomm::nccl::{Config, InitOptions, simulate};
use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, Version, group};

use crate::support::newer::since;
use crate::support::random::rng;
use crate::support::{Rig, assert_names, places, quick, rank_counts, slower, watched};

/// What a collective writes.
fn sum_of(ranks: usize) -> u32 {
    (1..=ranks as u32).sum()
}

/// The estimate for a sum of so many elements, which changes nothing.
fn estimate(comm: &Communicator, stream: &Stream, len: usize) -> Result<Option<Duration>> {
    let mut x = DeviceBuffer::from_slice(stream, &vec![comm.rank() as u32 + 1; len])?;
    let time = simulate(|g| g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream))?;
    assert!(x.to_vec(stream)?.iter().all(|one| *one == comm.rank() as u32 + 1), "a simulation has written");
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    assert_eq!(x.to_vec(stream)?, vec![sum_of(comm.size()); len], "after a simulation");
    Ok(time)
}

#[test]
fn nothing_is_done_and_what_comes_next_is_right() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            // Of what is connected, and of what the simulation connects.
            for rig in [Rig::new(ranks), Rig::unconnected(ranks)] {
                let lens: Vec<usize> = {
                    let mut rng = rng(&format!("simulations of {ranks}"));
                    (0..6).map(|at| if at == 0 { 0 } else { 1 + rng.usize(..1 << (4 * at - 1)) }).collect()
                };
                rig.run(|comm, stream| {
                    for &len in &lens {
                        assert_eq!(estimate(comm, stream, len)?.is_some(), len > 0, "{len} elements");
                    }
                    let [small, large] = [estimate(comm, stream, 1 << 10)?, estimate(comm, stream, 1 << 20)?];
                    let [small, large] = [small, large].map(|time| time.expect("an estimate"));
                    assert!(
                        Duration::ZERO < small && small < large && large < Duration::from_secs(10),
                        "{small:?}, {large:?}"
                    );
                    Ok(())
                });
                rig.close();
            }
        }
    });
}

#[test]
fn one_thread_for_all_ranks_and_several_kinds() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let devices = &places()[..ranks];
            let clique = Clique::init_all(devices).unwrap();
            let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
            let poison = |len: usize| {
                let one = |stream: &Stream| DeviceBuffer::from_slice(stream, &vec![77u32; len]).unwrap();
                streams.iter().map(one).collect::<Vec<_>>()
            };
            let (mut all, send, mut gathered) = (poison(33), poison(5), poison(5 * ranks));
            for _ in 0..3 {
                let time = simulate(|g| {
                    let own = all.iter_mut().zip(&send).zip(&mut gathered);
                    for ((comm, stream), ((all, send), gathered)) in clique.ranks().iter().zip(&streams).zip(own) {
                        g.all_gather(comm, (send, gathered), stream)?;
                        g.broadcast(comm, InPlace(&mut *all), ranks - 1, stream)?;
                        g.barrier_on_stream(comm, stream)?;
                    }
                    Ok(())
                });
                assert!(time.unwrap().is_some());
            }
            let buffers = all.iter().chain(&gathered).zip(streams.iter().cycle());
            buffers.for_each(|(buffer, stream)| assert!(buffer.to_vec(stream).unwrap().iter().all(|one| *one == 77)));
            clique.close_timeout(slower(10.0)).unwrap();
        }
    });
}

/// A buffer that was only simulated with is not in use, and the stream is not asked for room.
#[test]
fn no_memory_is_in_flight() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let (busy, mut x) = (Stream::new(comm.device())?, DeviceBuffer::from_slice(stream, &[1u32; 9])?);
                stream.synchronize()?;
                let (open, opened) = std::sync::mpsc::channel::<()>();
                busy.launch_host(move || assert!(opened.recv_timeout(slower(20.0)).is_err()))?;
                quick(Duration::from_millis(500), || {
                    simulate(|g| g.all_reduce(comm, InPlace(&mut x), ReduceOp::Max, &busy))?;
                    x.fill(stream, 5)?;
                    assert_eq!(x.to_vec(stream)?, [5; 9]);
                    drop(x);
                    stream.synchronize()
                })?;
                drop(open);
                busy.synchronize()
            });
            rig.close();
        }
    });
}

/// Also where there is nothing to simulate.
#[test]
fn not_within_a_host_function() {
    watched(60.0, || {
        let stream = Stream::new(Device::new(0).unwrap()).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        stream.launch_host(move || sender.send(simulate(|_| Ok(()))).unwrap()).unwrap();
        let error = receiver.recv_timeout(slower(10.0)).unwrap().expect_err("it is refused");
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
        assert_names(&error, &["simulate", "host function"]);
        stream.synchronize().unwrap();
    });
}

#[test]
fn who_does_what_others_simulate_is_told() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let errors = crate::split::owners(ranks, |comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1u32; 4]).unwrap();
                let done = match comm.rank() {
                    0 => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream),
                    _ => simulate(|g| g.all_reduce(&comm, InPlace(&mut x), ReduceOp::Sum, stream)).map(drop),
                };
                // Who came first finds it in the next call.
                done.and_then(|()| comm.barrier(stream)).unwrap_err()
            });
            for error in &errors {
                assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
                assert_names(error, &["simulated all_reduce of 4 u32, sum"]);
            }
        }
    });
}

#[test]
fn what_nccl_does_not_simulate_is_refused_by_name() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let peer = 1 - comm.rank();
                let (x, mut y) = (DeviceBuffer::<u32>::zeroed(stream, 2)?, DeviceBuffer::<u32>::zeroed(stream, 2)?);
                let usage = |result: Result<Option<Duration>>, word: &str| {
                    let error = result.unwrap_err();
                    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                    assert_names(&error, &["simulate", word]);
                };
                usage(simulate(|g| g.send(comm, &x, peer, stream)), "send is made of messages");
                usage(simulate(|g| g.recv(comm, &mut y, peer, stream)), "recv is made of messages");
                #[cfg(nccl_ge_2_28)]
                usage(simulate(|g| g.all_to_all(comm, (&x, &mut y), stream)), "all_to_all is made of messages");
                let nested = group(|_| simulate(|g| g.barrier_on_stream(comm, stream)).map(drop));
                assert_names(&nested.unwrap_err(), &["simulate", "groups do not nest"]);
                let inside = simulate(|_| group(|g| g.barrier_on_stream(comm, stream)));
                assert_names(&inside.unwrap_err(), &["group", "groups do not nest"]);
                let within = simulate(|_| comm.barrier(stream));
                assert!(matches!(within, Err(Error::InvalidUsage { .. })), "{within:?}");
                // Nothing of this has happened, and nothing is nothing.
                assert_eq!(simulate(|_| Ok(()))?, None);
                estimate(comm, stream, 100).map(drop)
            });
            rig.close();
            let alone = Rig::new(1);
            alone.run(|comm, stream| {
                let error = simulate(|g| g.barrier_on_stream(comm, stream)).unwrap_err();
                assert_names(&error, &["simulate", "rank 0 is alone"]);
                Ok(())
            });
            // Those that share are no group.
            let options = InitOptions::new().with_config(Config::new().with_split_share(true));
            let clique = Clique::init_all_with(&places()[..ranks], &options).unwrap();
            clique
                .spmd(|comm| {
                    let stream = Stream::new(comm.device())?;
                    let part = comm.split(Some(0), 0)?.expect("a part");
                    let both = simulate(|g| {
                        g.barrier_on_stream(comm, &stream)?;
                        g.barrier_on_stream(&part, &stream)
                    });
                    assert_names(&both.unwrap_err(), &["simulate", "share their resources"]);
                    assert!(estimate(&part, &stream, 10)?.is_some());
                    comm.barrier(&stream)
                })
                .unwrap();
        }
    });
}

/// From 2.29.2 on NCCL keeps those: the next group would do them, in memory that may be gone, instead of its own.
#[test]
fn broadcasts_from_several_roots_are_refused() {
    since(Version::new(2, 29, 2), 60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            for rig in [Rig::new(ranks), Rig::unconnected(ranks)] {
                rig.run(|comm, stream| {
                    let me = comm.rank() as u32;
                    let counts: Vec<usize> = (0..ranks).map(|rank| rank + 3).collect();
                    let total = counts.iter().sum();
                    let own = DeviceBuffer::from_slice(stream, &vec![me; counts[comm.rank()]])?;
                    let mut all = DeviceBuffer::from_slice(stream, &vec![77u32; total])?;
                    let usage = |result: Result<Option<Duration>>, word: &str| {
                        let error = result.unwrap_err();
                        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                        assert_names(&error, &["simulate", word, "several roots"]);
                    };
                    usage(simulate(|g| g.all_gather_v(comm, (&own, &mut all), &counts, stream)), "all_gather_v");
                    let mut x = DeviceBuffer::from_slice(stream, &[me; 5])?;
                    let mut y = DeviceBuffer::from_slice(stream, &[me; 4])?;
                    let several = simulate(|g| {
                        g.broadcast(comm, InPlace(&mut x), 0, stream)?;
                        g.all_reduce(comm, InPlace(&mut all), ReduceOp::Sum, stream)?;
                        g.broadcast(comm, InPlace(&mut y), 1, stream)
                    });
                    usage(several, "broadcast");
                    // From one root they are simulated, and what is empty is nothing.
                    let mut none = DeviceBuffer::<u32>::zeroed(stream, 0)?;
                    let one = simulate(|g| {
                        g.broadcast(comm, InPlace(&mut x), 1, stream)?;
                        g.broadcast(comm, InPlace(&mut none), 0, stream)?;
                        g.broadcast(comm, InPlace(&mut y), 1, stream)
                    });
                    assert!(one?.is_some());
                    drop((x, y));
                    comm.all_gather_v((&own, &mut all), &counts, stream)?;
                    let expected: Vec<u32> = (0..ranks).flat_map(|rank| vec![rank as u32; counts[rank]]).collect();
                    assert_eq!(all.to_vec(stream)?, expected);
                    let mut z = DeviceBuffer::from_slice(stream, &[me; 9])?;
                    comm.broadcast(InPlace(&mut z), 1, stream)?;
                    assert_eq!(z.to_vec(stream)?, [1; 9]);
                    Ok(())
                });
                rig.close();
            }
        }
    });
}
