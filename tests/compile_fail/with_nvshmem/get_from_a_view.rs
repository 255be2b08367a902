//! A view is memory of another PE at an address of this one: a get wants the address of this PE's part.
use gpucomm::nvshmem::{Context, Pe, PeerView, SymmetricBuffer};
use gpucomm::Result;

fn get(ctx: &Context, target: &mut SymmetricBuffer<'_, u32>, view: &PeerView<'_, u32>) -> Result<()> {
    ctx.get(target, view, Pe(1))
}

fn main() {}
