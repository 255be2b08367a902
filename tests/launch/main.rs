//! Ranks that launchers have started: processes with the variables that these set, which meet, and compute together.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUCOMM_TEST_SLOWER` | multiplies every time limit, for slow machines |
//!
//! Real launchers start the same program in `.ci/launchers`.

mod meeting;
mod restarts;
mod support;
mod threads;
mod training;
