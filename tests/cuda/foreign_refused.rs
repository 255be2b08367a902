//! What is seen to be no memory of others is refused.

use std::ffi::c_void;
use std::sync::Arc;

use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::{Backend, Device, DeviceBuffer, Error, PinnedBuffer, Result};

use crate::child::alone;
use crate::foreign::Tensor;
use crate::{device, stream, two_devices};

#[track_caller]
fn refused<V: std::fmt::Debug>(result: Result<V>, words: &[&str]) {
    let error = result.expect_err("taken");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    words.iter().for_each(|word| assert!(error.to_string().contains(word), "{word}: {error}"));
}

/// All that makes elements of memory of others refuses this.
#[track_caller]
fn all_refuse(device: Device, ptr: *mut c_void, len: usize, words: &[&str]) {
    let owner = Arc::new(());
    let kept = Arc::clone(&owner);
    // SAFETY: nothing is made of it.
    unsafe {
        let buffer = DeviceBuffer::<f32>::from_raw_parts(device, ptr, len, kept);
        refused(buffer, &[&["DeviceBuffer::from_raw_parts"], words].concat());
        let slice = Slice::<f32>::from_raw_parts(&(), device, ptr, len);
        refused(slice, &[&["Slice::from_raw_parts"], words].concat());
        let mut nobody = ();
        let slice = SliceMut::<f32>::from_raw_parts(&mut nobody, device, ptr, len);
        refused(slice, &[&["SliceMut::from_raw_parts"], words].concat());
    }
    assert_eq!(Arc::strong_count(&owner), 1, "the owner is dropped");
}

#[test]
fn what_cannot_be_is_refused() {
    alone("foreign_refused::what_cannot_be_is_refused", || {
        let tensor = Tensor::new(device(), 64);
        let name = device().to_string();
        all_refuse(device(), std::ptr::null_mut(), 1, &["null"]);
        all_refuse(device(), tensor.ptr.wrapping_byte_add(2), 1, &["a multiple of 4"]);
        all_refuse(device(), tensor.ptr, usize::MAX / 2, &["at most"]);
        all_refuse(device(), std::ptr::without_provenance_mut(usize::MAX - 7), 4, &["16 bytes behind it"]);
        let mut mine = [0f32; 4];
        all_refuse(device(), mine.as_mut_ptr().cast(), 4, &[&name, "of the host", "the first of 16 bytes"]);
        let pinned = PinnedBuffer::<f32>::zeroed(4).unwrap();
        let ptr = pinned.as_slice().unwrap().as_ptr().cast_mut().cast();
        all_refuse(device(), ptr, 4, &[&name, "pinned memory of the host"]);
        if let Some((a, b)) = two_devices() {
            let there = Tensor::new(b, 64);
            all_refuse(a, there.ptr, 16, &[&format!("expected memory of {a}"), "memory of device 1 at"]);
        }
        // On a GPU more may lie there than was asked for.
        if gpucomm::backend() == Backend::Emulator {
            all_refuse(device(), tensor.ptr, 17, &[&name, "the last of 68 bytes"]);
            let ptr = tensor.ptr;
            drop(tensor);
            all_refuse(device(), ptr, 16, &["does not know"]);
        }
    });
}

/// That there is memory behind the last byte of an allocation, and of the next one, does not make them one.
#[test]
fn a_length_that_reaches_beyond_the_allocation_is_refused() {
    alone("foreign_refused::a_length_that_reaches_beyond_the_allocation_is_refused", || {
        let (mib, stream) = (1 << 20, stream());
        let tensors: Vec<_> = (0..8).map(|_| Tensor::new(device(), 4 * mib)).collect();
        for tensor in &tensors {
            let ptr = tensor.ptr;
            let middle = ptr.wrapping_byte_add(2 * mib);
            // SAFETY: the tensor has that many bytes; nothing uses them.
            let part = unsafe { Slice::<f32>::from_raw_parts(tensor, device(), middle, mib / 2) };
            assert_eq!(part.unwrap().len(), mib / 2);
            for other in tensors.iter().filter(|other| other.ptr.addr() > ptr.addr()) {
                let len = (other.ptr.addr() - ptr.addr()) / 4 + 10;
                all_refuse(device(), ptr, len, &["bytes that were allocated together, got 4194304 at"]);
                all_refuse(device(), middle, len - mib / 2, &["got 2097152 at"]);
            }
        }
        // Memory of a pool is known too.
        let pooled = DeviceBuffer::<f32>::zeroed(&stream, 3000).unwrap();
        stream.synchronize().unwrap();
        // SAFETY: the buffer has that many elements; nothing uses them.
        let whole = unsafe { Slice::<f32>::from_raw_parts(&pooled, device(), pooled.as_raw(), 3000) };
        assert_eq!(whole.unwrap().len(), 3000);
    });
}

/// What was mapped piece by piece is one.
#[test]
fn mappings_that_follow_one_another_are_one() {
    alone("foreign_refused::mappings_that_follow_one_another_are_one", || {
        let (stream, bytes) = (stream(), 4 << 20);
        let piece = || PhysicalMemory::new(device(), bytes).unwrap();
        let range = AddressRange::reserve(4 * bytes).unwrap();
        let mapping = range.map(piece(), &[Access::read_write(device())]).unwrap();
        let mut buffer = mapping.into_buffer::<f32>();
        buffer.grow(piece()).unwrap();
        buffer.fill(&stream, 2.0).unwrap();
        stream.synchronize().unwrap();
        let (ptr, len) = (buffer.as_raw(), buffer.len());
        assert_eq!(len, 2 * bytes / 4);
        // SAFETY: the buffer has that many elements; nothing else uses them.
        let whole = unsafe { Slice::<f32>::from_raw_parts(&buffer, device(), ptr, len) }.unwrap();
        assert!(whole.to_vec(&stream).unwrap() == vec![2.0; len]);
        all_refuse(device(), ptr, len + 1, &["does not know"]);
    });
}
