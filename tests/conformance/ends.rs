//! Ends that nothing may hold up: not a driver call that waits for the device, not a thread that waits, not a device that is
//! lost. And what they leave behind: nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpucomm::nccl::AbortOutcome;
use gpucomm::{Backend, Clique, Device, DeviceBuffer, Error, InPlace, ReduceOp, Stream, UniqueId, group, sys};

use crate::split::sum;
use crate::support::process::{Finished, Role, spawn};
use crate::support::{Rig, assert_names, places, quick, rank_counts, skip, slower, still_works, watched};

const CHILD: &str = "ends::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn(usize)); 4] =
        [("held up", held_up), ("watched", watched_meanwhile), ("memory", memory), ("lost", lost)];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            gpucomm::set_default_timeout(slower(30.0));
            body(role.size);
            println!("finished");
        }
    }
}

fn in_child(role: &str, ranks: usize, env: &[(&str, &str)]) -> Finished {
    let end = spawn(CHILD, role, (0, ranks), &UniqueId::new().unwrap(), env).finish(slower(170.0));
    end.assert_success();
    assert!(end.text.contains("finished"), "{}", end.text);
    end
}

/// A thread frees memory of the device, for which the driver waits until the device is idle, and other threads wait for the
/// driver: one of them in the middle of a call on the communicator.
fn held_up(ranks: usize) {
    let rig = Rig::new(ranks);
    let device = rig.clique.rank(1).device();
    let mut ptr = std::ptr::null_mut();
    {
        let _current = device.set_current().unwrap();
        // SAFETY: writes a pointer to the address given.
        assert_eq!(unsafe { sys::cudaMalloc(&mut ptr, 4096) }, sys::cudaError::cudaSuccess);
    }
    let other = Stream::new(device).unwrap();
    let mut y = DeviceBuffer::from_slice(&other, &[1i32; 5]).unwrap();
    let hung = rig.hang();
    let (ptr, free) = (ptr.expose_provenance(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _current = device.set_current().unwrap();
            // SAFETY: from `cudaMalloc`, and nothing uses it.
            let code = unsafe { sys::cudaFree(std::ptr::with_exposed_provenance_mut(ptr)) };
            free.store(code == sys::cudaError::cudaSuccess, Ordering::SeqCst);
        });
        std::thread::sleep(slower(0.2));
        assert!(!free.load(Ordering::SeqCst), "cudaFree waits for nothing");
        scope.spawn(|| {
            let _ = y.fill(&other, 2);
            let _ = rig.clique.rank(1).all_reduce(InPlace(&mut y), ReduceOp::Sum, &other);
        });
        std::thread::sleep(slower(0.2));
        let start = Instant::now();
        assert_eq!(rig.clique.rank(1).aborter().abort("the test gives up"), AbortOutcome::Done);
        assert!(start.elapsed() < slower(4.0), "{:?}", start.elapsed());
    });
    assert!(free.into_inner());
    for (stream, x) in &hung {
        stream.synchronize_timeout(slower(2.0)).expect_err("work without rank 0 counts as done");
        x.to_vec(stream).expect_err("the values of an aborted operation");
    }
    drop((rig, hung, y));
    still_works(ranks);
}

#[test]
fn an_abort_passes_who_waits_in_the_driver() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for lock in ["0", "1"] {
                in_child("held up", ranks, &[("GPUCOMM_EMULATOR_DRIVER_LOCK", lock)]);
            }
        }
    });
}

/// Memory is freed, for which the device is waited for, while a collective hangs there. Who drops it does not wait, and the
/// watchdog goes on looking after others.
fn watched_meanwhile(_: usize) {
    let devices = Device::all().unwrap();
    let (first, second) = (Rig::new(2), Clique::init_all(&devices[2..4]).unwrap());
    let stream = Stream::new(devices[1]).unwrap();
    let window = first.clique.rank(1).alloc_local::<f32>(&stream, 1000).unwrap();
    stream.synchronize().unwrap();
    // The ranks meet before the first operation.
    first.run(|comm, stream| {
        let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5])?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
        stream.synchronize()
    });
    let hung = first.hang();
    quick(Duration::ZERO, || drop(window));
    std::thread::sleep(slower(0.2));
    // The fault comes at the third operation, and nobody waits for it.
    let streams: Vec<_> = second.ranks().iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
    let mut buffers: Vec<_> = streams.iter().map(|s| DeviceBuffer::from_slice(s, &[1i32; 5]).unwrap()).collect();
    for _ in 0..3 {
        let _ = group(|g| {
            let members = second.ranks().iter().zip(&streams).zip(&mut buffers);
            members
                .into_iter()
                .try_for_each(|((comm, stream), x)| g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream))
        });
    }
    let start = Instant::now();
    while second.rank(0).is_active() {
        assert!(start.elapsed() < slower(10.0), "nobody has looked for errors");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(first.clique.rank(0).aborter().abort("the test gives up"), AbortOutcome::Done);
    drop((first, second, hung));
    still_works(2);
}

