//! What a launcher has started: who this process is, which device it takes, and where the ranks meet.
//!
//! One program runs under `torchrun`, `srun`, `mpirun` and `gpucomm run`, and by itself:
//!
//! ```
//! use gpucomm::{Communicator, InPlace, Launch, ReduceOp, Result, Stream};
//!
//! fn main() -> Result<()> {
//!     let launch = Launch::from_env()?;
//!     // SAFETY: all ranks run this program, and so issue the same operations in the same order.
//!     let comm = unsafe { Communicator::from_launch(&launch)? };
//!     let stream = Stream::new(comm.device())?;
//!     let mut sum = comm.alloc_from(&stream, &[launch.rank() as u64; 1000])?;
//!     comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, &stream)?;
//!     let ranks = launch.size() as u64;
//!     assert_eq!(sum.to_vec(&stream)?, [ranks * (ranks - 1) / 2; 1000]);
//!     Ok(())
//! }
//! ```
//!
//! # What is read
//!
//! The first that has started this very process counts:
//!
//! | launcher | who a process is | where ranks meet |
//! |---|---|---|
//! | the program, or its user | `GPUCOMM_RANK`, `GPUCOMM_SIZE`, `GPUCOMM_LOCAL_RANK`, `GPUCOMM_LOCAL_SIZE` | `GPUCOMM_STORE`, or `MASTER_ADDR` and `MASTER_PORT` |
//! | `torchrun` | `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE` | PyTorch's store at `MASTER_ADDR` and `MASTER_PORT`: that of the agent where `TORCHELASTIC_USE_AGENT_STORE` is `True`, else one of rank 0 |
//! | `gpucomm run` | the same | at a server that `gpucomm run` hosts, and names in `GPUCOMM_STORE` |
//! | Open MPI's `mpirun` | `OMPI_COMM_WORLD_RANK`, `_SIZE`, `_LOCAL_RANK`, `_LOCAL_SIZE` | rank 0 serves: on one host at a port that follows from the job; on several at `MASTER_ADDR`, or on the first node of a Slurm allocation |
//! | MVAPICH | `MVP_COMM_WORLD_RANK`, `_SIZE`, `_LOCAL_RANK`, `_LOCAL_SIZE`, or the same with `MV2_` | the same |
//! | JSM's `jsrun` | `JSM_NAMESPACE_RANK`, `_SIZE`, `_LOCAL_RANK`, `_LOCAL_SIZE` | the same, without Slurm |
//! | Flux | `FLUX_TASK_RANK`, `FLUX_JOB_SIZE`, `FLUX_TASK_LOCAL_ID`, `FLUX_JOB_NNODES` | the same, without Slurm |
//! | PALS | `PALS_RANKID`, `PALS_SIZE` or `PMI_SIZE`, `PALS_LOCAL_RANKID`, `PALS_LOCAL_SIZE` | the same, without Slurm |
//! | PMI, such as `mpiexec` of MPICH | `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` | as Open MPI's; on several hosts with `MASTER_PORT` |
//! | Slurm's `srun` | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS`, `SLURM_LOCALID`, `SLURM_STEP_TASKS_PER_NODE` | rank 0 serves, on the first node of `SLURM_STEP_NODELIST`, at a port that follows from job and step |
//! | SageMaker, one process on each host | `SM_HOSTS`, `SM_CURRENT_HOST` | rank 0 serves, on the first host, at a port that follows from `TRAINING_JOB_NAME` |
//!
//! A step of Slurm passes its variables on to whatever runs in it, so what the launchers of MPI and `torchrun` say is nearer to a process. What contradicts without such a
//! reason is an error that lists both; so is a launcher that says half of it where none says all, and a batch script that nobody has started the ranks of.
//! `gpucomm run` also sets `GPUCOMM_RUN`, by which [`Launcher`] tells it from `torchrun`. `GPUCOMM_LAUNCHER` chooses one: `explicit`,
//! `torchrun`, `openmpi`, `mvapich`, `jsm`, `flux`, `pals`, `pmi`, `slurm`, `sagemaker`, or `alone`.
//!
//! A process with another variable that numbers ranks or hosts, such as `PMIX_RANK` or `NODE_RANK`, and with none of the above, is
//! not taken for the only one: `from_env` returns an error that says what to set.
//!
//! `GPUCOMM_STORE` says where ranks meet under any launcher: `tcp://host:port` (rank 0 serves
//! there), `server://host:port` (a server that is no rank, such as that of `gpucomm store`, and
//! that outlives all ranks), `c10d://host:port` (rank 0 serves, in PyTorch's protocol) or
//! `file:///directory`, which all share. `GPUCOMM_JOB` is the name of the job, where no launcher has
//! one: ranks of another job that come to the same place are refused, or kept apart by a server that
//! is no rank. With `GPUCOMM_STORE_SECRET`, and the feature `secret`, only those are let in over `tcp`
//! and `server` who have the same. `GPUCOMM_DEVICE` is the device of this process.
//!
//! Where MPI is linked, [`MpiPlace`](crate::exchange#who-waits-for-whom) asks MPI itself.

mod choose;
mod claim;
mod device;
mod environment;
mod handle;
mod host;
mod join;
mod meeting;
mod meets;
mod nodes;
mod start;
#[cfg(test)]
mod tests;

pub use handle::Launch;

pub use crate::launchers::Launcher;

/// What reads the environment, in errors.
const FROM_ENV: &str = "Launch::from_env";
