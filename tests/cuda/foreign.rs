//! Memory that this crate did not allocate.

use std::ffi::c_void;
use std::sync::mpsc::channel;

use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::{Backend, Device, DeviceBuffer, Element, Error, PinnedBuffer, sys};

use crate::child::{alone, child};
use crate::owners::{Told, lives};
use crate::{Gate, LONG, Sample, device, for_each_element, random, samples, stream};

/// What another library would have: memory of its own. Freeing it waits for the device, so tests that do so are [`alone`].
#[derive(Debug)]
pub struct Tensor {
    device: Device,
    pub ptr: *mut c_void,
    bytes: usize,
}

// SAFETY: the memory is not read through on the host, and CUDA takes it from any thread.
unsafe impl Send for Tensor {}

impl Tensor {
    pub fn new(device: Device, bytes: usize) -> Self {
        let current = device.set_current().unwrap();
        let mut ptr = std::ptr::null_mut();
        // SAFETY: writes a pointer to the place given.
        assert_eq!(unsafe { sys::cudaMalloc(&raw mut ptr, bytes) }, sys::cudaError::cudaSuccess);
        drop(current);
        Self { device, ptr, bytes }
    }

    /// As a buffer that owns it.
    fn into_buffer<T: Element>(self) -> DeviceBuffer<T> {
        // SAFETY: the tensor owns so many bytes and goes with them; nobody else uses them.
        unsafe { DeviceBuffer::from_raw_parts(self.device, self.ptr, self.bytes / size_of::<T>(), self) }.unwrap()
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: from cudaMalloc, and freed once.
        assert_eq!(unsafe { sys::cudaFree(self.ptr) }, sys::cudaError::cudaSuccess);
    }
}

#[test]
fn a_tensor_is_a_buffer() {
    alone("foreign::a_tensor_is_a_buffer", || {
        for_each_element!(a_tensor_is_a_buffer_of());
    });
}

fn a_tensor_is_a_buffer_of<T: Sample + PartialEq>() {
    let mut random = random("a_tensor_is_a_buffer");
    let (a, b) = (stream(), stream());
    let len = random.usize(10..5000);
    let tensor = Tensor::new(device(), len * size_of::<T>());
    let ptr = tensor.ptr;
    let mut x: DeviceBuffer<T> = tensor.into_buffer();
    assert_eq!((x.len(), x.device(), x.as_raw()), (len, device(), ptr));
    let mut model: Vec<T> = samples(&mut random, len);
    x.copy_from_slice(&a, &model).unwrap();
    let (from, to) = (random.usize(..5), random.usize(5..10));
    let value = T::sample(&mut random);
    x.slice_mut(from..to).fill(&b, value).unwrap();
    model[from..to].fill(value);
    assert!(x.to_vec(&a).unwrap() == model);
    let mut pinned = PinnedBuffer::<T>::zeroed(to).unwrap();
    x.slice(..to).copy_to_pinned(&b, &mut pinned).unwrap();
    assert!(pinned.as_slice().unwrap() == &model[..to]);
    let mut y: DeviceBuffer<T> = Tensor::new(device(), len * size_of::<T>()).into_buffer();
    y.copy_from(&b, &x).unwrap();
    let (mut front, _) = y.split_at_mut(to);
    front.copy_from_pinned(&a, &pinned).unwrap();
    // SAFETY: this thread alone uses both, one after the other.
    let part = unsafe { y.alias(from..) }.unwrap();
    drop((x, y));
    assert!(part.to_vec(&b).unwrap() == model[from..]);
}

#[test]
fn no_elements_lie_nowhere() {
    let stream = stream();
    let (tell, end) = channel();
    let nowhere = std::ptr::without_provenance_mut(1);
    // SAFETY: no elements.
    let mut x = unsafe { DeviceBuffer::<f64>::from_raw_parts(device(), nowhere, 0, Told(tell)) }.unwrap();
    assert!(x.is_empty() && x.as_raw().is_null());
    x.fill(&stream, 1.0).unwrap();
    assert_eq!(x.to_vec(&stream).unwrap(), []);
    assert!(lives(&end));
    drop(x);
    assert!(!lives(&end));
    // SAFETY: no elements.
    let view = unsafe { Slice::<f64>::from_raw_parts(&(), device(), std::ptr::null(), 0) }.unwrap();
    assert_eq!(view.to_vec(&stream).unwrap(), []);
}

