//! Ranks that a launcher with PMIx has started: a launcher of these tests, Slurm and Open MPI where they are installed.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUCOMM_TEST_SLOWER` | multiplies every time limit, for slow machines |
//! | `GPUCOMM_TEST_STRICT` | 1: it is a failure where a launcher is missing |

#[path = "../support/child.rs"]
mod child;
mod declarations;
mod launched;
mod launchers;
mod ranks;
mod served;
#[path = "../support/skip.rs"]
mod skip;
#[path = "../support/slower.rs"]
mod slower;
