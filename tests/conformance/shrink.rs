//! Communicators without some of the ranks of another, and what is made of one that was revoked.

use std::sync::Barrier;
use std::time::Duration;

use gpucomm::nccl::CommState;
use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId};

use crate::split::{gathered, owners, sum};
use crate::support::process::{Role, all_succeed, spawn};
use crate::support::random::rng;
use crate::support::{Rig, assert_names, rank_counts, slower, still_works, watched};

/// Ranks of `size` that are left out, in no order.
fn some(rng: &mut fastrand::Rng, size: usize) -> Vec<usize> {
    let mut all: Vec<_> = (0..size).collect();
    rng.shuffle(&mut all);
    all.truncate(rng.usize(1..size));
    all
}

/// What is left of `size` ranks.
fn left(size: usize, without: &[usize]) -> Vec<usize> {
    (0..size).filter(|rank| !without.contains(rank)).collect()
}

#[test]
fn any_ranks_are_left_out() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let mut rng = rng(&format!("shrinking {ranks}"));
            let rounds: Vec<_> = (0..6).map(|_| some(&mut rng, ranks)).collect();
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                for without in &rounds {
                    let want = left(ranks, without);
                    if let Some(place) = want.iter().position(|&rank| rank == comm.rank()) {
                        let rest = comm.shrink(without)?;
                        assert_eq!((rest.rank(), rest.size(), rest.device()), (place, want.len(), comm.device()));
                        assert_eq!(rest.timeout(), comm.timeout());
                        assert_eq!(gathered(&rest, stream, comm.rank())?, want);
                        let mut window = rest.alloc::<f32>(stream, 1021)?;
                        window.fill(stream, 0.5)?;
                        rest.all_reduce(InPlace(&mut window), ReduceOp::Sum, stream)?;
                        assert_eq!(window.to_vec(stream)?, vec![0.5 * want.len() as f32; 1021]);
                        drop(window);
                        // A part of it, and less of it.
                        sum(&rest.split(Some(0), 0)?.expect("a part"), stream)?;
                        if place == 0 && want.len() > 1 {
                            sum(&rest.shrink(&(1..want.len()).collect::<Vec<_>>())?, stream)?;
                        }
                        rest.close_timeout(slower(10.0))?;
                    }
                    sum(comm, stream)?;
                }
                Ok(())
            });
            rig.close();
        }
    });
}

#[test]
fn one_thread_shrinks_all_ranks() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            let rest = rig.clique.shrink(&[ranks - 1]).unwrap();
            rig.clique.revoke("the test revokes").unwrap();
            let again = rig.clique.shrink(&[0]).unwrap();
            drop(rig);
            for (clique, size) in [(rest, ranks - 1), (again, ranks - 1)] {
                assert_eq!(clique.size(), size);
                clique.spmd(|comm| sum(comm, &Stream::new(comm.device())?)).unwrap();
                clique.close_timeout(slower(10.0)).unwrap();
            }
        }
    });
}

