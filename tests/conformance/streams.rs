//! Streams that cross: what is written on one, reduced on another and read on a third needs no event by hand.

use std::time::Duration;

use gpucomm::{Clique, Device, DeviceBuffer, InPlace, PinnedBuffer, ReduceOp, Stream};

use crate::support::{Rig, rank_counts, watched};

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
            let devices = &Device::all().unwrap()[..ranks];
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
            second.close(gpucomm::default_timeout()).unwrap();
            first.close(gpucomm::default_timeout()).unwrap();
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
                    for value in host.as_mut_slice()? {
                        *value += 1.0;
                    }
                }
                Ok(())
            });
            rig.close();
        }
    });
}
