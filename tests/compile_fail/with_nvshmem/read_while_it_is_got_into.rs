//! What a get of a scope writes to is nobody else's until the scope is over.
use gpucomm::nvshmem::{Context, Pe, SymmetricBuffer};
use gpucomm::{DeviceBuffer, Result, Stream};

fn get(ctx: &Context, source: &SymmetricBuffer<'_, u32>, dest: &mut DeviceBuffer<u32>, stream: &Stream) -> Result<()> {
    ctx.nonblocking(|scope| {
        scope.get(&mut *dest, source, Pe(0))?;
        dest.to_vec(stream).map(drop)
    })
}

fn main() {}
