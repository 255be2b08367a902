//! The emulator: the same C interface, on the CPU.

pub(crate) mod cuda;

pub(crate) mod nccl;

/// The C functions that `sys` re-exports.
pub mod exports {
    pub use super::cuda::exports::*;

    pub use super::nccl::exports::*;
}
