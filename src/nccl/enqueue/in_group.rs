//! Knows whether this thread runs the closure of a group, in which other calls are refused.

use std::cell::Cell;

use crate::cuda::outside_of_lending;
use crate::error::{Error, Result};

thread_local! {
    /// Whether this thread runs the closure of a group.
    static IN_GROUP: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as running the closure of a group, until the mark is dropped.
#[derive(Debug)]
pub(crate) struct GroupMark(());

impl GroupMark {
    /// # Errors
    /// Returns [`Error::InvalidUsage`] if the thread runs such a closure already: groups do not nest.
    pub(crate) fn set(operation: &'static str) -> Result<Self> {
        outside_of_lending(operation)?;
        if IN_GROUP.replace(true) {
            return Err(Error::InvalidUsage { operation, reason: "groups do not nest: one is open already".into() });
        }
        Ok(Self(()))
    }
}

impl Drop for GroupMark {
    fn drop(&mut self) {
        IN_GROUP.set(false);
    }
}

/// Returns an error if this thread runs the closure of a group, as `operation` cannot be part of one, or code that was lent a
/// communicator of NCCL.
pub(crate) fn outside_of_groups(operation: &'static str) -> Result<()> {
    refuse_within(operation, "it cannot be part of a group; call it before the group or after it")
}

/// The same, of an operation that a method of the group enqueues.
#[inline]
pub(crate) fn not_beside_group(operation: &'static str) -> Result<()> {
    refuse_within(operation, "within the closure of a group, call the methods of the group")
}

#[inline]
fn refuse_within(operation: &'static str, reason: &'static str) -> Result<()> {
    if IN_GROUP.get() {
        return Err(Error::InvalidUsage { operation, reason: reason.into() });
    }
    outside_of_lending(operation)
}
