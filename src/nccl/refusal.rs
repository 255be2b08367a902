//! What the ledger of a clique says against an operation.

use super::signature::Signature;
use crate::error::Error;

/// Why an operation must not be launched.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Another rank wrote down something else.
    Disagreement {
        /// The rank that wrote it.
        peer: usize,
        /// What it wrote.
        expected: Signature,
    },
    /// A rank did not keep up within the deadline, or the communicator has ended.
    Behind(Error),
}
