//! Ends: drops in every order, `mem::forget` of every public value, close and abort.

use std::mem::forget;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use gpucomm::cuda::Event;
use gpucomm::nccl::AbortOutcome;
use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Stream, UniqueId};

use crate::split::sum;
use crate::starts::holdings;
use crate::support::{Rig, is_thorough, places, quick, rank_counts, slower, still_works, watched};

/// Every order of `len` things.
fn orders(len: usize) -> Vec<Vec<usize>> {
    if len == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in orders(len - 1) {
        for at in 0..=shorter.len() {
            let mut order = shorter.clone();
            order.insert(at, len - 1);
            all.push(order);
        }
    }
    all
}

/// Runs `body` as every rank of a new clique, each on a thread that owns its communicator.
fn owners(ranks: usize, body: impl Fn(Communicator) -> gpucomm::Result<()> + Sync) {
    let comms = Rig::new(ranks).clique.into_ranks();
    std::thread::scope(|scope| {
        let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(|| body(comm))).collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
}

/// Communicator, buffer of the communicator, plain buffer, stream, event: all still in use, dropped in each of
/// 120 orders.
#[test]
fn drops_in_every_order() {
    watched(200.0, || {
        for ranks in rank_counts(&[2]) {
            // On real GPUs a communicator takes most of a second to come and go: every fifth order there.
            let step = if gpucomm::backend() == gpucomm::Backend::Nvidia { 5 } else { 1 };
            for order in orders(5).into_iter().step_by(step) {
                owners(ranks, |comm| {
                    let stream = Stream::new(comm.device())?;
                    let comm = Arc::new(comm);
                    let mut window = comm.alloc_shared::<f32>(&stream, 5000)?;
                    let mut plain = DeviceBuffer::<f32>::zeroed(&stream, 5000)?;
                    stream.launch_host(|| std::thread::sleep(Duration::from_millis(2)))?;
                    comm.all_reduce(InPlace(&mut window), ReduceOp::Sum, &stream)?;
                    comm.all_reduce((&window, &mut plain), ReduceOp::Sum, &stream)?;
                    let event = stream.record()?;
                    let mut things: [Option<Box<dyn Send>>; 5] = [
                        Some(Box::new(comm)),
                        Some(Box::new(window)),
                        Some(Box::new(plain)),
                        Some(Box::new(stream)),
                        Some(Box::new(event)),
                    ];
                    for at in &order {
                        drop(things[*at].take());
                    }
                    Ok(())
                });
            }
            still_works(ranks);
        }
    });
}

#[test]
fn a_forgotten_clique() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                comm.all_reduce(InPlace(&mut DeviceBuffer::<u8>::zeroed(stream, 9)?), ReduceOp::Sum, stream)
            });
            forget(rig.clique);
            still_works(ranks);
        }
    });
}

#[test]
fn forgotten_communicators() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            owners(ranks, |comm| {
                let stream = Stream::new(comm.device())?;
                let mut x = DeviceBuffer::from_slice(&stream, &[2i8; 100])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Prod, &stream)?;
                forget(comm);
                assert_eq!(x.to_vec(&stream)?, [2i8.pow(ranks as u32); 100]);
                Ok(())
            });
            still_works(ranks);
        }
    });
}

/// Everything that borrows a communicator or lives on a stream, forgotten while it is in use.
#[test]
fn every_other_value_forgotten() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                for _ in 0..3 {
                    let other = Stream::new(comm.device())?;
                    let mut window = comm.alloc_from(&other, &[1.0f32; 3000])?;
                    let operator = comm.pre_mul_sum(2.0f32)?;
                    let mut plain = DeviceBuffer::<f32>::zeroed(stream, 3000)?;
                    let mut pinned = PinnedBuffer::<f32>::zeroed(3000)?;
                    comm.all_reduce(InPlace(&mut window), &operator, &other)?;
                    comm.all_reduce((&window, &mut plain), ReduceOp::Sum, stream)?;
                    plain.copy_to_pinned(stream, &mut pinned)?;
                    let event = other.record()?;
                    let timing = Event::timing(comm.device())?;
                    timing.record(stream)?;
                    let current = comm.device().set_current()?;
                    assert_eq!(pinned.as_slice()?, [2.0 * (ranks * ranks) as f32; 3000]);
                    forget((window.slice(0..3), plain.slice(1..2)));
                    forget(window.slice_mut(3..9));
                    forget(operator);
                    forget(window);
                    forget(plain);
                    forget(pinned);
                    forget(event);
                    forget(timing);
                    forget(other);
                    forget(comm.aborter());
                    forget(current);
                }
                let mut x = DeviceBuffer::from_slice(stream, &[1u64; 10])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                assert_eq!(x.to_vec(stream)?, [ranks as u64; 10]);
                Ok(())
            });
            rig.close();
            still_works(ranks);
        }
    });
}

#[test]
fn close_is_quick_and_waits_for_the_work() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            owners(ranks, |comm| {
                let stream = Stream::new(comm.device())?;
                let mut x = DeviceBuffer::from_slice(&stream, &vec![1i32; 100_000])?;
                for _ in 0..5 {
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                }
                quick(slower(10.0), || comm.close_timeout(slower(10.0)))?;
                assert!(x.to_vec(&stream)?.iter().all(|value| *value == (ranks as i32).pow(5)));
                Ok(())
            });
            still_works(ranks);
        }
    });
}

