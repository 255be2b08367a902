//! How PEs lie on devices.

use crate::sys;

/// What `nvshmemx_init_status` says of a context that has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Each PE has a device of its own.
    Initialized,
    /// Several PEs share a device, and CUDA's MPS does not serve them all at a time: the library has no collectives and no barriers of teams
    /// then. What it has not gives [`Error::Unsupported`](crate::Error::Unsupported).
    LimitedMpg,
    /// Several PEs share a device by CUDA's MPS, and everything works.
    FullMpg,
}

impl Status {
    /// Of the number; `None` where the library has not started.
    pub(crate) fn of(code: i32) -> Option<Self> {
        match code {
            sys::NVSHMEM_STATUS_IS_INITIALIZED => Some(Self::Initialized),
            sys::NVSHMEM_STATUS_LIMITED_MPG => Some(Self::LimitedMpg),
            sys::NVSHMEM_STATUS_FULL_MPG => Some(Self::FullMpg),
            _ => None,
        }
    }
}
