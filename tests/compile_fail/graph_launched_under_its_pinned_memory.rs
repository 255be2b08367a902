//! While the host looks at pinned memory of a graph, nobody launches that.
use gpucomm::cuda::GraphPinned;
use gpucomm::{Graph, Result, Stream};

fn step(stream: &Stream, graph: &mut Graph, input: &GraphPinned<f32>) -> Result<()> {
    let values = graph.pinned_mut(input)?;
    graph.launch(stream)?;
    values.fill(1.0);
    Ok(())
}

fn main() {}
