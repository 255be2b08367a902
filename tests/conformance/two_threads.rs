//! What two threads do at the same time to the halves of one buffer, or to one event, makes nobody find well what the device
//! has not done.
//!
//! Each of these is a race, tried for some seconds on GPUs and for half a second on the emulator. Without what it is about, it is
//! lost once in ten to a hundred tries.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpucomm::cuda::{Event, SliceMut};
use gpucomm::{Backend, Clique, Communicator, Device, DeviceBuffer, InPlace, PinnedBuffer, ReduceOp, Result, Stream};

use crate::failures::{abort, assert_aborted};
use crate::support::{Rig, places, rank_counts, slower, watched};

/// Longer than the other thread needs.
const LONG: Duration = Duration::from_millis(300);

/// How long one race is tried.
fn long_enough() -> Duration {
    slower(if gpucomm::backend() == Backend::Nvidia { 3.0 } else { 0.5 })
}

/// What a thread does with the left half, again and again: a communicator of one rank, its stream, a buffer as long.
type Reader = fn(&Communicator, &Stream, &mut SliceMut<'_, i32>, &mut DeviceBuffer<i32>) -> Result<()>;

/// While another thread reads the left half, the right one gets an operation that never completes.
fn beside_a_reader(reader: Reader) {
    watched(60.0, move || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let until = Instant::now() + long_enough();
        while Instant::now() < until {
            let (rig, comm) = (Rig::new(2), &Clique::init_all(&places()[..1]).unwrap());
            let device = Device::new(0).unwrap();
            let (ours, theirs, third) =
                (&Stream::new(device).unwrap(), Stream::new(device).unwrap(), Stream::new(device));
            let mut whole = DeviceBuffer::from_slice(ours, &[7; 8]).unwrap();
            let mut other = DeviceBuffer::from_slice(ours, &[0; 4]).unwrap();
            // So that the reader's stream does not read what it has written itself.
            whole.fill(&theirs, 7).unwrap();
            ours.synchronize().unwrap();
            theirs.synchronize().unwrap();
            let (mut left, mut right) = whole.split_at_mut(4);
            let (begun, enough) = (&AtomicBool::new(false), &AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    while !enough.load(Ordering::Relaxed) {
                        begun.store(true, Ordering::Relaxed);
                        if reader(comm.rank(0), ours, &mut left, &mut other).is_err() {
                            return;
                        }
                    }
                });
                while !begun.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                (0..fastrand::u32(..7000)).for_each(|_| std::hint::spin_loop());
                rig.clique.rank(0).all_reduce(InPlace(&mut right), ReduceOp::Sum, &theirs).unwrap();
                std::thread::sleep(Duration::from_millis(1));
                enough.store(true, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
                abort(rig.clique.rank(0));
            });
            assert_aborted(right.as_slice().to_vec(&third.unwrap()));
            assert_aborted(theirs.synchronize());
        }
    });
}

#[test]
fn a_copy_to_the_host() {
    beside_a_reader(|_, stream, left, _| left.as_slice().copy_to_slice_timeout(stream, &mut [0; 4], LONG));
}

#[test]
fn a_copy() {
    beside_a_reader(|_, stream, left, other| {
        other.copy_from(stream, left.as_slice())?;
        other.copy_to_slice_timeout(stream, &mut [0; 4], LONG)
    });
}

#[test]
fn a_copy_to_pinned_memory() {
    beside_a_reader(|_, stream, left, _| {
        let mut host = PinnedBuffer::zeroed(4)?;
        left.as_slice().copy_to_pinned(stream, &mut host)?;
        host.as_slice().map(|_| ())
    });
}

#[test]
fn an_operation_that_reads() {
    beside_a_reader(|comm, stream, left, other| {
        comm.all_reduce((left.as_slice(), other.as_slice_mut()), ReduceOp::Sum, stream)?;
        other.copy_to_slice_timeout(stream, &mut [0; 4], LONG)
    });
}

#[test]
fn an_operation_in_place() {
    beside_a_reader(|comm, stream, left, _| {
        comm.all_reduce(InPlace(left.slice_mut(..)), ReduceOp::Sum, stream)?;
        stream.synchronize_timeout(LONG)
    });
}

#[test]
fn a_group_that_reads() {
    beside_a_reader(|comm, stream, left, other| {
        comm.all_to_all_v((left.as_slice(), other.as_slice_mut()), &[4], &[4], stream)?;
        other.copy_to_slice_timeout(stream, &mut [0; 4], LONG)
    });
}

/// While another thread looks at an event, it is recorded behind an operation that never completes, and on an idle stream, in
/// turn.
fn beside_a_record(look: fn(&Event, &Stream) -> Result<()>) {
    watched(60.0, move || {
        if rank_counts(&[2]).is_empty() {
            return;
        }
        let until = Instant::now() + long_enough();
        while Instant::now() < until {
            let rig = Rig::new(2);
            let device = Device::new(0).unwrap();
            let [busy, idle, other] = [(); 3].map(|()| Stream::new(device).unwrap());
            let mut x = DeviceBuffer::from_slice(&busy, &[7; 4]).unwrap();
            let event = Event::new(device).unwrap();
            rig.clique.rank(0).all_reduce(InPlace(&mut x), ReduceOp::Sum, &busy).unwrap();
            let enough = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !enough.load(Ordering::Relaxed) {
                        if look(&event, &other).is_err() {
                            return;
                        }
                    }
                });
                // Each takes a place in the queue of the stream, behind what never completes.
                for _ in 0..60 {
                    event.record(&busy).unwrap();
                    event.record(&idle).unwrap();
                }
                enough.store(true, Ordering::Relaxed);
            });
            abort(rig.clique.rank(0));
            assert_aborted(x.to_vec(&idle));
            assert_aborted(busy.synchronize());
        }
    });
}

#[test]
fn an_event_that_is_asked() {
    beside_a_record(|event, _| event.query().map(|_| ()));
}

#[test]
fn an_event_that_is_waited_for() {
    beside_a_record(|event, _| event.synchronize_timeout(LONG));
}

#[test]
fn an_event_that_a_stream_waits_for() {
    beside_a_record(|event, _| {
        let stream = Stream::new(event.device())?;
        stream.wait_event(event)?;
        stream.query().map(|_| ())
    });
}