/// The last rank never comes to what the others do.
#[test]
fn what_hangs_is_stopped_and_the_others_go_on() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            for round in 0..3 {
                let (met, done) = (Barrier::new(ranks), Barrier::new(ranks));
                owners(ranks, |comm, stream| {
                    sum(&comm, stream).unwrap();
                    // A revoke ends the sums of those who are not through.
                    met.wait();
                    let lost = ranks - 1;
                    if comm.rank() == lost {
                        done.wait();
                        return;
                    }
                    let mut x = DeviceBuffer::from_slice(stream, &vec![1f32; 5000]).unwrap();
                    let mut issued = 0;
                    for _ in 0..round * 30 + 1 {
                        // On a busy machine the revoke may be here first, perhaps before any call.
                        let Err(error) = comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream) else {
                            issued += 1;
                            continue;
                        };
                        assert!(matches!(error, Error::Revoked { .. }) && comm.rank() != 0, "{error:?}");
                        break;
                    }
                    if comm.rank() == 0 {
                        std::thread::sleep(Duration::from_millis(20));
                    } else if issued > 0 {
                        // Told by the wait for the device, whoever has revoked it.
                        let error = x.to_vec(stream).expect_err("there is no result");
                        assert!(matches!(error, Error::Revoked { .. }), "{error:?}");
                        assert_names(&error, &["the last rank is lost"]);
                    }
                    let revoked = comm.revoke("the last rank is lost").unwrap();
                    let rest = revoked.shrink(&[lost]).unwrap();
                    assert_eq!(comm.state(), CommState::Revoked);
                    let error = comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).unwrap_err();
                    assert_names(&error, &["revoked", "the last rank is lost"]);
                    match x.to_vec(stream) {
                        Ok(values) => assert!(issued == 0 && values.iter().all(|value| *value == 1.0)),
                        Err(told) => assert!(issued > 0 && matches!(told, Error::Revoked { .. }), "{told:?}"),
                    }
                    // The same stream serves the rest.
                    assert_eq!(gathered(&rest, stream, comm.rank()).unwrap(), left(ranks, &[lost]));
                    drop(comm);
                    sum(&rest, stream).unwrap();
                    done.wait();
                });
                still_works(ranks);
            }
        }
    });
}

#[test]
fn revoked_ones_split() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let summed = Barrier::new(ranks);
            owners(ranks, |comm, stream| {
                sum(&comm, stream).unwrap();
                summed.wait();
                let revoked = comm.revoke("to be divided").unwrap();
                let color = (comm.rank() != 3).then_some(comm.rank() % 2);
                for _ in 0..2 {
                    let part = revoked.split(color, ranks - comm.rank()).unwrap();
                    let mut want: Vec<_> =
                        (0..ranks).filter(|rank| *rank != 3 && rank % 2 == comm.rank() % 2).collect();
                    want.reverse();
                    assert_eq!(part.is_some(), color.is_some());
                    if let Some(part) = part {
                        assert_eq!(gathered(&part, stream, comm.rank()).unwrap(), want);
                    }
                }
                assert!(comm.revoked().is_some());
                assert!(matches!(comm.split(None, 0), Err(Error::Revoked { .. })));
                assert!(matches!(comm.shrink(&[ranks]), Err(Error::Revoked { .. })));
                comm.close_timeout(slower(10.0)).unwrap();
            });
            still_works(ranks);
        }
    });
}

#[test]
fn drops_in_every_order() {
    watched(200.0, || {
        for ranks in rank_counts(&[2, 3]) {
            for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                for revokes in [false, true] {
                    let summed = Barrier::new(ranks);
                    owners(ranks, |comm, stream| {
                        sum(&comm, stream).unwrap();
                        summed.wait();
                        let mut own = comm.alloc::<f32>(stream, 500).unwrap();
                        own.fill(stream, 1.0).unwrap();
                        drop(own);
                        if revokes {
                            comm.revoke("the test revokes").unwrap();
                        }
                        let without = |comm: &Communicator, rank| match comm.revoked() {
                            Some(revoked) => revoked.shrink(&[rank]).unwrap(),
                            None => comm.shrink(&[rank]).unwrap(),
                        };
                        let (first, second) = match comm.rank() {
                            0 => (None, Some(without(&comm, ranks - 1))),
                            rank if rank == ranks - 1 => (Some(without(&comm, 0)), None),
                            _ => {
                                // One order on all ranks that are in both.
                                let first = without(&comm, 0);
                                (Some(first), Some(without(&comm, ranks - 1)))
                            }
                        };
                        for rest in [&first, &second].into_iter().flatten() {
                            sum(rest, stream).unwrap();
                        }
                        let mut things = [Some(comm), first, second];
                        order.iter().for_each(|&at| drop(things[at].take()));
                    });
                }
            }
            still_works(ranks);
        }
    });
}

