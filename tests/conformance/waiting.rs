//! A wait that ends without what it waited for says what that was: operation, number, rank, peer; in a clique who is behind, and
//! what has no other end.

use std::sync::mpsc::channel;
use std::time::Duration;

use gpucomm::known_bugs::TABLE;
use gpucomm::version::built_nccl;
use gpucomm::{Backend, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};

use crate::support::process::{Role, spawn, spawn_all};
use crate::support::{Rig, assert_names, quick, rank_counts, skip, slower, watched};

const CHILD: &str = "waiting::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn(Role) -> Result<()>); 3] =
        [("alone", alone_among_processes), ("fails", |_| fails()), ("first", |_| first())];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role).unwrap();
        }
    }
}

pub fn limit() -> Duration {
    slower(1.0)
}

/// What the ranks get.
pub fn errors(rig: Rig, body: impl Fn(&Communicator, &Stream) -> Result<()> + Sync) -> Vec<Option<Error>> {
    let results = quick(slower(10.0), || {
        rig.run(|comm, stream| {
            comm.set_timeout(limit());
            Ok(body(comm, stream).err())
        })
    });
    quick(slower(20.0), || drop(rig));
    results
}

/// What rank 0 gets after so many all-reduces of all ranks.
fn error(ranks: usize, before: usize, body: impl Fn(&Communicator, &Stream) -> Result<()> + Sync) -> Error {
    let rig = Rig::unconnected(ranks);
    rig.run(|comm, stream| {
        (0..before).try_for_each(|_| all_reduce(comm, stream))?;
        stream.synchronize()
    });
    let error = errors(rig, body).swap_remove(0).expect("done without the others");
    assert_waited(&error);
    error
}

/// Who has waited for so long, or waited too when another rank of the clique had.
#[track_caller]
pub fn assert_waited(error: &Error) {
    match error {
        Error::Timeout { .. } => {}
        Error::Aborted { reason, .. } if reason.contains(": not done within ") => {}
        other => panic!("{other:?}"),
    }
}

fn all_reduce(comm: &Communicator, stream: &Stream) -> Result<()> {
    let mut x = DeviceBuffer::from_slice(stream, &[1.0f32; 5])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
}

/// The first one meets the others, and has them named there; a later one is on the device.
#[test]
fn a_collective_that_a_rank_does_not_come_to() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for before in [0, 3] {
                let error = error(ranks, before, |comm, stream| {
                    if comm.rank() == 1 {
                        return Ok(());
                    }
                    all_reduce(comm, stream)?;
                    stream.synchronize_timeout(limit())
                });
                let number = before + 1;
                assert_names(
                    &error,
                    &[
                        // At the first one all meet, and who finds first that a rank is missing tells the others.
                        if before == 0 { "waits for " } else { "rank 0 waits for " },
                        &format!("all_reduce of 5 f32, sum (its operation {number}, collective {number})"),
                        ", to which rank 1 has not come; rank 1 has come to ",
                        if before == 0 {
                            "to no collective"
                        } else {
                            "3 collectives, the last was all_reduce of 5 f32, sum"
                        },
                    ],
                );
            }
        }
    });
}

/// However it is waited for.
#[test]
fn every_wait_says_so() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                if comm.rank() == 1 {
                    return Ok(());
                }
                let mut x = DeviceBuffer::from_slice(stream, &[1.0f32; 5])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                let (event, other) = (stream.record()?, Stream::new(comm.device())?);
                other.wait_event(&event)?;
                for error in [
                    stream.synchronize_timeout(limit()),
                    event.synchronize_timeout(limit()),
                    other.synchronize_timeout(limit()),
                    x.as_slice().copy_to_slice_timeout(&other, &mut [0.0; 5], limit()),
                ] {
                    let error = error.expect_err("done without rank 1");
                    assert_names(
                        &error,
                        &["rank 0 waits for all_reduce of 5 f32, max (", "), to which rank 1 has not come"],
                    );
                    // Once: the emulator would say the same in other words.
                    assert!(!error.to_string().contains("AllReduce"), "{error}");
                }
                Ok(())
            });
            let mut comms = rig.clique.into_ranks();
            let error = quick(limit(), || comms.remove(0).close_timeout(limit())).expect_err("done without rank 1");
            assert_names(&error, &["close", "all_reduce of 5 f32, max", "to which rank 1 has not come"]);
            quick(slower(20.0), || drop(comms));
        }
    });
}

#[test]
fn a_message_that_a_rank_does_not_send() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            for before in [0, 2] {
                let last = ranks - 1;
                let error = error(ranks, 1, |comm, stream| {
                    let mut x = DeviceBuffer::<gpucomm::bf16>::zeroed(stream, 7)?;
                    if comm.rank() == 0 {
                        for _ in 0..=before {
                            comm.recv(&mut x, last, stream)?;
                        }
                        return stream.synchronize_timeout(limit());
                    }
                    if comm.rank() == last {
                        (0..before).try_for_each(|_| comm.send(&x, 0, stream))?;
                    }
                    Ok(())
                });
                let (number, operation) = (before + 1, before + 2);
                assert_names(
                    &error,
                    &[
                        &format!("rank 0 waits for recv of 7 bf16 from rank {last}"),
                        &format!("(its operation {operation}, message {number} from rank {last} to rank 0)"),
                        &format!(", for which rank {last} has issued no send; rank {last} has come to 1 collective"),
                    ],
                );
            }
        }
    });
}

