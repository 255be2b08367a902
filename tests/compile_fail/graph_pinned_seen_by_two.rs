//! Who may launch a graph does not look at its pinned memory: that wants the graph alone.
use gpucomm::cuda::GraphPinned;
use gpucomm::{Graph, Result};

fn look<'g>(graph: &'g Graph, output: &'g GraphPinned<f32>) -> Result<&'g [f32]> {
    graph.pinned(output)
}

fn main() {}
