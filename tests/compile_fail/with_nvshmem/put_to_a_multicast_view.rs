//! What a switch writes to is the memory of all PEs at once, and of none that a put could name.
use gpucomm::nvshmem::{Context, MulticastView, Pe, SymmetricBuffer};
use gpucomm::Result;

fn put(ctx: &Context, source: &SymmetricBuffer<'_, u32>, view: &MulticastView<'_, u32>) -> Result<()> {
    ctx.put(view, source, Pe(1))
}

fn main() {}