/// Operations that are made of others, and the allocation of a window.
#[test]
fn what_an_operation_is_part_of() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            let counts = [2, 3];
            for (what, parts) in
                [("all_gather_v", "broadcast of 2 u8, root 0"), ("all_to_all_v", "send of 3 u8 to rank 1")]
            {
                let error = error(ranks, 1, |comm, stream| {
                    if comm.rank() == 1 {
                        return Ok(());
                    }
                    let (x, mut y) = (DeviceBuffer::<u8>::zeroed(stream, 5)?, DeviceBuffer::<u8>::zeroed(stream, 5)?);
                    match what {
                        "all_gather_v" => comm.all_gather_v((x.slice(..2), &mut y), &counts, stream),
                        _ => comm.all_to_all_v((&x, &mut y), &counts, &[2, 1], stream),
                    }
                });
                assert_names(&error, &[what, &format!("{parts} (part of {what}, its operation ")]);
            }
            let error = error(ranks, 1, |comm, stream| match comm.rank() {
                0 => comm.alloc::<f32>(stream, 5).map(drop).and_then(|()| Err(no_window())),
                _ => Ok(()),
            });
            assert_names(&error, &["alloc", "rank 1"]);
        }
    });
}

/// NCCL before 2.27 has no windows, so that nobody waits for the other ranks.
fn no_window() -> Error {
    Error::Timeout { operation: "alloc", timeout: limit(), detail: "not for rank 1".into(), rank: None, peer: None }
}

/// Nothing is missing, but a host function holds up a rank.
#[test]
fn what_every_rank_has_issued() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let (release, held) = channel::<()>();
            let held = std::sync::Mutex::new(Some(held));
            let release = std::sync::Mutex::new(Some(release));
            rig.run(|comm, stream| {
                if comm.rank() == 1 {
                    let held = held.lock().unwrap().take().expect("the other end");
                    stream.launch_host(move || drop(held.recv_timeout(slower(30.0))))?;
                }
                all_reduce(comm, stream)?;
                if comm.rank() != 0 {
                    return Ok(());
                }
                // Until the others have come.
                let mut waited = stream.synchronize_timeout(limit());
                for _ in 0..10 {
                    if !waited.as_ref().is_err_and(|error| error.to_string().contains("has not come")) {
                        break;
                    }
                    waited = stream.synchronize_timeout(limit());
                }
                drop(release.lock().unwrap().take());
                let error = waited.expect_err("done while rank 1 is held up");
                assert_names(&error, &["rank 0 waits for all_reduce of 5 f32, sum (its operation "]);
                assert_names(&error, &["), which every rank that takes part has issued"]);
                stream.synchronize()
            });
            rig.close();
        }
    });
}

/// Rank 0 has its part of everything; what holds it up is between two others.
#[test]
fn who_is_held_up_by_others() {
    watched(90.0, || {
        for ranks in rank_counts(&[3]) {
            let rig = Rig::new(ranks);
            let errors = rig.run(|comm, stream| {
                comm.set_timeout(limit());
                let mut x = DeviceBuffer::<u8>::zeroed(stream, 3)?;
                if comm.rank() == 1 {
                    comm.recv(&mut x, 2, stream)?;
                }
                all_reduce(comm, stream)?;
                all_reduce(comm, stream)?;
                // All have come by then.
                std::thread::sleep(limit());
                Ok(stream.synchronize_timeout(limit()).err())
            });
            let error = errors[0].as_ref().expect("done while rank 1 is held up");
            assert_names(
                error,
                &["rank 0 waits for its operations ", ", the first of them all_reduce of 5 f32, sum ("],
            );
            assert_names(
                error,
                &[
                    "), all of which every rank that takes part has issued; rank 1 has issued recv of 3 u8 from rank 2 (",
                ],
            );
            assert_names(error, &["for which rank 2 has issued no send"]);
            quick(slower(20.0), || drop(rig));
        }
    });
}

