//! Who has started the ranks, and the variables in which it says who each is.

use std::fmt;

/// Who has started the ranks of a [`Launch`](crate::launch::Launch), by the variables that it sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// The program itself, or `GPUCOMM_RANK` and `GPUCOMM_SIZE`.
    Explicit,
    /// `torchrun` and what sets the same variables, such as operators of Kubernetes.
    Torchrun,
    /// `gpucomm run`, which sets the same variables as `torchrun`. `GPUCOMM_LAUNCHER` calls both `torchrun`.
    GpucommRun,
    /// Slurm's `srun`.
    Slurm,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// The launchers of MVAPICH2 and of MVAPICH 3 and 4 (MVAPICH-Plus).
    Mvapich,
    /// `jsrun` of IBM's Job Step Manager.
    Jsm,
    /// Flux.
    Flux,
    /// PALS, HPE's `mpiexec`.
    Pals,
    /// A process manager that speaks PMI, such as the `mpiexec` of MPICH and of Intel MPI.
    Pmi,
    /// Amazon SageMaker, which starts one process on each host.
    SageMaker,
    /// Nobody: the program runs by itself.
    Alone,
}

impl Launcher {
    /// All that `GPUCOMM_LAUNCHER` may name.
    pub(crate) const ALL: [Self; 11] = [
        Self::Explicit,
        Self::Torchrun,
        Self::Slurm,
        Self::OpenMpi,
        Self::Mvapich,
        Self::Jsm,
        Self::Flux,
        Self::Pals,
        Self::Pmi,
        Self::SageMaker,
        Self::Alone,
    ];

    /// As `GPUCOMM_LAUNCHER` has it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Torchrun | Self::GpucommRun => "torchrun",
            Self::Slurm => "slurm",
            Self::OpenMpi => "openmpi",
            Self::Mvapich => "mvapich",
            Self::Jsm => "jsm",
            Self::Flux => "flux",
            Self::Pals => "pals",
            Self::Pmi => "pmi",
            Self::SageMaker => "sagemaker",
            Self::Alone => "alone",
        }
    }
}

/// The variables in which a launcher says who a process is; of several names, the first that is set counts.
pub(crate) struct Names {
    pub(crate) rank: &'static [&'static str],
    pub(crate) size: &'static [&'static str],
    pub(crate) local_rank: &'static [&'static str],
    pub(crate) local_size: &'static [&'static str],
}

impl Launcher {
    pub(crate) const fn names(self) -> Option<Names> {
        let (rank, size, local_rank, local_size): (&[&str], &[&str], &[&str], &[&str]) = match self {
            Self::Explicit => (&["GPUCOMM_RANK"], &["GPUCOMM_SIZE"], &["GPUCOMM_LOCAL_RANK"], &["GPUCOMM_LOCAL_SIZE"]),
            Self::Torchrun | Self::GpucommRun => (&["RANK"], &["WORLD_SIZE"], &["LOCAL_RANK"], &["LOCAL_WORLD_SIZE"]),
            // What a step has, not what was allocated, of which a step may be a part.
            Self::Slurm => {
                (&["SLURM_PROCID"], &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"], &["SLURM_LOCALID"], &[])
            }
            Self::OpenMpi => (
                &["OMPI_COMM_WORLD_RANK"],
                &["OMPI_COMM_WORLD_SIZE"],
                &["OMPI_COMM_WORLD_LOCAL_RANK"],
                &["OMPI_COMM_WORLD_LOCAL_SIZE"],
            ),
            Self::Mvapich => (
                &["MVP_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"],
                &["MVP_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"],
                &["MVP_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK"],
                &["MVP_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"],
            ),
            Self::Jsm => (
                &["JSM_NAMESPACE_RANK"],
                &["JSM_NAMESPACE_SIZE"],
                &["JSM_NAMESPACE_LOCAL_RANK"],
                &["JSM_NAMESPACE_LOCAL_SIZE"],
            ),
            // How many tasks a host has follows from FLUX_JOB_NNODES, where it is 1.
            Self::Flux => (&["FLUX_TASK_RANK"], &["FLUX_JOB_SIZE"], &["FLUX_TASK_LOCAL_ID"], &[]),
            Self::Pals => (
                &["PALS_RANKID"],
                &["PALS_SIZE", "PMI_SIZE"],
                &["PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"],
                &["PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"],
            ),
            Self::Pmi => (
                &["PMI_RANK"],
                &["PMI_SIZE"],
                &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
                &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
            ),
            Self::SageMaker | Self::Alone => return None,
        };
        Some(Names { rank, size, local_rank, local_size })
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Explicit => "the program",
            Self::Torchrun => "torchrun",
            Self::GpucommRun => "gpucomm run",
            Self::Slurm => "Slurm",
            Self::OpenMpi => "Open MPI",
            Self::Mvapich => "MVAPICH",
            Self::Jsm => "JSM",
            Self::Flux => "Flux",
            Self::Pals => "PALS",
            Self::Pmi => "PMI",
            Self::SageMaker => "SageMaker",
            Self::Alone => "nobody",
        })
    }
}
