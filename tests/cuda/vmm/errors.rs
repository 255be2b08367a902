//! What cannot be: each error says what was expected and what came.

use std::os::fd::AsFd;

use gpucomm::cuda::vmm::{Access, AddressRange, HandleTypes, MemoryProperties, PhysicalMemory};
use gpucomm::{Device, Error};

use super::GRAIN;
use crate::{device, refused, two_devices};

fn memory(bytes: usize) -> PhysicalMemory {
    PhysicalMemory::new(device(), bytes).unwrap()
}

#[test]
fn sizes_and_devices() {
    let all = [Access::read_write(device())];
    refused(AddressRange::reserve_aligned(GRAIN, 3 << 20), &["alignment", "power of two", "3145728"]);
    // No driver has such an address.
    let error = AddressRange::reserve_aligned(GRAIN, 1 << 63).map(|range| range.bytes()).unwrap_err();
    assert!(error.to_string().starts_with("cuMemAddressReserve: "), "{error}");
    refused(PhysicalMemory::new(device(), usize::MAX), &["bytes", "at most"]);
    refused(AddressRange::reserve(usize::MAX), &["bytes", "at most"]);
    let error = PhysicalMemory::new(device(), 1 << 45).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { bytes: 0x2000_0000_0000, .. }), "{error}");
    refused(AddressRange::reserve(GRAIN).unwrap().map(memory(2 * GRAIN), &all), &["at most 2097152 bytes", "4194304"]);
    refused(memory(GRAIN).map(&[]), &["access", "at least one device", "nothing"]);
    refused(memory(GRAIN).map(&[all[0], Access::read(device())]), &["access", "once", "device 0 twice"]);
    if let Some((a, b)) = two_devices() {
        let mut mapping = AddressRange::reserve(2 * GRAIN).unwrap().map(memory(GRAIN), &all).unwrap();
        refused(mapping.push(PhysicalMemory::new(b, GRAIN).unwrap()), &["memory of device 0", "memory of device 1"]);
        mapping.push(PhysicalMemory::new(a, GRAIN).unwrap()).unwrap();
        assert_eq!(mapping.bytes(), 2 * GRAIN);
    }
}

#[test]
fn handles() {
    refused(memory(GRAIN).export_fd(), &["made for file descriptors", "no handles"]);
    let properties = MemoryProperties::new(device()).with_handle_types(HandleTypes::FD);
    let memory = PhysicalMemory::new_with(&properties, 2 * GRAIN).unwrap();
    refused(memory.export_fabric(), &["made for fabric handles", "file descriptors"]);
    let fd = memory.export_fd().unwrap();
    let import = |device: Device, bytes| {
        // SAFETY: nobody uses the memory.
        unsafe { PhysicalMemory::import_fd(fd.as_fd(), device, bytes) }
    };
    for wrong in [1, GRAIN, 3 * GRAIN, 2 * GRAIN + 1] {
        refused(import(device(), wrong), &["bytes", "the size of the memory", &wrong.to_string()]);
    }
    if let Some((a, b)) = two_devices() {
        refused(import(b, 2 * GRAIN), &[&format!("memory of {b}"), &format!("memory of {a}")]);
    }
    let imported = import(device(), 2 * GRAIN).unwrap();
    assert_eq!((imported.bytes(), imported.device()), (2 * GRAIN, device()));
    refused(imported.export_fd(), &["no handles"]);
    // No memory at all.
    let file = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: nobody uses it; the driver looks what it is.
    let error = unsafe { PhysicalMemory::import_fd(file.as_fd(), device(), GRAIN) }.unwrap_err();
    assert!(matches!(error, Error::Cuda { operation: "cuMemImportFromShareableHandle", .. }), "{error}");
}

/// Where there is no fabric, which no machine has that runs these tests, or one that can be used.
#[test]
fn fabrics() {
    let properties = MemoryProperties::new(device()).with_handle_types(HandleTypes::FD | HandleTypes::FABRIC);
    match PhysicalMemory::new_with(&properties, GRAIN) {
        Err(error @ Error::Unsupported { operation: "cuMemCreate", .. }) => {
            assert!(error.to_string().contains("IMEX"), "{error}");
        }
        Err(error) => panic!("{error}"),
        Ok(memory) => {
            let handle = memory.export_fabric().unwrap();
            // SAFETY: nobody uses the memory.
            let imported = unsafe { PhysicalMemory::import_fabric(&handle, device(), GRAIN) }.unwrap();
            assert_eq!(imported.bytes(), GRAIN);
        }
    }
}
