//! A view is memory of another PE at an address of this one: a put wants the address of this PE's part.
use gpucomm::nvshmem::{Context, Pe, PeerView, SymmetricBuffer};
use gpucomm::Result;

fn put(ctx: &Context, source: &SymmetricBuffer<'_, u32>, view: &PeerView<'_, u32>) -> Result<()> {
    ctx.put(view, source, Pe(1))
}

fn main() {}
