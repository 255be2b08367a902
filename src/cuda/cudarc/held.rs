//! Views of cudarc's memory, whatever elements they have, and its events.
//!
//! All views of a slice have the same two events. So that each of these covers whatever it was recorded for before, the stream that one is
//! recorded on comes behind that first; [`RECORDING`] keeps others from recording it between the wait and that.

use std::mem;

use cudarc::driver::{CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, SyncOnDrop};

use crate::lock::Mutex;

/// Held by whoever records events of cudarc's, of whatever memory.
pub(super) static RECORDING: Mutex<()> = Mutex::new(());

/// A view of cudarc's, which nobody else uses in a way that conflicts with it as long as it lives.
pub(super) trait Held {
    /// Has `stream` wait for what conflicts with it. The address.
    fn wait(&mut self, stream: &CudaStream) -> u64;

    /// What was enqueued on `stream` has used it, which comes behind what the event was recorded for before. While [`RECORDING`] is held.
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
        let guard = self.device_ptr(stream).1;
        let SyncOnDrop::Record(Some((event, stream))) = &guard else { return };
        // cudarc waits for what has written only, and reads have one event, too.
        if let Err(error) = stream.wait(event) {
            stream.context().record_err::<()>(Err(error));
            // It still covers what it did.
            mem::forget(guard);
        }
    }
}

impl<T> Held for CudaViewMut<'_, T> {
    fn wait(&mut self, stream: &CudaStream) -> u64 {
        let (address, guard) = self.device_ptr_mut(stream);
        mem::forget(guard);
        address
    }

    /// cudarc waits for both events once more: another part of the same slice may have been used meanwhile.
    fn record(&mut self, stream: &CudaStream) {
        drop(self.device_ptr_mut(stream).1);
    }
}
