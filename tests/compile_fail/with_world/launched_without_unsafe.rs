//! What other processes submit nobody can see here.
use gpucomm::world::{World, WorldOptions};
use gpucomm::{Launch, Result};

fn start() -> Result<World> {
    World::from_launch(&Launch::from_env()?, WorldOptions::default())
}

fn main() {}
