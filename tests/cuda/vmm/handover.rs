//! Physical memory of others, and memory that others are given.

use gpucomm::cuda::vmm::{Access, HandleTypes, MemoryProperties, PhysicalMemory};
use gpucomm::{Device, DeviceBuffer, Error, Result};

use super::{GRAIN, free};
use crate::{device, random, samples, stream, two_devices};

/// Of memory that nobody uses elsewhere, and that is not released.
fn taken(device: Device, raw: u64, bytes: usize) -> Result<PhysicalMemory> {
    // SAFETY: as above.
    unsafe { PhysicalMemory::from_raw(device, raw, bytes) }
}

#[test]
fn it_goes_and_comes_back() {
    let (device, stream) = (device(), stream());
    let mut random = random("vmm::handover");
    let properties = MemoryProperties::new(device).with_handle_types(HandleTypes::FD);
    let memory = PhysicalMemory::new_with(&properties, 2 * GRAIN).unwrap();
    let fd = memory.export_fd().unwrap();
    let values = samples::<f32>(&mut random, 1001);
    {
        // SAFETY: uses come one after the other.
        let writer = unsafe { PhysicalMemory::import_fd(&fd, device, 2 * GRAIN) }.unwrap();
        let mut x: DeviceBuffer<f32> = writer.map(&[Access::read_write(device)]).unwrap().into_buffer();
        x.slice_mut(7..7 + values.len()).copy_from_slice(&stream, &values).unwrap();
        stream.synchronize().unwrap();
    }
    let raw = memory.into_raw().unwrap();
    let memory = taken(device, raw, 2 * GRAIN).unwrap();
    assert_eq!((memory.as_raw(), memory.bytes(), memory.properties()), (raw, 2 * GRAIN, &properties));
    // The handles that it was made for are known.
    drop(memory.export_fd().unwrap());
    let x: DeviceBuffer<f32> = memory.map(&[Access::read(device)]).unwrap().into_buffer();
    assert_eq!(x.slice(7..7 + values.len()).to_vec(&stream).unwrap(), values);
}

/// Given away it is not released; taken over it is.
#[test]
fn whose_it_is() {
    let device = device();
    // Some steps more than others that run beside may take.
    let bytes = 512 * GRAIN;
    let before = free(device);
    let raw = PhysicalMemory::new(device, bytes).unwrap().into_raw().unwrap();
    assert!(free(device) + bytes / 2 < before);
    for wrong in [0, 1, GRAIN, bytes + GRAIN] {
        let error = taken(device, raw, wrong).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. } | Error::Cuda { .. }), "{wrong}: {error}");
    }
    if let Some((a, b)) = two_devices() {
        assert_eq!(a, device);
        let error = taken(b, raw, bytes).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("memory of {b}")) && text.contains("memory of device 0"), "{text}");
    }
    // Who was refused has it still.
    assert!(free(device) + bytes / 2 < before);
    drop(taken(device, raw, bytes).unwrap());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while free(device) + bytes / 2 < before {
        assert!(std::time::Instant::now() < deadline, "it was not released");
        std::thread::yield_now();
    }
}

#[test]
fn what_others_have_too_is_not_given_away() {
    let memory = PhysicalMemory::new(device(), GRAIN).unwrap();
    // SAFETY: neither is used.
    let alias = unsafe { memory.alias() };
    let error = memory.into_raw().unwrap_err();
    assert!(matches!(error, Error::InvalidUsage { operation: "PhysicalMemory::into_raw", .. }), "{error}");
    assert!(error.to_string().contains("got one that has an alias"), "{error}");
    // The other one was left with it.
    drop(taken(device(), alias.into_raw().unwrap(), GRAIN).unwrap());
}
