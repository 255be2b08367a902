//! Copies in every direction.

use std::time::Duration;

use gpucomm::{DeviceBuffer, Error, Stream};

use crate::{Gate, Sample, device, for_each_element, random, samples, stream, two_devices};

/// Lengths around the sizes of staging blocks (64 KiB, 4 MiB) and none of them round.
const LENGTHS: [usize; 9] = [0, 1, 2, 3, 17, 1023, 65_537, 262_147, 3_000_001];

fn round_trip<T: Sample>(random: &mut fastrand::Rng) {
    let stream = stream();
    for len in LENGTHS.into_iter().filter(|len| len * size_of::<T>() < 14 << 20) {
        let values = samples::<T>(random, len);
        let buffer = DeviceBuffer::from_slice(&stream, &values).unwrap();
        assert_eq!((buffer.len(), buffer.is_empty()), (len, len == 0));
        assert!(buffer.to_vec(&stream).unwrap() == values, "{} elements of {}", len, std::any::type_name::<T>());
    }
}

#[test]
fn every_type_comes_back() {
    let mut random = random("every_type_comes_back");
    for_each_element!(round_trip(&mut random));
}

#[test]
fn more_than_all_staging_memory() {
    let stream = stream();
    let values: Vec<u32> = (0..25_000_001).collect();
    let buffer = DeviceBuffer::from_slice(&stream, &values).unwrap();
    assert!(buffer.to_vec(&stream).unwrap() == values);
}

#[test]
fn parts_go_where_they_belong() {
    let mut random = random("parts_go_where_they_belong");
    let stream = stream();
    let len = 5000;
    let mut expected = vec![0u16 as i32; len];
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, len).unwrap();
    for _ in 0..200 {
        let begin = random.usize(..=len);
        let end = random.usize(begin..=len);
        let values = samples::<i32>(&mut random, end - begin);
        buffer.slice_mut(begin..end).copy_from_slice(&stream, &values).unwrap();
        expected[begin..end].copy_from_slice(&values);
        let begin = random.usize(..=len);
        let end = random.usize(begin..=len);
        assert_eq!(buffer.slice(begin..end).to_vec(&stream).unwrap(), expected[begin..end]);
    }
    assert_eq!(buffer.to_vec(&stream).unwrap(), expected);
}

#[test]
fn within_a_device() {
    let mut random = random("within_a_device");
    let stream = stream();
    let values = samples::<f64>(&mut random, 10_001);
    let source = DeviceBuffer::from_slice(&stream, &values).unwrap();
    let mut target = DeviceBuffer::uninit(&stream, 10_001).unwrap();
    target.copy_from(&stream, &source).unwrap();
    assert_eq!(target.to_vec(&stream).unwrap(), values);
    // From one half of a buffer to the other.
    let (mut low, high) = target.split_at_mut(5000);
    low.copy_from(&stream, high.slice(1..)).unwrap();
    let mut expected = values.clone();
    expected.copy_within(5001.., 0);
    assert_eq!(target.to_vec(&stream).unwrap(), expected);
}

#[test]
fn between_devices() {
    let Some((a, b)) = two_devices() else { return };
    let mut random = random("between_devices");
    let (on_a, on_b) = (Stream::new(a).unwrap(), Stream::new(b).unwrap());
    for len in [0, 1, 999, 1_234_567] {
        let values = samples::<i64>(&mut random, len);
        let source = DeviceBuffer::from_slice(&on_a, &values).unwrap();
        // On the stream of the target, and on that of the source.
        for stream in [&on_b, &on_a] {
            let mut target = DeviceBuffer::zeroed(&on_b, len).unwrap();
            target.copy_from(stream, &source).unwrap();
            assert!(target.to_vec(&on_b).unwrap() == values, "{len} on {:?}", stream.device());
        }
    }
}

