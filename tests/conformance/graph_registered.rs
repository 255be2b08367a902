//! What NCCL registers by itself for graphs: memory that was mapped, by each rank alone. On the emulator, ranks whose memory differs end the
//! process.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use gpucomm::cuda::vmm::{Access, AddressRange, HandleTypes, MemoryProperties, PhysicalMemory};
use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, SendOnly, Stream, Version, group};

use crate::registration::{large, mapped};
use crate::support::{Rig, assert_argument, assert_names, rank_counts, slower, still_works, watched};

/// What says that memory is registered, and that it is not.
const WORDS: [&str; 2] = ["mapped memory, which NCCL registers for a graph", "cannot register for a graph"];

type Body = fn(&Communicator, &Stream) -> Result<()>;

/// Captures an operation of rank `rank` with memory of NCCL where `nccl` says so, else with memory of a pool.
macro_rules! captures {
    ($comm:ident, $stream:ident, $nccl:expr, |$x:ident, $y:ident, $lent:ident| $body:expr) => {{
        let mut local = ($comm.alloc_local::<u32>($stream, 8000)?, $comm.alloc_local::<u32>($stream, 8000)?);
        let mut pool = (DeviceBuffer::<u32>::zeroed($stream, 8000)?, DeviceBuffer::<u32>::zeroed($stream, 8000)?);
        let graph = $stream.capture(|$lent| {
            if $nccl {
                let (mut $x, mut $y) = (local.0.as_slice_mut(), local.1.as_slice_mut());
                let _ = (&mut $x, &mut $y);
                $body
            } else {
                let (mut $x, mut $y) = (pool.0.as_slice_mut(), pool.1.as_slice_mut());
                let _ = (&mut $x, &mut $y);
                $body
            }
        });
        graph.and_then(|graph| {
            graph.launch($stream)?;
            $stream.synchronize_timeout(slower(20.0))
        })
    }};
}

/// Rank 1 has memory of NCCL, and no other.
const DIFFERENT: [Body; 7] = [
    |comm, stream| {
        captures!(comm, stream, comm.rank() == 1, |x, y, lent| match comm.rank() {
            0 => comm.send(&x, 1, lent),
            1 => comm.recv(x, 0, lent),
            _ => comm.all_reduce(InPlace(x), ReduceOp::Sum, lent),
        })
    },
    |comm, stream| {
        captures!(comm, stream, comm.rank() == 1, |x, y, lent| comm.all_reduce((&x, y), ReduceOp::Sum, lent))
    },
    |comm, stream| captures!(comm, stream, comm.rank() == 1, |x, y, lent| comm.broadcast(InPlace(x), 0, lent)),
    |comm, stream| {
        captures!(comm, stream, comm.rank() == 1, |x, y, lent| comm
            .all_gather((x.slice(..4000 / comm.size()), y), lent))
    },
    |comm, stream| captures!(comm, stream, comm.rank() == 1, |x, y, lent| comm.all_to_all((x.slice(..7200), y), lent)),
    |comm, stream| {
        captures!(comm, stream, comm.rank() == 1, |x, y, lent| match comm.rank() {
            0 => comm.gather((x.slice(..100), y), 0, lent),
            _ => comm.gather(SendOnly(x.slice(..100)), 0, lent),
        })
    },
    |comm, stream| {
        captures!(comm, stream, comm.rank() == 1, |x, y, lent| group(|g| {
            g.all_reduce(comm, InPlace(x), ReduceOp::Max, lent)?;
            g.broadcast(comm, InPlace(y), 1, lent)
        }))
    },
];

#[test]
fn ranks_whose_memory_differs_are_told() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for body in DIFFERENT {
                let rig = Rig::new(ranks);
                let error = rig.try_run(body).expect_err("ranks disagree");
                assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
                assert_names(&error, &WORDS);
                assert_names(&error, &["rank 1", "captured into a graph"]);
                drop(rig);
                still_works(ranks);
            }
        }
    });
}

/// Where the memory of all ranks is mapped, in whatever way, or of none of them, all is right.
#[test]
fn memory_that_is_alike() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let freed = Arc::new(AtomicUsize::new(0));
                let len = large();
                let sum = |x: &mut DeviceBuffer<u8>| {
                    x.fill(stream, comm.rank() as u8 + 1)?;
                    let graph = stream.capture(|lent| comm.all_reduce(InPlace(&mut *x), ReduceOp::Max, lent))?;
                    graph.launch(stream)?;
                    let ends = [x.slice(..5).to_vec(stream)?, x.slice(len - 5..).to_vec(stream)?].concat();
                    assert_eq!(ends, [ranks as u8; 10]);
                    Ok::<_, Error>(())
                };
                // Of NCCL, and mapped by the program.
                let mut x = match comm.rank() % 2 {
                    0 => mapped(comm, (0, len), &freed)?,
                    _ => whole(comm, len)?,
                };
                sum(&mut x)?;
                // Of a pool, and of a pool as memory of others.
                let own = DeviceBuffer::<u8>::uninit(stream, len)?;
                let (device, ptr) = (own.device(), own.as_raw());
                let mut x = match comm.rank() % 2 {
                    0 => own,
                    // SAFETY: the memory goes with its owner; it is there for the stream, which uses it next.
                    _ => unsafe { DeviceBuffer::from_raw_parts(device, ptr, len, own)? },
                };
                sum(&mut x)?;
                // In pieces, which NCCL does not register either.
                let mut x = match comm.rank() % 2 {
                    0 => DeviceBuffer::<u8>::uninit(stream, len)?,
                    _ => in_pieces(comm, len)?,
                };
                sum(&mut x)
            });
            rig.close();
        }
    });
}

