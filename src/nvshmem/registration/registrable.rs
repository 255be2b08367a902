//! What can be registered.

use std::sync::Arc;

use crate::cuda::{Device, DeviceBuffer, PinnedBuffer};
use crate::element::Element;
use crate::nvshmem::memory::local::{AsLocal, Local};

/// Buffers that [`Context::register`](crate::nvshmem::Context::register) takes: device memory, and pinned memory of the host. Nobody else can implement it.
///
/// ```
/// # use gpucomm::nvshmem::{Context, Registered, Registrable};
/// # use gpucomm::Result;
/// fn all<'c, B: Registrable>(ctx: &'c Context, buffers: Vec<B>) -> Result<Vec<Registered<'c, B>>> {
///     buffers.into_iter().map(|buffer| ctx.register(buffer)).collect()
/// }
/// ```
pub trait Registrable: Whole + Send + 'static {}

/// Memory as the library is told of it.
pub trait Whole: Sized {
    /// All of it.
    fn whole(&self) -> Local<'_>;

    /// Where it is memory of a device.
    fn on(&self) -> Option<Device>;

    /// Where it is a part, of how many bytes.
    fn part_of(&self) -> Option<usize>;

    /// Whether a graph has it, or another buffer that was made of it.
    fn is_shared(&self) -> bool;
}

impl<T: Element> Registrable for DeviceBuffer<T> {}
impl<T: Element> Registrable for PinnedBuffer<T> {}

impl<T: Element> Whole for DeviceBuffer<T> {
    fn whole(&self) -> Local<'_> {
        self.local_operand()
    }

    fn on(&self) -> Option<Device> {
        Some(self.device())
    }

    fn part_of(&self) -> Option<usize> {
        let region = self.slice(..).region();
        (!region.is_whole()).then(|| region.alloc.bytes())
    }

    fn is_shared(&self) -> bool {
        // Beside the buffer, and this one.
        self.slice(..).region().alloc.keep().is_some_and(|alloc| Arc::strong_count(&alloc) > 2)
    }
}

/// No graph has pinned memory that it does not own.
impl<T: Element> Whole for PinnedBuffer<T> {
    fn whole(&self) -> Local<'_> {
        self.local_operand()
    }

    fn on(&self) -> Option<Device> {
        None
    }

    fn part_of(&self) -> Option<usize> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }
}