#[test]
fn another_length_is_refused() {
    let stream = stream();
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u8, 2, 3]).unwrap();
    let other = DeviceBuffer::<u8>::zeroed(&stream, 4).unwrap();
    let mut pinned = gpucomm::PinnedBuffer::<u8>::zeroed(2).unwrap();
    for result in [
        buffer.copy_from_slice(&stream, &[1, 2]),
        buffer.copy_to_slice(&stream, &mut [0; 4]),
        buffer.copy_from(&stream, &other),
        buffer.copy_from_pinned(&stream, &pinned),
        buffer.copy_to_pinned(&stream, &mut pinned),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { what: "length", .. }), "{error}");
        assert!(error.to_string().contains("expected 3 elements, got"), "{error}");
    }
    assert_eq!(buffer.to_vec(&stream).unwrap(), [1, 2, 3]);
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let Some((a, b)) = two_devices() else { return };
    let (on_a, on_b) = (Stream::new(a).unwrap(), Stream::new(b).unwrap());
    let mut buffer = DeviceBuffer::from_slice(&on_a, &[1u8, 2, 3]).unwrap();
    for result in [buffer.copy_from_slice(&on_b, &[9; 3]), buffer.to_vec(&on_b).map(|_| ()), buffer.fill(&on_b, 9)] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { what: "stream", .. }), "{error}");
    }
    assert_eq!(buffer.to_vec(&on_a).unwrap(), [1, 2, 3]);
}

#[test]
fn a_copy_that_times_out_never_writes_later() {
    let (stream, other) = (stream(), stream());
    for len in [5, 100_000, 6_000_000] {
        let buffer = DeviceBuffer::from_slice(&stream, &vec![7u32; len]).unwrap();
        stream.synchronize().unwrap();
        let gate = Gate::close(&stream);
        let mut values = vec![1u32; len];
        let error = buffer.copy_to_slice_timeout(&stream, &mut values, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, Error::Timeout { operation: "Slice::copy_to_slice_timeout", .. }), "{error}");
        assert!(values.iter().all(|v| *v == 1));
        gate.open();
        stream.synchronize().unwrap();
        assert!(values.iter().all(|v| *v == 1), "the device wrote into a slice that was given back");
        // Blocks whose copies were given up are not handed to others too early.
        assert_eq!(buffer.slice(..5).to_vec(&other).unwrap(), [7; 5]);
        buffer.copy_to_slice(&stream, &mut values).unwrap();
        assert!(values.iter().all(|v| *v == 7));
    }
}

/// A copy that was given up still goes to its block of pinned memory: nobody else may have that meanwhile.
#[test]
fn what_a_given_up_copy_uses_is_not_reused() {
    let (stream, other) = (stream(), stream());
    let sevens = DeviceBuffer::from_slice(&stream, &[7u32; 1000]).unwrap();
    stream.synchronize().unwrap();
    let gate = Gate::close(&stream);
    for _ in 0..5 {
        sevens.copy_to_slice_timeout(&stream, &mut [1; 1000], Duration::from_millis(10)).unwrap_err();
    }
    let second = Gate::close(&other);
    let nines: Vec<_> = (0..10).map(|_| DeviceBuffer::from_slice(&other, &[9u32; 1000]).unwrap()).collect();
    gate.open();
    stream.synchronize().unwrap();
    second.open();
    for buffer in nines {
        assert_eq!(buffer.to_vec(&other).unwrap(), [9; 1000]);
    }
}

#[test]
fn host_values_are_read_before_the_copy_returns() {
    let stream = stream();
    let mut buffer = DeviceBuffer::<u64>::zeroed(&stream, 200_000).unwrap();
    let gate = Gate::close(&stream);
    let mut values = vec![11u64; 200_000];
    buffer.copy_from_slice(&stream, &values).unwrap();
    values.fill(22);
    drop(values);
    gate.open();
    assert!(buffer.to_vec(&stream).unwrap().iter().all(|v| *v == 11));
}

#[test]
fn many_small_copies_behind_a_blocked_stream() {
    let stream = stream();
    let gate = Gate::close(&stream);
    let buffers: Vec<_> = (0..64u32).map(|at| DeviceBuffer::from_slice(&stream, &[at; 3]).unwrap()).collect();
    gate.open();
    for (at, buffer) in (0..).zip(&buffers) {
        assert_eq!(buffer.to_vec(&stream).unwrap(), [at; 3]);
    }
}

#[test]
fn too_much_is_out_of_memory_with_numbers() {
    let stream = stream();
    let error = DeviceBuffer::<u8>::uninit(&stream, 1 << 50).unwrap_err();
    assert!(
        matches!(&error, Error::OutOfMemory { bytes, place, .. } if *bytes == 1 << 50 && *place == device().to_string()),
        "{error}"
    );
    let error = DeviceBuffer::<u64>::uninit(&stream, usize::MAX / 2).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    // The failure stays with the call that failed.
    assert_eq!(DeviceBuffer::from_slice(&stream, &[1u8]).unwrap().to_vec(&stream).unwrap(), [1]);
}
