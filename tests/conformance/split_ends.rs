//! How communicators that are split off from others end, and those that they come from.

use std::mem::forget;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use gpucomm::nccl::{AbortOutcome, CommState};
use gpucomm::{Backend, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId};

use crate::split::{owners, sum, whole};
use crate::support::process::{Role, spawn};
use crate::support::{Rig, assert_names, quick, rank_counts, skip, slower, still_works, watched};

/// The whole is aborted, and its parts of parts with it; a part is aborted, and nothing else.
#[test]
fn who_ends_with_whom() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let barrier = Barrier::new(ranks);
            owners(ranks, |comm, stream| {
                let (part, other) = (whole(&comm).unwrap(), whole(&comm).unwrap());
                let of_part = whole(&part).unwrap();
                barrier.wait();
                if other.rank() == 0 {
                    assert_eq!(other.aborter().abort("the part gives up"), AbortOutcome::Done);
                }
                barrier.wait();
                assert_eq!(other.state(), CommState::Aborted);
                assert!(comm.is_active() && part.is_active() && of_part.is_active());
                sum(&of_part, stream).unwrap();
                barrier.wait();
                if comm.rank() == 0 {
                    assert_eq!(comm.aborter().abort("the whole gives up"), AbortOutcome::Done);
                }
                barrier.wait();
                for ended in [&comm, &part, &of_part] {
                    let error = sum(ended, stream).expect_err("the whole was aborted");
                    assert_names(&error, &["the whole gives up"]);
                }
            });
            still_works(ranks);
        }
    });
}

#[test]
fn drops_in_every_order() {
    watched(200.0, || {
        for ranks in rank_counts(&[1, 2]) {
            for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1], [1, 3, 0, 2], [0, 3, 2, 1]] {
                owners(ranks, |comm, stream| dropped_in_order(&order, comm, stream));
            }
            still_works(ranks);
        }
    });
}

/// Drops a communicator, a part of it, a part of that, and a window of the part in this order, with work on all of them under way.
pub fn dropped_in_order(order: &[usize], comm: Communicator, stream: &Stream) {
    let part = Arc::new(whole(&comm).unwrap());
    let of_part = whole(&part).unwrap();
    let mut window = part.alloc_shared::<f32>(stream, 5000).unwrap();
    stream.launch_host(|| std::thread::sleep(Duration::from_millis(2))).unwrap();
    part.all_reduce(InPlace(&mut window), ReduceOp::Sum, stream).unwrap();
    let mut x = DeviceBuffer::<f32>::zeroed(stream, 100).unwrap();
    of_part.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).unwrap();
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).unwrap();
    let mut things: [Option<Box<dyn Send>>; 4] =
        [Some(Box::new(comm)), Some(Box::new(part)), Some(Box::new(of_part)), Some(Box::new(window))];
    order.iter().for_each(|&at| drop(things[at].take()));
    assert_eq!(x.to_vec(stream).unwrap(), [0.0; 100]);
}

#[test]
fn forgotten_and_dropped_while_unwinding() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2]) {
            owners(ranks, |comm, stream| {
                let part = whole(&comm).unwrap();
                sum(&part, stream).unwrap();
                forget(part);
                sum(&comm, stream).unwrap();
            });
            owners(ranks, |comm, stream| {
                let part = whole(&comm).unwrap();
                sum(&part, stream).unwrap();
                forget(comm);
                sum(&part, stream).unwrap();
            });
            let rig = Rig::new(ranks);
            let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                rig.run(|comm, stream| {
                    let part = whole(comm)?;
                    sum(&part, stream)?;
                    if comm.rank() == 0 {
                        panic!("the test panics")
                    }
                    sum(&part, stream)
                })
            }));
            assert!(end.is_err());
            still_works(ranks);
        }
    });
}

const CHILD: &str = "split_ends::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn(usize)); 2] = [("fails", fails), ("many", many)];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role.size);
            println!("finished");
        }
    }
}

fn in_child(role: &str, ranks: usize, env: &[(&str, &str)]) {
    let end = spawn(CHILD, role, (0, ranks), &UniqueId::new().unwrap(), env).finish(slower(100.0));
    end.assert_success();
    assert!(end.text.contains("finished"), "{}", end.text);
}

/// The second start of rank 1 fails, and the fifth: those of parts.
fn fails(ranks: usize) {
    for way in 0..2 {
        let rig = Rig::new(ranks);
        let error = quick(slower(3.0), || match way {
            0 => rig.run_and_leave(|comm, _| comm.split(Some(0), comm.rank()).map(drop)).map(drop),
            _ => rig.clique.split(|rank| Some((0, rank))).map(drop),
        });
        let error = error.expect_err("the start of a rank fails");
        assert!(matches!(error, Error::Nccl { .. }), "{error:?}");
        assert!(rig.clique.ranks().iter().all(|comm| !comm.is_active()));
        quick(slower(8.0), || drop(rig));
        still_works(ranks);
    }
}

#[test]
fn a_split_that_fails() {
    watched(120.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("faults are injected by the emulator only");
        }
        for ranks in rank_counts(&[2, 4]) {
            in_child("fails", ranks, &[("GPUCOMM_EMULATOR_FAULTS", "start=rank1@2;start=rank1@5")]);
        }
    });
}

