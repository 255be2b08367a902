//! What only the caller can promise takes `unsafe`.
#![allow(dead_code)]

mod alias_without_unsafe {
    //! Two buffers over the same memory are a promise: nobody looks for them in a call.
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn alias(stream: &Stream) -> Result<()> {
        let buffer = DeviceBuffer::<f32>::zeroed(stream, 8)?;
        let _part = buffer.alias(0..4)?;
        Ok(())
    }
}

mod bytes_beside_elements {
    //! Bytes that may be written are the elements, too.
    use gpucomm::{DeviceBuffer, Result, Stream};

    fn both(x: &mut DeviceBuffer<bool>, stream: &Stream) -> Result<()> {
        let mut bytes = x.as_bytes_mut();
        x.fill(stream, true)?;
        bytes.fill(stream, 0)
    }
}

mod communicator_from_raw_without_unsafe {
    //! Nobody but the caller knows what a communicator of another library is up to, and whether its ranks agree.
    use gpucomm::{Communicator, Result, sys};

    fn take(raw: sys::ncclComm_t) -> Result<Communicator> {
        Communicator::from_raw(raw)
    }
}

mod element_without_unsafe {
    //! That all bit patterns are values is a promise that the compiler cannot check.
    #[derive(Clone, Copy)]
    struct NonZero(std::num::NonZeroU8);

    impl gpucomm::Element for NonZero {}
}

mod event_from_raw_without_unsafe {
    //! Nobody but the caller knows how long an event of another library lives.
    use gpucomm::{Device, Event, sys};

    fn take(device: Device, raw: sys::cudaEvent_t) -> Event {
        Event::from_raw(device, raw)
    }
}

mod foreign_memory_without_unsafe {
    //! Nobody but the caller knows what lies at an address.
    use gpucomm::{Device, DeviceBuffer, Result};

    fn take(device: Device, ptr: *mut std::ffi::c_void) -> Result<DeviceBuffer<f32>> {
        DeviceBuffer::from_raw_parts(device, ptr, 8, ())
    }
}

mod import_without_unsafe {
    //! What other processes do with shared memory nobody here sees: to import it is a promise.
    use gpucomm::cuda::vmm::PhysicalMemory;
    use gpucomm::{Device, Result};

    fn import(fd: std::os::fd::OwnedFd, device: Device) -> Result<PhysicalMemory> {
        PhysicalMemory::import_fd(fd, device, 2 << 20)
    }
}

mod init_rank_without_unsafe {
    //! That ranks in other processes agree is a promise of the caller.
    use gpucomm::{Communicator, Device, Result, UniqueId};

    fn join(device: Device, id: &UniqueId) -> Result<Communicator> {
        Communicator::init_rank(device, 2, id, 0)
    }
}

mod multicast_from_raw_without_unsafe {
    //! A handle may be one of anything: who takes it over vouches for what it is.
    use gpucomm::Device;
    use gpucomm::cuda::multicast::{Multicast, ObjectProperties};

    fn take(raw: u64, properties: &ObjectProperties, devices: &[Device]) {
        let _theirs = Multicast::from_raw(raw, properties, devices);
    }
}

mod multicast_imported_without_unsafe {
    //! A descriptor may be one of anything: who imports it vouches for what it is.
    use std::os::fd::OwnedFd;

    use gpucomm::cuda::multicast::{Multicast, ObjectProperties};

    fn import(fd: &OwnedFd, properties: &ObjectProperties) {
        let _theirs = Multicast::import_fd(fd, properties);
    }
}

mod physical_alias_without_unsafe {
    //! The same memory at two addresses is a promise: nobody looks for it in a call.
    use gpucomm::cuda::vmm::PhysicalMemory;

    fn again(memory: &PhysicalMemory) -> PhysicalMemory {
        memory.alias()
    }
}

mod physical_memory_from_raw_without_unsafe {
    //! Who else has the memory nobody sees.
    use gpucomm::cuda::vmm::PhysicalMemory;
    use gpucomm::{Device, Result};

    fn take(device: Device, theirs: u64) -> Result<PhysicalMemory> {
        PhysicalMemory::from_raw(device, theirs, 2 << 20)
    }
}

mod raw_configuration_without_unsafe {
    //! What NCCL makes of numbers that the crate does not know is for the caller to answer for.
    use gpucomm::nccl::Config;

    fn change() -> Config {
        Config::new().with_raw(|config| config.maxCTAs = 1)
    }
}

mod receive_without_unsafe {
    //! As an import, to receive shared memory is a promise.
    use gpucomm::Result;
    use gpucomm::cuda::vmm::PhysicalMemory;
    use gpucomm::exchange::FdSocket;

    fn receive(socket: &FdSocket) -> Result<PhysicalMemory> {
        PhysicalMemory::receive(socket, 0, "memory")
    }
}

mod stream_from_raw_without_unsafe {
    //! Nobody but the caller knows how long a stream of another library lives.
    use gpucomm::{Device, Stream, sys};

    fn take(device: Device, raw: sys::cudaStream_t) -> Stream {
        Stream::from_raw(device, raw)
    }
}

fn main() {}
