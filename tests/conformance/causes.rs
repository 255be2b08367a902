//! What has ended a communicator, as a program can match on it; and what NCCL writes to its log of it.

use gpucomm::nccl::{Config, InitOptions, error_string};
use gpucomm::{Clique, Communicator, DeviceBuffer, Error, ErrorKind, InPlace, NcclCode, ReduceOp, Result, Stream};

use crate::support::process::{Role, spawn, spawn_all};
use crate::support::{Rig, assert_names, places, rank_counts, skip, slower, watched};

const CHILD: &str = "causes::child";

#[test]
#[ignore = "the body of child processes"]
fn child() {
    if Role::of_this_process("fails").is_some() {
        fails();
        println!("finished");
    }
    if let Some(role) = Role::of_this_process("waits") {
        waits(role).unwrap();
        println!("finished");
    }
}

/// One sum, waited for.
fn step(comm: &Communicator, stream: &Stream) -> Result<()> {
    let mut x = DeviceBuffer::from_slice(stream, &[1_i32; 77])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    assert_eq!(x.to_vec(stream)?, [comm.size() as i32; 77]);
    Ok(())
}

/// All ranks of `clique` have the same cause, which what is called later tells of; that.
fn cause_of(clique: &Clique) -> Error {
    let stream = Stream::new(clique.rank(0).device()).unwrap();
    let later = step(clique.rank(0), &stream).expect_err("it has ended");
    let causes: Vec<_> = clique.ranks().iter().map(|comm| comm.cause().expect("it has ended")).collect();
    for cause in &causes {
        assert_eq!(format!("{cause:?}"), format!("{:?}", causes[0]));
    }
    if let Error::Aborted { reason, .. } = &later {
        let told = match &causes[0] {
            Error::Aborted { reason, .. } => reason.to_string(),
            cause => cause.to_string(),
        };
        assert!(reason.contains(&told), "{told}: {later}");
    }
    causes.into_iter().next().expect("a rank")
}

/// The first cause of `error`: where its sources lead to.
fn first_of(error: &Error) -> &Error {
    let all = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    all.filter_map(|error| error.downcast_ref()).last().expect("an error of this crate")
}

/// Ranks `0..` of a clique that has ended all say so with the first cause, of which `rank` is.
fn lead_to_the_cause(clique: &Clique, rank: usize) -> Error {
    let first = cause_of(clique);
    assert_eq!(first_of(&first), &first);
    for comm in clique.ranks() {
        let stream = Stream::new(comm.device()).unwrap();
        let later = step(comm, &stream).expect_err("it has ended");
        assert_eq!((later.kind(), later.operation()), (ErrorKind::Aborted, "all_reduce"), "{later:?}");
        assert_eq!((later.rank(), first.rank()), (Some(rank), Some(rank)), "{later:?}");
        assert_eq!(first_of(&later), &first);
        assert!(std::error::Error::source(&later).is_some(), "{later:?}");
    }
    first
}

#[test]
fn later_errors_lead_to_an_abort() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::unconnected(ranks);
            let _ = rig.clique.rank(ranks - 1).aborter().abort("the cause of the test");
            let first = lead_to_the_cause(&rig.clique, ranks - 1);
            assert_eq!((first.kind(), first.operation(), first.peer()), (ErrorKind::Aborted, "abort", None));
        }
    });
}

#[test]
fn later_errors_lead_to_a_panic() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::unconnected(ranks);
            let program = |comm: &Communicator| -> Result<()> {
                assert_ne!(comm.rank(), 1, "on purpose");
                step(comm, &Stream::new(comm.device())?)
            };
            let run = std::panic::AssertUnwindSafe(|| rig.clique.spmd(program));
            std::panic::catch_unwind(run).expect_err("a rank has panicked");
            let first = lead_to_the_cause(&rig.clique, 1);
            assert_names(&first, &["rank 1 panicked", "on purpose"]);
        }
    });
}

#[test]
fn later_errors_lead_to_an_error_that_a_rank_returns() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::unconnected(ranks);
            let own = || Error::InvalidUsage { operation: "the test", reason: "on purpose".into() };
            let program = |comm: &Communicator| match comm.rank() {
                1 => Err(own()),
                _ => step(comm, &Stream::new(comm.device())?),
            };
            let returned = rig.clique.spmd(program).expect_err("a rank has failed");
            assert_eq!((returned.kind(), returned.operation()), (ErrorKind::InvalidUsage, "the test"));
            let stream = Stream::new(rig.clique.rank(0).device()).unwrap();
            let later = step(rig.clique.rank(0), &stream).expect_err("it has ended");
            assert_eq!((later.kind(), later.operation(), later.rank()), (ErrorKind::Aborted, "all_reduce", Some(1)));
            assert_eq!(first_of(&later), &own());
        }
    });
}

