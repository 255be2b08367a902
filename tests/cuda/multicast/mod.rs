//! Multicast objects. On GPUs only `asked` runs: nothing else may make an object where others need the switches.

mod asked;
mod common;
mod ends;
mod errors;
mod parts;
mod processes;
mod random;
mod ranks;
mod raw;
mod refused;
mod violations;
mod writes;

use gpucomm::cuda::multicast::{Complete, Mapped, McPtr, Multicast};
use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::{Backend, Device, DeviceBuffer, Element, Stream, sys};

/// Bytes of a step.
pub const GRAIN: usize = 2 << 20;

/// Whether objects may be made here.
pub fn emulated() -> bool {
    let emulated = gpucomm::backend() == Backend::Emulator;
    if !emulated {
        eprintln!("skipped: no multicast object is made on GPUs that others use");
    }
    emulated
}

pub fn devices(count: usize) -> Vec<Device> {
    (0..count).map(|ordinal| Device::new(ordinal).unwrap()).collect()
}

pub fn complete(count: usize, bytes: usize) -> Multicast<Complete> {
    Multicast::single_process(&devices(count), bytes).unwrap()
}

/// An object of some devices, with memory of each.
pub fn mapped(count: usize, bytes: usize) -> (Multicast<Mapped>, Vec<PhysicalMemory>) {
    let memory: Vec<_> = devices(count).iter().map(|device| PhysicalMemory::new(*device, bytes).unwrap()).collect();
    let mapped = complete(count, bytes).bind_all(&memory).unwrap().map().unwrap();
    (mapped, memory)
}

/// What the devices see of memory.
pub fn buffer<T: Element>(memory: PhysicalMemory) -> DeviceBuffer<T> {
    let device = memory.device();
    memory.map(&[Access::read_write(device)]).unwrap().into_buffer()
}

/// Writes a byte, as a kernel would.
pub fn fill<T: Element>(stream: &Stream, to: &mut McPtr<'_, T>, byte: u8) {
    let code = stream.launch(to, |stream, to| {
        let bytes = to.len() * size_of::<T>();
        // SAFETY: one launch on this stream, which writes so many bytes.
        unsafe { sys::cudaMemsetAsync(to.as_raw(), byte.into(), bytes, stream.as_raw()) }
    });
    assert_eq!(code.unwrap(), sys::cudaError::cudaSuccess);
}

/// Writes elements, as a kernel would.
pub fn copy<T: Element>(stream: &Stream, to: &mut McPtr<'_, T>, from: &DeviceBuffer<T>) {
    let code = stream.launch((to, from), |stream, (to, from)| {
        assert_eq!(to.len(), from.len());
        let (bytes, kind) = (to.len() * size_of::<T>(), sys::cudaMemcpyKind::cudaMemcpyDefault);
        // SAFETY: one launch on this stream, which writes so many bytes, and reads as many.
        unsafe { sys::cudaMemcpyAsync(to.as_raw(), from.as_ptr().cast(), bytes, kind, stream.as_raw()) }
    });
    assert_eq!(code.unwrap(), sys::cudaError::cudaSuccess);
}

/// All that a buffer holds.
pub fn values<T: Element>(buffer: &DeviceBuffer<T>) -> Vec<T> {
    buffer.slice(..).to_vec(&Stream::new(buffer.device()).unwrap()).unwrap()
}