#[test]
fn ranks_of_a_clique_are_numbered_as_its_devices() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let mut devices = places()[..ranks].to_vec();
            devices.reverse();
            let clique = Clique::init_all(&devices).unwrap();
            assert_eq!(clique.size(), ranks);
            for (rank, comm) in clique.ranks().iter().enumerate() {
                assert_eq!((comm.rank(), comm.size(), comm.device()), (rank, ranks, devices[rank]));
                assert_eq!(clique.rank(rank).rank(), rank);
                comm.async_error().unwrap();
                assert!(comm.as_raw().is_some_and(|raw| !raw.is_null()));
            }
            clique.close_timeout(slower(20.0)).unwrap();
        }
    });
}

#[test]
fn abort_ends_every_use() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let all = Barrier::new(ranks);
            owners(ranks, |comm| {
                let stream = Stream::new(comm.device())?;
                let aborter = comm.aborter();
                let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 10])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                stream.synchronize()?;
                all.wait();
                assert_ne!(aborter.abort("the test says so"), AbortOutcome::StillRunning);
                assert_eq!(aborter.clone().abort("again"), AbortOutcome::Already);
                let error = comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap_err();
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                crate::support::assert_names(&error, &["all_reduce", "the test says so"]);
                assert!(matches!(comm.async_error(), Err(Error::Aborted { .. })));
                // The rest of the device is as it was.
                assert_eq!(x.to_vec(&stream)?, [ranks as i32; 10]);
                drop(comm);
                assert_eq!(aborter.abort("after the end"), AbortOutcome::Already);
                Ok(())
            });
            still_works(ranks);
        }
    });
}

#[test]
fn an_aborter_outlives_a_communicator_that_was_closed() {
    watched(30.0, || {
        // SAFETY: the only rank.
        let comm =
            unsafe { Communicator::init_rank(Device::new(0).unwrap(), 1, &UniqueId::new().unwrap(), 0) }.unwrap();
        let aborter = comm.aborter();
        comm.close_timeout(slower(10.0)).unwrap();
        assert_eq!(aborter.abort("too late"), AbortOutcome::Already);
        still_works(1);
    });
}

#[test]
fn communicators_may_come_and_go_often() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let times = if gpucomm::backend() == gpucomm::Backend::Nvidia { 3 } else { 20 };
            for _ in 0..times {
                still_works(ranks);
            }
        }
    });
}

/// One rank was closed, and another has windows when it is aborted: what NCCL has of the first stays until the last has ended.
#[test]
fn a_rank_that_has_windows_is_aborted_after_another_was_closed() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let barrier = Barrier::new(ranks);
            let (before, comms) = (&barrier, Rig::new(ranks).clique.into_ranks());
            std::thread::scope(|scope| {
                for comm in comms {
                    scope.spawn(move || {
                        let stream = Stream::new(comm.device()).unwrap();
                        let mut x = comm.alloc::<u32>(&stream, 1000).unwrap();
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Max, &stream).unwrap();
                        stream.synchronize().unwrap();
                        before.wait();
                        if comm.rank() > 0 {
                            drop(x);
                            quick(slower(4.0), || comm.close_timeout(slower(10.0)).unwrap());
                            before.wait();
                            return;
                        }
                        before.wait();
                        let outcome = quick(slower(6.0), || comm.aborter().abort("the last one gives up"));
                        assert_eq!(outcome, AbortOutcome::Done);
                    });
                }
            });
            still_works(ranks);
        }
    });
}

/// Bytes of memory that this process has resident, without what it shares with others: devices of the emulator are such memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<usize> = text.split_whitespace().map(|pages| pages.parse().unwrap()).collect();
    (pages[1] - pages[2]) * 4096
}

/// Cliques and their parts that come and go leave no files, threads or memory behind.
#[test]
fn nothing_grows() {
    watched(200.0, || {
        for ranks in rank_counts(&[2]) {
            let rounds = |count: usize| {
                for round in 0..count {
                    let clique = Clique::init_all(&places()[..ranks]).unwrap();
                    let used = clique.spmd(|comm| {
                        let stream = Stream::new(comm.device())?;
                        let mut x = comm.alloc_from(&stream, &[1.0f32; 5000])?;
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                        let part = comm.split(Some(0), comm.rank())?.expect("a part");
                        sum(&part, &stream)?;
                        x.to_vec(&stream).map(drop)
                    });
                    used.unwrap();
                    match round % 3 {
                        0 => clique.close_timeout(slower(10.0)).unwrap(),
                        1 => drop(clique),
                        _ => drop(clique.abort("the test aborts")),
                    }
                }
            };
            rounds(30);
            let (before, memory) = (holdings(|_| true), resident());
            let count = if is_thorough() { 1000 } else { 100 };
            rounds(count);
            let after = holdings(|now| now.0 <= before.0 && now.1 <= before.1);
            assert!(after.0 <= before.0 && after.1 <= before.1, "files and threads: {before:?}, then {after:?}");
            let grown = resident().saturating_sub(memory);
            println!("{before:?} {after:?}: {memory} bytes, then {grown} more");
            assert!(grown < 2 << 20, "{grown} bytes in {count} rounds, after {memory}");
        }
    });
}
