//! Communicators that ranks make within `spmd` end with it.

use std::time::Duration;

use gpucomm::nccl::InitOptions;
use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId};

use crate::support::{Rig, places, quick, rank_counts, slower, still_works, watched};

/// Longer than the test may take: who waits for as long has not been told.
fn patient() -> InitOptions {
    InitOptions::new().with_timeout(slower(60.0))
}

fn gives_up<R>() -> Result<R> {
    std::thread::sleep(Duration::from_millis(100));
    Err(Error::InvalidUsage { operation: "the test", reason: "this rank gives up".into() })
}

/// Runs `body` as every rank of a clique, of which the last gives up. The error is that of this rank, and comes at once.
fn all_but_one(ranks: usize, body: impl Fn(&Communicator, &Stream) -> Result<()> + Sync) {
    let rig = Rig::new(ranks);
    let result = quick(slower(1.0), || {
        rig.try_run(|comm, stream| if comm.rank() + 1 == ranks { gives_up() } else { body(comm, stream) })
    });
    let error = result.expect_err("a rank gave up");
    assert!(matches!(error, Error::InvalidUsage { operation: "the test", .. }), "{error:?}");
    drop(rig);
    still_works(ranks);
}

/// The others wait for it to join another communicator.
#[test]
fn one_that_is_being_made() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let id = UniqueId::new().unwrap();
            all_but_one(ranks, |comm, _| {
                let (size, options) = (comm.size(), patient());
                // SAFETY: it never comes to be, for want of the last rank.
                let made = unsafe { Communicator::init_rank_with(comm.device(), size, &id, comm.rank(), &options) };
                let error = made.expect_err("the last rank never joins");
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
                Err(error)
            });
        }
    });
}

/// They have made it, and wait for what it does not do.
#[test]
fn one_that_is_there() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let id = UniqueId::new().unwrap();
            let rig = Rig::new(ranks);
            let result = quick(slower(3.0), || {
                rig.try_run(|comm, stream| {
                    let (size, options) = (comm.size(), patient());
                    // SAFETY: the last rank issues the first operation as the others do, and none after it.
                    let inner =
                        unsafe { Communicator::init_rank_with(comm.device(), size, &id, comm.rank(), &options) }?;
                    let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5])?;
                    inner.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    assert_eq!(x.to_vec(stream)?, vec![size as i32; 5]);
                    if comm.rank() + 1 == ranks {
                        // Dropped by its owner it would be aborted by itself.
                        std::mem::forget(inner);
                        return gives_up();
                    }
                    inner.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    stream.synchronize_timeout(slower(60.0))
                })
            });
            let error = result.expect_err("a rank gave up");
            assert!(matches!(error, Error::InvalidUsage { operation: "the test", .. }), "{error:?}");
            drop(rig);
            still_works(ranks);
        }
    });
}

/// A clique within the program of one rank, whose own ranks wait for each other when another rank of the outer one gives up.
#[test]
fn a_clique_of_one_rank() {
    watched(90.0, || {
        for ranks in rank_counts(&[4]) {
            let devices = Device::all().unwrap()[2..ranks].to_vec();
            let outer = Clique::init_all(&places()[..2]).unwrap();
            let result: Result<Vec<()>> = quick(slower(3.0), || {
                outer.spmd(|comm| {
                    if comm.rank() == 1 {
                        return gives_up();
                    }
                    let inner = Clique::init_all_with(&devices, &patient())?;
                    inner.spmd(|comm| {
                        let stream = Stream::new(comm.device())?;
                        let mut x = DeviceBuffer::from_slice(&stream, &[1i32; 5])?;
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                        assert_eq!(x.to_vec(&stream)?, [2; 5]);
                        if comm.rank() == 0 {
                            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                        }
                        // Both wait: one for the other, and that one for a rank of nobody.
                        let id = UniqueId::new()?;
                        // SAFETY: it never comes to be.
                        unsafe { Communicator::init_rank_with(comm.device(), 2, &id, 0, &patient()) }.map(drop)
                    })?;
                    Ok(())
                })
            });
            let error = result.expect_err("a rank gave up");
            assert!(matches!(error, Error::InvalidUsage { operation: "the test", .. }), "{error:?}");
            drop(outer);
            still_works(ranks);
        }
    });
}

/// Nothing is aborted with a program that ends well: what its ranks made lives on.
#[test]
fn a_communicator_may_outlive_the_program_that_made_it() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let id = UniqueId::new().unwrap();
            let rig = Rig::new(ranks);
            let made = rig.run(|comm, _| {
                // SAFETY: all ranks issue the same operations.
                unsafe { Communicator::init_rank(comm.device(), comm.size(), &id, comm.rank()) }
            });
            let _ = rig.clique.abort("the outer one ends");
            std::thread::scope(|scope| {
                for comm in made {
                    scope.spawn(move || {
                        let stream = Stream::new(comm.device()).unwrap();
                        let mut x = DeviceBuffer::from_slice(&stream, &[3i32; 5]).unwrap();
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
                        assert_eq!(x.to_vec(&stream).unwrap(), [6; 5]);
                        comm.close_timeout(slower(10.0)).unwrap();
                    });
                }
            });
        }
    });
}
