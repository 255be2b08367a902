//! A team is the context's.
use gpucomm::Result;
use gpucomm::nvshmem::Context;

fn order(ctx: Context) -> Result<()> {
    let mut team = ctx.world()?;
    ctx.finalize()?;
    team.barrier()
}

fn main() {}
