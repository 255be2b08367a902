//! Memory of this device alone is not at the same place of another PE.
use gpucomm::nvshmem::{Context, Pe};
use gpucomm::{DeviceBuffer, Result};

fn put(ctx: &Context, dest: &DeviceBuffer<u32>, source: &DeviceBuffer<u32>) -> Result<()> {
    ctx.put(dest, source, Pe(1))
}

fn main() {}
