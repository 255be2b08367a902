//! What becomes of those of which others were to be made, where that has failed.

use crate::deadline::Deadline;
use crate::error::Error;
use crate::nccl::enqueue::submit;
use crate::nccl::life::abort::{GRACE, abort};
use crate::nccl::state::inner::Inner;

/// The others rely on what has failed here, whatever `members` are.
pub(super) fn failed(members: &[&Inner], operation: &'static str, error: Error) -> Error {
    if !members.iter().any(|inner| inner.is_revoked() || inner.is_suspended()) {
        return submit::failed(members, operation, error);
    }
    let relatives: Vec<_> = members.iter().flat_map(|inner| inner.relatives()).collect();
    let _ = abort(&relatives, &error, &Deadline::after(GRACE));
    error
}
