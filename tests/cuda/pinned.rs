//! Pinned memory.

use std::time::{Duration, Instant};

use gpucomm::cuda::trim_pinned;
use gpucomm::{DeviceBuffer, Error, PinnedBuffer, set_default_timeout};

use crate::child::{alone, child};
use crate::{Gate, LONG, Sample, for_each_element, random, samples, stream};

fn there_and_back<T: Sample>(random: &mut fastrand::Rng) {
    let stream = stream();
    for len in [0, 1, 999, 70_001] {
        let values = samples::<T>(random, len);
        let source = PinnedBuffer::from_slice(&values).unwrap();
        let mut target = PinnedBuffer::<T>::zeroed(len).unwrap();
        assert!(target.as_slice().unwrap().iter().all(|v| *v == T::ZERO));
        let mut buffer = DeviceBuffer::uninit(&stream, len).unwrap();
        buffer.copy_from_pinned(&stream, &source).unwrap();
        buffer.copy_to_pinned(&stream, &mut target).unwrap();
        assert!(target.as_slice().unwrap() == values);
        assert!(source.as_slice().unwrap() == values);
    }
}

#[test]
fn every_type() {
    let mut random = random("pinned every_type");
    for_each_element!(there_and_back(&mut random));
}

#[test]
fn reading_waits_for_the_copy() {
    let stream = stream();
    let buffer = DeviceBuffer::from_slice(&stream, &[3u32; 5000]).unwrap();
    let mut target = PinnedBuffer::<u32>::zeroed(5000).unwrap();
    let gate = Gate::close(&stream);
    buffer.copy_to_pinned(&stream, &mut target).unwrap();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        gate.open();
    });
    assert!(target.as_slice().unwrap().iter().all(|v| *v == 3));
    opener.join().unwrap();
}

#[test]
fn changing_waits_for_copies_from_it() {
    let stream = stream();
    let mut source = PinnedBuffer::from_slice(&[1u32; 5000]).unwrap();
    let mut buffer = DeviceBuffer::zeroed(&stream, 5000).unwrap();
    let gate = Gate::close(&stream);
    buffer.copy_from_pinned(&stream, &source).unwrap();
    // Reading does not wait.
    assert_eq!(source.as_slice().unwrap()[0], 1);
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        gate.open();
    });
    source.as_slice_mut().unwrap().fill(2);
    assert!(buffer.to_vec(&stream).unwrap().iter().all(|v| *v == 1));
    opener.join().unwrap();
}

/// What a wait that gave up has left behind does not stand for later copies.
#[test]
fn a_copy_behind_a_wait_that_gave_up_is_waited_for() {
    // By itself: the timeout is everybody's.
    alone("pinned::a_copy_behind_a_wait_that_gave_up_is_waited_for", || {
        let stream = stream();
        let mut buffer = DeviceBuffer::from_slice(&stream, &[3u32; 5000]).unwrap();
        let mut target = PinnedBuffer::<u32>::zeroed(5000).unwrap();
        let gate = Gate::close(&stream);
        buffer.copy_to_pinned(&stream, &mut target).unwrap();
        set_default_timeout(Duration::from_millis(50));
        assert!(matches!(target.as_slice(), Err(Error::Timeout { .. })));
        set_default_timeout(LONG);
        gate.open();
        stream.synchronize().unwrap();
        buffer.copy_from_slice(&stream, &[4; 5000]).unwrap();
        let gate = Gate::close(&stream);
        buffer.copy_to_pinned(&stream, &mut target).unwrap();
        let opener = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            gate.open();
        });
        assert!(target.as_slice().unwrap().iter().all(|v| *v == 4));
        opener.join().unwrap();
    });
}

#[test]
fn copies_on_two_streams_keep_their_order() {
    let (a, b) = (stream(), stream());
    let ones = DeviceBuffer::from_slice(&a, &[1i32; 3000]).unwrap();
    let twos = DeviceBuffer::from_slice(&b, &[2i32; 3000]).unwrap();
    let mut target = PinnedBuffer::<i32>::zeroed(3000).unwrap();
    let gate = Gate::close(&a);
    ones.copy_to_pinned(&a, &mut target).unwrap();
    twos.copy_to_pinned(&b, &mut target).unwrap();
    assert!(b.synchronize_timeout(Duration::from_millis(50)).is_err());
    gate.open();
    assert!(target.as_slice().unwrap().iter().all(|v| *v == 2));
    // What one stream has brought, another one takes away.
    let mut back = DeviceBuffer::<i32>::zeroed(&b, 3000).unwrap();
    ones.copy_to_pinned(&a, &mut target).unwrap();
    back.copy_from_pinned(&b, &target).unwrap();
    assert_eq!(back.to_vec(&b).unwrap(), [1; 3000]);
}

