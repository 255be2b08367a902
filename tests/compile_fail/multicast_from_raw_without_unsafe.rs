//! A handle may be one of anything: who takes it over vouches for what it is.
use gpucomm::Device;
use gpucomm::cuda::multicast::{Multicast, Properties};

fn take(raw: u64, properties: &Properties, devices: &[Device]) {
    let _theirs = Multicast::from_raw(raw, properties, devices);
}

fn main() {}
