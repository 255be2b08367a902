//! Which memory is bound, and where.

use crate::cuda::devices::device::Device;
use crate::cuda::memory::allocated::region::Region;
use crate::cuda::memory::views::slice::AsSlice;
use crate::cuda::vmm::PhysicalMemory;
use crate::element::Element;

/// Memory of a device that is to be bound: all of it, or a part, from the start of the object on, or from elsewhere.
///
/// ```
/// # use gpucomm::cuda::multicast::{Multicast, BindSource};
/// # use gpucomm::cuda::vmm::PhysicalMemory;
/// # use gpucomm::Device;
/// # fn main() -> gpucomm::Result<()> {
/// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
/// let device = Device::new(0)?;
/// let complete = Multicast::single_process(&[device], 8 << 20)?;
/// let step = complete.granularity().minimum;
/// let memory = PhysicalMemory::new(device, 4 * step)?;
/// // The third and the fourth step of the memory become the first and the second of the object.
/// let bound = complete.bind(BindSource::memory(&memory).skip(2 * step).bytes(2 * step))?;
/// # bound.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct BindSource<'m> {
    pub(super) source: Source<'m>,
    pub(super) at: usize,
    pub(super) skip: usize,
    pub(super) bytes: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Source<'m> {
    Memory(&'m PhysicalMemory),
    Region(Region<'m>),
}

impl<'m> BindSource<'m> {
    fn of(source: Source<'m>) -> Self {
        Self { source, at: 0, skip: 0, bytes: None }
    }

    /// Physical memory, by its handle (`cuMulticastBindMem`). It stays until it is unbound. It can be mapped after that, but not behind other
    /// memory; what is mapped already is bound [by its address](BindSource::buffer).
    pub fn memory(memory: &'m PhysicalMemory) -> Self {
        Self::of(Source::Memory(memory))
    }

    /// Memory of a buffer, by its address (`cuMulticastBindAddr`): [mapped](crate::cuda::vmm), or of a pool, in the order of a stream, as that of
    /// [`DeviceBuffer`](crate::DeviceBuffer) is. It must begin and end at a step.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, BindSource};
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let stream = Stream::new(Device::new(0)?)?;
    /// let complete = Multicast::single_process(&[stream.device()], 2 << 20)?;
    /// let buffer = DeviceBuffer::<u8>::zeroed(&stream, complete.properties().bytes())?;
    /// match complete.bind(BindSource::buffer(&buffer)) {
    ///     Ok(bound) => bound.close()?,
    ///     Err(error) => println!("a pool may begin anywhere: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn buffer<T: Element>(buffer: impl AsSlice<'m, T>) -> Self {
        Self::of(Source::Region(buffer.into().region()))
    }

    /// Where in the object it is bound, in bytes: a multiple of the least step.
    ///
    /// ```
    /// # use gpucomm::cuda::multicast::{Multicast, BindSource};
    /// # use gpucomm::cuda::vmm::PhysicalMemory;
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// let device = Device::new(0)?;
    /// let complete = Multicast::single_process(&[device], 4 << 20)?;
    /// let step = complete.granularity().minimum;
    /// let halves = [PhysicalMemory::new(device, step)?, PhysicalMemory::new(device, step)?];
    /// let mut bound = complete.bind(BindSource::memory(&halves[0]))?;
    /// bound.bind_more(BindSource::memory(&halves[1]).at(step))?;
    /// # bound.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn at(mut self, bytes: usize) -> Self {
        self.at = bytes;
        self
    }

    /// How much of the memory is left out before it, in bytes: a multiple of the least step.
    #[must_use]
    pub fn skip(mut self, bytes: usize) -> Self {
        self.skip = bytes;
        self
    }

    /// How much of it is bound, in bytes: a multiple of the least step. Otherwise as much as there is, and as there is room for.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = Some(bytes);
        self
    }

    pub(super) fn device(&self) -> Device {
        match self.source {
            Source::Memory(memory) => memory.device(),
            Source::Region(region) => region.device(),
        }
    }

    /// How many bytes the memory has.
    pub(super) fn has(&self) -> usize {
        match self.source {
            Source::Memory(memory) => memory.bytes(),
            Source::Region(region) => region.bytes,
        }
    }
}
