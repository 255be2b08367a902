//! Which variant an error is, without its fields.

use std::fmt;

/// Which variant an [`Error`](crate::Error) is, from [`Error::kind`](crate::Error::kind). Use it to compare, count or store errors.
///
/// It displays as the name of the variant:
///
/// ```
/// use gpucomm::ErrorKind;
///
/// assert_eq!(ErrorKind::Timeout.to_string(), "Timeout");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// This machine has no GPU that can be used.
    NoDevice,
    /// The installed driver is older than the CUDA runtime needs.
    DriverTooOld,
    /// Memory of the device, or pinned memory of the host, is used up.
    OutOfMemory,
    /// A call of the CUDA runtime or driver failed.
    Cuda,
    /// A device is lost to this process.
    DeviceLost,
    /// A call of NCCL failed.
    Nccl,
    /// A call of NVSHMEM failed.
    Nvshmem,
    /// An argument is wrong.
    InvalidArgument,
    /// Ranks of one communicator issued operations that do not belong together.
    Disagreement,
    /// An operation was not done within its deadline.
    Timeout,
    /// A request of a world was cancelled before it began.
    Cancelled,
    /// The communicator was aborted.
    Aborted,
    /// The communicator was revoked.
    Revoked,
    /// The communicator is suspended.
    Suspended,
    /// A rank that others wait for has died or left.
    Departed,
    /// The store through which the ranks talk failed or refused.
    Exchange,
    /// There is no multicast, or not the one that was asked for.
    Multicast,
    /// The installation cannot do this.
    Unsupported,
    /// The running library is older than the headers that this program was built with.
    LibraryTooOld,
    /// The call is not allowed where it was made.
    InvalidUsage,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}"))
    }
}