/// Dropping does not wait, neither for a copy from the memory nor for what other streams and devices do, and whoever gets
/// the memory next does not get it too early.
#[test]
fn dropped_under_a_copy() {
    let (stream, other) = (stream(), crate::stream());
    let elsewhere = crate::two_devices().map(|(_, device)| gpucomm::Stream::new(device).unwrap());
    let len = 40_000;
    let mut buffers: Vec<_> = (0..20).map(|_| DeviceBuffer::<u64>::zeroed(&stream, len).unwrap()).collect();
    let sources: Vec<_> = (0..20).map(|at| PinnedBuffer::from_slice(&vec![at; len]).unwrap()).collect();
    let unused = PinnedBuffer::<u64>::zeroed(len).unwrap();
    let gates: Vec<_> =
        [Some(&stream), Some(&other), elsewhere.as_ref()].into_iter().flatten().map(Gate::close).collect();
    for (buffer, source) in buffers.iter_mut().zip(&sources) {
        buffer.copy_from_pinned(&stream, source).unwrap();
    }
    let start = Instant::now();
    drop((sources, unused));
    assert!(start.elapsed() < Duration::from_secs(1), "dropping took {:?}", start.elapsed());
    // These must not get memory that is yet to be read.
    let others: Vec<_> = (0..20).map(|_| PinnedBuffer::from_slice(&vec![u64::MAX; len]).unwrap()).collect();
    gates.into_iter().for_each(Gate::open);
    for (at, buffer) in buffers.iter().enumerate() {
        assert!(buffer.to_vec(&stream).unwrap().iter().all(|v| *v == at as u64), "buffer {at}");
    }
    drop(others);
}

#[test]
fn memory_that_is_used_again_is_zero() {
    for len in [1, 1000, 300_000] {
        for _ in 0..5 {
            let mut buffer = PinnedBuffer::<u32>::zeroed(len).unwrap();
            let values = buffer.as_slice_mut().unwrap();
            assert!(values.iter().all(|v| *v == 0));
            values.fill(0xABAD_CAFE);
        }
    }
}

/// A stream that is stuck with a large copy takes no memory for copies from the others.
#[test]
fn a_large_copy_that_is_stuck_leaves_the_others_alone() {
    let (stuck, other) = (stream(), crate::stream());
    let mut large = DeviceBuffer::<u8>::uninit(&stuck, 80 << 20).unwrap();
    let gate = Gate::close(&stuck);
    let thread = std::thread::spawn({
        let stuck = stuck.clone();
        move || {
            large.copy_from_slice(&stuck, &vec![7; 80 << 20]).unwrap();
            large.slice((80 << 20) - 5..).to_vec(&stuck).unwrap()
        }
    });
    // Until it has taken its share.
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    let values = vec![9u8; 10 << 20];
    let buffer = DeviceBuffer::from_slice(&other, &values).unwrap();
    assert!(buffer.to_vec(&other).unwrap() == values);
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(!thread.is_finished());
    gate.open();
    assert_eq!(thread.join().unwrap(), [7; 5]);
}

#[test]
fn what_is_kept_can_be_given_back() {
    // In a process of its own: it waits for all devices, those too that other tests hold up.
    let end = child("pinned::what_is_kept_can_be_given_back", &[], || {
        let bytes = 30 << 20;
        drop(PinnedBuffer::<u8>::zeroed(bytes).unwrap());
        assert!(trim_pinned().unwrap() >= bytes);
        assert_eq!(PinnedBuffer::<u8>::zeroed(3).unwrap().as_slice().unwrap(), [0; 3]);
    });
    end.assert_success();
}

/// Beside a host function that does not return, nothing is given back, and nobody waits for that.
#[test]
fn nothing_is_given_back_beside_work_that_is_stuck() {
    alone("pinned::nothing_is_given_back_beside_work_that_is_stuck", || {
        let (stuck, other) = (stream(), crate::stream());
        let bytes = 30 << 20;
        drop(PinnedBuffer::<u8>::zeroed(bytes).unwrap());
        let gate = Gate::close(&stuck);
        set_default_timeout(Duration::from_secs(1));
        let error = trim_pinned().expect_err("a stream is stuck");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        set_default_timeout(LONG);
        let start = Instant::now();
        assert_eq!(DeviceBuffer::from_slice(&other, &[3u8; 100]).unwrap().to_vec(&other).unwrap(), [3; 100]);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        gate.open();
        assert!(trim_pinned().unwrap() >= bytes);
    });
}