pub fn properties(comm: &Communicator) -> MemoryProperties {
    MemoryProperties::new(comm.device()).with_handle_types(HandleTypes::FD)
}

fn whole(comm: &Communicator, len: usize) -> Result<DeviceBuffer<u8>> {
    let memory = PhysicalMemory::new_with(&properties(comm), len)?;
    memory.map(&[Access::read_write(comm.device())])?.into_buffer_of(len)
}

/// Memory whose last bytes lie in another piece than the first.
fn in_pieces(comm: &Communicator, len: usize) -> Result<DeviceBuffer<u8>> {
    let step = properties(comm).round_up(1)?;
    let (first, rest) = (step * (len / step / 2).max(1), len);
    let range = AddressRange::reserve(first + properties(comm).round_up(rest)?)?;
    let access = [Access::read_write(comm.device())];
    let mut mapping = range.map(PhysicalMemory::new_with(&properties(comm), first)?, &access)?;
    mapping.push(PhysicalMemory::new_with(&properties(comm), rest)?)?;
    let (head, tail) = (first - 2 * (len / 4), mapping.into_buffer::<u8>());
    // From the first piece into the second.
    let ptr = tail.as_raw().wrapping_byte_add(head);
    // SAFETY: the memory goes with its owner; nothing was done with it before.
    unsafe { DeviceBuffer::from_raw_parts(comm.device(), ptr, len, tail) }
}

/// Some in place and others not, of which NCCL registers the latter alone.
#[test]
fn sums_that_are_not_all_in_place_are_told() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let result = rig.try_run(|comm, stream| {
                let mut x = comm.alloc_local::<u32>(stream, 8000)?;
                let y = comm.alloc_local::<u32>(stream, 8000)?;
                let graph = stream.capture(|lent| match comm.rank() {
                    0 => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, lent),
                    _ => comm.all_reduce((&y, &mut x), ReduceOp::Sum, lent),
                })?;
                graph.launch(stream)?;
                stream.synchronize_timeout(slower(20.0))
            });
            let error = result.expect_err("ranks disagree");
            assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
            assert_names(&error, &["not in place", "registers for a graph"]);
            drop(rig);
            // Of memory that NCCL does not register it makes no difference.
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1u32; 8000])?;
                let y = DeviceBuffer::from_slice(stream, &[1u32; 8000])?;
                let graph = stream.capture(|lent| match comm.rank() {
                    0 => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, lent),
                    _ => comm.all_reduce((&y, &mut x), ReduceOp::Sum, lent),
                })?;
                graph.launch(stream)?;
                assert_eq!(x.to_vec(stream)?, [ranks as u32; 8000]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// Ranks send from one buffer of theirs to another: both are registered, or none.
#[test]
fn buffers_of_one_rank_that_differ_are_refused() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let len = 600;
                let local = comm.alloc_local::<u32>(stream, len)?;
                let mut pool = DeviceBuffer::<u32>::zeroed(stream, len)?;
                let mut refused = Ok(());
                let graph = stream.capture(|lent| {
                    refused = comm.all_to_all((&local, &mut pool), lent);
                    Ok(())
                })?;
                if let Err(error) = &refused {
                    assert_names(error, &WORDS);
                }
                // Before NCCL 2.28 these are messages, which ranks compare one by one.
                if gpucomm::nccl::version()? >= Version::new(2, 28, 3) {
                    assert_argument(refused, "all_to_all", WORDS[0], WORDS[1]);
                    graph.launch(stream)?;
                }
                // What is not captured NCCL does not register.
                comm.all_to_all((&local, &mut pool), stream)?;
                assert_eq!(pool.to_vec(stream)?, [0; 600]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// What ranks do without a graph with different memory, and in a graph with nothing.
#[test]
fn what_is_not_registered_may_differ() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut local = comm.alloc_local::<u32>(stream, 8000)?;
                let mut pool = DeviceBuffer::<u32>::zeroed(stream, 8000)?;
                let mut x = if comm.rank() == 1 { local.as_slice_mut() } else { pool.as_slice_mut() };
                x.fill(stream, 2)?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                let graph = stream.capture(|lent| comm.all_reduce(InPlace(x.slice_mut(..0)), ReduceOp::Sum, lent))?;
                graph.launch(stream)?;
                assert_eq!(x.slice(..).to_vec(stream)?, [2 * ranks as u32; 8000]);
                Ok(())
            });
            rig.close();
        }
    });
}
