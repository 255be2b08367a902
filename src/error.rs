//! What can go wrong, as one type.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::codes::{CudaCode, NcclCode, NvshmemCode};
use crate::error_kind::ErrorKind;
use crate::refusal::Refusal;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every error of this crate. `operation` is the name of the C function or of the method that failed.
///
/// An error that follows from another one, such as that of each later call after a communicator has ended, leads to the first one: its
/// [`source`](std::error::Error::source) is a [`Cause`], and the source of that is the first error.
///
/// Its `Debug` form is one line too, the text and the name of the variant, so that a `main` that returns it ends with something that can be read:
///
/// ```
/// # use gpucomm::Error;
/// let error = Error::Unsupported { operation: "split", needs: "NCCL 2.18 or newer".into() };
/// assert_eq!(format!("Error: {error:?}"), "Error: split: not supported: needs NCCL 2.18 or newer [Unsupported]");
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine has no GPU that can be used. Match on it to fall back to the CPU or to one device.
    #[error("{operation}: no usable GPU: {reason}")]
    NoDevice {
        /// What was asked for.
        operation: &'static str,
        /// What the CUDA runtime said.
        reason: String,
    },

    /// The installed driver is older than the CUDA runtime needs.
    #[error("{operation}: the driver is too old: it supports CUDA {driver}, the runtime is {runtime}")]
    DriverTooOld {
        /// What was asked for.
        operation: &'static str,
        /// The newest CUDA version that the driver supports, or `none` where there is no driver.
        driver: String,
        /// The version of the CUDA runtime.
        runtime: String,
    },

    /// Memory of the device, or pinned memory of the host, is used up.
    #[error("{operation}: out of memory: {bytes} bytes asked for on {place}")]
    OutOfMemory {
        /// What was asked for.
        operation: &'static str,
        /// How many bytes; 0 where the library allocated for itself.
        bytes: usize,
        /// `device N` or `the host`.
        place: String,
    },

    /// A call of the CUDA runtime or driver failed.
    #[error("{operation}: CUDA error {code} ({name}): {message}")]
    Cuda {
        /// The C function.
        operation: &'static str,
        /// The `cudaError_t`.
        code: CudaCode,
        /// Its name, such as `cudaErrorIllegalAddress`.
        name: String,
        /// What `cudaGetErrorString` says.
        message: String,
    },

    /// A device is lost to this process: a kernel on it has failed, or its hardware has, and every call that concerns it
    /// gives this error from now on. What was on its way there is lost, and its memory too. Other devices go on where the
    /// driver lets them: on H200s with driver 580 a kernel that traps takes all devices of the process with it. To use it again
    /// takes a new process.
    #[error("{operation}: device {device} is lost: CUDA error {code} ({name}): {message}")]
    DeviceLost {
        /// The C function that said so.
        operation: &'static str,
        /// The ordinal of the device.
        device: i32,
        /// The `cudaError_t`.
        code: CudaCode,
        /// Its name, such as `cudaErrorIllegalAddress`.
        name: String,
        /// What `cudaGetErrorString` says.
        message: String,
    },

    /// A call of NCCL failed.
    #[error("{operation}: NCCL error {code} ({message}){}", last.iter().map(|last| format!(": {last}")).collect::<String>())]
    Nccl {
        /// The C function.
        operation: &'static str,
        /// The `ncclResult_t`.
        code: NcclCode,
        /// What `ncclGetErrorString` says.
        message: String,
        /// What `ncclGetLastError` said just then: the last warning that NCCL has written to its log, whatever `NCCL_DEBUG` says. It keeps
        /// one for the process, and not every failure has one, so it may belong to another call: where it had been there before, it says
        /// that.
        last: Option<String>,
    },

    /// A call of NVSHMEM failed.
    #[error("{operation}: NVSHMEM error {code} ({message})")]
    Nvshmem {
        /// The C function.
        operation: &'static str,
        /// What it returned.
        code: NvshmemCode,
        /// What that means.
        message: String,
    },

    /// An argument cannot be right: nothing was submitted.
    #[error("{operation}: {what}: expected {expected}, got {got}")]
    InvalidArgument {
        /// The method.
        operation: &'static str,
        /// Which argument or property.
        what: &'static str,
        /// What would have been accepted.
        expected: String,
        /// What came.
        got: String,
    },

    /// Ranks of one communicator issued calls that do not belong together, or others wait for one that has left: it has
    /// closed its communicator, or its program has returned from [`Clique::spmd`](crate::Clique::spmd). Nothing that disagrees was
    /// submitted; the communicator is aborted on every rank, and all of them report the same, each with its own `operation`.
    #[error("{operation}: rank {rank} disagrees with rank {peer}: expected {expected}, got {got}")]
    Disagreement {
        /// The method of the call that reports it.
        operation: &'static str,
        /// The rank that differs: from most of the others, or, where there is no majority, from the one that came first.
        rank: usize,
        /// A rank that it differs from.
        peer: usize,
        /// What `rank` had to issue, with its number: what `peer` issued, or the other end of a message of `peer`.
        expected: String,
        /// What `rank` issued; where it has left, how, and after how many collectives.
        got: String,
        /// Whether `rank` has left: it has issued nothing else in place of the operation.
        departed: bool,
        /// Whether `rank` and `peer` are numbers of ranks in a part of the communicator, which `got` names.
        in_part: bool,
    },

    /// The operation was not done within its deadline. Where that has ended a communicator, others are told by
    /// [`Error::Aborted`], with this as the source.
    #[error("{operation}: not done within {timeout:?}: {detail}")]
    Timeout {
        /// The method.
        operation: &'static str,
        /// How long it was allowed.
        timeout: Duration,
        /// What it was waiting for. Where that is an operation of a communicator: which one, its number, the rank and the peer; in a clique also who
        /// has not come to it, and which messages of that rank have no other end.
        detail: String,
        /// The rank or PE that waited, if it is known; as a `usize`: [`Error::rank`].
        rank: Option<u32>,
        /// The rank or PE that it waited for, if it waited for one only and that is known; as a `usize`: [`Error::peer`].
        peer: Option<u32>,
    },

    /// A request of a world was cancelled before it began.
    #[error("{operation}: cancelled before it began")]
    Cancelled {
        /// The method.
        operation: &'static str,
    },

    /// The communicator was aborted, by this rank or because another one failed.
    #[error("{operation}: {} was aborted: {reason}", reason.subject())]
    Aborted {
        /// The method.
        operation: &'static str,
        /// Why it was aborted.
        #[source]
        reason: Cause,
    },

    /// The communicator was [revoked](crate::nccl::Communicator::revoke): others can be made of it.
    #[error("{operation}: {} was revoked: {reason}", reason.subject())]
    Revoked {
        /// The method.
        operation: &'static str,
        /// Why it was revoked.
        #[source]
        reason: Cause,
    },

    /// The communicator is [suspended](crate::nccl::Communicator::suspend): it can be resumed.
    #[error("{operation}: {} is suspended: {reason}", reason.subject())]
    Suspended {
        /// The method.
        operation: &'static str,
        /// Why it was suspended.
        #[source]
        reason: Cause,
    },

    /// A rank that others wait for in an [`Exchange`](crate::exchange::Exchange) has ended, and will not come.
    #[error("{operation}: rank {rank} {how}")]
    Departed {
        /// The method.
        operation: &'static str,
        /// The rank that ended.
        rank: usize,
        /// How, as far as it is known, such as `has died` or `has left`; and what was waited for.
        how: String,
    },

    /// What ranks tell each other outside NCCL could not be told: the [`Store`](crate::exchange::Store) of an exchange failed, or refused.
    #[error("{operation}: {key:?}: {reason}")]
    Exchange {
        /// The method.
        operation: &'static str,
        /// The key, file or address.
        key: String,
        /// What was expected and what came, or what the system said.
        reason: String,
    },

    /// There is no multicast, or not this: [`Refusal`](crate::cuda::multicast::Refusal) tells the reasons apart, and says what to do.
    #[error("{operation}: {detail}: {why}")]
    Multicast {
        /// The method, or the C function.
        operation: &'static str,
        /// Why.
        why: Refusal,
        /// What was asked for, and what came.
        detail: String,
    },

    /// The installation cannot do this.
    #[error("{operation}: not supported: needs {needs}")]
    Unsupported {
        /// The method.
        operation: &'static str,
        /// What it would need.
        needs: String,
    },

    /// The running library is older than the headers that this program was built with.
    #[error(
        "{library} {running} is running, but this program was built for {built}: \
         use {library} {built} or newer at run time, or build against {running}"
    )]
    LibraryTooOld {
        /// The method that compares the versions.
        operation: &'static str,
        /// `NCCL`, `NVSHMEM` or `CUDA runtime`.
        library: &'static str,
        /// The version of the headers at build time.
        built: String,
        /// The version that is running.
        running: String,
    },

    /// A call that is not allowed where it was made, such as a group within a group.
    #[error("{operation}: {reason}")]
    InvalidUsage {
        /// The method.
        operation: &'static str,
        /// Why not here.
        reason: String,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.to_string();
        // Libraries, and reasons of users, may have several lines.
        if text.contains('\n') {
            text = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        }
        write!(f, "{text} [{}]", self.kind())
    }
}

