//! Programs with error types of their own: their errors come out as they are, and of several the one that brought the others.

use std::error::Error as StdError;

use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Stream, try_group};

use crate::support::{Rig, assert_names, quick, rank_counts, slower, still_works, watched};

#[derive(Debug)]
enum Own {
    Gpu(Error),
    Mine(usize),
}

impl From<Error> for Own {
    fn from(error: Error) -> Self {
        Self::Gpu(error)
    }
}

type Body = fn(&Communicator, &Stream, usize) -> Result<(), Own>;

/// Runs `body` as each rank, with the number of the one that is to fail, and gives `look` what comes out.
fn fails(body: Body, look: fn(Own, usize)) {
    watched(90.0, move || {
        for ranks in rank_counts(&[1, 2, 4]) {
            for failing in [0, ranks - 1] {
                let rig = Rig::new(ranks);
                let result = quick(slower(10.0), || {
                    rig.clique.try_spmd(|comm| {
                        let stream = Stream::new(comm.device())?;
                        body(comm, &stream, failing)
                    })
                });
                look(result.expect_err("a rank has failed"), failing);
                assert!(rig.clique.ranks().iter().all(|comm| !comm.is_active()), "the others would wait");
                quick(slower(20.0), || drop(rig));
                still_works(ranks);
            }
        }
    });
}

/// The others wait for it in a collective.
fn meet(comm: &Communicator, stream: &Stream) -> Result<(), Own> {
    let mut x = DeviceBuffer::from_slice(stream, &[1i32; 100])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    stream.synchronize_timeout(slower(30.0))?;
    Ok(())
}

#[test]
fn of_the_rank_that_gives_up() {
    fails(
        |comm, stream, failing| {
            meet(comm, stream)?;
            if comm.rank() == failing { Err(Own::Mine(failing)) } else { meet(comm, stream) }
        },
        |error, failing| assert!(matches!(error, Own::Mine(rank) if rank == failing), "{error:?}"),
    );
}

#[test]
fn of_this_crate() {
    fails(
        |comm, stream, failing| {
            if comm.rank() == failing {
                let send = DeviceBuffer::from_slice(stream, &[1i32; 3])?;
                let mut recv = DeviceBuffer::<i32>::zeroed(stream, 2)?;
                comm.all_reduce((&send, &mut recv), ReduceOp::Sum, stream)?;
            }
            meet(comm, stream)
        },
        |error, _| {
            let Own::Gpu(error) = error else { panic!("{error:?}") };
            assert!(matches!(error, Error::InvalidArgument { operation: "all_reduce", .. }), "{error:?}");
        },
    );
}

/// Who aborts waits for the end, when the others have returned already.
#[test]
fn of_the_rank_that_aborts() {
    fails(
        |comm, stream, failing| {
            if comm.rank() == failing {
                let _ = comm.aborter().abort("the test has had enough");
                return Err(Own::Mine(failing));
            }
            meet(comm, stream).map_err(|_| Own::Mine(usize::MAX))
        },
        |error, failing| assert!(matches!(error, Own::Mine(rank) if rank == failing), "{error:?}"),
    );
}

/// All ranks report it; what comes out is of the rank that differs.
#[test]
fn where_ranks_disagree() {
    watched(60.0, || {
        for ranks in rank_counts(&[3, 4]) {
            let rig = Rig::new(ranks);
            let result = rig.clique.try_spmd(|comm| {
                let stream = Stream::new(comm.device())?;
                let mut x = DeviceBuffer::from_slice(&stream, &vec![1i32; if comm.rank() == 1 { 9 } else { 10 }])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).map_err(|_| Own::Mine(comm.rank()))?;
                stream.synchronize_timeout(slower(30.0)).map_err(|_| Own::Mine(comm.rank()))
            });
            assert!(matches!(result, Err(Own::Mine(1))), "{result:?}");
            drop(rig);
        }
    });
}

/// A group whose closure has failed submits nothing.
#[test]
fn in_a_group() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1i32; 100])?;
                let refused = try_group(|g| {
                    g.all_reduce(comm, InPlace(&mut x), ReduceOp::Sum, stream)?;
                    if g.len() == 1 { Err(Own::Mine(5)) } else { Ok(()) }
                });
                assert!(matches!(refused, Err(Own::Mine(5))), "{refused:?}");
                let nested = try_group(|_| try_group(|_| Ok::<_, Own>(())));
                assert!(matches!(&nested, Err(Own::Gpu(Error::InvalidUsage { .. }))), "{nested:?}");
                assert_eq!(x.to_vec(stream)?, [1; 100], "submitted in spite of the error");
                Ok(())
            });
            rig.close();
        }
    });
}

/// Any error that can be made of one of this crate, and nothing else is asked of it: here nobody can even print it.
#[test]
fn of_any_type() {
    struct Opaque;
    impl From<Error> for Opaque {
        fn from(_: Error) -> Self {
            Self
        }
    }
    watched(60.0, || {
        let rig = Rig::new(1);
        assert!(rig.clique.try_spmd(|comm| Stream::new(comm.device())?.synchronize().map_err(Opaque::from)).is_ok());
        let boxed = rig.clique.try_spmd(|comm| -> Result<(), Box<dyn StdError + Send + Sync>> {
            let stream = Stream::new(comm.device())?;
            let _: i32 = "seven".parse()?;
            stream.synchronize()?;
            Ok(())
        });
        assert_eq!(boxed.expect_err("seven is no digit").to_string(), "invalid digit found in string");
        drop(rig);
        let rig = Rig::new(1);
        let boxed = rig.clique.try_spmd(|comm| -> Result<(), Box<dyn StdError + Send + Sync>> {
            Ok(DeviceBuffer::from_slice(&Stream::new(comm.device())?, &[1u8])?
                .slice(0..1)
                .copy_to_slice(&Stream::new(comm.device())?, &mut [0; 2])?)
        });
        let boxed = boxed.expect_err("two from one");
        assert_names(boxed.downcast_ref().expect("an error of this crate"), &["copy_to_slice"]);
        assert!(rig.clique.try_spmd(|_| -> Result<(), Opaque> { Err(Opaque) }).is_err());
    });
}
