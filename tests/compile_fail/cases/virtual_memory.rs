//! Physical memory, its mappings, and what grows.
#![allow(dead_code)]

mod grow_through_shared_reference {
    //! Growing changes a buffer.
    use gpucomm::cuda::vmm::PhysicalMemory;
    use gpucomm::{DeviceBuffer, Result};

    fn grow(buffer: &DeviceBuffer<f32>, more: PhysicalMemory) -> Result<()> {
        buffer.grow(more)
    }
}

mod grow_under_slice {
    //! A buffer does not grow while it is looked at.
    use gpucomm::cuda::vmm::PhysicalMemory;
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn grow(buffer: &mut DeviceBuffer<f32>, more: PhysicalMemory, stream: &Stream) -> Result<Vec<f32>> {
        let first = buffer.slice(..4);
        buffer.grow(more)?;
        first.to_vec(stream)
    }
}

mod mapping_is_no_buffer {
    //! A mapping has no type and no elements: an operation takes the buffer that is made of it.
    use gpucomm::cuda::vmm::Mapping;
    use gpucomm::{Communicator, InPlace, ReduceOp, Result, Stream};

    fn reduce(comm: &Communicator, mut mapping: Mapping, stream: &Stream) -> Result<()> {
        comm.all_reduce(InPlace(&mut mapping), ReduceOp::Sum, stream)
    }
}

mod mapping_used_after_buffer {
    //! A mapping that became a buffer grows by way of that.
    use gpucomm::cuda::vmm::{Mapping, PhysicalMemory};
    use gpucomm::{DeviceBuffer, Result};

    fn grow(mut mapping: Mapping, more: PhysicalMemory) -> Result<DeviceBuffer<f32>> {
        let buffer = mapping.into_buffer();
        mapping.push(more)?;
        Ok(buffer)
    }
}

mod physical_memory_is_not_cloned {
    //! Physical memory that is mapped twice would be two buffers over the same bytes.
    use gpucomm::cuda::vmm::PhysicalMemory;

    fn twice(memory: &PhysicalMemory) -> (PhysicalMemory, PhysicalMemory) {
        (memory.clone(), memory.clone())
    }
}

mod physical_memory_used_after_into_raw {
    //! What was given away is not ours any more.
    use gpucomm::Result;
    use gpucomm::cuda::vmm::{Access, PhysicalMemory};

    fn give(memory: PhysicalMemory) -> Result<u64> {
        let raw = memory.into_raw()?;
        let _mapping = memory.map(&[Access::read_write(gpucomm::Device::new(0)?)])?;
        Ok(raw)
    }
}

mod physical_memory_used_after_map {
    //! Mapped memory is the mapping's.
    use gpucomm::cuda::vmm::{Access, PhysicalMemory};
    use gpucomm::{Device, Result};

    fn map(device: Device) -> Result<()> {
        let memory = PhysicalMemory::new(device, 2 << 20)?;
        let _mapping = memory.map(&[Access::read_write(device)])?;
        let _again = memory.map(&[Access::read_write(device)])?;
        Ok(())
    }
}

mod range_used_after_map {
    //! Addresses where something is mapped are the mapping's.
    use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
    use gpucomm::{Device, Result};

    fn map(device: Device) -> Result<()> {
        let range = AddressRange::reserve(4 << 20)?;
        let _first = range.map(PhysicalMemory::new(device, 2 << 20)?, &[Access::read_write(device)])?;
        let _second = range.map(PhysicalMemory::new(device, 2 << 20)?, &[Access::read_write(device)])?;
        Ok(())
    }
}

fn main() {}