impl Error {
    /// Returns which variant this is, without its fields.
    ///
    /// ```
    /// use gpucomm::{Error, ErrorKind};
    ///
    /// let error = Error::Unsupported { operation: "split", needs: "NCCL 2.18 or newer".into() };
    /// assert_eq!(error.kind(), ErrorKind::Unsupported);
    /// ```
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NoDevice { .. } => ErrorKind::NoDevice,
            Self::DriverTooOld { .. } => ErrorKind::DriverTooOld,
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Self::Cuda { .. } => ErrorKind::Cuda,
            Self::DeviceLost { .. } => ErrorKind::DeviceLost,
            Self::Nccl { .. } => ErrorKind::Nccl,
            Self::Nvshmem { .. } => ErrorKind::Nvshmem,
            Self::InvalidArgument { .. } => ErrorKind::InvalidArgument,
            Self::Disagreement { .. } => ErrorKind::Disagreement,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::Aborted { .. } => ErrorKind::Aborted,
            Self::Revoked { .. } => ErrorKind::Revoked,
            Self::Suspended { .. } => ErrorKind::Suspended,
            Self::Departed { .. } => ErrorKind::Departed,
            Self::Exchange { .. } => ErrorKind::Exchange,
            Self::Multicast { .. } => ErrorKind::Multicast,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::LibraryTooOld { .. } => ErrorKind::LibraryTooOld,
            Self::InvalidUsage { .. } => ErrorKind::InvalidUsage,
        }
    }

    /// Returns the name of the method or of the C function that failed: the method for what this crate finds, the C function for
    /// what a library says.
    ///
    /// ```
    /// use gpucomm::Error;
    ///
    /// let error = Error::Unsupported { operation: "split", needs: "NCCL 2.18 or newer".into() };
    /// assert_eq!(error.operation(), "split");
    /// ```
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        match self {
            Self::NoDevice { operation, .. }
            | Self::DriverTooOld { operation, .. }
            | Self::OutOfMemory { operation, .. }
            | Self::Cuda { operation, .. }
            | Self::DeviceLost { operation, .. }
            | Self::Nccl { operation, .. }
            | Self::Nvshmem { operation, .. }
            | Self::InvalidArgument { operation, .. }
            | Self::Disagreement { operation, .. }
            | Self::Timeout { operation, .. }
            | Self::Cancelled { operation }
            | Self::Aborted { operation, .. }
            | Self::Revoked { operation, .. }
            | Self::Suspended { operation, .. }
            | Self::Departed { operation, .. }
            | Self::Exchange { operation, .. }
            | Self::Multicast { operation, .. }
            | Self::Unsupported { operation, .. }
            | Self::LibraryTooOld { operation, .. }
            | Self::InvalidUsage { operation, .. } => operation,
        }
    }

    /// Returns the rank or PE that the error is about, if this process knows its number:
    /// - [`Disagreement`](Self::Disagreement): the rank that differs from the others, or has left.
    /// - [`Departed`](Self::Departed): the rank that has ended.
    /// - [`Timeout`](Self::Timeout): the rank that waited.
    /// - [`Aborted`](Self::Aborted) and [`Revoked`](Self::Revoked): the rank that has failed, or that has ended the communicator. If
    ///   another error is the cause, the rank of that.
    ///
    /// `None` for the other variants. The number is that of the communicator, exchange or context that the error is about. In a
    /// communicator that was made of another one, ranks have other numbers.
    ///
    /// ```
    /// use gpucomm::Error;
    ///
    /// let error = Error::Departed { operation: "all_reduce", rank: 2, how: "has died".into() };
    /// assert_eq!((error.rank(), error.peer()), (Some(2), None));
    /// ```
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::Aborted { reason, .. } | Self::Revoked { reason, .. } | Self::Suspended { reason, .. } => {
                reason.rank()
            }
            Self::Disagreement { rank, .. } | Self::Departed { rank, .. } => Some(*rank),
            Self::Timeout { rank: Some(rank), .. } => Some(*rank as usize),
            _ => None,
        }
    }

    /// Returns the other rank or PE that the error is about, if this process knows its number:
    /// - [`Disagreement`](Self::Disagreement): a rank that [`rank`](Self::rank) differs from, or that waits for it.
    /// - [`Timeout`](Self::Timeout): the rank that did not come, if it is one only.
    /// - [`Aborted`](Self::Aborted) and [`Revoked`](Self::Revoked): the same of the error that is the cause.
    ///
    /// `None` for the other variants.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gpucomm::Error;
    ///
    /// let (timeout, detail) = (Duration::from_secs(1), "rank 0 waits for a message of rank 3".into());
    /// let error = Error::Timeout { operation: "to_vec", timeout, detail, rank: Some(0), peer: Some(3) };
    /// assert_eq!((error.rank(), error.peer()), (Some(0), Some(3)));
    /// ```
    #[must_use]
    pub fn peer(&self) -> Option<usize> {
        match self {
            Self::Aborted { .. } | Self::Revoked { .. } | Self::Suspended { .. } => self.cause()?.peer(),
            Self::Disagreement { peer, .. } => Some(*peer),
            Self::Timeout { peer: Some(peer), .. } => Some(*peer as usize),
            _ => None,
        }
    }

    /// The error that this one follows from.
    fn cause(&self) -> Option<&Self> {
        match self {
            Self::Aborted { reason, .. } | Self::Revoked { reason, .. } | Self::Suspended { reason, .. } => {
                reason.error()
            }
            _ => None,
        }
    }

    /// Adds to a [`Timeout`](Self::Timeout) which rank has waited.
    pub(crate) fn waited_by(self, rank: usize) -> Self {
        self.between((Some(rank), None))
    }

    /// Adds to a [`Timeout`](Self::Timeout) which rank has waited, and for which one, as far as they are known.
    pub(crate) fn between(mut self, (waits, awaited): (Option<usize>, Option<usize>)) -> Self {
        if let Self::Timeout { rank, peer, .. } = &mut self {
            let short = |rank: usize| u32::try_from(rank).ok();
            *rank = waits.and_then(short).or(*rank);
            *peer = awaited.and_then(short).or(*peer);
        }
        self
    }

    /// Returns the error of a later `operation`, after this error has ended a communicator. Its sources lead to the first cause. It is no
    /// [`Error::Timeout`]: a timeout belongs to the call that waited.
    pub(crate) fn later(&self, operation: &'static str) -> Self {
        match self {
            Self::Aborted { reason, .. } => Self::Aborted { operation, reason: reason.following(self) },
            Self::Revoked { reason, .. } => Self::Revoked { operation, reason: reason.following(self) },
            Self::Disagreement { .. } => self.met_by(operation),
            other => Self::Aborted { operation, reason: other.clone().into() },
        }
    }

    /// The same failure, as `operation` meets it.
    pub(crate) fn met_by(&self, operation: &'static str) -> Self {
        let mut error = self.clone();
        match &mut error {
            Self::Disagreement { operation: met, .. }
            | Self::Timeout { operation: met, .. }
            | Self::Departed { operation: met, .. }
            | Self::Revoked { operation: met, .. }
            | Self::Suspended { operation: met, .. }
            | Self::Aborted { operation: met, .. } => *met = operation,
            // The others say which C function failed.
            _ => {}
        }
        error
    }

    /// The same, at whose end stands a note, in brackets: once, where it is told from one communicator to the next.
    pub(crate) fn noted(mut self, note: impl std::fmt::Display) -> Self {
        let text = match &mut self {
            Self::Aborted { reason, .. } | Self::Revoked { reason, .. } | Self::Suspended { reason, .. } => {
                &mut reason.text
            }
            Self::NoDevice { reason, .. } | Self::Exchange { reason, .. } | Self::InvalidUsage { reason, .. } => reason,
            Self::DriverTooOld { runtime, .. } => runtime,
            Self::OutOfMemory { place, .. } => place,
            Self::Cuda { message, .. } | Self::DeviceLost { message, .. } | Self::Nvshmem { message, .. } => message,
            Self::Nccl { message, last, .. } => last.as_mut().unwrap_or(message),
            Self::InvalidArgument { got, .. } | Self::Disagreement { got, .. } => got,
            Self::Timeout { detail, .. } | Self::Multicast { detail, .. } => detail,
            Self::Departed { how, .. } => how,
            Self::Unsupported { needs, .. } => needs,
            // One is about the whole program, and the other the will of who has asked.
            Self::LibraryTooOld { .. } | Self::Cancelled { .. } => return self,
        };
        let note = format!(" ({note})");
        if !text.ends_with(&note) {
            text.push_str(&note);
        }
        self
    }

    /// Adds to the text which rank has met the error, unless the error is about that rank. Ranks that disagree all report the
    /// same, and name who differs.
    pub(crate) fn of_rank(self, rank: usize) -> Self {
        let is_named = matches!(self, Self::Disagreement { .. }) || self.rank() == Some(rank);
        if is_named { self } else { self.noted(format_args!("of rank {rank}")) }
    }

    /// Adds to an error about the end of a communicator, context or world which one has ended: `communicator "tp"`. The first
    /// that was named stays.
    pub(crate) fn about(mut self, subject: Option<Arc<str>>) -> Self {
        if let Self::Aborted { reason, .. } | Self::Revoked { reason, .. } | Self::Suspended { reason, .. } = &mut self
            && reason.subject.is_none()
        {
            reason.subject = subject;
        }
        self
    }

    /// For how long it was waited where this is a [`Error::Timeout`].
    pub(crate) fn waited(&self) -> std::time::Duration {
        if let Self::Timeout { timeout, .. } = self { *timeout } else { std::time::Duration::ZERO }
    }

    /// An [`Error::InvalidArgument`].
    pub(crate) fn argument(
        operation: &'static str,
        what: &'static str,
        expected: impl std::fmt::Display,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::InvalidArgument { operation, what, expected: expected.to_string(), got: got.to_string() }
    }
}

