//! Why memory cannot be used.

use crate::sys::cudaError;

/// Why a range of device memory cannot be used, or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The error of the call.
    pub cuda: cudaError,
    /// What is wrong with which address; names what lies nearest.
    pub text: String,
}

impl Fault {
    /// An argument is wrong.
    pub(crate) fn value(text: impl Into<String>) -> Self {
        Self { cuda: cudaError::cudaErrorInvalidValue, text: text.into() }
    }
}
