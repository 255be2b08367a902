//! Work on one stream that takes long, and what must not come before it.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaStream, DevicePtrMut};
use gpucomm::cuda::Slice;
use gpucomm::cuda::cudarc::SharedStream;
use gpucomm::{DeviceBuffer, Error, Result, Stream};

use crate::driver::{self, HESITANT};
use crate::two_streams;

/// The stream goes no further until that is sent to, or dropped.
pub fn gate(stream: &Stream) -> Result<Sender<()>> {
    let (open, opened) = channel();
    stream.launch_host(move || _ = opened.recv())?;
    Ok(open)
}

/// Opens it when whoever does not wait for it has long gone on.
fn open_late(gate: Sender<()>) {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(gate);
    });
}

#[test]
fn events_cover_both_parts_of_a_slice_that_two_threads_lend_at_a_time() {
    let (context, theirs, shared) = two_streams();
    let third = context.new_stream().unwrap();
    let mut x = theirs[0].alloc_zeros::<u32>(1000).unwrap();
    let (mut front, mut back) = x.split_at_mut(333);
    let (sender, gates) = channel();
    let both = Barrier::new(2);
    // The second one has waited when the first one records, and records after it.
    HESITANT.store(theirs[1].cu_stream().addr(), Ordering::Relaxed);
    thread::scope(|scope| {
        let (shared, both) = (&shared, &both);
        scope.spawn(move || {
            shared[0].lend(front.slice_mut(..), |mut front| {
                sender.send(gate(&shared[0])?).unwrap();
                front.fill(&shared[0], 7)?;
                both.wait();
                thread::sleep(Duration::from_millis(100));
                Ok::<_, Error>(())
            })
        });
        scope.spawn(move || {
            shared[1].lend(back.slice_mut(..), |mut back| {
                back.fill(&shared[1], 8)?;
                both.wait();
                Ok::<_, Error>(())
            })
        });
    });
    HESITANT.store(0, Ordering::Relaxed);
    open_late(gates.recv().unwrap());
    let got = third.clone_dtoh(&x).unwrap();
    assert_eq!((&got[..333], &got[333..]), (&[7; 333][..], &[8; 667][..]));
}

#[test]
fn what_two_streams_read_is_freed_behind_both() {
    let (_context, theirs, shared) = two_streams();
    let values: Vec<u64> = (1..=1001).collect();
    let mut own = DeviceBuffer::<u64>::zeroed(&shared[0], values.len()).unwrap();
    let mut other = DeviceBuffer::<u64>::zeroed(&shared[1], values.len()).unwrap();
    // Whole, and parts that do not overlap: both have the events of the slice.
    for (slow, fast) in [(0..1001, 0..1001), (0..501, 501..1001), (501..1001, 0..501)] {
        let x = theirs[1].clone_htod(&values).unwrap();
        let read = shared[0].lend(x.slice(slow.clone()), |x| {
            let gate = gate(&shared[0])?;
            own.slice_mut(slow.clone()).copy_from(&shared[0], x)?;
            Ok::<_, Error>(gate)
        });
        // Nothing waits for that here: the stream of the memory is behind the other one.
        shared[1].lend(x.slice(fast.clone()), |x| other.slice_mut(fast).copy_from(&shared[1], x)).unwrap();
        drop(x);
        // In the place of it, as soon as it is free.
        let y = theirs[1].clone_htod(&vec![0u64; values.len()]).unwrap();
        open_late(read.unwrap());
        theirs[1].synchronize().unwrap();
        assert_eq!(own.to_vec(&shared[0]).unwrap()[slow.clone()], values[slow]);
        drop(y);
    }
}

#[test]
fn what_two_streams_read_is_written_to_behind_both() {
    let (context, _theirs, shared) = two_streams();
    let third = context.new_stream().unwrap();
    let mut x = third.clone_htod(&[5i16; 99]).unwrap();
    let mut own = DeviceBuffer::<i16>::zeroed(&shared[0], 99).unwrap();
    let mut other = DeviceBuffer::<i16>::zeroed(&shared[1], 99).unwrap();
    let read = shared[0].lend(&x, |x| {
        let gate = gate(&shared[0])?;
        own.copy_from(&shared[0], x)?;
        Ok::<_, Error>(gate)
    });
    shared[1].lend(&x, |x| other.copy_from(&shared[1], x)).unwrap();
    third.memset_zeros(&mut x).unwrap();
    open_late(read.unwrap());
    third.synchronize().unwrap();
    assert_eq!(own.to_vec(&shared[0]).unwrap(), [5; 99]);
}

#[test]
fn memory_that_nothing_has_written_to_is_lent_when_it_is_there() {
    let (_context, theirs, shared) = two_streams();
    let held = gate(&shared[0]).unwrap();
    let before = theirs[0].clone_htod(&[1u8; 4099]).unwrap();
    drop(before);
    // SAFETY: it is written to before it is read.
    let mut x = unsafe { theirs[0].alloc::<u8>(4099) }.unwrap();
    shared[1].lend(&mut x, |mut x| x.fill(&shared[1], 9)).unwrap();
    open_late(held);
    assert_eq!(theirs[0].clone_dtoh(&x).unwrap(), [9; 4099]);
}

