//! Communicators that give memory back for a while: what they do before and after, and what is refused in between.

use gpucomm::nccl::{CommState, Config, InitOptions, Suspend};
use gpucomm::{
    Backend, Clique, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, Version, group,
};

use crate::split::{owners, sum};
use crate::support::newer::since;
use crate::support::process::{Role, spawn};
use crate::support::random::rng;
use crate::support::{Rig, assert_names, places, rank_counts, skip, slower, still_works, watched};

/// The first version that can.
pub const FIRST: Version = Version::new(2, 29, 7);

/// Operations of several kinds, whose results are checked.
fn use_it(comm: &Communicator, stream: &Stream, seed: u32) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    sum(comm, stream)?;
    let mine = DeviceBuffer::from_slice(stream, &[seed ^ me as u32; 333])?;
    let mut all = DeviceBuffer::<u32>::zeroed(stream, 333 * size)?;
    comm.all_gather((&mine, &mut all), stream)?;
    let want: Vec<u32> = (0..size as u32).flat_map(|rank| [seed ^ rank; 333]).collect();
    assert_eq!(all.to_vec(stream)?, want);
    let (next, before) = ((me + 1) % size, (me + size - 1) % size);
    let mut got = DeviceBuffer::<u32>::zeroed(stream, 333)?;
    group(|g| {
        g.send(comm, &mine, next, stream)?;
        g.recv(comm, &mut got, before, stream)
    })?;
    assert_eq!(got.to_vec(stream)?, [seed ^ before as u32; 333]);
    Ok(())
}

#[test]
fn rounds_of_suspend_and_resume() {
    since(FIRST, 120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let mut rng = rng(&format!("suspending {ranks}"));
            let rounds: Vec<u32> = (0..5).map(|_| rng.u32(..)).collect();
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut window = comm.alloc::<f32>(stream, 1021)?;
                window.fill(stream, 2.0)?;
                let own = gpucomm::nccl::alloc::<f32>(stream, 1 << 20)?;
                let _registered = comm.register(&own)?;
                for &seed in &rounds {
                    use_it(comm, stream, seed)?;
                    // Not waited for by anybody here.
                    comm.all_reduce(InPlace(&mut window), ReduceOp::Avg, stream)?;
                    let before = comm.memory_use()?;
                    assert!(!before.is_suspended && before.suspendable > 0);
                    assert_eq!(before.total, before.suspendable + before.persistent);
                    let suspended = comm.suspend(Suspend::MEMORY, "the test suspends")?;
                    assert_eq!((comm.state(), comm.is_active()), (CommState::Suspended, false));
                    let during = comm.memory_use()?;
                    assert!(during.is_suspended && during.suspendable == before.suspendable);
                    // Windows are memory of users.
                    assert_eq!(window.to_vec(stream)?, [2.0; 1021]);
                    window.fill(stream, 3.0)?;
                    let comm = suspended.resume()?;
                    assert!(comm.is_active() && !comm.memory_use()?.is_suspended);
                    comm.all_reduce(InPlace(&mut window), ReduceOp::Avg, stream)?;
                    assert_eq!(window.to_vec(stream)?, [3.0; 1021]);
                    window.fill(stream, 2.0)?;
                    use_it(comm, stream, !seed)?;
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// Memory that others can have meanwhile.
#[test]
fn the_device_has_more_memory_meanwhile() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            let free = || -> Vec<usize> {
                let devices = rig.clique.ranks().iter().map(|comm| comm.device());
                devices.map(|device| device.memory_info().unwrap().free).collect()
            };
            for _ in 0..10 {
                let before = free();
                let bytes = rig.clique.rank(0).memory_use().unwrap().suspendable as usize;
                rig.clique.suspend(Suspend::MEMORY, "the test suspends").unwrap();
                let between = free();
                for (before, between) in before.iter().zip(&between) {
                    // Other processes may use the devices of a GPU machine.
                    assert!(between > before, "{before} bytes before, {between} between");
                    assert!(gpucomm::backend() == Backend::Nvidia || between - before >= bytes);
                }
                rig.clique.resume().unwrap();
                assert!(gpucomm::backend() == Backend::Nvidia || free() == before);
            }
            rig.run(sum);
            rig.close();
        }
    });
}

