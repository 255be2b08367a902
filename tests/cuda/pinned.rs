//! Pinned memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpucomm::{DeviceBuffer, PinnedBuffer};

use crate::{Gate, Sample, for_each_element, random, samples, stream};

fn there_and_back<T: Sample>(random: &mut fastrand::Rng) {
    let stream = stream();
    for len in [0, 1, 999, 70_001] {
        let values = samples::<T>(random, len);
        let source = PinnedBuffer::from_slice(&values).unwrap();
        let mut target = PinnedBuffer::<T>::new(len).unwrap();
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
    let mut target = PinnedBuffer::<u32>::new(5000).unwrap();
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
    source.as_mut_slice().unwrap().fill(2);
    assert!(buffer.to_vec(&stream).unwrap().iter().all(|v| *v == 1));
    opener.join().unwrap();
}

#[test]
fn copies_on_two_streams_keep_their_order() {
    let (a, b) = (stream(), stream());
    let ones = DeviceBuffer::from_slice(&a, &[1i32; 3000]).unwrap();
    let twos = DeviceBuffer::from_slice(&b, &[2i32; 3000]).unwrap();
    let mut target = PinnedBuffer::<i32>::new(3000).unwrap();
    let gate = Gate::close(&a);
    ones.copy_to_pinned(&a, &mut target).unwrap();
    twos.copy_to_pinned(&b, &mut target).unwrap();
    assert!(b.wait(Duration::from_millis(50)).is_err());
    gate.open();
    assert!(target.as_slice().unwrap().iter().all(|v| *v == 2));
}

#[test]
fn dropped_under_a_copy() {
    let stream = stream();
    let mut buffer = DeviceBuffer::<u64>::zeroed(&stream, 4000).unwrap();
    let source = PinnedBuffer::from_slice(&[9u64; 4000]).unwrap();
    let gate = Gate::close(&stream);
    buffer.copy_from_pinned(&stream, &source).unwrap();
    let opened = Arc::new(AtomicBool::new(false));
    let opener = std::thread::spawn({
        let opened = Arc::clone(&opened);
        move || {
            std::thread::sleep(Duration::from_millis(50));
            opened.store(true, Ordering::SeqCst);
            gate.open();
        }
    });
    drop(source);
    assert!(opened.load(Ordering::SeqCst), "freed while the copy was under way");
    assert!(buffer.to_vec(&stream).unwrap().iter().all(|v| *v == 9));
    opener.join().unwrap();
}
