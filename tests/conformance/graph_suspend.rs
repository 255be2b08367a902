//! Suspends while something is captured: NCCL waits for whole devices in one, which CUDA does not beside a capture, and which spoils it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use gpucomm::nccl::Suspend;
use gpucomm::{DeviceBuffer, Error, InPlace, ReduceOp, Stream};

use crate::support::newer::since;
use crate::support::random::rng;
use crate::support::{Rig, assert_names, rank_counts};
use crate::suspend::FIRST;

fn sums(rig: &Rig) {
    let size = rig.size() as i32;
    rig.run(|comm, stream| {
        let mut x = DeviceBuffer::from_slice(stream, &[comm.rank() as i32; 55])?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
        assert_eq!(x.to_vec(stream)?, [size * (size - 1) / 2; 55]);
        Ok(())
    });
}

/// Nobody can wait for what the own thread is in the middle of.
#[test]
fn within_a_capture_it_is_refused() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2, 3]) {
            let rig = Rig::new(ranks);
            let last = rig.clique.rank(ranks - 1).device();
            // On a device of its own, and on one that comes in later.
            for (first, forks) in [(last, false), (rig.clique.rank(0).device(), true)] {
                let stream = Stream::new(first).unwrap();
                let lane = Stream::new(last).unwrap();
                let mut x = DeviceBuffer::from_slice(&lane, &[0i32; 77]).unwrap();
                let graph = stream.capture(|stream| {
                    let lane = if forks { stream.fork(last)? } else { stream.clone() };
                    let refused = rig.clique.suspend(Suspend::MEMORY, "the test suspends").expect_err("a capture");
                    assert_names(&refused, &["suspend", "captured"]);
                    assert!(matches!(refused, Error::InvalidUsage { .. }), "{refused:?}");
                    assert!(rig.clique.ranks().iter().all(|comm| comm.is_active()));
                    x.fill(&lane, 7)
                });
                graph.unwrap().launch(&stream).unwrap();
                assert_eq!(x.to_vec(&lane).unwrap(), [7; 77]);
            }
            rig.clique.suspend(Suspend::MEMORY, "the test suspends").unwrap();
            rig.clique.resume().unwrap();
            sums(&rig);
            rig.close();
        }
    });
}

/// A capture of another thread is waited for, as long as calls wait, and one that would begin meanwhile waits.
#[test]
fn other_captures_are_waited_for() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            let stream = Stream::new(rig.clique.rank(ranks - 1).device()).unwrap();
            let mut x = DeviceBuffer::from_slice(&stream, &[0i32; 77]).unwrap();
            let (begun, has_begun) = channel();
            let (go_on, goes_on) = channel::<()>();
            thread::scope(|scope| {
                let (x, stream) = (&mut x, &stream);
                let capture = scope.spawn(move || {
                    let graph = stream.capture(|stream| {
                        begun.send(()).unwrap();
                        goes_on.recv().unwrap();
                        // Most of the other's wait is over before.
                        thread::sleep(Duration::from_millis(200));
                        x.fill(stream, 7)
                    })?;
                    graph.launch(stream)?;
                    stream.synchronize()
                });
                has_begun.recv().unwrap();
                let before: Vec<_> = rig.clique.ranks().iter().map(|comm| comm.timeout()).collect();
                rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(Duration::from_millis(300)));
                let late = rig.clique.suspend(Suspend::MEMORY, "too early").expect_err("a capture");
                assert!(matches!(late, Error::Timeout { .. }), "{late:?}");
                assert_names(&late, &["suspend", "capture of another thread"]);
                assert!(rig.clique.ranks().iter().all(|comm| comm.is_active()));
                rig.clique.ranks().iter().zip(before).for_each(|(comm, timeout)| comm.set_timeout(timeout));
                go_on.send(()).unwrap();
                rig.clique.suspend(Suspend::MEMORY, "the test suspends").unwrap();
                rig.clique.resume().unwrap();
                capture.join().unwrap().unwrap();
            });
            assert_eq!(x.to_vec(&stream).unwrap(), [7; 77]);
            sums(&rig);
            rig.close();
        }
    });
}

/// Captures that need each other on all devices, beside suspends on all of them.
#[test]
fn captures_come_and_go() {
    since(FIRST, 120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let pause = rng(&format!("captures beside suspends {ranks}")).u64(0..3);
            // NCCL connects both here, and not beside each other.
            let (rig, other) = (Rig::new(ranks), Rig::new(ranks));
            let busy = AtomicUsize::new(ranks);
            thread::scope(|scope| {
                let beside = scope.spawn(|| {
                    other.run(|comm, stream| {
                        let mut x = DeviceBuffer::from_slice(stream, &[1i64; 5])?;
                        let (mut done, mut graph) = (Ok(()), None);
                        for _ in 0..60 {
                            drop(graph.take());
                            match stream.capture(|stream| {
                                thread::sleep(Duration::from_millis(pause));
                                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
                            }) {
                                Ok(made) => graph = Some(made),
                                Err(error) => {
                                    done = Err(error);
                                    break;
                                }
                            }
                        }
                        busy.fetch_sub(1, Ordering::Relaxed);
                        done?;
                        // A suspend waits for the device, and holds captures back: one that a launch elsewhere waits for would not begin.
                        while busy.load(Ordering::Relaxed) > 0 {
                            thread::sleep(Duration::from_millis(1));
                        }
                        graph.expect("the last").launch(stream)?;
                        assert_eq!(x.to_vec(stream)?, [ranks as i64; 5]);
                        Ok(())
                    });
                });
                let mut rounds = 0;
                while busy.load(Ordering::Relaxed) > 0 {
                    rig.run(|comm, _| comm.suspend(Suspend::MEMORY, "the test suspends")?.resume().map(drop));
                    rounds += 1;
                }
                assert!(rounds > 0, "captures were over before the first");
                beside.join().unwrap();
            });
            sums(&rig);
            rig.close();
            other.close();
        }
    });
}
