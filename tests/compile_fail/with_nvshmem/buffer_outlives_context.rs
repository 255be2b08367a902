//! Symmetric memory is the context's.
use gpucomm::Result;
use gpucomm::nvshmem::Context;

fn order(ctx: Context) -> Result<usize> {
    let buffer = ctx.alloc::<u32>(5)?;
    ctx.finalize()?;
    Ok(buffer.len())
}

fn main() {}
