//! Suspended communicators whose ranks do not come, differ, or end.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use gpucomm::nccl::{AbortOutcome, CommState, Suspend, abort_all};
use gpucomm::{Backend, Communicator, Device, Error, Result, Stream, UniqueId};

use crate::split::{owners, sum};
use crate::support::newer::since;
use crate::support::process::{Child, Role, all_succeed, spawn};
use crate::support::{Rig, assert_names, rank_counts, skip, slower, still_works, watched};
use crate::suspend::FIRST;

#[test]
fn who_does_not_come_to_a_suspend() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let done = Barrier::new(ranks);
            owners(ranks, |comm, stream| {
                sum(&comm, stream).unwrap();
                if comm.rank() > 0 {
                    comm.set_timeout(slower(1.0));
                    let begin = Instant::now();
                    let error = comm.suspend(Suspend::MEMORY, "alone").unwrap_err();
                    let told = matches!(error, Error::Timeout { .. } | Error::Aborted { .. });
                    assert!(told, "{error:?}");
                    assert_names(&error, &["rank 0"]);
                    assert!(begin.elapsed() < slower(2.0) + Duration::from_secs(10));
                    assert!(!comm.is_active() && comm.suspended().is_none());
                }
                done.wait();
            });
            still_works(ranks);
        }
    });
}

/// Nothing has happened, and it comes later.
#[test]
fn who_comes_late_to_a_resume() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let late = Barrier::new(ranks);
            owners(ranks, |comm, stream| {
                let suspended = comm.suspend(Suspend::MEMORY, "the test suspends").unwrap();
                if comm.rank() > 0 {
                    comm.set_timeout(slower(0.5));
                    let error = suspended.resume().unwrap_err();
                    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                    assert_names(&error, &["resume", "not come to a resume", "0"]);
                    assert_eq!(comm.state(), CommState::Suspended);
                    comm.set_timeout(slower(20.0));
                }
                late.wait();
                comm.suspended().expect("it is suspended").resume().unwrap();
                sum(&comm, stream).unwrap();
            });
            still_works(ranks);
        }
    });
}

/// One goes away in place of coming back.
#[test]
fn who_ends_while_it_is_suspended() {
    since(FIRST, 90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            for closes in [true, false] {
                let all = Barrier::new(ranks);
                owners(ranks, |comm, stream| {
                    sum(&comm, stream).unwrap();
                    let suspended = comm.suspend(Suspend::MEMORY, "the test suspends").unwrap();
                    all.wait();
                    if comm.rank() > 0 {
                        let error = suspended.resume().unwrap_err();
                        assert!(matches!(error, Error::Aborted { .. } | Error::Disagreement { .. }), "{error:?}");
                        assert!(!comm.is_active());
                    } else if closes {
                        let error = comm.close_timeout(slower(5.0)).unwrap_err();
                        assert!(matches!(error, Error::Suspended { .. }), "{error:?}");
                        assert_names(&error, &["close", "the test suspends"]);
                    }
                });
                still_works(ranks);
            }
        }
    });
}

/// It lived until then.
#[test]
fn all_are_aborted_while_they_are_suspended() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[1, 2, 3]) {
            let rig = Rig::new(ranks);
            rig.clique.suspend(Suspend::MEMORY, "the test suspends").unwrap();
            assert_eq!(abort_all(rig.clique.ranks(), "the test aborts"), vec![AbortOutcome::Done; ranks]);
            assert_eq!(abort_all(rig.clique.ranks(), "once more"), vec![AbortOutcome::Already; ranks]);
            assert_names(&rig.clique.resume().unwrap_err(), &["Clique::resume", "the test aborts"]);
            still_works(ranks);
        }
    });
}

#[test]
fn ranks_that_do_something_else() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            owners(ranks, |comm, stream| {
                sum(&comm, stream).unwrap();
                let error = match comm.rank() {
                    0 => sum(&comm, stream).unwrap_err(),
                    _ => comm.suspend(Suspend::MEMORY, "the test suspends").map(drop).unwrap_err(),
                };
                assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
                assert_names(&error, &["suspend", "all_reduce"]);
            });
            still_works(ranks);
        }
    });
}

