//! What is lent to a launch stays there.
use gpucomm::cuda::multicast::McPtr;
use gpucomm::{Result, Stream};

fn launch(stream: &Stream, all: &mut McPtr<'_, f32>) -> Result<()> {
    let mut kept = None;
    stream.launch(all, |_, all| kept = Some(all))?;
    drop(kept);
    Ok(())
}

fn main() {}
