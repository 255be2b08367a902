//! Parts of buffers in operations: chunks in a loop within a group, buffers that were split for good, and failures in one part.

use gpucomm::cuda::SliceMut;
use gpucomm::nccl::AbortOutcome;
use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, group};

use crate::support::{Rig, quick, rank_counts, slower, watched};

const EACH: usize = 1001;

/// What rank `from` sends to rank `to`.
fn value(from: usize, to: usize) -> u16 {
    (from * 1000 + to) as u16
}

/// An all_to_all by hand, between chunks of two buffers.
fn exchange(comm: &Communicator, mut send: SliceMut<'_, u16>, mut recv: SliceMut<'_, u16>, on: &Stream) -> Result<()> {
    for (peer, mut part) in send.chunks_mut(EACH).enumerate() {
        part.fill(on, value(comm.rank(), peer))?;
    }
    group(|g| {
        for (peer, (from, to)) in send.chunks(EACH).zip(recv.chunks_mut(EACH)).enumerate() {
            g.send(comm, from, peer, on)?;
            g.recv(comm, to, peer, on)?;
        }
        Ok(())
    })?;
    for (peer, part) in recv.chunks(EACH).enumerate() {
        assert_eq!(part.to_vec(on)?, [value(peer, comm.rank()); EACH]);
    }
    Ok(())
}

#[test]
fn chunks_in_a_group() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let len = EACH * comm.size();
                let (mut x, mut y) = (DeviceBuffer::zeroed(stream, len)?, DeviceBuffer::zeroed(stream, len)?);
                exchange(comm, x.as_slice_mut(), y.as_slice_mut(), stream)?;
                let (mut x, mut y) = (comm.alloc(stream, len)?, comm.alloc(stream, len)?);
                exchange(comm, x.as_slice_mut(), y.as_slice_mut(), stream)
            });
            rig.close();
        }
    });
}

#[test]
fn parts_of_split_buffers_are_buffers() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let size = comm.size();
                let sum = (0..size).sum::<usize>() as f32;
                let own = vec![comm.rank() as f32; 3 * EACH];
                // A window, if there are some, and where in it a part lies is compared.
                let parts: Vec<_> = comm.alloc_from(stream, &own)?.into_chunks(EACH).collect();
                let mut whole = None;
                for (at, mut part) in parts.into_iter().enumerate() {
                    assert_eq!(part.len(), EACH);
                    if at != 1 {
                        comm.all_reduce(InPlace(&mut part), ReduceOp::Sum, stream)?;
                    }
                    whole = Some(match whole {
                        None => part,
                        Some(front) => gpucomm::CommBuffer::join(front, part)?,
                    });
                }
                let got = whole.expect("three parts").to_vec(stream)?;
                assert_eq!(got, [[sum; EACH], [own[0]; EACH], [sum; EACH]].concat());
                let (left, right) = comm.alloc::<u8>(stream, 8)?.into_split(3);
                assert_eq!((left.len(), right.len(), left.is_window()), (3, 5, right.is_window()));
                assert!(right.join(left).is_err());

                let (mut left, mut right) = DeviceBuffer::from_slice(stream, &own)?.into_split(EACH);
                let other = Stream::new(comm.device())?;
                comm.all_reduce(InPlace(&mut left), ReduceOp::Max, stream)?;
                comm.all_reduce(InPlace(&mut right), ReduceOp::Sum, &other)?;
                assert_eq!(right.to_vec(stream)?, [sum; 2 * EACH]);
                let whole = left.join(right)?;
                let most = (size - 1) as f32;
                assert_eq!(whole.to_vec(&other)?, [vec![most; EACH], vec![sum; 2 * EACH]].concat());
                Ok(())
            });
            rig.close();
        }
    });
}

/// Marks are those of whole allocations.
#[test]
fn what_fails_in_one_part_all_report() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let stream = Stream::new(rig.clique.rank(0).device()).unwrap();
            let comm = rig.clique.rank(0);
            let (mut left, mut right) = DeviceBuffer::<u32>::zeroed(&stream, 10).unwrap().into_split(5);
            comm.recv(&mut left, 1, &stream).unwrap();
            let outcome = quick(slower(20.0), || comm.aborter().abort("the peer does not send"));
            assert_eq!(outcome, AbortOutcome::Done);
            let aborted = |result: Result<Vec<u32>>| {
                assert!(matches!(result, Err(Error::Aborted { .. })), "{result:?}");
            };
            let fresh = Stream::new(stream.device()).unwrap();
            aborted(left.to_vec(&fresh));
            aborted(right.to_vec(&fresh));
            right.fill(&fresh, 1).unwrap();
            aborted(right.to_vec(&fresh));
            let mut whole = left.join(right).unwrap();
            whole.accept();
            assert_eq!(whole.slice(5..).to_vec(&fresh).unwrap(), [1; 5]);
        }
    });
}
