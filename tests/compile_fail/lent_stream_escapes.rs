//! A bracket lends the stream for one closure: who enqueues later is not counted.
use gpucomm::cuda::LentStream;
use gpucomm::{Result, Stream};

fn keep(stream: &Stream) -> Result<LentStream<'_>> {
    stream.launch((), |stream, ()| stream)
}

fn main() {}
