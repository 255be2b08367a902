//! Groups near the size at which they go in parts, of operations in which the root has other buffers than the other ranks: all ranks cut
//! them at the same places.

use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::nccl::Group;
use gpucomm::{CommBuffer, Communicator, RecvOnly, ReduceOp, Result, SendOnly, Stream, group};

use crate::support::{Rig, rank_counts, watched};

/// Elements of a reduction that takes part in all channels.
const LARGE: usize = 32_000;

/// One operation of a group, with its parts of the two windows.
type One<'a> = (&'a Communicator, &'a Stream, Slice<'a, f32>, SliceMut<'a, f32>);

/// `count` operations of `len` elements in one group, between windows of `(send, recv)` times that; then how many elements of what the
/// root, or another rank, has received are not `want`.
fn wrong(
    (comm, stream): (&Communicator, &Stream),
    (count, len): (usize, usize),
    (send, recv): (usize, usize),
    one: impl for<'g> Fn(&mut Group<'g>, One<'g>) -> Result<()>,
    want: impl Fn(usize) -> f32,
) -> Result<usize> {
    let mut from: CommBuffer<'_, f32> = comm.alloc(stream, count * len * send)?;
    let mut to: CommBuffer<'_, f32> = comm.alloc(stream, count * len * recv)?;
    from.fill(stream, comm.rank() as f32 + 1.0)?;
    to.fill(stream, -1.0)?;
    let (send, recv) = (len * send, len * recv);
    group(|g| {
        let mut rest = to.as_slice_mut();
        for at in 0..count {
            let (part, other) = rest.into_split(recv);
            rest = other;
            one(g, (comm, stream, from.slice(at * send..(at + 1) * send), part))?;
        }
        Ok(())
    })?;
    let got = to.to_vec(stream)?;
    Ok(got.iter().enumerate().filter(|(at, got)| **got != want(at % recv / len)).count())
}

fn check(each: impl Fn(&Communicator, &Stream) -> Result<usize> + Sync) {
    for ranks in rank_counts(&[2]) {
        let rig = Rig::new(ranks);
        assert_eq!(rig.run(&each), vec![0; ranks], "elements that are wrong on each rank");
        rig.close();
    }
}

#[test]
fn reduces_between_windows() {
    watched(120.0, || {
        check(|comm, stream| {
            let root = comm.rank() == 0;
            let total: usize = (1..=comm.size()).sum();
            wrong(
                (comm, stream),
                (180, LARGE),
                (1, 1),
                |g, (comm, stream, send, recv)| match root {
                    true => g.reduce(comm, (send, recv), ReduceOp::Sum, 0, stream),
                    false => g.reduce(comm, SendOnly(send), ReduceOp::Sum, 0, stream),
                },
                |_| if root { total as f32 } else { -1.0 },
            )
        });
    });
}

#[test]
fn gathers_between_windows() {
    watched(60.0, || {
        check(|comm, stream| {
            let root = comm.rank() == 0;
            wrong(
                (comm, stream),
                (60, 16),
                (1, comm.size()),
                |g, (comm, stream, send, recv)| match root {
                    true => g.gather(comm, (send, recv), 0, stream),
                    false => g.gather(comm, SendOnly(send), 0, stream),
                },
                |rank| if root { rank as f32 + 1.0 } else { -1.0 },
            )
        });
    });
}

#[test]
fn scatters_and_broadcasts_between_windows() {
    watched(60.0, || {
        check(|comm, stream| {
            let root = comm.rank() == 0;
            let scattered = wrong(
                (comm, stream),
                (60, 16),
                (comm.size(), 1),
                |g, (comm, stream, send, recv)| match root {
                    true => g.scatter(comm, (send, recv), 0, stream),
                    false => g.scatter(comm, RecvOnly(recv), 0, stream),
                },
                |_| 1.0,
            )?;
            let cast = wrong(
                (comm, stream),
                (180, LARGE),
                (1, 1),
                |g, (comm, stream, send, recv)| match root {
                    true => g.broadcast(comm, (send, recv), 0, stream),
                    false => g.broadcast(comm, RecvOnly(recv), 0, stream),
                },
                |_| 1.0,
            )?;
            Ok(scattered + cast)
        });
    });
}
