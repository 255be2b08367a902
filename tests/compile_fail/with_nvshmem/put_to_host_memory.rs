//! What is put to lies in symmetric memory of the other PE, not on this host.
use gpucomm::nvshmem::{Context, Pe, SymmetricBuffer};
use gpucomm::Result;

fn put(ctx: &Context, source: &SymmetricBuffer<'_, u32>, dest: &[u32]) -> Result<()> {
    ctx.put(dest, source, Pe(1))
}

fn main() {}