#[test]
fn memory_that_waits_for_the_device_holds_up_nobody() {
    watched(60.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("faults are injected by the emulator only");
        }
        for ranks in rank_counts(&[4]) {
            let env = [("GPUCOMM_EMULATOR_FAULTS", "async_error=rank1@op3")];
            in_child("watched", ranks, &env);
        }
    });
}

/// Free memory of each device, once it grows no more.
fn free_memory(devices: &[Device]) -> Vec<usize> {
    let now = || devices.iter().map(|device| device.memory_info().unwrap().free).collect::<Vec<_>>();
    let mut last = now();
    loop {
        std::thread::sleep(slower(0.2));
        let next = now();
        if next.iter().zip(&last).all(|(next, last)| next <= last) {
            return next;
        }
        last = next;
    }
}

/// A clique with windows, which is aborted with work in flight.
fn abort_with_windows(devices: &[Device]) {
    let clique = Clique::init_all(devices).unwrap();
    let all_have_waited = std::sync::Barrier::new(devices.len());
    let aborted = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let mut kept = comm.alloc::<f32>(&stream, 8 << 20)?;
        let dropped = comm.alloc_from(&stream, &[1.0f32; 1000])?;
        comm.all_reduce((&dropped, &mut kept), ReduceOp::Sum, &stream)?;
        stream.synchronize()?;
        drop(dropped);
        all_have_waited.wait();
        if comm.rank() == 0 {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(comm.aborter().abort("the test gives up"), AbortOutcome::Done);
        } else {
            let _ = comm
                .all_reduce(InPlace(&mut kept), ReduceOp::Sum, &stream)
                .and_then(|()| stream.synchronize_timeout(slower(20.0)));
        }
        Ok(())
    });
    aborted.unwrap();
}

fn memory(ranks: usize) {
    let devices = &places()[..ranks];
    abort_with_windows(devices);
    let first = free_memory(devices);
    // One window that is lost each time shows after two; GPUs have more that may be lost now and then.
    let times = if gpucomm::backend() == Backend::Nvidia { 50 } else { 8 };
    for _ in 0..times {
        abort_with_windows(devices);
    }
    let (start, lost) = (Instant::now(), || -> Vec<_> {
        first.iter().zip(free_memory(devices)).map(|(first, last)| first.saturating_sub(last)).collect()
    });
    // What the driver rounds, or takes for itself now and then, is less than one window; what a clique leaves behind may go a little later.
    while lost().iter().any(|lost| *lost >= 16 << 20) {
        assert!(start.elapsed() < slower(20.0), "lost {:?} bytes, of {first:?}", lost());
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("free at first {first:?}, lost {:?} after {times} times, known after {:?}", lost(), start.elapsed());
}

#[test]
fn aborts_lose_no_memory() {
    watched(200.0, || {
        for ranks in rank_counts(&[2]) {
            in_child("memory", ranks, &[]);
            // The first version in which an abort gives the memory of windows back.
            in_child("memory", ranks, &[("GPUCOMM_EMULATOR_NCCL", "2.29.7")]);
        }
    });
}

/// A device is lost in the middle: every end comes back, and the other devices work.
fn lost(ranks: usize) {
    let clique = Clique::init_all(&places()[..ranks]).unwrap();
    let result = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let mut window = comm.alloc_from(&stream, &[1.0f32; 100])?;
        let mut plain = DeviceBuffer::from_slice(&stream, &[1.0f32; 100])?;
        for _ in 0..50 {
            comm.all_reduce(InPlace(&mut window), ReduceOp::Max, &stream)?;
            comm.all_reduce(InPlace(&mut plain), ReduceOp::Max, &stream)?;
            plain.to_vec(&stream)?;
        }
        Ok(())
    });
    let error = result.expect_err("a device was lost");
    println!("noticed: {error}");
    quick(slower(11.0), || assert_ne!(clique.rank(1).aborter().abort("late"), AbortOutcome::StillRunning));
    quick(slower(1.0), || drop(clique));
    let devices = Device::all().unwrap();
    let others = Clique::init_all(&devices[devices.len() - 2..]).unwrap();
    others.spmd(|comm| sum(comm, &Stream::new(comm.device())?)).unwrap();
    quick(slower(1.0), || drop(others));
}

#[test]
fn a_device_that_is_lost() {
    watched(120.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("faults are injected by the emulator only");
        }
        for ranks in rank_counts(&[2]).into_iter().filter(|_| Device::count().unwrap() >= 4) {
            let end = in_child(
                "lost",
                ranks,
                &[("GPUCOMM_EMULATOR_FAULTS", "lose=device0@op30"), ("GPUCOMM_EMULATOR_LOST", "device")],
            );
            assert!(end.text.contains("noticed"), "{}", end.text);
        }
    });
}

