//! Memory of the host is not lent, unless it is pinned: a device cannot use it.
use gpucomm::{Result, Stream};

fn launch(stream: &Stream, x: &mut Vec<f32>) -> Result<()> {
    stream.launch(x, |_, _| ())
}

fn main() {}
