//! What a group launches.

use std::sync::Arc;

use super::operation::Operation;
use crate::nccl::state::comm::Comm;
use crate::sys::cudaStream_t;

/// A stream's handle on its way to the thread that launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamHandle(pub(crate) cudaStream_t);

// SAFETY: the handle is a name, only looked up and never followed.
unsafe impl Send for StreamHandle {}

/// What a group launches on one communicator.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) comm: Arc<Comm>,
    /// The epoch of the communicator in which the first of them was issued.
    pub(crate) epoch: u32,
    /// The capture that their streams are part of.
    pub(crate) capture: Option<u64>,
    /// The stream of the first of them, and those of others.
    pub(crate) main: StreamHandle,
    pub(crate) others: Vec<StreamHandle>,
    pub(crate) operations: Vec<Operation>,
}
