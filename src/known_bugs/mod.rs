//! Bugs of versions of NVIDIA's libraries, in one place: what happens, and what this crate does about it.
//!
//! The program `gpucomm info --verbose` names those that concern what is installed, and `docs/known-bugs.md` shows them all; a test keeps the
//! two the same. Whatever goes around a bug asks the table whether the *running* version has it.

mod bug;
mod nvshmem;
mod table;
#[cfg(feature = "nvshmem")]
mod tell;

pub use bug::{BugStatus, KnownBug, Library};
#[cfg(nccl_ge_2_27)]
pub(crate) use table::ENDLESS_WINDOWS;
pub use table::TABLE;
#[cfg(feature = "nccl")]
pub(crate) use table::{
    ABORT_KEEPS_WINDOWS, MIN_CTAS_ALONE, MISALIGNED_WINDOWS, MISALIGNED_WITH_ONE_WINDOW, ONE_RANK_FLOAT8,
    ONE_RANK_PREMULSUM, REGISTRATIONS_LEFT, SPLIT_WITHOUT_PART, WINDOW_AVERAGES,
};
#[cfg(feature = "nvshmem")]
pub(crate) use tell::tell;

#[cfg(test)]
mod tests;
