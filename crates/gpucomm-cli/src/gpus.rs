//! The GPUs that this process sees, and the ways between them.

use gpucomm::Device;
use gpucomm::cuda::{DeviceAttribute, P2pAttribute};

/// What is known of one GPU. A property that cannot be read is `None`; the others are still worth showing.
#[derive(Debug, Clone, Default)]
pub struct Gpu {
    pub ordinal: i32,
    pub name: Option<String>,
    pub capability: Option<(i32, i32)>,
    pub memory: Option<usize>,
    /// Where it is on the PCI bus.
    pub pci: Option<String>,
    pub uuid: Option<String>,
    pub multiprocessors: Option<i32>,
    /// As `cudaDevAttrComputeMode` has it.
    pub compute_mode: Option<i32>,
    pub memory_pools: Option<bool>,
    pub rdma: Option<bool>,
    /// The ways to all GPUs, in their order; `None` to itself.
    pub links: Vec<Option<Link>>,
}

/// The way from one GPU to another.
#[derive(Debug, Clone, Default)]
pub struct Link {
    pub to: i32,
    /// Whether there is direct access.
    pub access: Option<bool>,
    pub performance_rank: Option<i32>,
    pub native_atomics: Option<bool>,
}

/// All that this process sees.
pub fn all() -> gpucomm::Result<Vec<Gpu>> {
    let devices = Device::all()?;
    Ok(devices.iter().map(|&device| gpu(device, &devices)).collect())
}

fn gpu(device: Device, all: &[Device]) -> Gpu {
    let attribute = |attribute| device.attribute(attribute).ok();
    Gpu {
        ordinal: device.ordinal(),
        name: device.name().ok(),
        capability: device.compute_capability().ok(),
        memory: device.total_memory().ok(),
        pci: device.pci_bus_id().ok(),
        uuid: device.uuid().ok().map(uuid),
        multiprocessors: attribute(DeviceAttribute::MULTIPROCESSOR_COUNT),
        compute_mode: attribute(DeviceAttribute::COMPUTE_MODE),
        memory_pools: attribute(DeviceAttribute::MEMORY_POOLS_SUPPORTED).map(|value| value != 0),
        rdma: attribute(DeviceAttribute::GPU_DIRECT_RDMA_SUPPORTED).map(|value| value != 0),
        links: all.iter().map(|&peer| (device != peer).then(|| link(device, peer))).collect(),
    }
}

fn link(device: Device, peer: Device) -> Link {
    let attribute = |attribute| device.p2p_attribute(peer, attribute).ok();
    Link {
        to: peer.ordinal(),
        access: device.can_access_peer(peer).ok(),
        performance_rank: attribute(P2pAttribute::PERFORMANCE_RANK),
        native_atomics: attribute(P2pAttribute::NATIVE_ATOMIC_SUPPORTED).map(|value| value != 0),
    }
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
