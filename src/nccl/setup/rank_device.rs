//! On which device of which host a rank starts: NCCL says that two ranks have the same one, and not what to do about it.

use std::fs;

use super::environment;
use crate::cuda::Device;
use crate::exchange::{Reader, Writer};

/// The device of a rank, as ranks on it know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankDevice {
    host: String,
    /// As NCCL tells hosts apart: its name and a number drawn at its start, or what was said.
    host_id: String,
    /// Where the device is on the bus; empty where that is not known.
    bus: String,
    /// What the rank has it by: its number, and what that is one of.
    by: String,
    /// Whether the rank may share it.
    is_shared: bool,
}

impl RankDevice {
    /// That of this process.
    pub(crate) fn of(device: Device) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let host = read("/proc/sys/kernel/hostname");
        let boot = || format!("{host} {}", read("/proc/sys/kernel/random/boot_id"));
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").map(|visible| format!("CUDA_VISIBLE_DEVICES={visible}"));
        let visible = visible.unwrap_or_else(|_| "no CUDA_VISIBLE_DEVICES".to_owned());
        Self {
            host_id: environment::host_id().unwrap_or_else(boot),
            host,
            bus: device.pci_bus_id().unwrap_or_default(),
            by: format!("device {} with {visible}", device.ordinal()),
            is_shared: environment::ranks_share_devices(),
        }
    }

    pub(crate) fn encode(&self, writer: Writer) -> Writer {
        let Self { host, host_id, bus, by, is_shared } = self;
        writer.text(host).text(host_id).text(bus).text(by).u8((*is_shared).into())
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let mut text = || Some(reader.text()?.to_owned());
        let (host, host_id, bus, by) = (text()?, text()?, text()?, text()?);
        Some(Self { host, host_id, bus, by, is_shared: reader.u8()? != 0 })
    }

    /// Whether NCCL refuses the two for this.
    fn excludes(&self, other: &Self) -> bool {
        let same = self.host_id == other.host_id && self.bus == other.bus && !self.bus.is_empty();
        same && !(self.is_shared && other.is_shared)
    }
}

/// Which two of all ranks have one device, and what to do about it.
pub(crate) fn shared(rank_devices: &[RankDevice]) -> Option<String> {
    let pairs = (0..rank_devices.len()).flat_map(|rank| (0..rank).map(move |other| (other, rank)));
    let (one, other) = pairs.into_iter().find(|(one, other)| rank_devices[*one].excludes(&rank_devices[*other]))?;
    let (RankDevice { host, bus, by, .. }, also) = (&rank_devices[one], &rank_devices[other].by);
    Some(format!(
        "ranks {one} and {other} have one device, {bus} of host {host}: rank {one} has it as {by}, rank {other} as {also}. Expected one for each rank: \
         Launch::device goes by the rank on the host, where GPUCOMM_DEVICE says nothing else; or CUDA_VISIBLE_DEVICES shows each \
         process another one. NCCL 2.30.3 and newer have several ranks on one where all have NCCL_MULTI_RANK_GPU_ENABLE=1"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_on_one_device_are_named() {
        let rank_device = |host: &str, bus: &str, is_shared| RankDevice {
            host: "node".to_owned(),
            host_id: host.to_owned(),
            bus: bus.to_owned(),
            by: "device 0 with CUDA_VISIBLE_DEVICES=1".to_owned(),
            is_shared,
        };
        let bytes = rank_device("a", "1", true).encode(Writer::default()).0;
        assert_eq!(RankDevice::decode(&mut Reader(&bytes)), Some(rank_device("a", "1", true)));
        for len in 0..bytes.len() {
            assert_eq!(RankDevice::decode(&mut Reader(&bytes[..len])), None);
        }
        let says = |rank_devices: &[RankDevice]| shared(rank_devices).unwrap_or_default();
        let text = says(&[
            rank_device("a", "0", false),
            rank_device("a", "1", false),
            rank_device("b", "1", false),
            rank_device("a", "1", false),
        ]);
        assert!(text.starts_with("ranks 1 and 3 have one device, 1 of host node: rank 1 has it as device 0"), "{text}");
        // On two hosts, and where nobody knows which device it is; and where both may.
        assert_eq!(
            says(&[
                rank_device("a", "0", false),
                rank_device("b", "0", false),
                rank_device("c", "", false),
                rank_device("c", "", false)
            ]),
            ""
        );
        assert_eq!(says(&[rank_device("a", "0", true), rank_device("a", "0", true)]), "");
        assert!(!says(&[rank_device("a", "0", true), rank_device("a", "0", false)]).is_empty());
    }
}
