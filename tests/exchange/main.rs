//! What ranks tell each other outside NCCL: one suite over threads, a shared directory, TCP and c10d's TCPStore, and random programs against a model.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUCOMM_TEST_SEED` | the seed of the random programs; printed at the start of each |
//! | `GPUCOMM_TEST_PYTHON` | a Python that has PyTorch, for the ignored tests of `pytorch`: `scripts/c10d` |
//! | `GPUCOMM_TEST_SLOWER` | multiplies every time limit, for slow machines |

mod attack;
mod c10d;
mod deadlines;
mod ends;
mod fds;
mod files;
mod foreign;
mod forked;
mod generations;
#[path = "../support/hooked_store.rs"]
mod hooked_store;
mod hosted;
mod keys;
mod liar;
mod load;
mod mine;
#[cfg(feature = "mpi")]
mod mpi_late;
mod processes;
mod pytorch;
mod random;
mod scale;
#[cfg(feature = "secret")]
mod secrets;
mod slow_link;
mod support;
mod together;
mod views;
