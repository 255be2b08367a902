//! Faults that the emulator injects: a rank that dies, hangs or is late, an asynchronous error, out of memory, a device
//! that is lost.
//!
//! The emulator reads `GPUCOMM_EMULATOR_FAULTS` once in a process, so that each case is a child process. Real GPUs skip
//! these tests.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId};

use crate::support::process::{Finished, Role, spawn, spawn_all};
use crate::support::{Rig, assert_names, quick, rank_counts, slower, still_works, takes_faults, watched};

const CHILD: &str = "faults::child";
const FAULTS: &str = "GPUCOMM_EMULATOR_FAULTS";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    gpucomm::set_default_timeout(slower(30.0));
    let roles: [(&str, fn(Role) -> Result<()>); 12] = [
        ("survives", survives),
        ("dies as a thread", |_| fails_as_a_thread(5)),
        ("hangs as a thread", hangs_as_a_thread),
        ("hangs", hangs),
        ("is late", is_late),
        ("async error", |_| fails_as_a_thread(4)),
        ("comes to a fault", comes_to_a_fault),
        ("out of memory", out_of_memory),
        ("out of memory of NCCL", |_| out_of_memory_of_nccl(false)),
        ("out of local memory of NCCL", |_| out_of_memory_of_nccl(true)),
        ("loses a device", loses_a_device),
        ("nonsense", nonsense),
    ];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role).unwrap();
            println!("finished");
        }
    }
}

/// Runs one child with `faults`; its end.
fn alone(role: &str, size: usize, faults: &str) -> Finished {
    let id = UniqueId::new().unwrap();
    // What becomes of the others is to be seen.
    let env = [(FAULTS, faults), ("GPUCOMM_EMULATOR_LOST", "device")];
    spawn(CHILD, role, (0, size), &id, &env).finish(slower(60.0))
}

/// Issues the next all-reduce and waits for it.
fn step(comm: &Communicator, x: &mut DeviceBuffer<i32>, stream: &Stream) -> Result<()> {
    comm.all_reduce(InPlace(x), ReduceOp::Max, stream)?;
    stream.synchronize_timeout(comm.timeout())?;
    comm.async_error()
}

/// One rank of several processes; a peer dies in front of its fifth operation.
fn survives(role: Role) -> Result<()> {
    let comm = role.join()?;
    comm.set_timeout(slower(4.0));
    let stream = Stream::new(comm.device())?;
    let mut x = DeviceBuffer::from_slice(&stream, &vec![1; 10_000])?;
    for _ in 0..4 {
        step(&comm, &mut x, &stream)?;
    }
    let error = quick(slower(4.0), || step(&comm, &mut x, &stream)).expect_err("a dead rank has answered");
    println!("noticed: {error}");
    assert!(matches!(error, Error::Timeout { .. } | Error::Nccl { .. } | Error::Aborted { .. }), "{error:?}");
    quick(slower(10.0), || drop(comm));
    still_works(1);
    Ok(())
}

#[test]
fn a_process_that_dies() {
    watched(120.0, || {
        if !takes_faults() {
            return;
        }
        for ranks in rank_counts(&[2, 3, 4]) {
            let children = spawn_all(CHILD, "survives", ranks, &[(FAULTS, "die=rank1@op5")]);
            for (rank, child) in children.into_iter().enumerate() {
                let end = child.finish(slower(40.0));
                if rank == 1 {
                    assert_eq!(end.status.code(), Some(99), "{}", end.text);
                } else {
                    end.assert_success();
                    assert!(end.text.contains("noticed") && end.text.contains("finished"), "{}", end.text);
                }
            }
        }
    });
}

/// Ranks as threads, of which rank 1 fails at operation `number`: `spmd` ends with an error in time.
fn fails_as_a_thread(number: usize) -> Result<()> {
    let rig = Rig::unconnected(4.min(crate::support::harness::devices()));
    let before = Barrier::new(rig.size());
    let result = quick(slower(15.0), || {
        rig.try_run(|comm, stream| {
            comm.set_timeout(slower(5.0));
            let mut x = DeviceBuffer::from_slice(stream, &vec![1; 10_000])?;
            for _ in 1..number {
                step(comm, &mut x, stream).expect("before the fault");
            }
            // All ranks end with the one that fails.
            before.wait();
            step(comm, &mut x, stream)
        })
    });
    let error = result.expect_err("a rank with a fault has answered");
    println!("noticed: {error}");
    assert!(matches!(error, Error::Timeout { .. } | Error::Nccl { .. } | Error::Aborted { .. }), "{error:?}");
    quick(slower(15.0), || drop(rig));
    still_works(2);
    Ok(())
}

