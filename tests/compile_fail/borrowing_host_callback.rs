//! A host callback runs later, so that it cannot borrow.
use gpucomm::{Result, Stream};

fn borrow(stream: &Stream) -> Result<()> {
    let mut count = 0;
    stream.launch_host(|| count += 1)?;
    Ok(())
}

fn main() {}
