//! What the work of a device may do with memory.

use crate::memory::access::Access;
use crate::memory::space::held::InUse;
use crate::report;
use crate::sys::cudaError;

/// Refuses work of `device` that is to use memory in a way that is not open to it. CUDA says no more than the code; why stands on
/// stderr.
pub(super) fn check(operation: &str, used: &InUse, device: i32, wanted: Access) -> Result<(), cudaError> {
    let has = used.access(device);
    if has >= wanted {
        return Ok(());
    }
    let owner = used.device().unwrap_or(device);
    let [has, wanted] = [has, wanted].map(|access| match access {
        Access::None => "no",
        Access::Read => "read",
        Access::ReadWrite => "read and write",
    });
    report::line(format!(
        "{operation}: device {device} has {has} access to this memory of device {owner}, expected {wanted} access"
    ));
    Err(cudaError::cudaErrorInvalidValue)
}
