//! Revoking: what it waits for and how long, what has stopped when it returns, and what it refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

#[cfg(nccl_ge_2_29_7)]
use gpucomm::nccl::Suspend;
#[cfg(nccl_ge_2_29)]
use gpucomm::{Communicator, nccl::InitOptions};
use gpucomm::{DeviceBuffer, Error, InPlace, ReduceOp, Stream, UniqueId, group, sys};

#[cfg(nccl_ge_2_29_7)]
use crate::support::newer::since;
#[cfg(nccl_ge_2_29)]
use crate::support::places;
use crate::support::process::{Role, spawn};
use crate::support::{Rig, assert_names, rank_counts, slower, still_works, watched};

const CHILD: &str = "revoke::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of a child process"]
fn child() {
    if let Some(role) = Role::of_this_process("held up") {
        gpucomm::set_default_timeout(slower(30.0));
        held_up(role.size);
        println!("finished");
    }
}

/// What was stopped is told as such at once.
fn has_stopped(stream: &Stream) {
    let ended = stream.synchronize_timeout(Duration::ZERO);
    assert!(matches!(ended, Err(Error::Revoked { .. })), "{ended:?}");
}

#[test]
fn all_have_stopped_when_it_returns() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for _ in 0..10 {
                let rig = Rig::new(ranks);
                let hung = rig.hang();
                rig.clique.rank(0).revoke("the test revokes").unwrap();
                hung.iter().for_each(|(stream, _)| has_stopped(stream));
                assert!(rig.clique.ranks().iter().all(|comm| comm.revoked().is_some()));
            }
        }
    });
}

/// Nobody is given what still works on its device, whoever has revoked it.
#[test]
fn who_looks_meanwhile_sees_none_that_goes_on() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for _ in 0..10 {
                let rig = Rig::new(ranks);
                let hung = rig.hang();
                thread::scope(|scope| {
                    scope.spawn(|| rig.clique.rank(0).revoke("the test revokes").unwrap());
                    for (comm, (stream, _)) in rig.clique.ranks().iter().skip(1).zip(&hung) {
                        while comm.revoked().is_none() {
                            std::hint::spin_loop();
                        }
                        has_stopped(stream);
                    }
                });
            }
        }
    });
}

/// What is stuck on a device holds it up, until the deadline.
#[test]
fn one_that_is_held_up_comes_back_at_the_deadline() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            let comm = rig.clique.rank(0);
            let stream = Stream::new(comm.device()).unwrap();
            let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 5]).unwrap();
            let (open, opened) = channel::<()>();
            stream.launch_host(move || assert!(opened.recv().is_err())).unwrap();
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
            comm.set_timeout(slower(0.5));
            let begin = Instant::now();
            let late = comm.revoke("the test revokes");
            let took = begin.elapsed();
            drop(open);
            if let Err(error) = late {
                assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                assert_names(&error, &["revoke", "rank 0 is still being stopped"]);
            }
            assert!(took < slower(4.0), "{took:?}");
            drop((x, rig));
            still_works(ranks);
        }
    });
}

/// A thread is inside NCCL, and waits for the driver, which waits for what is to be stopped; then it goes on, and launches something.
fn held_up(ranks: usize) {
    let rig = Rig::new(ranks);
    let comm = rig.clique.rank(1);
    let mut ptr = std::ptr::null_mut();
    {
        let _current = comm.device().set_current().unwrap();
        // SAFETY: writes a pointer to the address given.
        assert_eq!(unsafe { sys::cudaMalloc(&mut ptr, 4096) }, sys::cudaError::cudaSuccess);
    }
    let other = Stream::new(comm.device()).unwrap();
    let mut y = DeviceBuffer::from_slice(&other, &[1i32; 5]).unwrap();
    other.synchronize().unwrap();
    let hung = rig.hang();
    let (ptr, free) = (ptr.expose_provenance(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _current = comm.device().set_current().unwrap();
            // SAFETY: from `cudaMalloc`, and nothing uses it.
            let code = unsafe { sys::cudaFree(std::ptr::with_exposed_provenance_mut(ptr)) };
            free.store(code == sys::cudaError::cudaSuccess, Ordering::SeqCst);
        });
        thread::sleep(slower(0.2));
        assert!(!free.load(Ordering::SeqCst), "cudaFree waits for nothing");
        scope.spawn(|| {
            let _ = comm.all_reduce(InPlace(&mut y), ReduceOp::Sum, &other);
        });
        thread::sleep(slower(0.2));
        comm.revoke("the test gives up").unwrap();
        hung.iter().for_each(|(stream, _)| has_stopped(stream));
        assert!(!matches!(other.synchronize_timeout(Duration::ZERO), Err(Error::Timeout { .. })), "it goes on");
    });
    assert!(free.into_inner());
    drop((rig, hung, y));
    still_works(ranks);
}

