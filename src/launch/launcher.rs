//! Who has started the ranks.

use std::fmt;

/// Who has started the ranks of a [`Launch`](super::Launch), by the variables that it sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// The program itself, or `GPUCOMM_RANK` and `GPUCOMM_SIZE`.
    Explicit,
    /// `torchrun` and what sets the same variables: `gpucomm run`, and operators of Kubernetes.
    Torchrun,
    /// Slurm's `srun`.
    Slurm,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// PALS, HPE's `mpiexec`.
    Pals,
    /// A process manager that speaks PMI, such as the `mpiexec` of MPICH and of Intel MPI.
    Pmi,
    /// Nobody: the program runs by itself.
    Alone,
}

impl Launcher {
    /// All that `GPUCOMM_LAUNCHER` may name.
    pub(super) const ALL: [Self; 7] =
        [Self::Explicit, Self::Torchrun, Self::Slurm, Self::OpenMpi, Self::Pals, Self::Pmi, Self::Alone];

    /// As `GPUCOMM_LAUNCHER` has it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Torchrun => "torchrun",
            Self::Slurm => "slurm",
            Self::OpenMpi => "openmpi",
            Self::Pals => "pals",
            Self::Pmi => "pmi",
            Self::Alone => "alone",
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Explicit => "the program",
            Self::Torchrun => "torchrun",
            Self::Slurm => "Slurm",
            Self::OpenMpi => "Open MPI",
            Self::Pals => "PALS",
            Self::Pmi => "PMI",
            Self::Alone => "nobody",
        })
    }
}
