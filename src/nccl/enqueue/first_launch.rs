//! Makes the local memory of NCCL's kernels before the first operation of this process on a device is
//! submitted, alone or for a graph.

use crate::error::Result;
use crate::nccl::calls::call::Call;
use crate::nccl::setup::local_memory;
use crate::shared_deadline::SharedDeadline;

/// Waits if `call` is the first operation on its device. The communicators are not locked.
///
/// # Errors
/// `Timeout` if the device is still busy at the timeout of the communicator; the communicator's cause
/// if it ends meanwhile; what CUDA says. Nothing is submitted then.
#[inline]
pub(super) fn wait(call: &Call<'_>) -> Result<()> {
    if local_memory::is_made(call.comm.device) { Ok(()) } else { make(call) }
}

#[cold]
fn make(call: &Call<'_>) -> Result<()> {
    let inner = call.comm;
    // NCCL launches no kernel of its own for these.
    let is_message = call.kind.message().is_some() || call.kind.exchange().is_some();
    if call.count == 0 || (inner.size == 1 && !is_message) {
        return Ok(());
    }
    let deadline = SharedDeadline::within(inner.timeout());
    local_memory::make(call.operation, inner.device, &deadline, || inner.refusal(call.operation))
        .map_err(|error| error.waited_by(inner.rank))
}
