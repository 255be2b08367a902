//! Mapped memory in operations: like any other, also where it lies on another device or grows.

use gpucomm::cuda::vmm::{Access, AddressRange, HandleTypes, MemoryProperties, PhysicalMemory};
use gpucomm::{Communicator, Device, DeviceBuffer, Element, Error, InPlace, ReduceOp, Result, Stream, group};

use crate::failures::{abort, assert_aborted};
use crate::support::{Rig, rank_counts, still_works, watched};

const STEP: usize = 2 << 20;

/// A buffer of one step on `home`, for these devices.
fn mapped<T: Element>(home: Device, access: &[Access]) -> Result<DeviceBuffer<T>> {
    Ok(PhysicalMemory::new(home, STEP)?.map(access)?.into_buffer())
}

fn own<T: Element>(comm: &Communicator) -> Result<DeviceBuffer<T>> {
    mapped(comm.device(), &[Access::read_write(comm.device())])
}

/// Whole buffers, as large as a step, and odd parts of them.
fn operations(comm: &Communicator, stream: &Stream, mut x: DeviceBuffer<i32>, mut y: DeviceBuffer<i32>) -> Result<()> {
    let (me, size) = (comm.rank() as i32, comm.size() as i32);
    let (sum, next, before) =
        (size * (size - 1) / 2, (comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
    x.fill(stream, me)?;
    comm.all_reduce((&x, &mut y), ReduceOp::Sum, stream)?;
    assert!(y.to_vec(stream)? == vec![sum; y.len()]);
    comm.all_reduce(InPlace(x.slice_mut(1..1000)), ReduceOp::Max, stream)?;
    assert_eq!(x.slice(..2).to_vec(stream)?, [me, size - 1]);
    let len = 777;
    comm.all_gather((x.slice(1000..1000 + len), y.slice_mut(3..3 + len * comm.size())), stream)?;
    let expected: Vec<i32> = (0..size).flat_map(|rank| vec![rank; len]).collect();
    assert_eq!(y.slice(3..3 + len * comm.size()).to_vec(stream)?, expected);
    group(|g| {
        g.send(comm, x.slice(2000..2005), next, stream)?;
        g.recv(comm, y.slice_mut(1..6), before, stream)
    })?;
    assert_eq!(
        y.slice(..6).to_vec(stream)?,
        [sum, before as i32, before as i32, before as i32, before as i32, before as i32]
    );
    comm.broadcast((&x, &mut y), 0, stream)?;
    assert_eq!(y.slice(1..2).to_vec(stream)?, [size - 1]);
    comm.barrier_on_stream(stream)
}

#[test]
fn it_goes_where_others_go() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| operations(comm, stream, own(comm)?, own(comm)?));
            rig.close();
        }
    });
}

/// Memory of one device that another one's rank sends, reduces and writes to.
#[test]
fn it_may_lie_on_another_device() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            let devices: Vec<_> = rig.clique.ranks().iter().map(Communicator::device).collect();
            rig.run(|comm, stream| {
                let home = devices[(comm.rank() + 1) % ranks];
                let access = [Access::read_write(comm.device()), Access::read_write(home)];
                operations(comm, stream, mapped(home, &access)?, mapped(home, &access[..1])?)
            });
            rig.close();
        }
    });
}

