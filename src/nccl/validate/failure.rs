//! What a rank may do after the ranks have not agreed.

use crate::error::Error;

/// Why the ranks have not agreed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No other rank relies on this one, so the caller may retry.
    Retryable(Error),
    /// Other ranks may wait for this one, or have gone on: the communicator ends.
    Fatal(Error),
}

#[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
impl Failure {
    /// Of a rank that no other relies on: it may retry after a timeout. Any other error ends the
    /// communicator.
    pub(crate) fn late(error: Error) -> Self {
        match error {
            Error::Timeout { .. } => Self::Retryable(error),
            _ => Self::Fatal(error),
        }
    }

    /// The same of a rank that makes other communicators. After a revoke, here or elsewhere, they can still be
    /// made of this one.
    pub(crate) fn late_to_divide(error: Error) -> Self {
        if let Error::Revoked { .. } = error { Self::Retryable(error) } else { Self::late(error) }
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Retryable(error) | Self::Fatal(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}