#[test]
fn forgotten_and_dropped_while_unwinding() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            for forgets in [true, false] {
                owners(ranks, |comm, stream| {
                    sum(&comm, stream).unwrap();
                    if comm.rank() == 0 {
                        return;
                    }
                    let rest = comm.shrink(&[0]).unwrap();
                    if forgets {
                        std::mem::forget(comm);
                        sum(&rest, stream).unwrap();
                    } else {
                        sum(&rest, stream).unwrap();
                        std::mem::forget(rest);
                    }
                });
            }
            let (rig, done) = (Rig::new(ranks), Barrier::new(ranks - 1));
            let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                rig.run(|comm, stream| {
                    if comm.rank() == 0 {
                        return Ok(());
                    }
                    let rest = comm.revoke("the test revokes")?.shrink(&[0])?;
                    sum(&rest, stream)?;
                    done.wait();
                    if rest.rank() == 0 {
                        panic!("the test panics")
                    }
                    sum(&rest, stream)
                })
            }));
            assert!(end.is_err());
            still_works(ranks);
        }
    });
}

/// What is left goes on when what it comes from is aborted, or fails.
#[test]
fn the_rest_outlives_what_it_comes_from() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let (shrunk, done) = (Barrier::new(ranks), Barrier::new(ranks - 1));
            owners(ranks, |comm, stream| {
                let rest = (comm.rank() > 0).then(|| comm.shrink(&[0]).unwrap());
                shrunk.wait();
                if comm.rank() == 0 {
                    let _ = comm.aborter().abort("the test aborts");
                }
                shrunk.wait();
                assert!(!comm.is_active());
                if let Some(rest) = rest {
                    sum(&rest, stream).unwrap();
                    done.wait();
                    let _ = rest.aborter().abort("this one, too");
                    assert_names(&sum(&rest, stream).unwrap_err(), &["this one, too"]);
                }
            });
            still_works(ranks);
        }
    });
}

const CHILD: &str = "shrink::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    gpucomm::set_default_timeout(slower(30.0));
    if let Some(role) = Role::of_this_process("survivor") {
        survive(&role).unwrap();
    }
}

/// The last rank is killed in the middle of things; the others go on without it.
fn survive(role: &Role) -> Result<()> {
    let comm = role.join()?;
    let stream = Stream::new(comm.device())?;
    let lost = role.size - 1;
    sum(&comm, &stream)?;
    if role.rank == lost {
        println!("lost");
        std::thread::sleep(Duration::from_secs(60));
    }
    println!("with rank {lost}");
    // It was killed meanwhile.
    std::thread::sleep(Duration::from_secs(2));
    let mut x = DeviceBuffer::from_slice(&stream, &[1f32; 5000])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    let rest = comm.revoke("the last rank was killed")?.shrink(&[lost])?;
    assert!(matches!(x.to_vec(&stream), Err(Error::Revoked { .. })));
    assert_eq!(gathered(&rest, &stream, role.rank)?, left(role.size, &[lost]));
    drop(comm);
    sum(&rest, &stream)?;
    rest.close_timeout(slower(10.0))
}

#[test]
fn a_process_is_killed_and_the_others_shrink() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let id = UniqueId::new().unwrap();
            let mut children: Vec<_> =
                (0..ranks).map(|rank| spawn(CHILD, "survivor", (rank, ranks), &id, &[])).collect();
            children[ranks - 1].wait_for("lost", slower(30.0));
            children[ranks - 1].kill();
            children.pop();
            all_succeed(children, slower(40.0));
        }
    });
}

/// Nothing grows.
#[test]
fn made_and_closed_again_and_again() {
    watched(200.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let rounds = if gpucomm::backend() == gpucomm::Backend::Emulator { 250 } else { 20 };
            rig.run(|comm, stream| {
                for round in 0..rounds {
                    if round % 2 == comm.rank() {
                        let rest = comm.shrink(&[1 - comm.rank()])?;
                        sum(&rest, stream)?;
                        rest.close_timeout(slower(10.0))?;
                    }
                }
                sum(comm, stream)
            });
            rig.close();
        }
    });
}
