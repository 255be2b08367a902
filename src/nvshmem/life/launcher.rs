//! What a launcher says of the processes that it has started.

use super::once::INIT;
use crate::error::{Error, Result};
use crate::launchers::Launcher;

/// Those that NVSHMEM may look for.
const LAUNCHERS: [Launcher; 3] = [Launcher::OpenMpi, Launcher::Pmi, Launcher::Slurm];

/// Flags by which attributes say who the PEs are: a communicator of MPI, OpenSHMEM, a unique id. Without them, it is the environment that does.
pub(super) const TOLD: u32 = 2 | 4 | crate::sys::NVSHMEMX_INIT_WITH_UNIQUEID;

/// A library that finds no launcher of the kind that it looks for starts as the only PE, in each of many processes, and says nothing.
///
/// # Errors
/// [`Error::InvalidUsage`] where this is the only PE of several processes.
pub(super) fn check(n_pes: usize) -> Result<()> {
    let many =
        |name: &str| std::env::var(name).ok().and_then(|text| text.trim().parse::<usize>().ok()).filter(|&n| n > 1);
    // The first name is that of what the launcher has started, which has nothing to do with what was allocated.
    let names = LAUNCHERS.into_iter().filter_map(|launcher| launcher.names()?.size.first().copied());
    let told = names.into_iter().find_map(|name| many(name).map(|size| (name, size)));
    let Some((name, size)) = told.filter(|_| n_pes == 1) else { return Ok(()) };
    let reason = format!(
        "NVSHMEM has found no other PE, and a launcher has started {size} processes ({name}): expected NVSHMEM_BOOTSTRAP=MPI under mpirun of Open MPI, \
         NVSHMEM_BOOTSTRAP_PMI=PMI-2 or PMIX under srun --mpi=pmi2 or pmix"
    );
    Err(Error::InvalidUsage { operation: INIT, reason })
}