/// One that does not come is waited for once, however many wait for it, and in whatever form they are dropped.
#[test]
fn a_missing_rank_is_waited_for_once() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for way in 0..3 {
                let rig = Rig::new(ranks);
                rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(slower(3.0)));
                let hung = rig.hang();
                // Drops that follow each other within a tenth of a second have one time.
                std::thread::sleep(Duration::from_millis(200));
                let start = Instant::now();
                let mut kept = Vec::new();
                match way {
                    0 => drop(rig.clique),
                    1 => drop(rig.clique.into_ranks()),
                    _ => {
                        kept = rig.clique.into_ranks();
                        drop(kept.split_off(1));
                    }
                }
                let took = start.elapsed();
                // One that may still come; the others have gone as well, so that nobody waits for them.
                let least = if kept.is_empty() { 0.0 } else { 2.3 };
                assert!(took >= slower(least) && took < slower(least + 2.8), "{ranks} ranks, way {way}: {took:?}");
                for (stream, _) in &hung {
                    stream.synchronize_timeout(slower(2.0)).expect_err("work without rank 0 counts as done");
                }
                still_works(ranks);
            }
        }
    });
}

/// Who has given up a wait does not wait again in a drop, and the communicator says what that wait has said.
#[test]
fn work_that_was_given_up_is_not_waited_for_again() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.clique.ranks().iter().for_each(|comm| comm.set_timeout(slower(4.0)));
            let hung = rig.hang();
            let deadline = Instant::now() + slower(4.0);
            for (stream, _) in &hung {
                let wait = deadline.saturating_duration_since(Instant::now()).max(slower(3.5));
                let error = stream.synchronize_timeout(wait).expect_err("rank 0 has not come");
                assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            }
            let mut kept = rig.clique.into_ranks();
            let start = Instant::now();
            drop(kept.split_off(1));
            assert!(start.elapsed() < slower(2.5), "{:?}", start.elapsed());
            let cause = kept[0].cause().expect("its peers were dropped with work in flight");
            assert_names(&cause, &["Stream::synchronize_timeout"]);
            drop(kept);
            still_works(ranks);
        }
    });
}

/// A thread that drops several communicators waits no longer than for one.
#[test]
fn several_drops_of_one_thread_wait_as_long_as_one() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            let rigs: Vec<_> = (0..3).map(|_| Rig::new(ranks)).collect();
            rigs.iter().flat_map(|rig| rig.clique.ranks()).for_each(|comm| comm.set_timeout(slower(3.0)));
            let hung: Vec<_> = rigs.iter().map(Rig::hang).collect();
            let mut kept: Vec<_> = rigs.into_iter().map(|rig| rig.clique.into_ranks()).collect();
            let start = Instant::now();
            kept.iter_mut().for_each(|ranks| drop(ranks.split_off(1)));
            assert!(start.elapsed() < slower(3.0) + slower(1.5), "{:?}", start.elapsed());
            drop((kept, hung));
            still_works(ranks);
        }
    });
}

/// A thread waits for room within a call, which keeps others out of the communicator. Dropping an operator waits for nobody.
#[test]
fn an_operator_of_a_communicator_that_is_busy() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let comm = rig.clique.rank(1);
            comm.set_timeout(slower(6.0));
            let operators: Vec<_> = (0..20).map(|factor| comm.pre_mul_sum(factor as f32).unwrap()).collect();
            std::thread::scope(|scope| {
                let full = scope.spawn(|| {
                    let stream = Stream::new(comm.device()).unwrap();
                    let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32; 5]).unwrap();
                    (0..5000).find_map(|_| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).err())
                });
                std::thread::sleep(slower(2.0));
                assert!(!full.is_finished(), "nobody waits");
                let start = Instant::now();
                drop(operators);
                assert!(start.elapsed() < slower(2.5), "{:?}", start.elapsed());
                assert!(matches!(full.join().unwrap(), Some(Error::Timeout { .. })));
            });
            quick(slower(10.0), || drop(rig));
            still_works(ranks);
        }
    });
}

/// An abort of one rank is one of its clique, and of nobody else.
#[test]
fn an_abort_of_one_rank() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let (rig, other) = (Rig::new(ranks), Rig::new(ranks));
            let hung = rig.hang();
            let outcome = quick(slower(3.0), || rig.clique.rank(0).aborter().abort("the test gives up"));
            assert_eq!(outcome, AbortOutcome::Done);
            assert!(rig.clique.ranks().iter().all(|comm| !comm.is_active()));
            for (stream, _) in &hung {
                let error = stream.synchronize_timeout(slower(2.0)).expect_err("work without rank 0 counts as done");
                assert!(error.to_string().contains("the test gives up"), "{error}");
            }
            other.run(sum);
            other.close();
        }
    });
}
