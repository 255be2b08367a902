//! Graphs that are captured and launched: their results, in every order of what else is done.

use std::time::{Duration, Instant};

use gpucomm::{DeviceBuffer, Graph, InPlace, ReduceOp, Result, Stream, group};

use crate::support::random::rng;
use crate::support::{Rig, is_thorough, rank_counts, slower, watched};

/// Values of a rank, small enough to be summed exactly.
fn values(rank: usize, len: usize) -> Vec<f32> {
    let mut random = rng(&format!("rank {rank} of {len}"));
    (0..len).map(|_| random.i32(-1000..1000) as f32).collect()
}

fn sums(ranks: usize, len: usize) -> Vec<f32> {
    let all: Vec<_> = (0..ranks).map(|rank| values(rank, len)).collect();
    (0..len).map(|at| all.iter().map(|values| values[at]).sum()).collect()
}

/// Each replay starts from what is there then: a counter grows, and sums are of new inputs each time.
#[test]
fn thousands_of_replays() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let many = if is_thorough() { 10_000 } else { 500 };
            let replays = if ranks == 2 { many } else { 500 };
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let len = 1021;
                let ones = DeviceBuffer::from_slice(stream, &[1i32; 1021])?;
                let mut count = DeviceBuffer::<i32>::zeroed(stream, len)?;
                let mut input = DeviceBuffer::<i32>::zeroed(stream, len)?;
                let mut sum = DeviceBuffer::from_slice(stream, &[-7i32; 1021])?;
                let before = count.to_vec(stream)?;
                let graph = stream.capture(|stream| {
                    // The count of all, divided by the ranks, and one more: by sums alone.
                    group(|g| {
                        g.all_reduce(comm, InPlace(&mut count), ReduceOp::Max, stream)?;
                        g.all_reduce(comm, (&input, &mut sum), ReduceOp::Sum, stream)
                    })
                })?;
                // Nothing was done when it was captured.
                assert_eq!((count.to_vec(stream)?, before), (vec![0; len], vec![0; len]));
                assert_eq!(sum.to_vec(stream)?, vec![-7; len]);
                let look = replays / 10;
                for round in 0..replays {
                    let value = (round * 3 + comm.rank() * 5) as i32;
                    input.fill(stream, value)?;
                    graph.launch(stream)?;
                    if round % look == 0 || round + 1 == replays {
                        let expected: i32 = (0..comm.size()).map(|rank| (round * 3 + rank * 5) as i32).sum();
                        assert_eq!(sum.to_vec(stream)?, vec![expected; len], "replay {round} of rank {}", comm.rank());
                    }
                }
                drop((ones, graph));
                stream.synchronize()
            });
            rig.close();
        }
    });
}

/// Copies, fills, collectives, messages and a barrier in one graph.
fn everything(comm: &gpucomm::Communicator, stream: &Stream, buffers: &mut Buffers) -> Result<Graph> {
    let Buffers { input, work, ring, out } = buffers;
    let (rank, size) = (comm.rank(), comm.size());
    stream.capture(|stream| {
        work.copy_from(stream, &*input)?;
        ring.fill(stream, -1.0)?;
        comm.all_reduce(InPlace(&mut *work), ReduceOp::Sum, stream)?;
        if size > 1 {
            group(|g| {
                g.send(comm, &*work, (rank + 1) % size, stream)?;
                g.recv(comm, &mut *ring, (rank + size - 1) % size, stream)
            })?;
        } else {
            ring.copy_from(stream, &*work)?;
        }
        comm.barrier_on_stream(stream)?;
        out.slice_mut(3..).copy_from(stream, &*ring)
    })
}

struct Buffers {
    input: DeviceBuffer<f32>,
    work: DeviceBuffer<f32>,
    ring: DeviceBuffer<f32>,
    out: DeviceBuffer<f32>,
}

impl Buffers {
    fn new(stream: &Stream, rank: usize, len: usize) -> Result<Self> {
        let empty = || DeviceBuffer::from_slice(stream, &vec![f32::NAN; len]);
        let out = DeviceBuffer::from_slice(stream, &vec![0.5; len + 3])?;
        Ok(Self { input: DeviceBuffer::from_slice(stream, &values(rank, len))?, work: empty()?, ring: empty()?, out })
    }
}

#[test]
fn everything_that_can_be_captured() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                for len in [1, 1021, 40_003] {
                    let mut buffers = Buffers::new(stream, comm.rank(), len)?;
                    let graph = everything(comm, stream, &mut buffers)?;
                    for _ in 0..3 {
                        graph.launch(stream)?;
                    }
                    let got = buffers.out.to_vec(stream)?;
                    assert_eq!(got[..3], [0.5; 3]);
                    assert_eq!(got[3..], sums(comm.size(), len), "{len} elements, rank {}", comm.rank());
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// Buffers may go before the graph does, which goes on using their memory.
#[test]
fn buffers_go_first() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut buffers = Buffers::new(stream, comm.rank(), 501)?;
                let graph = everything(comm, stream, &mut buffers)?;
                let Buffers { input, work, ring, mut out } = buffers;
                drop((input, work, ring));
                // Whoever allocates now must not get that memory.
                let others: Vec<_> =
                    (0..8).map(|_| DeviceBuffer::from_slice(stream, &[f32::NAN; 501])).collect::<Result<_>>()?;
                for _ in 0..5 {
                    out.fill(stream, 0.0)?;
                    graph.launch(stream)?;
                }
                assert_eq!(out.to_vec(stream)?[3..], sums(comm.size(), 501));
                assert!(others.iter().all(|one| one.to_vec(stream).unwrap().iter().all(|value| value.is_nan())));
                drop(graph);
                drop(out);
                stream.synchronize()
            });
            rig.close();
        }
    });
}

