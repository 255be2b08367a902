//! Makes the local memory of NCCL's kernels, once for each device.
//!
//! If a kernel needs more local memory than any before it, the driver waits for everything on the
//! device when the kernel is launched, or a graph with it is instantiated. It holds its lock meanwhile: no
//! deadline reaches the thread inside NCCL, and other threads that use the device wait as well.
//! NCCL's kernels need different amounts. So before the first of them, the limit of the stack is raised to
//! what all of them need, which makes the memory. That waits for the device as well, and is done when the
//! device is idle, as far as this crate knows. If `NCCL_SET_STACK_SIZE` is 1, NCCL does this when a
//! communicator starts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::environment;
use crate::cuda::{self, Busy, Device};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// The local memory that a thread of NCCL's kernels needs at most, in bytes: 2040 in NCCL 2.28.9, on compute
/// capability 10.0.
const STACK: usize = 2048;

/// How long a launch may take to leave the gate of a device.
const LEAVES: Duration = Duration::from_millis(20);

/// How long copies and fills may take that were enqueued before the gate was shut.
const PASSES: Duration = Duration::from_millis(100);

/// How many devices [`MADE`] has room for. A process has far fewer.
const DEVICES: usize = 1024;

/// For each device, by its ordinal, whether its memory has been made.
static MADE: [AtomicBool; DEVICES] = [const { AtomicBool::new(false) }; DEVICES];

#[inline]
fn flag(device: Device) -> &'static AtomicBool {
    &MADE[device.ordinal() as usize % DEVICES]
}

/// Whether the memory of `device` has been made.
#[inline]
pub(crate) fn is_made(device: Device) -> bool {
    flag(device).load(Ordering::Relaxed)
}

/// Makes the memory of `device` for `operation`, when the device is idle.
///
/// # Errors
/// `Timeout` if the device is still busy at the deadline; what `refusal` returns; what CUDA says.
#[cold]
pub(crate) fn make(
    operation: &'static str,
    device: Device,
    deadline: &Deadline,
    refusal: impl Fn() -> Option<Error>,
) -> Result<()> {
    if !environment::sets_stack_size() {
        let mut busy = Busy::with(&[device]);
        let made = deadline.until(|| match refusal() {
            Some(error) => Err(error),
            None if !busy.is_over() => Ok(None),
            None => {
                let Some(_shut) = cuda::shut_gates(&[device], LEAVES) else { return Ok(None) };
                // Copies and fills pass the gate. They end by themselves, and there may always be some.
                busy = Busy::with(&[device]);
                if !Deadline::after(PASSES).wait(|| busy.is_over()) {
                    return Ok(None);
                }
                device.raise_stack_limit(operation, STACK).map(Some)
            }
        })?;
        made.ok_or_else(|| late(operation, device, deadline))?;
    }
    flag(device).store(true, Ordering::Relaxed);
    Ok(())
}

/// Waits until `devices` are idle if NCCL is to make their memory in this start.
///
/// # Errors
/// `Timeout` if they are not at the deadline.
pub(crate) fn before_start(operation: &'static str, devices: &[Device], deadline: &Deadline) -> Result<()> {
    if !environment::sets_stack_size() {
        return Ok(());
    }
    for &device in devices.iter().filter(|device| !is_made(**device)) {
        let mut busy = Busy::with(&[device]);
        if !deadline.wait(|| busy.is_over()) {
            return Err(late(operation, device, deadline));
        }
    }
    Ok(())
}

#[cold]
fn late(operation: &'static str, device: Device, deadline: &Deadline) -> Error {
    let detail = format!(
        "CUDA makes the local memory of NCCL's kernels on {device}, for which the device has to be idle: earlier work \
         there is not done. Nothing was submitted. With NCCL_SET_STACK_SIZE=1, the first communicator does this when it \
         starts; without it, the first operation"
    );
    deadline.error(operation, detail)
}
