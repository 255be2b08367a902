//! Memory that runs out: whose error that is, and whose memory is waited for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;

use gpucomm::nccl::{Config, InitOptions};
use gpucomm::{Backend, Clique, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId};

use crate::support::process::{Role, spawn};
use crate::support::{Rig, assert_names, places, rank_counts, skip, slower, still_works, watched};

/// More than half of a device.
const LARGE: usize = 40 << 20;

/// Runs a role of [`child`] on devices with little memory.
fn with_little_memory(role: &'static str, ranks: usize) {
    watched(90.0, move || {
        for _ in rank_counts(&[ranks]) {
            if gpucomm::backend() != Backend::Emulator {
                return skip("devices with little memory: only the emulator has some");
            }
            // The emulator has communicators take memory since NCCL 2.29.7.
            let newer = (role == "children").then_some(("GPUCOMM_EMULATOR_NCCL", "2.32.3"));
            let small = [("GPUCOMM_EMULATOR_MEMORY", "64M"), ("GPUCOMM_TIMEOUT", "20")];
            let small: Vec<_> = small.into_iter().chain(newer).collect();
            let id = UniqueId::new().unwrap();
            spawn("out_of_memory::child", role, (0, 1), &id, &small).finish(slower(80.0)).assert_success();
        }
    });
}

#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn() -> Result<()>); 8] = [
        ("culprit", one_rank_runs_out),
        ("goes on", of_one_rank_of_a_clique_that_goes_on),
        ("dead", of_a_dead_clique),
        ("other", of_another_clique),
        ("graph", of_a_graph_that_stays),
        ("children", for_a_child),
        ("symmetric", of_one_rank_for_symmetric_memory),
        ("windows", of_windows),
    ];
    for (name, body) in roles {
        if Role::of_this_process(name).is_some() {
            body().unwrap();
        }
    }
}

fn start(ranks: usize, config: Config) -> Result<(Clique, Vec<Stream>)> {
    let devices = &places()[..ranks];
    let clique = Clique::init_all_with(devices, &InitOptions::new().with_config(config))?;
    Ok((clique, devices.iter().map(|device| Stream::new(*device)).collect::<Result<_>>()?))
}

/// The others are woken before the rank that has no memory has come back from ending the clique.
fn one_rank_runs_out() -> Result<()> {
    for round in 0..8 {
        let (clique, streams) = start(3, Config::new())?;
        let hog = DeviceBuffer::<u8>::zeroed(&streams[1], LARGE)?;
        let failed = catch_unwind(AssertUnwindSafe(|| {
            clique.spmd(|comm| {
                let stream = &streams[comm.rank()];
                let step = || {
                    let mut memory = comm.alloc::<u8>(stream, LARGE)?;
                    comm.all_reduce(InPlace(memory.slice_mut(..10)), ReduceOp::Sum, stream)?;
                    memory.slice(..10).to_vec(stream)
                };
                // The others panic, too, and before.
                Ok(if round % 2 == 1 { step().unwrap() } else { step()? })
            })
        }));
        match failed {
            Ok(result) => {
                let error = result.expect_err("memory for both");
                assert!(matches!(error, Error::OutOfMemory { .. }), "round {round}: {error:?}");
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().expect("what a panic says");
                assert!(text.contains("OutOfMemory"), "round {round}: {text}");
            }
        }
        drop((clique, hog));
        streams.iter().try_for_each(Stream::synchronize)?;
    }
    Ok(())
}

#[test]
fn the_error_is_that_of_the_rank_without_memory() {
    with_little_memory("culprit", 3);
}

/// One rank has too little memory: all get the error, none keeps memory, and all go on.
fn of_one_rank_of_a_clique_that_goes_on() -> Result<()> {
    // SAFETY: the ranks do the same, and nobody aborts.
    let windows = unsafe { Config::new().with_force_windows() };
    for config in [Config::new(), windows] {
        let (clique, streams) = start(3, config)?;
        for short in 0..3 {
            let hog = DeviceBuffer::<u8>::zeroed(&streams[short], LARGE)?;
            let errors = clique.spmd(|comm| {
                let stream = &streams[comm.rank()];
                let error = comm.alloc::<u8>(stream, LARGE).expect_err("no memory on one rank");
                sums_are_right(comm, stream)?;
                Ok(error)
            })?;
            for (rank, error) in errors.iter().enumerate() {
                assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
                let device = format!("device {short}");
                let place = if rank == short { device } else { format!("the device of rank {short}") };
                assert_names(error, &[&LARGE.to_string(), &place]);
            }
            // The same, of one thread that drives all ranks.
            let error = clique.alloc::<u8>(&streams, LARGE).expect_err("no memory on one rank");
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
            drop(hog);
            streams.iter().try_for_each(Stream::synchronize)?;
            clique.spmd(|comm| {
                let stream = &streams[comm.rank()];
                drop(comm.alloc::<u8>(stream, LARGE)?);
                sums_are_right(comm, stream)?;
                comm.reclaim()
            })?;
        }
        clique.close_timeout(slower(10.0))?;
    }
    Ok(())
}

