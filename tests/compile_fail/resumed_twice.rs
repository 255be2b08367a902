//! What was resumed is not suspended any more.

use gpucomm::Result;
use gpucomm::nccl::Suspended;

fn twice(suspended: Suspended<'_>) -> Result<()> {
    suspended.resume()?;
    suspended.resume()?;
    Ok(())
}

fn main() {
    let _ = twice;
}
