//! A team does one thing at a time: what uses it holds it alone.
use gpucomm::Result;
use gpucomm::nvshmem::Team;

fn both(one: &mut Team<'_>, other: &mut Team<'_>) -> Result<()> {
    one.barrier()?;
    other.sync()
}

fn twice(mut team: Team<'_>) -> Result<()> {
    both(&mut team, &mut team)
}

fn main() {}