#[test]
fn forgotten_dropped_and_unwound() {
    since(FIRST, 120.0, || {
        for ranks in rank_counts(&[1, 2, 3]) {
            let all = Barrier::new(ranks);
            owners(ranks, |comm, stream| {
                sum(&comm, stream).unwrap();
                let suspended = comm.suspend(Suspend::MEMORY, "forgotten").unwrap();
                std::mem::forget(suspended);
                comm.suspended().unwrap().resume().unwrap();
                let _ = comm.suspend(Suspend::MEMORY, "dropped").unwrap();
                assert_eq!(comm.state(), CommState::Suspended);
                all.wait();
                drop(comm);
            });
            still_works(ranks);
            let rig = Rig::new(ranks);
            rig.clique.suspend(Suspend::MEMORY, "dropped as a whole").unwrap();
            drop(rig);
            let rig = Rig::new(ranks);
            rig.clique.suspend(Suspend::MEMORY, "closed as a whole").unwrap();
            let error = rig.clique.close_timeout(slower(5.0)).unwrap_err();
            assert!(matches!(error, Error::Suspended { .. }), "{error:?}");
            let rig = Rig::new(ranks);
            rig.clique.suspend(Suspend::MEMORY, "aborted").unwrap();
            println!("{:?}", rig.clique.abort("the test aborts"));
            let rig = Rig::new(ranks);
            let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                rig.run(|comm, stream| {
                    let _window = comm.alloc::<u8>(stream, 100)?;
                    let _suspended = comm.suspend(Suspend::MEMORY, "while unwinding")?;
                    if comm.rank() == 0 {
                        panic!("the test panics")
                    }
                    Ok(())
                })
            }));
            assert!(end.is_err());
            drop(rig);
            let forgotten = Rig::new(ranks);
            forgotten.clique.suspend(Suspend::MEMORY, "forgotten for ever").unwrap();
            std::mem::forget(forgotten.clique);
            still_works(ranks);
        }
    });
}

/// An abort of another thread, in whatever phase the others are.
#[test]
fn aborts_at_any_time() {
    since(FIRST, 120.0, || {
        for ranks in rank_counts(&[2, 3]) {
            for round in 0..12 {
                let rig = Rig::new(ranks);
                let aborter = rig.clique.rank(0).aborter();
                let thread = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_micros(400 * round));
                    aborter.abort("the test aborts")
                });
                let end = rig.run_and_leave(|comm, stream| {
                    for _ in 0..100_000 {
                        comm.suspend(Suspend::MEMORY, "the test suspends")?.resume()?;
                        sum(comm, stream)?;
                    }
                    Ok(())
                });
                let error = end.unwrap_err();
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                assert_names(&error, &["the test aborts"]);
                let _ = thread.join().unwrap();
                drop(rig);
            }
            still_works(ranks);
        }
    });
}

const CHILD: &str = "suspend_ends::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    gpucomm::set_default_timeout(slower(20.0));
    let roles: [(&str, fn(Role) -> Result<()>); 2] = [("rounds", rounds), ("victim", victim)];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role).unwrap();
            println!("finished");
        }
    }
}

/// A process for each rank.
fn start(role: &str, ranks: usize) -> Vec<Child> {
    let id = UniqueId::new().unwrap();
    let env: &[(&str, &str)] = match gpucomm::backend() {
        Backend::Emulator if gpucomm::nccl::version().unwrap() < FIRST => &[("GPUCOMM_EMULATOR_NCCL", "2.32.3")],
        _ => &[],
    };
    (0..ranks).map(|rank| spawn(CHILD, role, (rank, ranks), &id, env)).collect()
}

fn can() -> bool {
    let can = gpucomm::backend() == Backend::Emulator || gpucomm::nccl::version().unwrap() >= FIRST;
    if !can {
        skip("NCCL is older than 2.29.7");
    }
    can
}

fn rounds(role: Role) -> Result<()> {
    let comm = role.join()?;
    let stream = &Stream::new(comm.device())?;
    for _ in 0..20 {
        sum(&comm, stream)?;
        comm.suspend(Suspend::MEMORY, "the test suspends")?.resume()?;
    }
    sum(&comm, stream)?;
    comm.close_timeout(slower(20.0))
}

#[test]
fn processes_suspend_together() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            if can() {
                all_succeed(start("rounds", ranks), slower(60.0));
            }
        }
    });
}

/// Rank 0 is killed while all are suspended.
fn victim(role: Role) -> Result<()> {
    let comm = role.join()?;
    let stream = &Stream::new(comm.device())?;
    sum(&comm, stream)?;
    let suspended = comm.suspend(Suspend::MEMORY, "the test suspends")?;
    if role.rank == 0 {
        println!("suspended");
        loop {
            std::thread::park();
        }
    }
    comm.set_timeout(slower(2.0));
    let begin = Instant::now();
    let error = suspended.resume().map(|comm: &Communicator| comm.rank()).unwrap_err();
    assert!(begin.elapsed() < slower(3.0) + Duration::from_secs(10));
    assert!(!comm.is_active(), "{error:?}");
    println!("told: {error}");
    Ok(())
}

#[test]
fn a_process_that_dies_while_it_is_suspended() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3]) {
            if !can() {
                return;
            }
            let mut children = start("victim", ranks);
            let mut dies = children.remove(0);
            dies.wait_for("suspended", slower(30.0));
            dies.kill();
            all_succeed(children, slower(60.0));
        }
        assert!(Device::count().is_ok());
    });
}