/// What the contract forbids, the emulator says.
#[test]
fn memory_that_goes_too_early_is_a_violation() {
    if gpucomm::backend() != Backend::Emulator {
        return;
    }
    const THIS: &str = "foreign::memory_that_goes_too_early_is_a_violation";
    let ended = child(THIS, &[("GPUCOMM_EMULATOR_STRICT", "0")], || {
        let (stream, tensor) = (stream(), Tensor::new(device(), 64));
        // SAFETY: the contract is broken below, which the emulator survives.
        let mut x = unsafe { DeviceBuffer::<u32>::from_raw_parts(device(), tensor.ptr, 16, ()) }.unwrap();
        x.fill(&stream, 1).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(gpucomm::emulator_violations(), 0);
        drop(tensor);
        assert!(x.fill(&stream, 2).is_err());
        assert_eq!(gpucomm::emulator_violations(), 1);
    });
    assert!(ended.status.success(), "{}", ended.text);
    assert!(ended.text.contains(": 64 bytes at 0x"), "{}", ended.text);
}

#[test]
fn pinned_memory_has_an_address() {
    alone("foreign::pinned_memory_has_an_address", || {
        let (stream, mut from) = (stream(), PinnedBuffer::from_slice(&[1u32, 2, 3]).unwrap());
        assert_eq!(from.as_raw().cast_const(), from.as_slice().unwrap().as_ptr().cast());
        assert!(PinnedBuffer::<u8>::zeroed(0).unwrap().as_raw().is_null());
        let tensor = Tensor::new(device(), 12);
        let kind = sys::cudaMemcpyKind::cudaMemcpyHostToDevice;
        from.as_slice_mut().unwrap()[0] = 9;
        // SAFETY: both have that many bytes, live until the stream is done, and nobody else uses them.
        let copied = unsafe { sys::cudaMemcpyAsync(tensor.ptr, from.as_raw(), 12, kind, stream.as_raw()) };
        assert_eq!(copied, sys::cudaError::cudaSuccess);
        stream.synchronize().unwrap();
        assert_eq!(tensor.into_buffer::<u32>().to_vec(&stream).unwrap(), [9, 2, 3]);
    });
}

#[test]
fn a_host_function_makes_nothing_of_it() {
    alone("foreign::a_host_function_makes_nothing_of_it", || {
        let stream = stream();
        let (say, said) = channel();
        let ptr = Tensor::new(device(), 64);
        stream
            .launch_host(move || {
                let device = ptr.device;
                // SAFETY: the tensor lives until the end.
                let made = unsafe { DeviceBuffer::<u8>::from_raw_parts(device, ptr.ptr, 64, ()) };
                let _ = say.send((made.map(drop), ptr));
            })
            .unwrap();
        let (made, _tensor) = said.recv_timeout(LONG).unwrap();
        assert!(matches!(made, Err(Error::InvalidUsage { .. })), "{made:?}");
    });
}

#[test]
fn a_view_works_as_others_do_and_orders_nothing() {
    alone("foreign::a_view_works_as_others_do_and_orders_nothing", || {
        let (a, b) = (stream(), stream());
        let mut tensor = Tensor::new(device(), 4000);
        let (at, ptr) = (tensor.device, tensor.ptr);
        let mut copy = DeviceBuffer::<u32>::zeroed(&b, 990).unwrap();
        // SAFETY: all uses of the memory are done before the tensor is dropped, or on one stream, in order, but where the test says otherwise.
        unsafe {
            let mut all = SliceMut::<u32>::from_raw_parts(&mut tensor, at, ptr, 1000).unwrap();
            assert_eq!((all.len(), all.device(), all.as_raw()), (1000, at, ptr));
            all.fill(&a, 1).unwrap();
            let (mut front, mut back) = all.split_at_mut(10);
            front.copy_from_slice(&a, &[2; 10]).unwrap();
            back.copy_from_pinned(&a, &PinnedBuffer::from_slice(&[3; 990]).unwrap()).unwrap();
            a.synchronize().unwrap();
            let gate = Gate::close(&a);
            SliceMut::<u32>::from_raw_parts(&mut tensor, at, ptr, 10).unwrap().fill(&a, 9).unwrap();
            // Nobody waits for that.
            let view = Slice::<u32>::from_raw_parts(&tensor, at, ptr.wrapping_byte_add(40), 990).unwrap();
            copy.copy_from(&b, view).unwrap();
            assert_eq!(copy.to_vec(&b).unwrap(), [3; 990]);
            assert_eq!(view.slice(980..).to_vec(&b).unwrap(), [3; 10]);
            assert!(!a.query().unwrap());
            gate.open();
            let mut pinned = PinnedBuffer::<u32>::zeroed(10).unwrap();
            let view = Slice::<u32>::from_raw_parts(&tensor, at, ptr, 10).unwrap();
            view.copy_to_pinned(&a, &mut pinned).unwrap();
            assert_eq!(pinned.as_slice().unwrap(), [9; 10]);
        }
        a.synchronize().unwrap();
    });
}