/// Every call, with the reason.
#[test]
fn what_is_suspended_refuses() {
    since(FIRST, 90.0, || {
        for ranks in rank_counts(&[1, 2, 3]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                sum(comm, stream)?;
                let (mut x, y) =
                    (DeviceBuffer::from_slice(stream, &[1f32; 10])?, DeviceBuffer::from_slice(stream, &[1f32; 10])?);
                let own = gpucomm::nccl::alloc::<f32>(stream, 1 << 10)?;
                let window = comm.alloc::<f32>(stream, 10)?;
                let factor = comm.pre_mul_sum(2f32)?;
                let suspended = comm.suspend(Suspend::MEMORY, "because of the test")?;
                let refused = |result: Result<()>, operation: &str| {
                    let error = result.expect_err(operation);
                    assert!(matches!(error, Error::Suspended { .. }), "{operation}: {error:?}");
                    assert_names(&error, &[operation, "is suspended", "because of the test", "ago)"]);
                };
                refused(comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream), "all_reduce");
                if ranks > 1 {
                    refused(comm.send(&y, (comm.rank() + 1) % ranks, stream), "send");
                }
                refused(comm.barrier(stream), "barrier");
                refused(comm.alloc::<f32>(stream, 5).map(drop), "alloc");
                refused(comm.reclaim(), "reclaim");
                refused(comm.register(&own).map(drop), "register");
                refused(comm.window(&own).map(drop), "window");
                refused(comm.split(Some(0), 0).map(drop), "split");
                refused(comm.shrink(&[(comm.rank() + 1) % ranks.max(2)]).map(drop), "shrink");
                refused(comm.revoke("in vain").map(drop), "revoke");
                refused(comm.pre_mul_sum(1f32).map(drop), "pre_mul_sum");
                refused(comm.suspend(Suspend::MEMORY, "once more").map(drop), "suspend");
                refused(group(|g| g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)), "");
                assert!(comm.as_raw().is_none() && comm.revoked().is_none() && comm.suspended().is_some());
                comm.async_error()?;
                // What belongs to it may go.
                drop((window, factor));
                assert_eq!(x.to_vec(stream)?, [1.0; 10]);
                let comm = suspended.resume()?;
                comm.reclaim()?;
                sum(comm, stream)
            });
            rig.close();
        }
    });
}

#[test]
fn a_clique_that_is_suspended_is_not_shrunk_and_goes_on() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::new(ranks);
            rig.clique.suspend(Suspend::MEMORY, "because of the test").unwrap();
            for shrunk in [rig.clique.shrink(&[0]), rig.clique.shrink_with(&[0], &Config::new())] {
                assert!(matches!(shrunk, Err(Error::Suspended { .. })), "{shrunk:?}");
            }
            rig.clique.resume().unwrap();
            rig.run(sum);
            rig.close();
        }
    });
}

#[test]
fn resuming_what_is_not_suspended() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let not = |result: Result<()>| {
                    let error = result.expect_err("it is not suspended");
                    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                    assert_names(&error, &["resume", "is not suspended"]);
                };
                let first = comm.suspend(Suspend::MEMORY, "the test suspends")?;
                let second = comm.suspended().expect("it is suspended");
                first.resume()?;
                not(second.resume().map(drop));
                assert!(comm.suspended().is_none());
                sum(comm, stream)
            });
            let error = rig.clique.resume().unwrap_err();
            assert_names(&error, &["Clique::resume", "is not suspended"]);
            rig.clique.suspend(Suspend::MEMORY, "the test suspends").unwrap();
            rig.clique.resume().unwrap();
            rig.run(sum);
            rig.close();
        }
    });
}

/// Whatever is suspended, the rest goes on.
#[test]
fn parts_and_their_whole() {
    since(FIRST, 90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            owners(ranks, |comm, stream| {
                let part = comm.split(Some(comm.rank() % 2), 0).unwrap().expect("a part");
                let suspended = comm.suspend(Suspend::MEMORY, "the whole").unwrap();
                sum(&part, stream).unwrap();
                let part_suspended = part.suspend(Suspend::MEMORY, "the part").unwrap();
                suspended.resume().unwrap();
                sum(&comm, stream).unwrap();
                let error = sum(&part, stream).unwrap_err();
                assert_names(&error, &["the part"]);
                part_suspended.resume().unwrap();
                sum(&part, stream).unwrap();
                drop(part);
                let rest = (comm.rank() > 0).then(|| comm.shrink(&[0]).unwrap());
                if let Some(rest) = rest {
                    sum(&rest, stream).unwrap();
                }
            });
            still_works(ranks);
        }
    });
}

