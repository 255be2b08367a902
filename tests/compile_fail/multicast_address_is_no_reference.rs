//! The host does not follow an address of several devices.
use gpucomm::cuda::multicast::McPtr;

fn first(all: &McPtr<'_, f32>) -> f32 {
    **all
}

fn main() {}