#[test]
fn a_thread_that_dies() {
    watched(90.0, || {
        if takes_faults() {
            alone("dies as a thread", 1, "die=rank1@op5").assert_success();
        }
    });
}

#[test]
fn an_asynchronous_error() {
    watched(90.0, || {
        if takes_faults() {
            let end = alone("async error", 1, "async_error=rank1@op4");
            end.assert_success();
            assert!(end.text.contains("NCCL error"), "not NCCL's own error:\n{}", end.text);
        }
    });
}

/// Rank 1 stops in front of its third operation: everybody's wait ends in time, and an abort frees all of them.
fn hangs_as_a_thread(_: Role) -> Result<()> {
    let rig = Rig::unconnected(2);
    let limit = slower(2.0);
    let result = quick(slower(10.0), || {
        rig.try_run(|comm, stream| {
            comm.set_timeout(limit);
            let mut x = DeviceBuffer::from_slice(stream, &[1; 10])?;
            step(comm, &mut x, stream).expect("the first operation");
            step(comm, &mut x, stream).expect("the second operation");
            step(comm, &mut x, stream)
        })
    });
    let error = result.expect_err("a rank that hangs has answered");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    quick(slower(15.0), || drop(rig));
    still_works(2);
    Ok(())
}

/// The same as processes: each rank gives up by itself.
fn hangs(role: Role) -> Result<()> {
    let comm = role.join()?;
    comm.set_timeout(slower(2.0));
    let stream = Stream::new(comm.device())?;
    let mut x = DeviceBuffer::from_slice(&stream, &[1; 10])?;
    step(&comm, &mut x, &stream)?;
    step(&comm, &mut x, &stream)?;
    let error = quick(slower(2.0), || step(&comm, &mut x, &stream)).expect_err("a rank that hangs has answered");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert_ne!(comm.aborter().abort("the test gives up"), gpucomm::nccl::AbortOutcome::StillRunning);
    quick(slower(10.0), || drop(comm));
    still_works(1);
    Ok(())
}

#[test]
fn a_rank_that_hangs() {
    watched(120.0, || {
        if !takes_faults() {
            return;
        }
        alone("hangs as a thread", 1, "hang=rank1@op3").assert_success();
        for ranks in rank_counts(&[2, 4]) {
            for child in spawn_all(CHILD, "hangs", ranks, &[(FAULTS, "hang=rank1@op3")]) {
                child.finish(slower(40.0)).assert_success();
            }
        }
    });
}

/// Rank 0 comes 300 ms late to its second operation: nothing is wrong but the time.
fn is_late(_: Role) -> Result<()> {
    let rig = Rig::unconnected(2);
    let times = rig.run(|comm, stream| {
        let mut x = DeviceBuffer::from_slice(stream, &[comm.rank() as i32 + 1; 10])?;
        // From the first on: rank 1 may itself begin the second a little late.
        let start = Instant::now();
        step(comm, &mut x, stream)?;
        step(comm, &mut x, stream)?;
        assert_eq!(x.to_vec(stream)?, [2; 10]);
        Ok(start.elapsed())
    });
    assert!(times.iter().all(|time| *time >= Duration::from_millis(250)), "nobody was late: {times:?}");
    rig.close();
    Ok(())
}

#[test]
fn a_rank_that_is_late() {
    watched(60.0, || {
        if takes_faults() {
            alone("is late", 1, "late=rank0@op2:300ms").assert_success();
        }
    });
}

/// Issues operations until a fault with a chance comes.
fn comes_to_a_fault(_: Role) -> Result<()> {
    let rig = Rig::unconnected(2);
    let counts = rig.run(|comm, stream| {
        let mut x = DeviceBuffer::from_slice(stream, &[1; 10])?;
        Ok((0..2000).take_while(|_| step(comm, &mut x, stream).is_ok()).count())
    });
    assert!(counts.iter().any(|count| *count < 2000), "no fault at all");
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    watched(120.0, || {
        if !takes_faults() {
            return;
        }
        // The emulator says in front of which operation the first fault came.
        let fault = |seed: u32| -> String {
            let faults = format!("seed={seed};async_error=0.02");
            let id = UniqueId::new().unwrap();
            let env = [(FAULTS, faults.as_str()), ("GPUCOMM_TIMEOUT", "2")];
            let end = spawn(CHILD, "comes to a fault", (0, 1), &id, &env).finish(slower(90.0));
            end.assert_success();
            let line = end.text.lines().find(|line| line.contains("injected by")).expect("a fault");
            line.split_once("AsyncError").expect("an asynchronous error").1.to_owned()
        };
        let first = [fault(1), fault(2), fault(3)];
        assert_eq!([fault(1), fault(2), fault(3)], first);
        assert!(first.iter().any(|place| *place != first[0]), "the seed does not matter: {first:?}");
    });
}

