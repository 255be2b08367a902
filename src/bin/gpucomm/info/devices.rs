//! The devices and the ways between them.

use gpucomm::Device;
use gpucomm::cuda::{DeviceAttribute, P2pAttribute};
use serde_json::{Value, json};

/// A list of devices, or a text that says why there is none.
pub fn describe() -> Value {
    match Device::all() {
        Ok(devices) => devices.iter().map(|&device| describe_one(device, &devices)).collect(),
        Err(error) => error.to_string().into(),
    }
}

fn describe_one(device: Device, all: &[Device]) -> Value {
    // A property that cannot be read is null; the others are still worth showing.
    let attribute = |attribute| device.attribute(attribute).ok();
    json!({
        "ordinal": device.ordinal(),
        "name": device.name().ok(),
        "compute_capability": device.compute_capability().ok().map(|(major, minor)| format!("{major}.{minor}")),
        "memory_bytes": device.total_memory().ok(),
        "pci": device.pci_bus_id().ok(),
        "uuid": device.uuid().ok().map(uuid),
        "multiprocessors": attribute(DeviceAttribute::MULTIPROCESSOR_COUNT),
        "memory_pools": attribute(DeviceAttribute::MEMORY_POOLS_SUPPORTED).map(|value| value != 0),
        "gpu_direct_rdma": attribute(DeviceAttribute::GPU_DIRECT_RDMA_SUPPORTED).map(|value| value != 0),
        "links": all.iter().map(|&peer| link(device, peer)).collect::<Vec<_>>(),
    })
}

/// The way from one device to another; null to itself.
fn link(device: Device, peer: Device) -> Value {
    if device == peer {
        return Value::Null;
    }
    let attribute = |attribute| device.p2p_attribute(peer, attribute).ok();
    json!({
        "to": peer.ordinal(),
        "access": device.can_access_peer(peer).ok(),
        "performance_rank": attribute(P2pAttribute::PERFORMANCE_RANK),
        "native_atomics": attribute(P2pAttribute::NATIVE_ATOMIC_SUPPORTED).map(|value| value != 0),
    })
}

/// As nvidia-smi writes it.
fn uuid(bytes: [u8; 16]) -> String {
    let mut text = "GPU".to_owned();
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn uuids() {
        let bytes = std::array::from_fn(|i| i as u8 * 16 + 1);
        assert_eq!(super::uuid(bytes), "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1");
    }
}