/// Why a communicator or context was aborted, revoked or suspended: a text and, if it was because of another error, that error.
///
/// It can be used like a `&str`, and made from a text or from an [`Error`]:
///
/// ```
/// use gpucomm::{Error, Cause};
///
/// let reason = Cause::from("the user wants to stop");
/// assert!(reason.contains("user") && reason.error().is_none());
///
/// let late = Error::Departed { operation: "all_reduce", rank: 2, how: "has died".into() };
/// let reason = Cause::from(late.clone());
/// assert_eq!((reason.to_string(), reason.error()), (late.to_string(), Some(&late)));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Cause {
    text: String,
    /// The name of the object that has ended, such as `communicator "tp"`. `None` if it has no name.
    subject: Option<Arc<str>>,
    /// The rank that gave it, if it is known.
    rank: Option<u32>,
    cause: Option<Arc<Error>>,
}

impl Cause {
    /// Returns the error that the end of the communicator or context followed from, if it was an error. It is the
    /// [`source`](std::error::Error::source) of this.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Error};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// clique.rank(0).aborter().abort("the user wants to stop");
    /// let Err(Error::Aborted { reason, .. }) = clique.rank(1).async_error() else { panic!("it has ended") };
    /// assert!(matches!(reason.error(), Some(Error::Aborted { operation: "abort", .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.cause.as_deref()
    }

    /// A text, because of an error.
    pub(crate) fn because(text: impl Into<String>, cause: Error) -> Self {
        Self { cause: Some(Arc::new(cause)), ..Self::from(text.into()) }
    }

    /// The same, which `rank` gave.
    pub(crate) fn of_rank(self, rank: usize) -> Self {
        Self { rank: u32::try_from(rank).ok(), ..self }
    }

    /// The same with more text.
    #[cfg(any(test, feature = "nccl"))]
    pub(crate) fn with_text(mut self, more: &str) -> Self {
        self.text.push_str(more);
        self
    }

    /// The same as the reason of an error that follows from `first`, which has this reason.
    fn following(&self, first: &Error) -> Self {
        let cause = self.cause.clone().unwrap_or_else(|| Arc::new(first.clone()));
        Self { cause: Some(cause), ..self.clone() }
    }

    /// What has ended, as the subject of a sentence.
    fn subject(&self) -> &str {
        self.subject.as_deref().unwrap_or("the communicator")
    }

    fn rank(&self) -> Option<usize> {
        self.rank.map(|rank| rank as usize).or_else(|| self.error()?.rank())
    }
}

impl Deref for Cause {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error().map(|error| error as _)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl From<String> for Cause {
    fn from(text: String) -> Self {
        Self { text, subject: None, rank: None, cause: None }
    }
}

impl From<&str> for Cause {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Error> for Cause {
    fn from(cause: Error) -> Self {
        Self::because(cause.to_string(), cause)
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
