//! Which device each rank of a test has.

use gpucomm::Device;

/// All devices. Where `GPUCOMM_TEST_RANKS_PER_DEVICE` is set they come so many times, one round after the other: with
/// `NCCL_MULTI_RANK_GPU_ENABLE=1`, NCCL 2.30.3 and newer have several ranks on one device, and a machine with few runs what takes many.
pub fn places() -> Vec<Device> {
    let rounds = match std::env::var("GPUCOMM_TEST_RANKS_PER_DEVICE") {
        Ok(text) => text.parse().expect("GPUCOMM_TEST_RANKS_PER_DEVICE: a number"),
        Err(_) => 1,
    };
    let devices = Device::all().expect("devices");
    devices.iter().copied().cycle().take(devices.len() * rounds).collect()
}
