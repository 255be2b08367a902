//! Views of cudarc's memory, whatever elements they have, and its events.

use std::mem;

use cudarc::driver::{CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut};

/// A view of cudarc's, which nobody else uses in a way that conflicts with it as long as it lives.
pub(super) trait Held {
    /// Has `stream` wait for what conflicts with it. The address.
    fn wait(&mut self, stream: &CudaStream) -> u64;

    /// What was enqueued on `stream` has used it.
    fn record(&mut self, stream: &CudaStream);
}

impl<T> Held for CudaView<'_, T> {
    fn wait(&mut self, stream: &CudaStream) -> u64 {
        let (address, guard) = self.device_ptr(stream);
        // It would record now.
        mem::forget(guard);
        address
    }

    fn record(&mut self, stream: &CudaStream) {
        drop(self.device_ptr(stream).1);
    }
}

impl<T> Held for CudaViewMut<'_, T> {
    fn wait(&mut self, stream: &CudaStream) -> u64 {
        let (address, guard) = self.device_ptr_mut(stream);
        mem::forget(guard);
        address
    }

    /// It waits once more: another part of the same slice may have been written to meanwhile, and both have one event.
    fn record(&mut self, stream: &CudaStream) {
        drop(self.device_ptr_mut(stream).1);
    }
}