/// Rank 0 of two processes issues what the other does not: the first operation, inside which NCCL may wait, or a later one.
fn alone_among_processes(role: Role) -> Result<()> {
    let comm = role.join()?;
    let stream = &Stream::new(comm.device())?;
    let later = std::env::var_os(LATER).is_some();
    if later {
        all_reduce(&comm, stream)?;
        stream.synchronize()?;
        // These are done when rank 0 waits in vain, but nobody has looked.
        all_reduce(&comm, stream)?;
        all_reduce(&comm, stream)?;
    }
    if role.rank == 1 {
        // Until it is killed.
        loop {
            std::thread::park();
        }
    }
    comm.set_timeout(slower(1.5));
    let error =
        all_reduce(&comm, stream).and_then(|()| stream.synchronize_timeout(limit())).expect_err("done without rank 1");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    let number = if later { 4 } else { 1 };
    assert_names(&error, &[if later { "Stream::synchronize_timeout: " } else { "all_reduce: " }, "rank 0 waits "]);
    assert_names(&error, &[&format!("all_reduce of 5 f32, sum (its operation {number})")]);
    if later {
        let undone = "rank 0 waits for one of its operations 2 to 4, some of which may be done; the last is ";
        assert_names(&error, &[undone]);
    }
    assert_names(&error, &["what the other ranks do is not known here"]);
    assert_names(&error, &["GPUCOMM_DUMP=DIRECTORY", "`gpucomm diagnose DIRECTORY`"]);
    let _ = comm.aborter().abort("alone");
    quick(slower(10.0), || drop(comm));
    Ok(())
}

const LATER: &str = "GPUCOMM_TEST_LATER";

#[test]
fn processes_name_the_operation() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            // Nobody wakes a thread inside older libraries.
            let wakes = !TABLE.iter().any(|bug| bug.name == "no-revoke" && bug.concerns(built_nccl().version));
            let cases: [&[(&str, &str)]; 2] = [&[(LATER, "1")], &[]];
            for env in &cases[..1 + usize::from(wakes)] {
                let mut children = spawn_all(CHILD, "alone", ranks, env).into_iter();
                let (one, mut other) = (children.next().expect("rank 0"), children.next().expect("rank 1"));
                one.finish(slower(40.0)).assert_success();
                other.kill();
            }
        }
    });
}

/// Who does not get at a communicator is told what another thread does there.
#[test]
fn another_thread_inside() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::unconnected(ranks);
            let (comm, stream) = (rig.clique.rank(0), Stream::new(gpucomm::Device::new(0).unwrap()).unwrap());
            comm.set_timeout(slower(4.0));
            let error = std::thread::scope(|scope| {
                let first = scope.spawn(|| all_reduce(comm, &stream));
                std::thread::sleep(slower(1.0));
                comm.set_timeout(limit());
                let second = all_reduce(comm, &stream).expect_err("two threads at once");
                assert!(matches!(first.join().unwrap(), Err(Error::Timeout { .. })));
                second
            });
            assert_names(
                &error,
                &["all_reduce", "another thread is inside a call on rank 0 of communicator \"world\"; "],
            );
            assert_names(
                &error,
                &["rank 0 was given last all_reduce of 5 f32, sum (its operation 1, collective 1), to which"],
            );
            quick(slower(20.0), || drop(rig));
        }
    });
}

/// Rank 0 of a clique waits in the first operation, before which the ranks meet: NCCL is not called.
fn first() -> Result<()> {
    let rig = Rig::unconnected(2);
    let comm = rig.clique.rank(0);
    comm.set_timeout(slower(2.0));
    let error = all_reduce(comm, &Stream::new(comm.device())?).expect_err("done without rank 1");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    quick(slower(20.0), || drop(rig));
    Ok(())
}

#[test]
fn the_emulator_reports_a_deadlock_in_the_first_operation() {
    watched(60.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("NCCL reports no deadlocks");
        }
        let id = gpucomm::UniqueId::new().unwrap();
        let end = spawn(CHILD, "first", (0, 1), &id, &[("GPUCOMM_EMULATOR_DEADLOCK", "0.3")]).finish(slower(40.0));
        end.assert_success();
        let told: Vec<_> = end.text.lines().filter(|line| line.contains("deadlock? After ")).collect();
        let [told] = &told[..] else { panic!("{}", end.text) };
        let says = ["rank 0 waits for all_reduce of 5 f32, sum (", "to which rank 1 has not come"];
        assert!(says.iter().all(|text| told.contains(text)), "{told}");
    });
}

/// Where NCCL fails, every rank tells in its words why, however it hears of that.
fn fails() -> Result<()> {
    let rig = Rig::unconnected(2);
    let errors = rig.run(|comm, stream| {
        comm.set_timeout(slower(5.0));
        let step = || all_reduce(comm, stream).and_then(|()| stream.synchronize_timeout(slower(5.0)));
        Ok([(0..10).find_map(|_| step().err()), step().err()])
    });
    for error in errors.into_iter().flatten() {
        assert_names(&error.expect("a fault"), &["an error injected by GPUCOMM_EMULATOR_FAULTS"]);
    }
    Ok(())
}

#[test]
fn the_words_of_nccl() {
    watched(60.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("faults are injected by the emulator only");
        }
        for place in ["rank0@op1", "rank1@op3"] {
            let id = gpucomm::UniqueId::new().unwrap();
            let faults = format!("async_error={place}");
            let end = spawn(CHILD, "fails", (0, 1), &id, &[("GPUCOMM_EMULATOR_FAULTS", &faults)]).finish(slower(40.0));
            end.assert_success();
        }
    });
}
