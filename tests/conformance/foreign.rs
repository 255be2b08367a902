//! Memory of others in operations: buffers that own it, and views for a call.

use std::sync::Arc;

use gpucomm::cuda::{Slice, SliceMut, ThreadStream};
use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group};

use crate::failures::{abort, assert_aborted};
use crate::support::{Rig, rank_counts, slower, still_works, watched};

/// Memory that is looked after by its owner, and the address and the length of it.
fn memory(stream: &Stream, values: &[i32]) -> Result<DeviceBuffer<i32>> {
    let memory = DeviceBuffer::from_slice(stream, values)?;
    stream.synchronize()?;
    Ok(memory)
}

/// All elements, to read.
fn view(memory: &DeviceBuffer<i32>) -> Result<Slice<'_, i32>> {
    // SAFETY: the tests use the memory on one stream, in the order of which it is freed.
    unsafe { Slice::from_raw_parts(memory, memory.device(), memory.as_raw(), memory.len()) }
}

/// All elements, to write.
fn view_mut(memory: &mut DeviceBuffer<i32>) -> Result<SliceMut<'_, i32>> {
    let (device, ptr, len) = (memory.device(), memory.as_raw(), memory.len());
    // SAFETY: as above.
    unsafe { SliceMut::from_raw_parts(memory, device, ptr, len) }
}

#[test]
fn views_go_where_buffers_go() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let (me, size) = (comm.rank() as i32, comm.size() as i32);
                let mut x = memory(stream, &[me; 6])?;
                let mut y = memory(stream, &[0; 6])?;
                for _ in 0..3 {
                    comm.all_reduce((view(&x)?, view_mut(&mut y)?), ReduceOp::Sum, stream)?;
                    comm.all_reduce(InPlace(view_mut(&mut x)?.slice_mut(1..)), ReduceOp::Max, stream)?;
                }
                let sum: i32 = (0..size).sum();
                let last = size * (size - 1);
                assert_eq!(view(&y)?.slice(..1).to_vec(stream)?, [sum]);
                assert_eq!(view(&y)?.slice(1..).to_vec(stream)?, [last; 5]);
                assert_eq!(view(&x)?.to_vec(stream)?, [[me].as_slice(), &[size - 1; 5]].concat());
                let (next, before) = ((me + 1) % size, (me + size - 1) % size);
                let (mut front, mut back) = view_mut(&mut y)?.into_split(3);
                group(|g| {
                    g.send(comm, view(&x)?.slice(..3), next as usize, stream)?;
                    g.recv(comm, front.reborrow(), before as usize, stream)?;
                    g.all_reduce(comm, InPlace(back.reborrow()), ReduceOp::Min, stream)
                })?;
                assert_eq!(view(&y)?.to_vec(stream)?, [[before].as_slice(), &[size - 1; 2], &[last; 3]].concat());
                Ok(())
            });
            rig.close();
        }
    });
}

/// Has rank 0 alone begin to reduce, and aborts it.
fn begin(comm: &Communicator, stream: &Stream, x: &mut DeviceBuffer<i32>) -> Result<bool> {
    comm.all_reduce(InPlace(view_mut(x)?), ReduceOp::Sum, stream)?;
    stream.synchronize()?;
    if comm.rank() == 0 {
        comm.all_reduce(InPlace(view_mut(x)?), ReduceOp::Sum, stream)?;
    }
    Ok(comm.rank() == 0)
}

/// What a view shows carries no mark, so everything that its stream was given counts.
#[test]
fn a_view_tells_of_an_abort() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let (rig, meeting) = (Rig::new(ranks), std::sync::Barrier::new(ranks));
            rig.run(|comm, stream| {
                let mut x = memory(stream, &[1; 4])?;
                let begun = begin(comm, stream, &mut x)?;
                meeting.wait();
                if !begun {
                    return Ok(());
                }
                let mut copy = DeviceBuffer::<i32>::zeroed(stream, 4)?;
                copy.copy_from(stream, view(&x)?)?;
                abort(comm);
                assert_aborted(view(&x)?.to_vec(stream));
                assert_aborted(stream.synchronize_timeout(slower(20.0)));
                assert_aborted(copy.to_vec(stream));
                let mut late = DeviceBuffer::<i32>::zeroed(stream, 4)?;
                late.copy_from(stream, view(&x)?)?;
                assert_aborted(late.to_vec(stream));
                stream.accept();
                view_mut(&mut x)?.fill(stream, 3)?;
                assert_eq!(view(&x)?.to_vec(stream)?, [3; 4]);
                Ok(())
            });
            drop(rig);
            still_works(ranks);
        }
    });
}

