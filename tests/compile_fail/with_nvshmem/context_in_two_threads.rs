//! The library takes one thread at a time: a context can be sent, and not shared.
use gpucomm::Result;
use gpucomm::nvshmem::Context;

fn both(ctx: &Context) -> Result<()> {
    std::thread::scope(|scope| {
        let one = scope.spawn(|| ctx.quiet());
        ctx.fence()?;
        one.join().expect("a thread")
    })
}

fn main() {}