#[test]
fn what_shares_is_refused() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let options = InitOptions::new().with_config(Config::new().with_split_share(true));
            let clique = Clique::init_all_with(&places()[..ranks], &options).unwrap();
            let part = clique.split(|_| Some((0, 0))).unwrap();
            for one in [&clique, &part[&0]] {
                let error = one.suspend(Suspend::MEMORY, "in vain").unwrap_err();
                assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                assert_names(&error, &["Clique::suspend", "shares its resources"]);
                one.spmd(|comm| sum(comm, &Stream::new(comm.device())?)).unwrap();
            }
        }
    });
}

/// Work that does not end in time, and then does.
#[test]
fn work_in_flight_is_waited_for() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let (open, opened) = std::sync::mpsc::channel::<()>();
                stream.launch_host(move || assert!(opened.recv().is_err()))?;
                let mut x = DeviceBuffer::from_slice(stream, &[1f32; 100])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                comm.set_timeout(slower(0.5));
                let error = comm.suspend(Suspend::MEMORY, "too early").unwrap_err();
                assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                assert!(comm.is_active(), "nothing has happened");
                comm.set_timeout(slower(20.0));
                std::thread::spawn(move || {
                    std::thread::sleep(slower(0.2));
                    drop(open);
                });
                comm.suspend(Suspend::MEMORY, "now")?;
                assert_eq!(x.to_vec(stream)?, [ranks as f32; 100]);
                comm.suspended().expect("it is suspended").resume()?;
                sum(comm, stream)
            });
            rig.close();
        }
    });
}

const CHILD: &str = "suspend::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn() -> Result<()>); 3] =
        [("older", older), ("disabled", disabled), ("little memory", little_memory)];
    for (name, body) in roles {
        if Role::of_this_process(name).is_some() {
            body().unwrap();
        }
    }
}

fn in_a_process(role: &'static str, env: &'static [(&'static str, &'static str)]) {
    watched(90.0, move || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("the emulator stands for what is not here");
        }
        spawn(CHILD, role, (0, 1), &UniqueId::new().unwrap(), env).finish(slower(80.0)).assert_success();
    });
}

fn unsupported(needs: &str) -> Result<()> {
    let clique = Clique::init_all(&places()[..2])?;
    for error in [
        clique.suspend(Suspend::MEMORY, "in vain").unwrap_err(),
        clique.rank(1).suspend(Suspend::MEMORY, "in vain").unwrap_err(),
        clique.rank(0).memory_use().unwrap_err(),
    ] {
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert_names(&error, &[needs]);
    }
    clique.spmd(|comm| sum(comm, &Stream::new(comm.device())?)).map(drop)
}

fn older() -> Result<()> {
    unsupported("NCCL 2.29.7")
}

fn disabled() -> Result<()> {
    unsupported("NCCL_DISABLE_MEM_MANAGER")
}

/// Another has taken the memory: that rank has no way back, and the others are told.
fn little_memory() -> Result<()> {
    for round in 0..3 {
        let comms = Clique::init_all(&places()[..3])?.into_ranks();
        std::thread::scope(|scope| {
            for comm in &comms {
                scope.spawn(move || {
                    let stream = Stream::new(comm.device()).unwrap();
                    sum(comm, &stream).unwrap();
                    let suspended = comm.suspend(Suspend::MEMORY, "the test suspends").unwrap();
                    let mut hogs = Vec::new();
                    let mut bytes = 64 << 20;
                    while comm.rank() == round && bytes >= 4096 {
                        match DeviceBuffer::<u8>::zeroed(&stream, bytes) {
                            Ok(hog) => hogs.push(hog),
                            Err(_) => bytes /= 2,
                        }
                    }
                    let error = suspended.resume().unwrap_err();
                    assert!(matches!(error, Error::Nccl { .. } | Error::Aborted { .. }), "{error:?}");
                    assert!(!comm.is_active() && comm.suspended().is_none());
                });
            }
        });
        drop(comms);
        still_works(3);
    }
    Ok(())
}

#[test]
fn an_older_nccl_is_named() {
    in_a_process("older", &[("GPUCOMM_EMULATOR_NCCL", "2.29.2")]);
}

#[test]
fn without_the_manager_it_is_refused() {
    in_a_process("disabled", &[("GPUCOMM_EMULATOR_NCCL", "2.30.7"), ("NCCL_DISABLE_MEM_MANAGER", "1")]);
}

#[test]
fn memory_that_others_have_taken() {
    let env = &[("GPUCOMM_EMULATOR_NCCL", "2.32.3"), ("GPUCOMM_EMULATOR_MEMORY", "64M"), ("GPUCOMM_TIMEOUT", "20")];
    in_a_process("little memory", env);
}
