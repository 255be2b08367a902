//! Pinned memory that has moved into a graph is gone for the host.
use gpucomm::{DeviceBuffer, Graph, PinnedBuffer, Result, Stream};

fn capture(stream: &Stream, x: &mut DeviceBuffer<f32>, mut input: PinnedBuffer<f32>) -> Result<Graph> {
    let graph = stream.capture(|lent| {
        let moved = lent.move_in(input)?;
        x.copy_from_pinned(lent, &moved)
    })?;
    input.as_mut_slice()?.fill(1.0);
    Ok(graph)
}

fn main() {}
