//! A process that can start no more threads: aborts and ends work all the same, and what needs a thread says so.
//!
//! It cannot be undone, so that each case is a child process.

use std::time::Duration;

use gpucomm::nccl::AbortOutcome;
use gpucomm::{Clique, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, group};

use crate::split::sum;
use crate::support::no_threads::forbid_threads;
use crate::support::process::{Role, spawn};
use crate::support::{Rig, assert_names, quick, rank_counts, skip, slower, watched};

const CHILD: &str = "no_threads::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn(usize)); 5] = [
        ("abort", |ranks| behind_a_missing_rank(ranks, abort)),
        ("drop", |ranks| behind_a_missing_rank(ranks, |rig| drop(rig.clique))),
        ("close", close),
        ("spmd", spmd),
        ("init", init),
    ];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role.size);
            println!("finished");
        }
    }
}

fn in_children(role: &str) {
    for ranks in rank_counts(&[2, 4]) {
        let child = spawn(CHILD, role, (0, ranks), &UniqueId::new().unwrap(), &[]);
        let end = child.finish(slower(60.0));
        end.assert_success();
        assert!(end.text.contains("finished"), "{}", end.text);
    }
}

/// From here on no thread is to be had; ends the test where that cannot be.
fn at_the_limit() {
    if !forbid_threads() {
        skip("this kernel does not let a process forbid its own threads");
        println!("finished");
        std::process::exit(0);
    }
}

/// All ranks but one have work in flight when `end` ends them: it takes no time, and their streams go on.
fn behind_a_missing_rank(ranks: usize, end: impl FnOnce(Rig)) {
    let rig = Rig::new(ranks);
    rig.run(sum);
    let streams: Vec<_> = rig.clique.ranks().iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
    let mut buffers = Vec::new();
    for (comm, stream) in rig.clique.ranks().iter().zip(&streams).skip(1) {
        comm.set_timeout(slower(1.0));
        let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5]).unwrap();
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).unwrap();
        buffers.push(x);
    }
    at_the_limit();
    quick(slower(2.0), || end(rig));
    for (stream, x) in streams.iter().skip(1).zip(&buffers) {
        let error = stream.synchronize_timeout(slower(2.0)).expect_err("work without rank 0 counts as done");
        assert!(matches!(error, Error::Aborted { .. } | Error::Disagreement { rank: 0, .. }), "{error:?}");
        x.to_vec(stream).expect_err("the values of an aborted operation");
    }
}

fn abort(rig: Rig) {
    assert_eq!(rig.clique.rank(0).aborter().abort("the test gives up"), AbortOutcome::Done);
    assert_eq!(rig.clique.rank(1).aborter().abort("once more"), AbortOutcome::Already);
    assert!(rig.clique.ranks().iter().all(|comm| !comm.is_active()));
}

#[test]
fn an_abort() {
    watched(120.0, || in_children("abort"));
}

#[test]
fn a_drop() {
    watched(120.0, || in_children("drop"));
}

fn close(ranks: usize) {
    let rig = Rig::new(ranks);
    rig.run(sum);
    at_the_limit();
    rig.clique.close_timeout(slower(10.0)).unwrap();
}

#[test]
fn a_clique_that_is_closed() {
    watched(120.0, || in_children("close"));
}

/// `spmd` runs nothing then, and what it would have run on is as good as before.
fn spmd(ranks: usize) {
    let rig = Rig::new(ranks);
    rig.run(sum);
    let streams: Vec<_> = rig.clique.ranks().iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
    let mut buffers: Vec<_> = streams.iter().map(|s| DeviceBuffer::from_slice(s, &[2i32; 9]).unwrap()).collect();
    at_the_limit();
    let error = rig.clique.spmd(|_| -> Result<()> { panic!("it runs") }).expect_err("there are no threads");
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
    assert_names(&error, &["spmd", "thread"]);
    group(|g| {
        for ((comm, stream), x) in rig.clique.ranks().iter().zip(&streams).zip(&mut buffers) {
            g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream)?;
        }
        Ok(())
    })
    .unwrap();
    for (stream, x) in streams.iter().zip(&buffers) {
        assert_eq!(x.to_vec(stream).unwrap(), vec![2 * ranks as i32; 9]);
    }
}

#[test]
fn spmd_of_a_clique() {
    watched(120.0, || in_children("spmd"));
}

fn init(ranks: usize) {
    let devices = Device::all().unwrap();
    drop(Rig::new(1));
    // Threads that were started before go on.
    std::thread::sleep(Duration::from_millis(100));
    at_the_limit();
    let error = quick(slower(1.0), || Clique::init_all(&devices[..ranks])).expect_err("there are no threads");
    // NCCL itself wants a thread for the identity of the clique.
    let by_nccl = matches!(error, Error::Nccl { operation: "ncclGetUniqueId", .. });
    assert!(matches!(error, Error::InvalidUsage { .. }) || by_nccl, "{error:?}");
    assert_names(&error, &[if by_nccl { "ncclGetUniqueId" } else { "init_all" }, "thread"]);
}

#[test]
fn a_clique_that_cannot_be_made() {
    watched(120.0, || in_children("init"));
}
