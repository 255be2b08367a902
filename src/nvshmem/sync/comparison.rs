//! What a wait compares with.

use std::ffi::c_int;

use crate::sys;

/// How a [wait](crate::nvshmem::OnStream::signal_wait_until) compares what is in memory, on the left, with the value that it was given.
///
/// ```
/// use gpucomm::nvshmem::Comparison;
///
/// // A wait until three have come.
/// let (until, count) = (Comparison::Ge, 3);
/// assert_ne!((until, count), (Comparison::Eq, 3));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater.
    Gt,
    /// Less, or equal.
    Le,
    /// Less.
    Lt,
    /// Greater, or equal.
    Ge,
}

impl Comparison {
    pub(crate) fn raw(self) -> c_int {
        match self {
            Self::Eq => sys::NVSHMEM_CMP_EQ,
            Self::Ne => sys::NVSHMEM_CMP_NE,
            Self::Gt => sys::NVSHMEM_CMP_GT,
            Self::Le => sys::NVSHMEM_CMP_LE,
            Self::Lt => sys::NVSHMEM_CMP_LT,
            Self::Ge => sys::NVSHMEM_CMP_GE,
        }
    }
}