/// An operation that nobody joins holds the owner of its memory until an abort has ended it.
#[test]
fn an_owner_waits_for_the_end_of_an_operation() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let (rig, meeting) = (Rig::new(ranks), std::sync::Barrier::new(ranks));
            rig.run(|comm, stream| {
                let memory = memory(stream, &[1; 4])?;
                let (device, ptr) = (memory.device(), memory.as_raw());
                let owner = Arc::new(memory);
                // SAFETY: the memory goes with its owner, and what was done with it before is done.
                let mut x = unsafe { DeviceBuffer::<i32>::from_raw_parts(device, ptr, 4, Arc::clone(&owner))? };
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                stream.synchronize()?;
                meeting.wait();
                if comm.rank() > 0 {
                    return Ok(());
                }
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                drop(x);
                std::thread::sleep(slower(0.1));
                assert_eq!(Arc::strong_count(&owner), 2);
                abort(comm);
                while Arc::strong_count(&owner) > 1 {
                    std::thread::yield_now();
                }
                Ok(())
            });
            drop(rig);
            still_works(ranks);
        }
    });
}

/// A launch of the user's may carry anything that it was lent anywhere that it may write.
#[test]
fn a_bracket_carries_what_has_failed() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let (rig, meeting) = (Rig::new(ranks), std::sync::Barrier::new(ranks));
            rig.run(|comm, stream| {
                let mut x = comm.alloc_local::<i32>(stream, 4)?;
                let mut y = DeviceBuffer::from_slice(stream, &[1; 4])?;
                let mut whole = DeviceBuffer::from_slice(stream, &[2; 4])?;
                let other = Stream::new(comm.device())?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                stream.synchronize()?;
                meeting.wait();
                if comm.rank() > 0 {
                    return Ok(());
                }
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                other.launch((&x, &mut y), |_, _| ())?;
                other.launch((&y, &mut whole), |_, _| ())?;
                abort(comm);
                assert_aborted(y.to_vec(stream));
                assert_aborted(whole.to_vec(&other));
                assert_aborted(other.synchronize_timeout(slower(20.0)));
                // Nobody knows whether a launch overwrites all of what it is lent.
                stream.accept();
                other.accept();
                other.launch(&mut y, |_, _| ())?;
                assert_aborted(y.to_vec(stream));
                whole.fill(&other, 3)?;
                assert_eq!(whole.to_vec(&other)?, [3; 4]);
                Ok(())
            });
            drop(rig);
            still_works(ranks);
        }
    });
}

/// Each rank works on the null stream of its device, by itself and in one group of a thread that drives all.
#[test]
fn null_streams_are_streams() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, other| {
                let null = Stream::null(comm.device());
                let mut x = comm.alloc::<i32>(&null, 100)?;
                let mut y = DeviceBuffer::from_slice(other, &[1; 100])?;
                for round in 0..50 {
                    x.copy_from(&null, &y)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &null)?;
                    y.fill(other, round)?;
                    comm.all_reduce(InPlace(&mut y), ReduceOp::Max, if round % 2 == 0 { &null } else { other })?;
                }
                assert_eq!(x.to_vec(other)?, [48 * comm.size() as i32; 100]);
                assert_eq!(y.to_vec(&null)?, [49; 100]);
                Ok(())
            });
            let comms: Vec<_> = rig.clique.ranks().iter().collect();
            let streams: Vec<_> = comms.iter().map(|comm| Stream::null(comm.device())).collect();
            let mut all: Vec<_> =
                streams.iter().map(|stream| DeviceBuffer::from_slice(stream, &[3; 10]).unwrap()).collect();
            for _ in 0..3 {
                group(|g| {
                    let each = comms.iter().zip(&streams).zip(&mut all);
                    each.into_iter()
                        .try_for_each(|((comm, stream), x)| g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream))
                })
                .unwrap();
            }
            for (x, stream) in all.iter().zip(&streams) {
                assert_eq!(x.to_vec(stream).unwrap(), [3 * (ranks as i32).pow(3); 10]);
            }
            drop((all, comms));
            rig.close();
        }
    });
}

/// What a rank enqueues by way of the default stream of its thread comes after what that has, and before what it gets.
#[test]
fn default_streams_of_threads_keep_their_order() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, other| {
                let stream = ThreadStream::new(comm.device())?;
                let mut x = stream.enter(|stream| DeviceBuffer::from_slice(stream, &[1; 100]))??;
                for _ in 0..20 {
                    stream.enter(|stream| comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream))??;
                    stream.enter(|stream| comm.broadcast(InPlace(&mut x), 0, stream))??;
                }
                assert_eq!(x.to_vec(other)?, [1; 100]);
                Ok(())
            });
            rig.close();
        }
    });
}