#[test]
fn later_errors_lead_to_a_timeout() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::unconnected(ranks);
            let (comm, stream) = (rig.clique.rank(0), Stream::new(rig.clique.rank(0).device()).unwrap());
            comm.set_timeout(slower(1.0));
            let late = step(comm, &stream).expect_err("nobody has come");
            assert_eq!((late.kind(), late.rank()), (ErrorKind::Timeout, Some(0)), "{late:?}");
            let first = lead_to_the_cause(&rig.clique, 0);
            assert_eq!((first.kind(), first.rank()), (ErrorKind::Timeout, Some(0)), "{first:?}");
        }
    });
}

/// A wait for a message names both ends.
#[test]
fn a_timeout_has_the_ranks_of_a_message() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::new(ranks);
            let comm = rig.clique.rank(0);
            let stream = Stream::new(comm.device()).unwrap();
            let mut x = DeviceBuffer::<i32>::zeroed(&stream, 3).unwrap();
            comm.recv(&mut x, 1, &stream).unwrap();
            let late = stream.synchronize_timeout(slower(1.0)).expect_err("nobody sends");
            assert_eq!((late.kind(), late.rank(), late.peer()), (ErrorKind::Timeout, Some(0), Some(1)), "{late:?}");
            let _ = rig.clique.abort("enough");
        }
    });
}

#[test]
fn none_of_what_is_well_or_closed() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                assert!(comm.cause().is_none());
                step(comm, stream)?;
                assert!(comm.cause().is_none());
                Ok(())
            });
            rig.close();
        }
    });
}

#[test]
fn an_abort_has_its_reason() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 3]) {
            let rig = Rig::unconnected(ranks);
            let _ = rig.clique.rank(ranks - 1).aborter().abort("the cause of the test");
            let cause = cause_of(&rig.clique);
            assert!(
                matches!(&cause, Error::Aborted { reason, .. } if reason.contains("the cause of the test")),
                "{cause:?}"
            );
        }
    });
}

/// Of a call that stays inside NCCL, where nobody else comes; who waits for a stream may wait again.
#[test]
fn a_deadline() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::unconnected(ranks);
            let (comm, stream) = (rig.clique.rank(0), Stream::new(rig.clique.rank(0).device()).unwrap());
            comm.set_timeout(slower(1.0));
            let late = step(comm, &stream).expect_err("nobody has come");
            assert!(matches!(late, Error::Timeout { .. }), "{late:?}");
            let cause = cause_of(&rig.clique);
            assert!(matches!(cause, Error::Timeout { .. }), "{cause:?}");
        }
    });
}

#[test]
fn a_disagreement() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::new(ranks);
            let error = rig.try_run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1_i32; 77])?;
                let op = if comm.rank() == 1 { ReduceOp::Max } else { ReduceOp::Sum };
                comm.all_reduce(InPlace(&mut x), op, stream)?;
                stream.synchronize_timeout(slower(5.0))
            });
            assert!(matches!(error, Err(Error::Disagreement { .. })));
            let cause = cause_of(&rig.clique);
            assert!(matches!(cause, Error::Disagreement { rank: 0 | 1, .. }), "{cause:?}");
        }
    });
}

/// In a process of its own, in which rank 1 gets an asynchronous error.
fn fails() {
    let rig = Rig::unconnected(2);
    let failed = rig.try_run(|comm, stream| (0..10).try_for_each(|_| step(comm, stream)));
    assert!(failed.is_err());
    let cause = cause_of(&rig.clique);
    let Error::Nccl { operation: "ncclCommGetAsyncError", code, message, last } = &cause else { panic!("{cause:?}") };
    assert!(
        code.as_raw() > 0 && *message == error_string(gpucomm::sys::ncclResult_t(code.as_raw() as u32)),
        "{cause:?}"
    );
    let last = last.as_deref().expect("NCCL has a text");
    assert!(last.contains("injected by GPUCOMM_EMULATOR_FAULTS") && !last.contains("so before"), "{cause:?}");
}

#[test]
fn an_asynchronous_error() {
    watched(60.0, || {
        if gpucomm::backend() != gpucomm::Backend::Emulator || rank_counts(&[2]).is_empty() {
            return skip("faults are injected by the emulator only");
        }
        for place in ["rank1@op1", "rank0@op4"] {
            let id = gpucomm::UniqueId::new().unwrap();
            let faults = format!("async_error={place}");
            let end = spawn(CHILD, "fails", (0, 1), &id, &[("GPUCOMM_EMULATOR_FAULTS", &faults)]).finish(slower(40.0));
            end.assert_success();
            assert!(end.text.contains("finished"), "{}", end.text);
        }
    });
}