/// Of forty buffers of 1000 elements one cannot be had, for want of so many bytes, and the others are as they should be.
fn one_runs_out<B>(
    bytes: &str,
    make: impl Fn(&[f32]) -> Result<B>,
    read: impl Fn(&B) -> Result<Vec<f32>>,
) -> Result<()> {
    let results: Vec<Result<B>> = (0..40).map(|_| make(&[1.0; 1000])).collect();
    let failures: Vec<&Error> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(matches!(failures[0], Error::OutOfMemory { .. }), "{:?}", failures[0]);
    assert_names(failures[0], &[bytes, "device 0"]);
    for buffer in results.into_iter().flatten() {
        assert_eq!(read(&buffer)?, [1.0; 1000]);
    }
    Ok(())
}

fn out_of_memory(_: Role) -> Result<()> {
    let rig = Rig::unconnected(1);
    rig.run(|comm, stream| {
        one_runs_out("4000", |values| DeviceBuffer::from_slice(stream, values), |buffer| buffer.to_vec(stream))?;
        let window = comm.alloc_from(stream, &[2.0f32; 10])?;
        assert_eq!(window.to_vec(stream)?, [2.0; 10]);
        Ok(())
    });
    rig.close();
    Ok(())
}

/// NCCL says only that a call of CUDA failed, and allocates whole pages.
fn out_of_memory_of_nccl(local: bool) -> Result<()> {
    let rig = Rig::unconnected(1);
    rig.run(|comm, stream| {
        let make = |values: &[f32]| {
            if !local {
                return comm.alloc_from(stream, values);
            }
            let mut buffer = comm.alloc_local(stream, values.len())?;
            buffer.copy_from_slice(stream, values)?;
            Ok(buffer.into_fitting())
        };
        one_runs_out("4096", make, |buffer| buffer.to_vec(stream))
    });
    rig.close();
    Ok(())
}

#[test]
fn memory_that_runs_out() {
    watched(60.0, || {
        if takes_faults() {
            for role in ["out of memory", "out of memory of NCCL", "out of local memory of NCCL"] {
                alone(role, 1, "oom=device0@20").assert_success();
            }
        }
    });
}

/// Device 0 is lost in the midst of operations: every rank gets an error in time, drops return, and the devices that are left
/// work.
fn loses_a_device(_: Role) -> Result<()> {
    let rig = Rig::unconnected(2);
    let result = quick(slower(15.0), || {
        rig.try_run(|comm, stream| {
            comm.set_timeout(slower(3.0));
            let mut x = DeviceBuffer::from_slice(stream, &vec![1; 10_000])?;
            (0..100).try_for_each(|_| step(comm, &mut x, stream))
        })
    });
    let error = result.expect_err("a lost device has answered");
    assert!(matches!(error, Error::DeviceLost { device: 0, .. }), "{error:?}");
    println!("noticed: {error}");
    quick(slower(15.0), || drop(rig));
    let devices = Device::all()?;
    for with_it in [&devices[..1], &devices[..2], &devices[..]] {
        let error = quick(slower(5.0), || Clique::init_all(with_it)).expect_err("a lost device has a communicator");
        assert!(matches!(error, Error::DeviceLost { device: 0, .. }), "{error:?}");
    }
    // SAFETY: it is the only rank.
    let error = unsafe { Communicator::init_rank(devices[0], 1, &UniqueId::new()?, 0) }.expect_err("the same");
    assert!(matches!(error, Error::DeviceLost { device: 0, .. }), "{error:?}");
    let left = Clique::init_all(&Device::all()?[1..])?;
    let sums = left.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 5])?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
        x.to_vec(&stream)
    })?;
    assert_eq!(sums, vec![vec![left.size() as i32; 5]; left.size()]);
    Ok(())
}

#[test]
fn a_device_that_is_lost() {
    watched(90.0, || {
        if takes_faults() {
            let end = alone("loses a device", 1, "lose=device0@op20");
            end.assert_success();
            assert!(end.text.contains("noticed") && end.text.contains("is lost at its work #20"), "{}", end.text);
        }
    });
}

fn nonsense(role: Role) -> Result<()> {
    let error = role.join().expect_err("nonsense was accepted");
    assert_names(&error, &[FAULTS, "explode=rank0"]);
    Ok(())
}

#[test]
fn a_fault_that_does_not_exist() {
    watched(60.0, || {
        if takes_faults() {
            alone("nonsense", 1, "explode=rank0@op1").assert_success();
        }
    });
}