fn sums_are_right(comm: &Communicator, stream: &Stream) -> Result<()> {
    let mut x = comm.alloc_from(stream, &[comm.rank() as u32 + 1; 1000])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    assert_eq!(x.to_vec(stream)?, vec![(comm.size() * (comm.size() + 1) / 2) as u32; 1000]);
    Ok(())
}

#[test]
fn a_clique_goes_on_where_one_rank_is_short_of_memory() {
    with_little_memory("goes on", 3);
}

/// One rank has too little memory for what all of them must have alike: all get the error, and go on.
fn of_one_rank_for_symmetric_memory() -> Result<()> {
    // SAFETY: the ranks do the same, and nobody aborts.
    let config = unsafe { Config::new().with_force_windows() };
    let (clique, streams) = start(3, config)?;
    for short in 0..3 {
        let hog = DeviceBuffer::<u8>::zeroed(&streams[short], LARGE)?;
        clique.spmd(|comm| {
            let stream = &streams[comm.rank()];
            let error = comm.alloc_symmetric::<u8>(stream, LARGE).expect_err("no memory on one rank");
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
            let device = format!("device {short}");
            let place = if comm.rank() == short { device } else { format!("the device of rank {short}") };
            assert_names(&error, &[&LARGE.to_string(), &place]);
            sums_are_right(comm, stream)
        })?;
        drop(hog);
        streams[short].synchronize()?;
        clique.spmd(|comm| {
            let stream = &streams[comm.rank()];
            assert!(comm.alloc_symmetric::<u8>(stream, LARGE)?.is_window());
            comm.reclaim()
        })?;
    }
    clique.close_timeout(slower(10.0))
}

#[test]
fn symmetric_memory_of_a_clique_that_goes_on() {
    with_little_memory("symmetric", 3);
}

/// Windows until there is no memory for another one; what is dropped and reclaimed is there again, as often as that happens.
fn of_windows() -> Result<()> {
    // SAFETY: the ranks do the same, and nobody aborts.
    let config = unsafe { Config::new().with_force_windows() };
    let (clique, streams) = start(2, config)?;
    let counts = clique.spmd(|comm| {
        let stream = &streams[comm.rank()];
        let count = || {
            let mut windows = Vec::new();
            let error = loop {
                match comm.alloc_symmetric::<u8>(stream, LARGE / 4) {
                    Ok(window) => windows.push(window),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
            assert!(windows.iter().all(|window| window.is_window()));
            let count = windows.len();
            drop(windows);
            comm.reclaim()?;
            sums_are_right(comm, stream)?;
            Ok(count)
        };
        (0..4).map(|_| count()).collect::<Result<Vec<_>>>()
    })?;
    assert!(counts[0][0] >= 4, "{counts:?}");
    assert!(counts.iter().flatten().all(|count| *count == counts[0][0]), "{counts:?}");
    clique.close_timeout(slower(10.0))
}

#[test]
fn windows_are_there_again() {
    with_little_memory("windows", 2);
}

/// More than any device has: on GPUs, too.
#[test]
fn ranks_that_ask_for_too_much_go_on() {
    watched(100.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let much = comm.device().total_memory()? + (1 << 30);
                for _ in 0..3 {
                    for tried in
                        [comm.alloc::<u8>(stream, much).map(drop), comm.alloc_symmetric::<u8>(stream, much).map(drop)]
                    {
                        let error = tried.expect_err("more than there is");
                        assert!(matches!(error, Error::OutOfMemory { .. } | Error::Unsupported { .. }), "{error:?}");
                    }
                    sums_are_right(comm, stream)?;
                }
                Ok(())
            });
            rig.close();
            still_works(ranks);
        }
    });
}

/// What a clique leaves behind that was aborted, or dropped, is freed by a thread that nobody waits for.
fn of_a_dead_clique() -> Result<()> {
    let (_, streams) = start(2, Config::new())?;
    for round in 0..12 {
        // SAFETY: there is no collective.
        let windows = unsafe { Config::new().with_force_windows() };
        let (clique, _) = start(2, if round % 3 == 0 { Config::new() } else { windows })?;
        let windows = clique.alloc::<u8>(&streams, LARGE).unwrap_or_else(|error| panic!("round {round}: {error}"));
        if round % 2 == 0 {
            streams.iter().try_for_each(Stream::synchronize)?;
        }
        drop(windows);
        let _ = clique.abort("the test");
    }
    Ok(())
}

