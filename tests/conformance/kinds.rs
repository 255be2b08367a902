//! What the memory of a communicator is: chosen by size, or in the type.

use gpucomm::nccl::{Fitting, Local, SYMMETRIC_UP_TO, Symmetric};
use gpucomm::{Clique, CommBuffer, Communicator, Device, Error, InPlace, ReduceOp, Result, Stream, Version};

use crate::support::{Rig, assert_names, rank_counts, still_works, watched};

/// Elements of which no more fit into a window that nobody has asked for.
const MOST: usize = SYMMETRIC_UP_TO / size_of::<u32>();

/// The sum over the ranks of what stands at the ends and in the middle.
fn sums(comm: &Communicator, stream: &Stream, mut x: CommBuffer<'_, u32>) -> Result<()> {
    let places = [0, x.len() / 2, x.len() - 1];
    x.fill(stream, 1)?;
    for at in places {
        x.slice_mut(at..=at).fill(stream, (comm.rank() + at) as u32)?;
    }
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    for at in places {
        let sum: usize = (0..comm.size()).map(|rank| rank + at).sum();
        assert_eq!(x.slice(at..=at).to_vec(stream)?, [sum as u32], "element {at} of {}", x.len());
    }
    assert_eq!(x.slice(1..=1).to_vec(stream)?, [comm.size() as u32]);
    Ok(())
}

#[test]
fn by_size_and_by_type() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                // Whether there are windows at all.
                let windows = comm.alloc::<u8>(stream, 1)?.is_window();
                let most: CommBuffer<'_, u32, Fitting> = comm.alloc(stream, MOST)?;
                assert_eq!(most.is_window(), windows);
                sums(comm, stream, most)?;
                let more = comm.alloc::<u32>(stream, MOST + 1)?;
                assert!(!more.is_window());
                sums(comm, stream, more)?;
                let local: CommBuffer<'_, u32, Local> = comm.alloc_local(stream, 1000)?;
                assert!(!local.is_window());
                sums(comm, stream, local.into_fitting())?;
                let symmetric: Result<CommBuffer<'_, u32, Symmetric>> = comm.alloc_symmetric(stream, MOST + 1);
                match symmetric {
                    Ok(symmetric) => {
                        assert!(windows && symmetric.is_window());
                        let (front, back) = symmetric.into_split(1000);
                        assert!(front.is_window() && back.is_window());
                        sums(comm, stream, front.join(back)?.into_fitting())
                    }
                    Err(Error::Unsupported { operation: "alloc_symmetric", .. }) if !windows => Ok(()),
                    Err(error) => Err(error),
                }
            });
            rig.close();
        }
    });
}

/// One rank asks for a window where the others take what fits.
#[test]
fn ranks_that_want_different_kinds() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            if !rig.clique.spmd(|comm| Ok(comm.alloc::<u8>(&Stream::new(comm.device())?, 1)?.is_window())).unwrap()[0] {
                return;
            }
            let told = rig.clique.try_spmd(|comm| -> Result<()> {
                let stream = Stream::new(comm.device())?;
                match comm.rank() {
                    0 => comm.alloc::<u32>(&stream, MOST + 1).map(drop),
                    _ => comm.alloc_symmetric::<u32>(&stream, MOST + 1).map(drop),
                }
            });
            let error = told.expect_err("they differ");
            assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
            assert_names(&error, &["alloc", "too many for a symmetric window"]);
            drop(rig);
            still_works(ranks);
        }
    });
}

/// Where NCCL's windows have bugs that nothing goes around, there are none, and everything goes on.
#[test]
fn where_there_are_none() {
    watched(60.0, || {
        let devices = Device::all().unwrap();
        let clique = Clique::init_all(&devices[..devices.len().min(2)]).unwrap();
        let done = clique.spmd(|comm| {
            let stream = Stream::new(comm.device())?;
            let asked = comm.alloc_symmetric::<u32>(&stream, 100);
            if gpucomm::nccl::version()? < Version::new(2, 29, 7) {
                let error = asked.map(drop).expect_err("no windows");
                assert_names(&error, &["alloc_symmetric", "2.29.7", "force_windows"]);
            } else if let Ok(x) = asked {
                sums(comm, &stream, x.into_fitting())?;
            }
            sums(comm, &stream, comm.alloc(&stream, 100)?)
        });
        done.unwrap();
    });
}
