//! Elements that no device computes with: bit patterns that are no values, odd alignments, large ones.

use gpucomm::cuda::SliceMut;
use gpucomm::{DeviceBuffer, Element, Error, PinnedBuffer, Stream};

use crate::{random, samples, stream};

/// Writes `bytes` into a buffer, whatever its elements are.
fn write<T: Element>(buffer: &mut DeviceBuffer<T>, at: usize, bytes: &[u8]) {
    let stream = stream();
    let ptr = buffer.as_raw().wrapping_byte_add(at);
    let device = buffer.device();
    // SAFETY: the buffer has these bytes, whose other uses are done.
    let mut view = unsafe { SliceMut::<u8>::from_raw_parts(buffer, device, ptr, bytes.len()).unwrap() };
    view.copy_from_slice(&stream, bytes).unwrap();
    stream.synchronize().unwrap();
}

fn refused<V: std::fmt::Debug>(result: gpucomm::Result<V>, what: &str, element: usize, value: &str) {
    match result.unwrap_err() {
        Error::InvalidArgument { expected, got, .. } => {
            assert_eq!(expected, format!("values of {what}"));
            assert_eq!(got, format!("bytes {value} as element {element}"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_no_bool_does_not_come_back() {
    let stream = stream();
    let len = 200_003;
    let mut buffer = DeviceBuffer::from_slice(&stream, &vec![true; len]).unwrap();
    stream.synchronize().unwrap();
    write(&mut buffer, 150_000, &[2]);
    let mut values = vec![false; len];
    for _ in 0..2 {
        refused(buffer.to_vec(&stream), "bool", 150_000, "[02]");
        refused(buffer.copy_to_slice(&stream, &mut values), "bool", 150_000, "[02]");
    }
    assert!(values.iter().all(|value| !value), "something was written");
    assert!(buffer.slice(..150_000).to_vec(&stream).unwrap().iter().all(|value| *value));

    let mut pinned = PinnedBuffer::<bool>::zeroed(len).unwrap();
    buffer.copy_to_pinned(&stream, &mut pinned).unwrap();
    refused(pinned.as_slice().map(<[_]>::len), "bool", 150_000, "[02]");
    refused(pinned.as_slice_mut().map(|values| values.len()), "bool", 150_000, "[02]");
    buffer.fill(&stream, false).unwrap();
    buffer.copy_to_pinned(&stream, &mut pinned).unwrap();
    assert!(pinned.as_slice().unwrap().iter().all(|value| !value));
}

#[test]
fn what_is_no_char_does_not_come_back() {
    let stream = stream();
    let mut buffer = DeviceBuffer::from_slice(&stream, &[['x'; 2]; 9]).unwrap();
    stream.synchronize().unwrap();
    write(&mut buffer, 3 * 8 + 4, &0xdfff_u32.to_ne_bytes());
    refused(buffer.to_vec(&stream), "[char; 2]", 3, "[78, 00, 00, 00, ff, df, 00, 00]");
}

#[test]
fn fills_of_what_is_not_aligned() {
    let stream = stream();
    let mut bytes = DeviceBuffer::<u8>::zeroed(&stream, 4001).unwrap();
    fn fill<const N: usize>(bytes: &mut DeviceBuffer<u8>, stream: &Stream, at: usize) {
        let (device, ptr) = (bytes.device(), bytes.as_raw().wrapping_byte_add(at));
        let value: [u8; N] = std::array::from_fn(|at| at as u8 + 1);
        // SAFETY: the buffer has these bytes, and is used on one stream.
        let mut odd = unsafe { SliceMut::<[u8; N]>::from_raw_parts(bytes, device, ptr, 300).unwrap() };
        odd.fill(stream, value).unwrap();
        assert!(odd.as_slice().to_vec(stream).unwrap().iter().all(|got| *got == value));
    }
    for at in 0..9 {
        fill::<2>(&mut bytes, &stream, at);
        fill::<4>(&mut bytes, &stream, at);
        fill::<8>(&mut bytes, &stream, at);
        fill::<12>(&mut bytes, &stream, at);
    }
}

/// Larger than the small blocks through which it goes.
#[test]
fn large_elements() {
    fn large<const N: usize>(random: &mut fastrand::Rng) {
        let stream = stream();
        let mut value = [0_u32; N];
        value.copy_from_slice(&samples(random, N));
        let mut buffer = DeviceBuffer::<[u32; N]>::zeroed(&stream, 3).unwrap();
        buffer.slice_mut(1..).fill(&stream, value).unwrap();
        let got = buffer.to_vec(&stream).unwrap();
        assert!(got[0] == [0; N] && got[1] == value && got[2] == value);
    }
    let mut random = random("large_elements");
    large::<16_385>(&mut random);
    large::<40_001>(&mut random);
}