#[test]
fn streams_of_the_memory_come_after_another_that_keeps_no_events() {
    let (context, theirs, shared) = two_streams();
    // Another object of the same context, which has no stream but this one, and the same one of this object.
    let plain = CudaContext::new(0).unwrap().default_stream();
    assert!(!plain.context().is_managing_stream_synchronization());
    let lender = SharedStream::new(&plain).unwrap();
    for home in [&theirs[0], &context.default_stream()] {
        let mut x = home.clone_htod(&[1i32; 501]).unwrap();
        let held = lender.lend(&mut x, |mut x| {
            let held = gate(&lender)?;
            x.fill(&lender, 2)?;
            Ok::<_, Error>(held)
        });
        // It looks at events alone.
        open_late(held.unwrap());
        assert_eq!(theirs[1].clone_dtoh(&x).unwrap(), [2; 501]);
    }
    drop(shared);
}

#[test]
fn what_cudarc_has_read_after_us_is_freed_behind_us() {
    let (context, theirs, shared) = two_streams();
    let third = context.new_stream().unwrap();
    let values: Vec<u64> = (1..=1001).collect();
    let mut own = DeviceBuffer::<u64>::zeroed(&shared[0], values.len()).unwrap();
    for whole in [true, false] {
        let x = theirs[1].clone_htod(&values).unwrap();
        let read = |x: Slice<'_, u64>, own: &mut DeviceBuffer<u64>| {
            let gate = gate(&shared[0])?;
            own.copy_from(&shared[0], x)?;
            Ok::<_, Error>(gate)
        };
        let gate = match whole {
            true => shared[0].lend(&x, |x| read(x, &mut own)),
            false => shared[0].lend(x.slice(..), |x| read(x, &mut own)),
        };
        // cudarc's one event for reads says nothing of ours any more.
        assert_eq!(third.clone_dtoh(&x).unwrap(), values);
        drop(x);
        let y = theirs[1].clone_htod(&vec![0u64; values.len()]);
        open_late(gate.unwrap());
        theirs[1].synchronize().unwrap();
        assert_eq!(own.to_vec(&shared[0]).unwrap(), values);
        drop(y);
    }
}

#[test]
fn what_cudarc_has_written_beside_us_is_freed_behind_us() {
    let (context, theirs, shared) = two_streams();
    let third = context.new_stream().unwrap();
    let mut x = theirs[1].alloc_zeros::<u32>(1000).unwrap();
    let (mut front, mut back) = x.split_at_mut(500);
    // cudarc has waited before we record, and records after that.
    let guard = front.device_ptr_mut(&third).1;
    let held = shared[0].lend(back.slice_mut(..), |mut back| {
        let gate = gate(&shared[0])?;
        back.fill(&shared[0], 7)?;
        Ok::<_, Error>(gate)
    });
    drop(guard);
    drop(x);
    let y = theirs[1].clone_htod(&[5u32; 1000]).unwrap();
    open_late(held.unwrap());
    assert_eq!(theirs[1].clone_dtoh(&y).unwrap(), [5; 1000]);
    shared[0].synchronize().unwrap();
}

#[test]
fn what_is_dropped_when_no_stream_is_left_but_the_default_one_is_freed_behind_us() {
    driver::install();
    let context = CudaContext::new(0).unwrap();
    is_freed_behind_us(&context, &context.default_stream());
}

#[test]
fn what_is_dropped_when_no_stream_is_left_but_a_wrapped_one_is_freed_behind_us() {
    driver::install();
    // It counts in the context object that has made it alone.
    let owner = CudaContext::new(0).unwrap().new_stream().unwrap();
    let context = CudaContext::new(0).unwrap();
    // SAFETY: of the same context of CUDA, it lives until the end.
    let home = unsafe { context.wrap_borrowed_stream(owner.cu_stream()) };
    is_freed_behind_us(&context, &home);
}

/// Memory of `home` is, which was lent while `context` had a stream of its own, when that is gone.
fn is_freed_behind_us(context: &Arc<CudaContext>, home: &Arc<CudaStream>) {
    let only = context.new_stream().unwrap();
    // One that is lent on is kept as long as it has work: it counts in another object of the same context of CUDA.
    let theirs = CudaContext::new(0).unwrap().new_stream().unwrap();
    let shared = SharedStream::new(&theirs).unwrap();
    let mut x = home.clone_htod(&[1i32; 501]).unwrap();
    let held = shared.lend(&mut x, |mut x| {
        let gate = gate(&shared)?;
        x.fill(&shared, 2)?;
        Ok::<_, Error>(gate)
    });
    // cudarc keeps no more events.
    drop((shared, theirs, only));
    assert!(!context.is_managing_stream_synchronization());
    drop(x);
    let y = home.clone_htod(&[5i32; 501]).unwrap();
    open_late(held.unwrap());
    assert_eq!(home.clone_dtoh(&y).unwrap(), [5; 501]);
}

#[test]
fn a_stream_goes_on_while_memory_of_the_one_that_communicates_is_written_to() {
    let (_context, theirs, shared) = two_streams();
    let mut x = theirs[0].alloc_zeros::<u32>(1000).unwrap();
    let held = shared[0].lend(&mut x, |mut x| {
        let gate = gate(&shared[0])?;
        x.fill(&shared[0], 7)?;
        Ok::<_, Error>(gate)
    });
    let other = theirs[1].clone_htod(&[3u8; 99]).unwrap();
    // It would never end.
    assert_eq!(theirs[1].clone_dtoh(&other).unwrap(), [3; 99]);
    assert!(!shared[0].query().unwrap());
    drop(held);
    assert_eq!(theirs[1].clone_dtoh(&x).unwrap(), [7; 1000]);
}
