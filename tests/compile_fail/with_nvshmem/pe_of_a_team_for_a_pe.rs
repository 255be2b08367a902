//! The number of a PE in a team is not its number in the world.
use gpucomm::nvshmem::{Context, SymmetricBuffer, TeamPe};
use gpucomm::Result;

fn put(ctx: &Context, dest: &SymmetricBuffer<'_, u32>, source: &SymmetricBuffer<'_, u32>) -> Result<()> {
    ctx.put(dest, source, TeamPe(1))
}

fn main() {}