/// Files and threads of this process, once they stay the same, and are no more than `most`: what has ended may take a while to go.
fn holdings(most: [usize; 2]) -> [usize; 2] {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).expect(what).count();
    let start = Instant::now();
    let mut last = [0; 2];
    loop {
        std::thread::sleep(slower(0.2));
        let now = ["fd", "task"].map(count);
        if now == last && is_within(now, most) || start.elapsed() > slower(10.0) {
            return now;
        }
        last = now;
    }
}

fn is_within(now: [usize; 2], most: [usize; 2]) -> bool {
    now.iter().zip(&most).all(|(now, most)| now <= most)
}

fn many(ranks: usize) {
    let rig = Rig::new(ranks);
    let mut before = None;
    // A split and an end take half a second there.
    let rounds = if gpucomm::backend() == Backend::Emulator { 40 } else { 8 };
    for _ in 0..3 {
        rig.run(|comm, stream| {
            for round in 0..rounds {
                let part = comm.split(Some(comm.rank() % 2), round)?.expect("a part");
                sum(&part, stream)?;
                if round % 2 == 0 {
                    part.close_timeout(slower(10.0))?;
                }
                let color = (comm.rank() == round % 2).then_some(round);
                assert_eq!(comm.split(color, round)?.is_some(), color.is_some());
            }
            Ok(())
        });
        let now = holdings(before.unwrap_or([usize::MAX; 2]));
        let before = *before.get_or_insert(now);
        assert!(is_within(now, before), "{now:?}, before: {before:?}");
    }
    rig.close();
}

#[test]
fn many_parts_leave_nothing() {
    watched(120.0, || rank_counts(&[1, 3]).into_iter().for_each(|ranks| in_child("many", ranks, &[])));
}

/// Who fails drops its part, in good order, before anybody hears of the failure: the others are told that it has gone, and the program
/// ends with why.
#[test]
fn a_failure_is_told_though_the_part_goes_first() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            for _ in 0..10 {
                let rig = Rig::new(ranks);
                let result = rig.clique.spmd(|comm| {
                    let part = whole(comm)?;
                    if comm.rank() == 1 {
                        return Err(Error::InvalidUsage { operation: "the test", reason: "a file is missing".into() });
                    }
                    sum(&part, &Stream::new(comm.device())?)
                });
                assert_names(&result.expect_err("a rank has failed"), &["a file is missing", "(of rank 1)"]);
            }
        }
    });
}

/// They were used on one stream, which comes to no end: that is waited for once.
#[test]
fn many_parts_are_dropped_behind_work_that_hangs() {
    watched(60.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("an abort of each takes half a second there");
        }
        let rig = Rig::new(1);
        rig.run(|comm, stream| {
            comm.set_timeout(slower(1.0));
            let parts = (0..8).map(|_| whole(comm)).collect::<Result<Vec<_>>>()?;
            parts.iter().try_for_each(|part| sum(part, stream))?;
            let (go_on, goes_on) = channel::<()>();
            stream.launch_host(move || drop(goes_on.recv_timeout(slower(20.0))))?;
            quick(slower(4.0), || drop(parts));
            drop(go_on);
            stream.accept();
            stream.synchronize()
        });
    });
}

/// An operation of all ranks, of which `told` hears when it is on its way.
fn go_on(comm: &Communicator, stream: &Stream, told: &Sender<()>) {
    let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5]).unwrap();
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).unwrap();
    told.send(()).unwrap();
    assert_eq!(x.to_vec(stream).unwrap(), [comm.size() as i32; 5]);
}

/// As below, with an abort by the rank that the others wait for: it cannot wait for its end.
#[test]
fn an_abort_does_not_wait_for_who_waits_for_it() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let (told, gone_on) = channel();
            let gone_on = std::sync::Mutex::new(gone_on);
            owners(ranks, |comm, stream| {
                let part = whole(&comm).unwrap();
                sum(&part, stream).unwrap();
                if comm.rank() == 0 {
                    (1..ranks).for_each(|_| gone_on.lock().unwrap().recv().unwrap());
                    let outcome = quick(slower(5.0), || part.aborter().abort("the part gives up"));
                    assert_eq!(outcome, AbortOutcome::StillRunning);
                }
                go_on(&comm, stream, &told);
                let start = Instant::now();
                while part.state() != CommState::Aborted {
                    assert!(start.elapsed() < slower(5.0), "{:?}", part.state());
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            still_works(ranks);
        }
    });
}

/// NCCL frees all ranks of a process when the last one ends, and waits for their devices: a rank that has ended before may have gone on
/// there, with an operation that waits for the very rank that ends last.
#[test]
fn who_has_closed_its_part_goes_on() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            for by_drop in [false, true] {
                let (told, gone_on) = channel();
                let gone_on = std::sync::Mutex::new(gone_on);
                owners(ranks, |comm, stream| {
                    let part = whole(&comm).unwrap();
                    sum(&part, stream).unwrap();
                    if comm.rank() == 0 {
                        // Those of the others have ended, and what they have gone on with is on its way.
                        (1..ranks).for_each(|_| gone_on.lock().unwrap().recv().unwrap());
                    }
                    let start = Instant::now();
                    if by_drop {
                        drop(part)
                    } else {
                        part.close_timeout(slower(5.0)).unwrap()
                    }
                    assert!(start.elapsed() < slower(4.0), "{:?}", start.elapsed());
                    go_on(&comm, stream, &told);
                });
            }
            still_works(ranks);
        }
    });
}
