//! A world that was shut down has no ranks.
use std::time::Duration;

use gpucomm::Result;
use gpucomm::world::{Shutdown, World};

fn after(world: World) -> Result<()> {
    world.shutdown(Shutdown::Drain, Duration::from_secs(1))?;
    world.barrier().wait()?;
    Ok(())
}

fn main() {}
