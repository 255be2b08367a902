//! Streams that cross: what is written on one, reduced on another and read on a third needs no event by hand.

use std::time::Duration;

use gpucomm::{Backend, Clique, Device, DeviceBuffer, InPlace, PinnedBuffer, ReduceOp, Stream, group};

use crate::support::{Rig, places, quick, rank_counts, slower, still_works, watched};

/// Makes everything that follows on `stream` late, so that a missing order between streams shows.
fn delay(stream: &Stream) -> gpucomm::Result<()> {
    stream.launch_host(|| std::thread::sleep(Duration::from_millis(40)))
}

#[test]
fn write_reduce_and_read_on_three_streams() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, _| {
                let stream = || Stream::new(comm.device());
                let (a, b, c) = (stream()?, stream()?, stream()?);
                let mut x = DeviceBuffer::<i32>::zeroed(&a, 4096)?;
                for round in 1..=5 {
                    delay(&a)?;
                    x.fill(&a, round + comm.rank() as i32)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &b)?;
                    let want = (0..ranks as i32).map(|rank| round + rank).sum::<i32>();
                    assert!(x.to_vec(&c)?.iter().all(|value| *value == want), "round {round}");
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// A write waits for reads that were enqueued before it on other streams.
#[test]
fn writes_wait_for_earlier_readers() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, _| {
                let stream = || Stream::new(comm.device());
                let (a, b, c) = (stream()?, stream()?, stream()?);
                let mut input = DeviceBuffer::from_slice(&a, &[1i64; 2048])?;
                let mut sum = DeviceBuffer::<i64>::zeroed(&a, 2048)?;
                let mut copy = DeviceBuffer::<i64>::zeroed(&a, 2048)?;
                a.synchronize()?;
                delay(&b)?;
                comm.all_reduce((&input, &mut sum), ReduceOp::Sum, &b)?;
                delay(&c)?;
                copy.copy_from(&c, &input)?;
                input.fill(&a, 99)?;
                assert_eq!(sum.to_vec(&a)?, vec![ranks as i64; 2048]);
                assert_eq!(copy.to_vec(&b)?, [1; 2048]);
                assert_eq!(input.to_vec(&c)?, [99; 2048]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// A buffer is freed on drop only after what other streams still do with it.
#[test]
fn frees_wait_for_every_stream() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, _| {
                let (a, b) = (Stream::new(comm.device())?, Stream::new(comm.device())?);
                let mut sum = DeviceBuffer::<u32>::zeroed(&b, 10_000)?;
                for round in 0..5 {
                    let input = DeviceBuffer::from_slice(&a, &vec![round; 10_000])?;
                    delay(&b)?;
                    comm.all_reduce((&input, &mut sum), ReduceOp::Max, &b)?;
                    drop(input);
                    // These are likely to get the same memory, at once.
                    let others: Vec<_> = (0..3)
                        .map(|_| DeviceBuffer::from_slice(&a, &vec![u32::MAX; 10_000]))
                        .collect::<gpucomm::Result<_>>()?;
                    assert!(sum.to_vec(&b)?.iter().all(|value| *value == round), "round {round}");
                    drop(others);
                }
                Ok(())
            });
            rig.close();
        }
    });
}

#[test]
fn one_communicator_on_several_streams_in_turn() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, _| {
                let streams = (0..3).map(|_| Stream::new(comm.device())).collect::<gpucomm::Result<Vec<_>>>()?;
                let mut buffers = streams
                    .iter()
                    .map(|stream| DeviceBuffer::from_slice(stream, &[1.0f64; 513]))
                    .collect::<gpucomm::Result<Vec<_>>>()?;
                for round in 0..12 {
                    let (at, on) = (round % 3, (round / 2) % 3);
                    comm.all_reduce(InPlace(&mut buffers[at]), ReduceOp::Avg, &streams[on])?;
                    let bias = 1.0 + round as f64;
                    buffers[at].fill(&streams[(on + 1) % 3], bias)?;
                    comm.all_reduce(InPlace(&mut buffers[at]), ReduceOp::Sum, &streams[on])?;
                    assert_eq!(buffers[at].to_vec(&streams[at])?, [bias * ranks as f64; 513], "round {round}");
                }
                Ok(())
            });
            rig.close();
        }
    });
}