/// What NCCL says where it refuses a configuration, with that for the most channels.
fn refused(ranks: usize, most: i32) -> String {
    // SAFETY: nothing is made with it.
    let config = unsafe { Config::new().with_raw(move |config| config.maxCTAs = most) };
    let options = InitOptions::new().with_config(config);
    let devices = &places()[..ranks];
    let error = Clique::init_all_with(devices, &options).map(drop).expect_err("it is refused");
    let text = error.to_string();
    let Error::Nccl { operation: "ncclCommInitRankConfig", code: NcclCode(4), last: Some(last), .. } = error else {
        panic!("{error:?}")
    };
    assert!(text.contains(&last), "{text}");
    last
}

/// The warning of the call that fails, and none of an earlier one as if it were.
#[test]
fn the_warning_of_the_call() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let [first, second] = [-1001, -1002].map(|base| base - 10 * ranks as i32);
            let told = refused(ranks, first);
            assert!(told.contains(&first.to_string()) && !told.contains("so before"), "{told}");
            let told = refused(ranks, second);
            assert!(told.contains(&second.to_string()) && !told.contains("so before"), "{told}");
            // Whether it says the same again, or nothing, nobody knows.
            std::thread::sleep(std::time::Duration::from_millis(1100));
            let told = refused(ranks, second);
            assert!(told.contains(&second.to_string()) && told.contains("NCCL had said so before"), "{told}");
            let told = refused(ranks, first);
            assert!(told.contains(&first.to_string()) && !told.contains("so before"), "{told}");
            // What was said before a start that went well is old at once.
            let clique = Clique::init_all(&places()[..ranks]).unwrap();
            let is_last = clique.rank(0).last_error().is_some_and(|text| text.contains(&first.to_string()));
            clique.close_timeout(slower(10.0)).unwrap();
            let told = refused(ranks, first);
            assert!(told.contains(&first.to_string()), "{told}");
            assert_eq!(told.contains("NCCL had said so before"), is_last, "{told}");
        }
    });
}

/// Who waits in vain is not told what NCCL said before that.
#[test]
fn waits_do_not_tell_old_warnings() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let warning = refused(ranks, -2003);
            let rig = Rig::new(ranks);
            let late = rig.try_run(|comm, stream| {
                comm.set_timeout(slower(1.0));
                if comm.rank() == 0 {
                    let mut x = DeviceBuffer::from_slice(stream, &[1_i32; 77])?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    stream.synchronize_timeout(slower(1.0))?;
                }
                std::thread::sleep(slower(3.0));
                Ok(())
            });
            let late = late.expect_err("nobody has come");
            assert!(matches!(late, Error::Timeout { .. }), "{late:?}");
            assert!(!late.to_string().contains("-2003"), "{warning}: {late}");
            assert_names(&late, &["all_reduce"]);
        }
    });
}

/// A rank of several processes, of which rank 1 does not come to the second sum.
fn waits(role: Role) -> Result<()> {
    // Of which no error of this crate tells.
    // SAFETY: the first argument is looked at, and there is a place for the second.
    let code = unsafe { gpucomm::sys::ncclCommCount(std::ptr::null_mut(), &mut 0) };
    assert_ne!(code, gpucomm::sys::ncclResult_t::ncclSuccess);
    let (rank, comm) = (role.rank, role.join()?);
    let warning = comm.last_error().expect("NCCL has warned");
    let stream = Stream::new(comm.device())?;
    step(&comm, &stream)?;
    if rank == 1 {
        std::thread::sleep(slower(3.0));
        return Ok(());
    }
    let mut x = DeviceBuffer::from_slice(&stream, &[1_i32; 77])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    let late = stream.synchronize_timeout(slower(1.0)).expect_err("nobody has come");
    assert!(matches!(late, Error::Timeout { .. }), "{late:?}");
    assert!(!late.to_string().contains(&warning), "{late}");
    let _ = comm.aborter().abort("the test is over");
    Ok(())
}

/// The same across processes, where no ledger tells more.
#[test]
fn waits_across_processes_do_not_either() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            for child in spawn_all(CHILD, "waits", ranks, &[]) {
                let end = child.finish(slower(40.0));
                end.assert_success();
                assert!(end.text.contains("finished"), "{}", end.text);
            }
        }
    });
}
