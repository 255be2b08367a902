//! A team that others may be using can be asked, and not used.
use gpucomm::Result;
use gpucomm::nvshmem::Team;

fn sync(team: &Team<'_>) -> Result<()> {
    team.sync()
}

fn main() {}