#[test]
fn two_communicators_on_the_same_devices() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let devices = &places()[..ranks];
            let (first, second) = (Clique::init_all(devices).unwrap(), Clique::init_all(devices).unwrap());
            let second_ranks = second.ranks();
            let results = first
                .spmd(|comm| {
                    let other = &second_ranks[comm.rank()];
                    let (a, b) = (Stream::new(comm.device())?, Stream::new(comm.device())?);
                    let mut x = DeviceBuffer::from_slice(&a, &[1i32; 1000])?;
                    for _ in 0..6 {
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &a)?;
                        other.all_reduce(InPlace(&mut x), ReduceOp::Max, &b)?;
                    }
                    x.to_vec(&b)
                })
                .unwrap();
            let want = (ranks as i32).pow(6);
            assert!(results.iter().flatten().all(|value| *value == want), "not {want}");
            second.close_timeout(gpucomm::default_timeout()).unwrap();
            first.close_timeout(gpucomm::default_timeout()).unwrap();
        }
    });
}

/// A pinned buffer that the device still writes is not shown to the host before that is done.
#[test]
fn pinned_memory_waits_for_the_device() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut host = PinnedBuffer::from_slice(&vec![comm.rank() as f32 + 1.0; 10_000])?;
                let mut x = DeviceBuffer::<f32>::uninit(stream, 10_000)?;
                for round in 0..4 {
                    delay(stream)?;
                    x.copy_from_pinned(stream, &host)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                    x.copy_to_pinned(stream, &mut host)?;
                    assert!(host.as_slice()?.iter().all(|value| *value == ranks as f32 + round as f32));
                    for value in host.as_slice_mut()? {
                        *value += 1.0;
                    }
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// Groups over two streams wait for a rank that never comes, and are aborted: both streams go on only when nothing uses
/// their buffers any more.
#[test]
fn an_abort_behind_groups_over_two_streams() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            let rounds = if gpucomm::backend() == Backend::Nvidia { 6 } else { 20 };
            for _ in 0..rounds {
                let rig = Rig::new(ranks);
                rig.run(|comm, a| {
                    if comm.rank() != 0 {
                        return Ok(());
                    }
                    let b = Stream::new(comm.device())?;
                    let mut x = DeviceBuffer::from_slice(a, &[1i32; 8])?;
                    let mut y = DeviceBuffer::from_slice(&b, &[1i32; 8])?;
                    for _ in 0..9 {
                        group(|g| {
                            g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, a)?;
                            g.all_reduce(comm, InPlace(&mut y), ReduceOp::Sum, &b)
                        })?;
                    }
                    let aborter = comm.aborter();
                    let helper = std::thread::spawn(move || aborter.abort("rank 1 does not come"));
                    quick(slower(10.0), || drop((x, y, b)));
                    let _ = helper.join().expect("an abort");
                    Ok(())
                });
                quick(slower(20.0), || drop(rig));
                still_works(ranks);
            }
        }
    });
}

/// Groups of two communicators over the same two streams, in opposite order: neither waits for what comes later.
#[test]
fn groups_over_shared_streams_in_opposite_order() {
    watched(60.0, || {
        let device = Device::new(0).unwrap();
        let (a, b) = (Stream::new(device).unwrap(), Stream::new(device).unwrap());
        let orders = [[&a, &b], [&b, &a]];
        std::thread::scope(|scope| {
            for order in orders {
                scope.spawn(move || {
                    let clique = Clique::init_all(&[device]).unwrap();
                    let comm = clique.rank(0);
                    let mut x = DeviceBuffer::from_slice(order[0], &[3i32; 100]).unwrap();
                    let mut y = DeviceBuffer::from_slice(order[1], &[4i32; 100]).unwrap();
                    for _ in 0..300 {
                        group(|g| {
                            g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, order[0])?;
                            g.all_reduce(comm, InPlace(&mut y), ReduceOp::Sum, order[1])
                        })
                        .unwrap();
                    }
                    assert_eq!(x.to_vec(order[0]).unwrap(), [3; 100]);
                    assert_eq!(y.to_vec(order[1]).unwrap(), [4; 100]);
                });
            }
        });
    });
}
