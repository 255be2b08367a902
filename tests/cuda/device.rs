//! Devices and their properties.

use gpucomm::cuda::{DeviceAttribute, P2pAttribute, driver_version, runtime_version};
use gpucomm::{Device, DeviceBuffer, Error, Stream};

use crate::{device, two_devices};

#[test]
fn properties_make_sense() {
    let all = Device::all().unwrap();
    assert_eq!(all.len(), Device::count().unwrap());
    let mut uuids = Vec::new();
    for device in all {
        assert!(!device.name().unwrap().is_empty());
        let bus = device.pci_bus_id().unwrap();
        assert!(bus.contains(':') && bus.contains('.'), "{bus}");
        let (major, _) = device.compute_capability().unwrap();
        assert!(major >= 5, "{major}");
        assert!(device.attribute(DeviceAttribute::MULTIPROCESSOR_COUNT).unwrap() > 0);
        let memory = device.memory_info().unwrap();
        assert!(memory.free <= memory.total && memory.total <= device.total_memory().unwrap(), "{memory:?}");
        let (least, greatest) = device.stream_priority_range().unwrap();
        assert!(greatest <= least);
        assert_eq!(Device::at_pci_bus(&bus).unwrap(), device);
        uuids.push(device.uuid().unwrap());
    }
    let count = uuids.len();
    uuids.sort_unstable();
    uuids.dedup();
    assert_eq!(uuids.len(), count, "two devices have one uuid");
}

#[test]
fn versions_are_known() {
    let (driver, runtime) = (driver_version().unwrap(), runtime_version().unwrap());
    assert!(driver >= 12000 && runtime >= 12000, "driver {driver}, runtime {runtime}");
}

#[test]
fn an_ordinal_out_of_range_is_named() {
    let count = Device::count().unwrap();
    let error = Device::new(count).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { operation: "Device::new", .. }), "{error}");
    assert!(error.to_string().contains(&count.to_string()), "{error}");
    Device::new(usize::MAX).unwrap_err();
}

#[test]
fn a_bus_without_a_device() {
    for nowhere in ["ffff:ff:1f.7", "", "0"] {
        let error = Device::at_pci_bus(nowhere).unwrap_err();
        assert!(matches!(error, Error::Cuda { operation: "cudaDeviceGetByPCIBusId", .. }), "{error}");
    }
    let error = Device::at_pci_bus("0\0").unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { operation: "Device::at_pci_bus", .. }), "{error}");
    // The failure must not be reported again by a call that is fine.
    Stream::new(device()).unwrap().synchronize().unwrap();
}

#[test]
fn an_unknown_attribute_is_an_error_and_leaves_none_behind() {
    let error = device().attribute(DeviceAttribute(99_999)).unwrap_err();
    assert!(matches!(error, Error::Cuda { operation: "cudaDeviceGetAttribute", .. }), "{error}");
    // The failure must not be reported again by a call that is fine.
    Stream::new(device()).unwrap().synchronize().unwrap();
}

#[test]
fn the_guard_restores_the_device() {
    let Some((a, b)) = two_devices() else { return };
    std::thread::spawn(move || {
        // Both are in use from here on.
        let _streams = (Stream::new(a).unwrap(), Stream::new(b).unwrap());
        let outer = a.set_current().unwrap();
        assert_eq!(Device::current().unwrap(), a);
        {
            let guard = b.set_current().unwrap();
            assert_eq!((guard.device(), Device::current().unwrap()), (b, b));
        }
        assert_eq!(Device::current().unwrap(), a);
        drop(outer);
    })
    .join()
    .unwrap();
}

#[test]
fn objects_know_their_device_whatever_is_current() {
    let Some((a, b)) = two_devices() else { return };
    let _current = a.set_current().unwrap();
    let stream = Stream::new(b).unwrap();
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 100).unwrap();
    buffer.fill(&stream, 0x0102_0304).unwrap();
    assert_eq!(buffer.device(), b);
    assert_eq!(buffer.to_vec(&stream).unwrap(), [0x0102_0304; 100]);
    assert_eq!(Device::current().unwrap(), a);
}

#[test]
fn peers_can_be_asked_and_enabled() {
    let Some((a, b)) = two_devices() else { return };
    let can = a.can_access_peer(b).unwrap();
    assert_eq!(a.p2p_attribute(b, P2pAttribute::ACCESS_SUPPORTED).unwrap() != 0, can);
    if can {
        a.enable_peer_access(b).unwrap();
        a.enable_peer_access(b).unwrap();
    }
    assert!(!a.can_access_peer(a).unwrap());
}
