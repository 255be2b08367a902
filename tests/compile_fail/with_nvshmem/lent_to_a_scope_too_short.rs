//! What transfers of a scope use outlives the scope, which waits for them.
use gpucomm::nvshmem::{Context, Pe, SymmetricBuffer};
use gpucomm::{DeviceBuffer, Result, Stream};

fn put(ctx: &Context, dest: &SymmetricBuffer<'_, u32>, stream: &Stream) -> Result<()> {
    ctx.nonblocking(|scope| {
        let source = DeviceBuffer::from_slice(stream, &[1u32, 2])?;
        scope.put(dest, &source, Pe(0))
    })
}

fn main() {}
