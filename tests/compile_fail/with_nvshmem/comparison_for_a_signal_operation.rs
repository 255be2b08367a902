//! What a signal is set to, and what it is compared with, are two things.
use gpucomm::nvshmem::{Comparison, Context, Pe, Signal};
use gpucomm::{Result, Stream};

fn signal(ctx: &Context, signal: Signal<'_>, stream: &Stream) -> Result<()> {
    ctx.signal_op_on_stream(signal, Comparison::Eq, Pe(1), stream)
}

fn main() {}