#[test]
fn memory_of_a_dead_clique_is_waited_for() {
    with_little_memory("dead", 2);
}

fn of_another_clique() -> Result<()> {
    let ((one, streams), (other, _)) = (start(2, Config::new())?, start(2, Config::new())?);
    for round in 0..12 {
        for clique in [&one, &other] {
            let memory = clique.rank(0).alloc_local::<u8>(&streams[0], LARGE);
            drop(memory.unwrap_or_else(|error| panic!("round {round}: {error}")));
        }
        // A buffer of no communicator goes in the order of its stream.
        let memory = DeviceBuffer::<u8>::zeroed(&streams[0], LARGE);
        drop(memory.unwrap_or_else(|error| panic!("round {round}: {error}")));
        streams[0].synchronize()?;
    }
    // What is in use is not waited for.
    let _kept = one.rank(0).alloc_local::<u8>(&streams[0], LARGE)?;
    let start = std::time::Instant::now();
    let error = other.rank(0).alloc_local::<u8>(&streams[0], LARGE).expect_err("memory for both");
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
    assert!(start.elapsed() < slower(5.0), "{:?}", start.elapsed());
    // Nor is anything for what no device has, though the other clique's memory is about to be freed.
    let memory = other.rank(1).alloc_local::<u8>(&streams[1], 1000)?;
    let (open, opened) = channel::<()>();
    let held = Stream::new(other.rank(1).device())?;
    held.launch_host(move || drop(opened.recv_timeout(slower(60.0))))?;
    let mut x = DeviceBuffer::<u8>::zeroed(&streams[1], 1000)?;
    x.copy_from(&held, &memory)?;
    drop((x, memory));
    let start = std::time::Instant::now();
    for _ in 0..2 {
        let error = one.rank(1).alloc_local::<u8>(&streams[1], 1 << 50).expect_err("no device has that");
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
    }
    assert!(start.elapsed() < slower(5.0), "{:?}", start.elapsed());
    drop(open);
    held.synchronize()
}

#[test]
fn memory_of_another_clique_is_waited_for() {
    with_little_memory("other", 2);
}

/// NCCL knows the memory of a graph until the last rank of the clique has ended, and that one is forgotten.
fn of_a_graph_that_stays() -> Result<()> {
    let (clique, streams) = start(2, Config::new())?;
    clique.spmd(|comm| {
        let stream = &streams[comm.rank()];
        let mut memory = comm.alloc_local::<u8>(stream, if comm.rank() == 0 { LARGE } else { 10 })?;
        let graph = stream.capture(|lent| comm.all_reduce(InPlace(memory.slice_mut(0..10)), ReduceOp::Sum, lent))?;
        graph.launch(stream)?;
        stream.synchronize()
    })?;
    let mut ranks = clique.into_ranks().into_iter();
    drop(ranks.next());
    std::mem::forget(ranks);
    let start = std::time::Instant::now();
    let error = DeviceBuffer::<u8>::zeroed(&streams[0], LARGE).expect_err("the memory of the graph is still there");
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
    assert!(start.elapsed() < slower(5.0), "{:?}", start.elapsed());
    Ok(())
}

#[test]
fn memory_of_a_graph_that_stays_is_not_waited_for() {
    with_little_memory("graph", 2);
}

/// Rank 1 has no memory for another communicator. Its error is the one of the call, not that of a rank which NCCL stops because of it.
fn for_a_child() -> Result<()> {
    let devices = &places()[..3];
    let ways: &[(&str, fn(&Clique) -> Result<()>)] = &[
        ("ncclCommSplit", |clique| clique.split(|_| Some((0, 0))).map(drop)),
        #[cfg(nccl_ge_2_28_7)]
        ("ncclCommShrink", |clique| clique.shrink(&[2]).map(drop)),
        #[cfg(nccl_ge_2_29)]
        ("ncclCommGrow", |clique| clique.grow(&places()[3..4]).map(drop)),
    ];
    for &(function, make) in ways {
        let clique = Clique::init_all(devices)?;
        let stream = Stream::new(devices[1])?;
        let mut hogs = Vec::new();
        let mut fill = || {
            let mut len = LARGE;
            while len > 0 {
                match DeviceBuffer::<u8>::zeroed(&stream, len) {
                    Ok(hog) => hogs.push(hog),
                    Err(_) => len /= 2,
                }
            }
        };
        // NCCL may free memory of the clique before while this one is asked.
        let attempt = |_| {
            fill();
            make(&clique).err()
        };
        let error = (0..10).find_map(attempt).expect("no memory on device 1");
        assert_names(&error, &[function, "out of memory", "device 1"]);
    }
    Ok(())
}

#[test]
fn what_a_child_has_no_memory_for_is_said() {
    with_little_memory("children", 4);
}
