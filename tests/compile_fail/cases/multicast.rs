//! Multicast objects: their states, addresses and ends.
#![allow(dead_code)]

mod multicast_address_before_it_is_mapped {
    //! There is no address before the object is mapped.
    use gpucomm::cuda::multicast::{Bound, Multicast};
    use gpucomm::{Device, Result};

    fn address(bound: &Multicast<Bound>, device: Device) -> Result<usize> {
        Ok(bound.ptr::<f32>(device)?.len())
    }
}

mod multicast_address_escapes_a_launch {
    //! What is lent to a launch stays there.
    use gpucomm::cuda::multicast::McPtr;
    use gpucomm::{Result, Stream};

    fn launch(stream: &Stream, all: &mut McPtr<'_, f32>) -> Result<()> {
        let mut kept = None;
        stream.launch(all, |_, all| kept = Some(all))?;
        drop(kept);
        Ok(())
    }
}

mod multicast_address_is_no_reference {
    //! The host does not follow an address of several devices.
    use gpucomm::cuda::multicast::McPtr;

    fn first(all: &McPtr<'_, f32>) -> f32 {
        **all
    }
}

mod multicast_address_is_read {
    //! What lies at an address of several devices is not read.
    use gpucomm::cuda::multicast::McPtr;
    use gpucomm::{Result, Stream};

    fn read(stream: &Stream, all: &McPtr<'_, f32>) -> Result<Vec<f32>> {
        all.to_vec(stream)
    }
}

mod multicast_address_outlives_its_object {
    //! An address is good as long as its object.
    use gpucomm::cuda::multicast::{Mapped, McPtr, Multicast};
    use gpucomm::{Device, Result};

    fn address<'m>(mapped: Multicast<Mapped>, device: Device) -> Result<McPtr<'m, f32>> {
        mapped.ptr(device)
    }
}

mod multicast_bound_twice_from_complete {
    //! With the first memory the object is bound: more is bound to that.
    use gpucomm::Result;
    use gpucomm::cuda::multicast::{Complete, Multicast, BindSource};
    use gpucomm::cuda::vmm::PhysicalMemory;

    fn bind(complete: Multicast<Complete>, a: &PhysicalMemory, b: &PhysicalMemory) -> Result<()> {
        let _bound = complete.bind(BindSource::memory(a))?;
        let _more = complete.bind(BindSource::memory(b))?;
        Ok(())
    }
}

mod multicast_bound_while_building {
    //! Memory cannot be bound before all devices were added: the driver would block.
    use gpucomm::Result;
    use gpucomm::cuda::multicast::{Building, Multicast, BindSource};
    use gpucomm::cuda::vmm::PhysicalMemory;

    fn bind(building: Multicast<Building>, memory: &PhysicalMemory) -> Result<()> {
        building.bind(BindSource::memory(memory))?;
        Ok(())
    }
}

mod multicast_closed_under_an_address {
    //! While there is an address, the object is not closed.
    use gpucomm::cuda::multicast::{Mapped, Multicast};
    use gpucomm::{Device, Result};

    fn close(mapped: Multicast<Mapped>, device: Device) -> Result<usize> {
        let all = mapped.ptr::<f32>(device)?;
        mapped.close()?;
        Ok(all.len())
    }
}

mod multicast_device_added_to_a_complete_one {
    //! Devices are added while the object is building.
    use gpucomm::cuda::multicast::{Complete, Multicast};
    use gpucomm::{Device, Result};

    fn add(complete: &mut Multicast<Complete>, device: Device) -> Result<()> {
        complete.add(device)
    }
}

mod multicast_exported_when_it_is_bound {
    //! An object is handed to others before it is complete.
    use gpucomm::cuda::multicast::{Bound, Multicast};

    fn export(bound: &Multicast<Bound>) {
        let _fd = bound.export_fd();
    }
}

mod multicast_is_not_cloned {
    //! An object is released once.
    use gpucomm::cuda::multicast::{Complete, Multicast};

    fn twice(complete: &Multicast<Complete>) -> Multicast<Complete> {
        complete.clone()
    }
}

mod multicast_mapped_while_building {
    //! An object cannot be mapped before all devices were added: the driver would block.
    use gpucomm::Result;
    use gpucomm::cuda::multicast::{Building, Multicast};

    fn map(building: Multicast<Building>) -> Result<()> {
        building.map()?;
        Ok(())
    }
}

mod multicast_mapped_while_nothing_is_bound {
    //! An object cannot be mapped before memory is bound.
    use gpucomm::Result;
    use gpucomm::cuda::multicast::{Complete, Multicast};

    fn map(complete: Multicast<Complete>) -> Result<()> {
        complete.map()?;
        Ok(())
    }
}

mod multicast_part_outlives_its_memory {
    //! A part is one of memory that is there.
    use gpucomm::cuda::multicast::BindSource;
    use gpucomm::cuda::vmm::PhysicalMemory;
    use gpucomm::{Device, Result};

    fn part<'m>(device: Device) -> Result<BindSource<'m>> {
        let memory = PhysicalMemory::new(device, 2 << 20)?;
        Ok(BindSource::memory(&memory))
    }
}

mod multicast_unbound_under_an_address {
    //! While there is an address, nothing is unbound.
    use gpucomm::cuda::multicast::{Mapped, Multicast};
    use gpucomm::{Device, Result};

    fn unbind(mapped: &mut Multicast<Mapped>, device: Device) -> Result<usize> {
        let all = mapped.ptr::<f32>(device)?;
        mapped.unbind(device, 0)?;
        Ok(all.len())
    }
}

mod multicast_used_after_complete {
    //! What was building is complete, and no longer building.
    use gpucomm::cuda::multicast::{Building, Multicast};
    use gpucomm::{Device, Result};

    fn add(mut building: Multicast<Building>, device: Device) -> Result<()> {
        let _complete = building.complete()?;
        building.add(device)
    }
}

fn main() {}
