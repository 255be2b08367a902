//! New memory, into which nothing may write that was there before.

use gpucomm::cuda::vmm::{Access, PhysicalMemory};
use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Result, Stream};

/// What no item holds.
const GUARD: u32 = 0x600d_0000;

pub struct Guard {
    stream: Stream,
    buffers: Vec<DeviceBuffer<u32>>,
    pinned: Vec<PinnedBuffer<u32>>,
}

impl Guard {
    /// Memory of all kinds on a device, as long as what was there before.
    pub fn new(device: Device, lens: &[usize]) -> Result<Self> {
        let stream = Stream::new(device)?;
        let (mut buffers, mut pinned) = (Vec::new(), Vec::new());
        for &len in lens {
            let mapped = PhysicalMemory::new(device, len * size_of::<u32>())?.map(&[Access::read_write(device)])?;
            for mut buffer in
                [DeviceBuffer::uninit(&stream, len)?, gpucomm::nccl::alloc(&stream, len)?, mapped.into_buffer_of(len)?]
            {
                buffer.fill(&stream, GUARD)?;
                buffers.push(buffer);
            }
            let mut memory = PinnedBuffer::zeroed(len)?;
            memory.as_slice_mut()?.fill(GUARD);
            pinned.push(memory);
        }
        stream.synchronize()?;
        Ok(Self { stream, buffers, pinned })
    }

    pub fn check(&self) -> Result<()> {
        let mut all = self.buffers.iter().map(|buffer| buffer.to_vec(&self.stream)).collect::<Result<Vec<_>>>()?;
        for pinned in &self.pinned {
            all.push(pinned.as_slice()?.to_vec());
        }
        for values in all {
            let wrong = values.iter().find(|value| **value != GUARD);
            assert_eq!(wrong, None, "wrong data: something has written into new memory of {} elements", values.len());
        }
        Ok(())
    }
}