/// Launches on several streams, between operations that were not captured: in order by the memory that they use.
#[test]
fn in_order_with_everything_else() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let other = Stream::new(comm.device())?;
                let mut x = DeviceBuffer::from_slice(stream, &[1u64; 777])?;
                let mut y = DeviceBuffer::<u64>::zeroed(stream, 777)?;
                let graph = stream.capture(|stream| {
                    comm.all_reduce((&x, &mut y), ReduceOp::Sum, stream)?;
                    x.copy_from(stream, &y)
                })?;
                let mut expected = 1;
                for round in 0..20 {
                    graph.launch(if round % 3 == 0 { &other } else { stream })?;
                    expected = (expected * comm.size() as u64) % 1_000_003;
                    // Not captured, on the other stream of the two.
                    let plain = if round % 3 == 0 { stream } else { &other };
                    comm.all_reduce(InPlace(&mut y), ReduceOp::Max, plain)?;
                    let now = x.to_vec(plain)?;
                    assert!(now.iter().all(|value| value % 1_000_003 == expected % 1_000_003), "round {round}");
                    assert_eq!(now, y.to_vec(plain)?, "round {round}");
                    x.fill(&other, expected)?;
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// One thread captures the operations of all ranks, on streams of all their devices, in one graph.
#[test]
fn one_graph_for_all_devices() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            let comms = rig.clique.ranks();
            let streams: Vec<_> = comms.iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
            let mut buffers: Vec<_> = streams
                .iter()
                .enumerate()
                .map(|(rank, stream)| DeviceBuffer::from_slice(stream, &values(rank, 303)).unwrap())
                .collect();
            let graph = streams[0]
                .capture(|first| {
                    let mut lanes = vec![first.clone()];
                    for comm in &comms[1..] {
                        lanes.push(first.fork(comm.device())?);
                    }
                    group(|g| {
                        for ((comm, buffer), lane) in comms.iter().zip(&mut buffers).zip(&lanes) {
                            g.all_reduce(comm, InPlace(buffer), ReduceOp::Sum, lane)?;
                        }
                        Ok(())
                    })
                })
                .unwrap();
            let launches = 3;
            for _ in 0..launches {
                graph.launch(&streams[0]).unwrap();
            }
            let factor = ranks.pow(launches - 1) as f32;
            let expected: Vec<_> = sums(ranks, 303).into_iter().map(|sum| sum * factor).collect();
            for (buffer, stream) in buffers.iter().zip(&streams) {
                assert_eq!(buffer.to_vec(stream).unwrap(), expected);
            }
            drop(graph);
            rig.close();
        }
    });
}

/// Streams that part and come together: by what they use, and where they are told to.
#[test]
fn forks_and_joins() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut parts: Vec<_> =
                    (0..4).map(|_| DeviceBuffer::<i32>::zeroed(stream, 100)).collect::<Result<_>>()?;
                let mut all = DeviceBuffer::<i32>::zeroed(stream, 400)?;
                let graph = stream.capture(|stream| {
                    let mut lanes = Vec::new();
                    for (at, part) in parts.iter_mut().enumerate() {
                        let lane = stream.fork(comm.device())?;
                        part.fill(&lane, at as i32 + 1)?;
                        comm.all_reduce(InPlace(part), ReduceOp::Sum, &lane)?;
                        lanes.push(lane);
                    }
                    stream.join(&lanes[2])?;
                    for (at, part) in parts.iter().enumerate() {
                        all.slice_mut(at * 100..at * 100 + 100).copy_from(stream, part)?;
                    }
                    Ok(())
                })?;
                for _ in 0..50 {
                    all.fill(stream, 0)?;
                    graph.launch(stream)?;
                }
                let expected: Vec<_> = (0..400).map(|at| (at / 100 + 1) * comm.size() as i32).collect();
                assert_eq!(all.to_vec(stream)?, expected);
                Ok(())
            });
            rig.close();
        }
    });
}

/// A first use of everything within a capture: NCCL connects meanwhile.
#[test]
fn first_uses_are_captured() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::unconnected(ranks);
            rig.run(|comm, stream| {
                let mut buffers = Buffers::new(stream, comm.rank(), 100)?;
                let graph = everything(comm, stream, &mut buffers)?;
                for _ in 0..2 {
                    graph.launch(stream)?;
                }
                assert_eq!(buffers.out.to_vec(stream)?[3..], sums(comm.size(), 100));
                Ok(())
            });
            rig.close();
        }
    });
}

/// No launch blocks in the driver, however many are on their way: an abort gets through.
#[test]
fn many_launches_behind_one_that_hangs() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(slower(0.5)));
            let refused = rig.run(|comm, stream| {
                let mut x = DeviceBuffer::<i32>::zeroed(stream, 100)?;
                let graph = stream.capture(|stream| {
                    (0..20).try_for_each(|_| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream))
                })?;
                if comm.rank() == 0 {
                    return Ok(None);
                }
                let begin = Instant::now();
                let refused = (0..100).find_map(|_| graph.launch(stream).err());
                assert!(begin.elapsed() < slower(5.0));
                Ok(refused)
            });
            assert!(refused[1..].iter().all(Option::is_some), "{refused:?}");
            let begin = Instant::now();
            let _ = rig.clique.abort("the test gives up");
            assert!(begin.elapsed() < slower(5.0), "{:?}", begin.elapsed());
            std::thread::sleep(Duration::from_millis(10));
            crate::support::still_works(ranks);
        }
    });
}
