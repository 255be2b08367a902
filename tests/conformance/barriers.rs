//! Barriers: nobody passes before all have come, on the device and on the host.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpucomm::{Clique, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, group};

use crate::support::{Rig, assert_argument, assert_names, quick, rank_counts, slower, still_works, watched};

/// What a stream does after a barrier comes after what all others do before it.
#[test]
fn on_the_device() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            let came: Vec<_> = (0..10).map(|_| AtomicUsize::new(0)).collect();
            let came = std::sync::Arc::new(came);
            let seen = rig.run(|comm, stream| {
                let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
                for round in 0..10 {
                    let (before, after, all) = (came.clone(), came.clone(), seen.clone());
                    let late = Duration::from_millis(if comm.rank() == round % ranks { 10 } else { 0 });
                    stream.launch_host(move || {
                        std::thread::sleep(late);
                        before[round].fetch_add(1, Ordering::SeqCst);
                    })?;
                    comm.barrier_on_stream(stream)?;
                    stream.launch_host(move || all.lock().unwrap().push(after[round].load(Ordering::SeqCst)))?;
                }
                stream.synchronize()?;
                Ok(seen.lock().unwrap().clone())
            });
            assert!(seen.iter().flatten().all(|came| *came == ranks), "{ranks} ranks: {seen:?}");
            rig.close();
        }
    });
}

/// A thread for each rank, and one for all.
#[test]
fn on_the_host() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            let came = AtomicUsize::new(0);
            rig.run(|comm, stream| {
                for round in 1..=20 {
                    came.fetch_add(1, Ordering::SeqCst);
                    comm.barrier(stream)?;
                    assert!(came.load(Ordering::SeqCst) >= round * comm.size());
                }
                Ok(())
            });
            let streams = streams(&rig.clique).unwrap();
            let (runs, sleeps) = (std::sync::Arc::new(AtomicUsize::new(0)), Duration::from_millis(20));
            for stream in &streams {
                let runs = std::sync::Arc::clone(&runs);
                let host = move || {
                    std::thread::sleep(sleeps);
                    runs.fetch_add(1, Ordering::SeqCst);
                };
                stream.launch_host(host).unwrap();
            }
            rig.clique.barrier_on_stream(&streams).unwrap();
            rig.clique.barrier(&streams).unwrap();
            assert_eq!(runs.load(Ordering::SeqCst), ranks);
            rig.close();
        }
    });
}

fn streams(clique: &Clique) -> Result<Vec<Stream>> {
    clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect()
}

/// Between other operations of a group, several times, of one thread for all ranks: in order on the device, and what else is there is right.
#[test]
fn in_a_group() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            let streams = streams(&rig.clique).unwrap();
            let others = self::streams(&rig.clique).unwrap();
            let came = std::sync::Arc::new(AtomicUsize::new(0));
            let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
            let mut sums: Vec<_> = streams
                .iter()
                .zip(1..)
                .map(|(stream, value)| DeviceBuffer::from_slice(stream, &[value; 3]).unwrap())
                .collect();
            for (rank, stream) in streams.iter().enumerate() {
                let came = came.clone();
                let host = move || {
                    std::thread::sleep(Duration::from_millis(10 * rank as u64));
                    came.fetch_add(1, Ordering::SeqCst);
                };
                stream.launch_host(host).unwrap();
            }
            group(|g| {
                assert!(g.is_empty());
                for ((comm, (stream, other)), x) in
                    rig.clique.ranks().iter().zip(streams.iter().zip(&others)).zip(&mut sums)
                {
                    g.barrier_on_stream(comm, stream)?;
                    g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream)?;
                    g.barrier_on_stream(comm, stream)?;
                    g.barrier_on_stream(comm, other)?;
                }
                assert_eq!(g.len(), 4 * ranks);
                Ok(())
            })
            .unwrap();
            // A communicator of one rank has nobody to wait for, on whatever stream.
            let behind = if ranks > 1 { &others[..] } else { &[] };
            for stream in streams.iter().chain(behind) {
                let (came, seen) = (came.clone(), seen.clone());
                stream.launch_host(move || seen.lock().unwrap().push(came.load(Ordering::SeqCst))).unwrap();
            }
            let expected: i32 = (1..=ranks as i32).sum();
            for (x, stream) in sums.iter().zip(&streams) {
                assert_eq!(x.to_vec(stream).unwrap(), [expected; 3]);
            }
            streams.iter().chain(&others).for_each(|stream| stream.synchronize().unwrap());
            assert_eq!(*seen.lock().unwrap(), vec![ranks; ranks + behind.len()]);
            // Nothing of a group that fails is submitted: else the others would wait for this one.
            let failed = group(|g| {
                g.barrier_on_stream(rig.clique.rank(0), &streams[0])?;
                Err::<(), _>(Error::InvalidUsage { operation: "test", reason: "a group that fails".into() })
            });
            assert!(matches!(failed, Err(Error::InvalidUsage { operation: "test", .. })), "{failed:?}");
            rig.clique.barrier(&streams).unwrap();
            if ranks > 1 {
                let elsewhere = group(|g| g.barrier_on_stream(rig.clique.rank(0), &streams[1]));
                assert_argument(elsewhere, "barrier_on_stream", "device 0", "device 1");
            }
            drop(sums);
            rig.close();
        }
    });
}

/// The deadline is that of the communicator, and who does not come is named.
#[test]
fn where_a_rank_does_not_come() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let result = quick(slower(3.0), || {
                rig.try_run(|comm, stream| {
                    comm.set_timeout(slower(1.0));
                    comm.barrier(stream)?;
                    if comm.rank() == 1 { Ok(()) } else { comm.barrier(stream) }
                })
            });
            let error = result.expect_err("rank 1 has not come");
            assert!(matches!(error, Error::Timeout { operation: "barrier", .. }), "{error:?}");
            assert_names(&error, &["rank 1"]);
            quick(slower(20.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// It is an operation like others: ranks that do something else disagree.
#[test]
fn where_a_rank_does_something_else() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let result = rig.try_run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1i32; 4])?;
                if comm.rank() == 0 {
                    comm.barrier_on_stream(stream)
                } else {
                    comm.all_reduce(gpucomm::InPlace(&mut x), gpucomm::ReduceOp::Sum, stream)
                }
            });
            let error = result.expect_err("they disagree");
            assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
        }
    });
}

#[test]
fn bad_input() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let mut streams = streams(&rig.clique).unwrap();
            assert_argument(rig.clique.barrier_on_stream(&streams[..1]), "barrier_on_stream", "2 streams", "1 streams");
            assert_argument(rig.clique.barrier(&[]), "barrier", "2 streams", "0 streams");
            streams.swap(0, 1);
            assert_argument(rig.clique.barrier_on_stream(&streams), "barrier_on_stream", "device 0", "device 1");
            let of_rank_0 = rig.clique.rank(0).barrier(&streams[0]);
            assert_argument(of_rank_0, "barrier", "device 0", "device 1");
            let grouped = gpucomm::group(|_| rig.clique.rank(0).barrier_on_stream(&streams[1]));
            assert!(matches!(grouped, Err(Error::InvalidUsage { operation: "barrier_on_stream", .. })), "{grouped:?}");
            streams.swap(0, 1);
            rig.clique.barrier(&streams).unwrap();
            rig.close();
        }
    });
}