/// Right buffers of a rank that cannot get at them.
#[test]
fn who_cannot_get_at_it_is_told() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let devices: Vec<_> = rig.clique.ranks().iter().map(Communicator::device).collect();
            rig.run(|comm, stream| {
                let (here, there) = (comm.device(), devices[1 - comm.rank()]);
                let mut elsewhere = mapped::<f32>(here, &[Access::read_write(there)])?;
                let mut to_read = mapped::<f32>(here, &[Access::read(here)])?;
                for buffer in [&mut elsewhere, &mut to_read] {
                    let error = comm.all_reduce(InPlace(buffer), ReduceOp::Sum, stream).expect_err("out of reach");
                    let text = error.to_string();
                    assert!(matches!(error, Error::InvalidArgument { what: "buffer", .. }), "{text}");
                    assert!(text.contains(&format!("got memory of {here} that is mapped for device ")), "{text}");
                }
                let mut mine = own::<f32>(comm)?;
                mine.fill(stream, 1.0)?;
                // To read it is enough.
                comm.all_reduce((to_read.slice(..3), mine.slice_mut(..3)), ReduceOp::Sum, stream)?;
                comm.all_reduce(InPlace(mine.slice_mut(3..9)), ReduceOp::Sum, stream)?;
                assert_eq!(mine.slice(3..9).to_vec(stream)?, [ranks as f32; 6]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// It grows while operations are on their way, and their results are there.
#[test]
fn it_grows_under_operations() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let (range, memory) = (AddressRange::reserve(8 * STEP)?, PhysicalMemory::new(comm.device(), STEP)?);
                let mut x: DeviceBuffer<u32> = range.map(memory, &[Access::read_write(comm.device())])?.into_buffer();
                for round in 1..8u32 {
                    x.fill(stream, round)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    let before = x.len();
                    x.grow(PhysicalMemory::new(comm.device(), STEP)?)?;
                    let sum = round * ranks as u32;
                    assert_eq!(x.slice(before - 2..before).to_vec(stream)?, [sum, sum]);
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// What an abort leaves in mapped memory is marked, at every address.
#[test]
fn what_has_failed_is_marked_everywhere() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let comm = &rig.clique.ranks()[0];
            let stream = Stream::new(comm.device()).expect("a stream");
            let memory = PhysicalMemory::new(comm.device(), STEP).expect("memory");
            // SAFETY: this thread alone uses both, one after the other.
            let again = unsafe { memory.alias() };
            let access = [Access::read_write(comm.device())];
            let mut x: DeviceBuffer<f32> = memory.map(&access).expect("mapped").into_buffer();
            let y: DeviceBuffer<f32> = again.map(&access).expect("mapped").into_buffer();
            x.fill(&stream, 1.0).expect("a fill");
            comm.all_reduce(InPlace(x.slice_mut(..6)), ReduceOp::Sum, &stream).expect("nobody else comes");
            abort(comm);
            for buffer in [&x, &y] {
                assert_aborted(buffer.slice(5..6).to_vec(&stream));
            }
            still_works(ranks);
        }
    });
}

/// A shorter view of the same memory at another address overwrites what it shows, and clears no more than that.
#[test]
fn a_part_that_is_overwritten_elsewhere_is_not_all() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            let comm = &rig.clique.ranks()[0];
            let stream = Stream::new(comm.device()).expect("a stream");
            let memory = PhysicalMemory::new(comm.device(), STEP).expect("memory");
            // SAFETY: this thread alone uses both, one after the other.
            let again = unsafe { memory.alias() };
            let access = [Access::read_write(comm.device())];
            let mut x: DeviceBuffer<f32> = memory.map(&access).expect("mapped").into_buffer();
            let mut y: DeviceBuffer<f32> = again.map(&access).expect("mapped").into_buffer_of(4).expect("4 elements");
            x.fill(&stream, 1.0).expect("a fill");
            comm.all_reduce(InPlace(x.slice_mut(..6)), ReduceOp::Sum, &stream).expect("nobody else comes");
            abort(comm);
            y.fill(&stream, 0.0).expect("a fill");
            y.accept();
            assert_aborted(x.slice(5..6).to_vec(&stream));
            x.fill(&stream, 0.0).expect("a fill");
            assert_eq!(x.slice(5..6).to_vec(&stream).expect("all was overwritten"), [0.0]);
            still_works(ranks);
        }
    });
}

/// Registered with the communicator: it stays until that is over, though its buffer grows and goes.
#[test]
fn it_can_be_registered() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let properties = MemoryProperties::new(comm.device()).with_handle_types(HandleTypes::FD);
                let (range, memory) = (AddressRange::reserve(4 * STEP)?, PhysicalMemory::new_with(&properties, STEP)?);
                let mut x: DeviceBuffer<i32> = range.map(memory, &[Access::read_write(comm.device())])?.into_buffer();
                let registration = comm.register(&x)?;
                for round in 1..4 {
                    x.fill(stream, round)?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    assert_eq!(x.slice(7..8).to_vec(stream)?, [round * comm.size() as i32]);
                }
                // NCCL knows it as it is.
                let error = x.grow(PhysicalMemory::new_with(&properties, STEP)?).expect_err("it is registered");
                assert!(
                    matches!(&error, Error::InvalidUsage { reason, .. } if reason.contains("registered")),
                    "{error}"
                );
                drop(registration);
                comm.reclaim()?;
                comm.barrier_on_stream(stream)?;
                x.grow(PhysicalMemory::new_with(&properties, STEP)?)?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                drop(x);
                comm.barrier_on_stream(stream)
            });
            rig.close();
        }
    });
}
