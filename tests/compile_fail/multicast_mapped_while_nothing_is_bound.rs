//! An object cannot be mapped before memory is bound.
use gpucomm::Result;
use gpucomm::cuda::multicast::{Complete, Multicast};

fn map(complete: Multicast<Complete>) -> Result<()> {
    complete.map()?;
    Ok(())
}

fn main() {}
