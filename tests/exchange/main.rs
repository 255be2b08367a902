//! What ranks tell each other outside NCCL: one suite over threads, a shared directory and TCP, and random programs against a model.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUCOMM_TEST_SEED` | the seed of the random programs; printed at the start of each |
//! | `GPUCOMM_TEST_SLOWER` | multiplies every time limit, for slow machines |

mod attack;
mod deadlines;
mod ends;
mod fds;
mod generations;
mod keys;
#[cfg(feature = "mpi")]
mod mpi_late;
mod processes;
mod random;
mod support;
mod together;
mod views;