#[test]
fn who_waits_in_the_driver_has_left_when_it_returns() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            let lock = [("GPUCOMM_EMULATOR_DRIVER_LOCK", "1")];
            let end = spawn(CHILD, "held up", (0, ranks), &UniqueId::new().unwrap(), &lock).finish(slower(60.0));
            end.assert_success();
            assert!(end.text.contains("finished"), "{}", end.text);
        }
    });
}

/// Others are made of communicators outside of groups and host functions, and not before what was enqueued is done.
#[test]
fn nothing_is_made_of_one_where_nobody_may_wait() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let clique = Arc::new(rig.clique);
            let refused = group(|_| clique.shrink(&[1]).map(drop)).expect_err("within a group");
            assert!(matches!(refused, Error::InvalidUsage { .. }), "{refused:?}");
            assert_names(&refused, &["shrink", "group"]);
            let stream = Stream::new(clique.rank(0).device()).unwrap();
            let x = DeviceBuffer::from_slice(&stream, &[1i32; 5]).unwrap();
            let (inside, (tell, told)) = (Arc::clone(&clique), channel());
            stream.launch_host(move || tell.send(inside.shrink(&[1]).map(drop)).unwrap()).unwrap();
            let refused = told.recv_timeout(slower(10.0)).unwrap().expect_err("within a host function");
            assert!(matches!(refused, Error::InvalidUsage { .. }), "{refused:?}");
            assert_names(&refused, &["shrink", "host function"]);
            // What was enqueued is waited for, as long as calls wait.
            let (open, opened) = channel::<()>();
            stream.launch_host(move || assert!(opened.recv().is_err())).unwrap();
            let comm = clique.rank(0);
            comm.send(&x, 1, &stream).unwrap();
            comm.set_timeout(slower(0.5));
            let late = comm.shrink(&[1]);
            assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
            assert!(comm.is_active());
            drop(open);
        }
    });
}

/// A rank revokes the communicator while the others wait for it to split or suspend it: it stays revoked, and others are made of it.
#[cfg(nccl_ge_2_29_7)]
#[test]
fn one_for_which_others_wait_in_a_call_of_all_ranks() {
    since(gpucomm::Version::new(2, 29, 7), 60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            for suspends in [false, true] {
                let rig = Rig::new(ranks);
                let (waits, waiting) = channel();
                thread::scope(|scope| {
                    for comm in &rig.clique.ranks()[1..] {
                        let waits = waits.clone();
                        scope.spawn(move || {
                            waits.send(()).unwrap();
                            let made = match suspends {
                                true => comm.suspend(Suspend::MEMORY, "a test").map(drop),
                                false => comm.split(Some(0), 0).map(drop),
                            };
                            assert!(matches!(made, Err(Error::Revoked { .. })), "{made:?}");
                        });
                    }
                    (1..ranks).for_each(|_| waiting.recv().unwrap());
                    // Before or after they wait for it.
                    thread::sleep(Duration::from_millis(fastrand::u64(..100)));
                    rig.clique.rank(0).revoke("the test revokes").unwrap();
                });
                thread::scope(|scope| {
                    for comm in rig.clique.ranks() {
                        scope.spawn(move || drop(comm.revoked().expect("it stays revoked").split(Some(0), 0).unwrap()));
                    }
                });
            }
        }
    });
}

/// Rank 0 is inside NCCL in a split or a shrink, to which the other ranks have not come. A revoke ends that, and the rank with it: NCCL keeps
/// a part of what the call has done.
#[cfg(nccl_ge_2_29)]
#[test]
fn one_whose_rank_waits_inside_nccl() {
    watched(90.0, || {
        for ranks in rank_counts(&[3]) {
            for shrinks in [false, true] {
                let (id, places) = (UniqueId::new().unwrap(), &places()[..ranks]);
                let options = InitOptions::new().with_timeout(slower(40.0));
                // SAFETY: the ranks issue the same operations, but for what the revoke interrupts.
                let init = |rank| unsafe { Communicator::init_rank_with(places[rank], ranks, &id, rank, &options) };
                let all: Vec<_> = thread::scope(|scope| {
                    let starts: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || init(rank).unwrap())).collect();
                    starts.into_iter().map(|start| start.join().unwrap()).collect()
                });
                thread::scope(|scope| {
                    let waits = scope.spawn(|| match shrinks {
                        true => all[0].shrink(&[2]).map(drop),
                        false => all[0].split(Some(0), 0).map(drop),
                    });
                    // It meets nobody before.
                    thread::sleep(slower(1.0));
                    let begin = Instant::now();
                    let revoked = all[0].revoke("the test revokes").map(drop);
                    let ended = waits.join().unwrap();
                    assert!(matches!(ended, Err(Error::Revoked { .. })), "{ended:?}");
                    assert!(matches!(revoked, Ok(()) | Err(Error::Aborted { .. })), "{revoked:?}");
                    assert!(begin.elapsed() < slower(15.0), "{:?}", begin.elapsed());
                });
                assert!(all[0].revoked().is_none());
            }
        }
    });
}
