//! Which device each rank of a test has.

use gpucomm::Device;

/// All devices. Where the variable `rounds` is set they come so many times, one round after the other: what runs several on one device makes
/// of a machine with few what takes many.
pub fn places_by(rounds: &str) -> Vec<Device> {
    let rounds = std::env::var(rounds).map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("{rounds}: a number")));
    let devices = Device::all().expect("devices");
    devices.iter().copied().cycle().take(devices.len() * rounds).collect()
}

/// A device for each rank of NCCL, of which 2.30.3 and newer have several on one device with `NCCL_MULTI_RANK_GPU_ENABLE=1`.
#[allow(dead_code, reason = "those of NVSHMEM have their own")]
pub fn places() -> Vec<Device> {
    places_by("GPUCOMM_TEST_RANKS_PER_DEVICE")
}
