//! Waits for other work on a device before the first operation of this process there.
//!
//! NCCL's kernels need more local memory than those before them. When the first one is launched, the
//! driver waits for everything on the device, and holds its lock: no deadline reaches the thread
//! inside NCCL, and other threads that use the device wait as well. So the caller first waits for the
//! work that this crate knows, and has a deadline for that. If `NCCL_SET_STACK_SIZE` is 1, NCCL makes
//! the memory when a communicator starts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::{Busy, Device};
use crate::error::Result;
use crate::nccl::calls::call::Call;
use crate::nccl::setup::environment;
use crate::shared_deadline::SharedDeadline;

/// The devices on which this process has submitted an operation, by their ordinals.
static LAUNCHED: AtomicU64 = AtomicU64::new(0);

fn bit(device: Device) -> u64 {
    1 << (device.ordinal() % 64)
}

/// Waits if `call` is the first on its device. The communicators are not locked.
///
/// # Errors
/// `Timeout` if the device is still busy at the timeout of the communicator; the communicator's cause
/// if it ends meanwhile. Nothing is submitted then.
#[inline]
pub(super) fn wait(call: &Call<'_>) -> Result<()> {
    if LAUNCHED.load(Ordering::Relaxed) & bit(call.comm.device) != 0 { Ok(()) } else { wait_for_device(call) }
}

#[cold]
fn wait_for_device(call: &Call<'_>) -> Result<()> {
    let (inner, device) = (call.comm, call.comm.device);
    // These launch nothing now.
    if call.count == 0 || call.stream.records() {
        return Ok(());
    }
    if !environment::sets_stack_size() {
        let mut busy = Busy::with(&[device]);
        let deadline = SharedDeadline::within(inner.timeout());
        let done = deadline.until(|| match inner.refusal(call.operation) {
            Some(error) => Err(error),
            None => Ok(busy.is_over().then_some(())),
        })?;
        done.ok_or_else(|| {
            let detail = format!(
                "the first operation of a process on {device} waits for the work there, which is not done. Nothing was \
                 submitted. With NCCL_SET_STACK_SIZE=1, communicators wait for it when they start, and operations do not"
            );
            deadline.error(call.operation, detail)
        })?;
    }
    LAUNCHED.fetch_or(bit(device), Ordering::Relaxed);
    Ok(())
}
