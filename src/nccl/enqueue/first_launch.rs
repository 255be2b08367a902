//! Waits for other work on a device before this process launches its first operation there, or
//! instantiates a graph that has it.
//!
//! NCCL's kernels need more local memory than those before them. When the first one is launched, or
//! a graph with it is instantiated, the driver waits for everything on the device, and holds its lock: no deadline
//! reaches the thread inside NCCL, and other threads that use the device wait as well. So the caller first waits for the
//! work that this crate knows, and has a deadline for that. If `NCCL_SET_STACK_SIZE` is 1, NCCL makes
//! the memory when a communicator starts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::{Busy, CAPTURE, Device};
use crate::error::Result;
use crate::nccl::calls::call::Call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::setup::environment;
use crate::shared_deadline::SharedDeadline;

/// The devices on which an operation of this process has been launched.
static LAUNCHED: AtomicU64 = AtomicU64::new(0);

/// A set of devices, by their ordinals.
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "after the launch, they are passed to `launched`"]
pub(super) struct Devices(u64);

impl Devices {
    fn one(device: Device) -> Self {
        Self(1 << (device.ordinal() % 64))
    }
}

/// Waits if `call` is the first operation on its device. Returns that device. The communicators are not locked.
///
/// # Errors
/// `Timeout` if the device is still busy at the timeout of the communicator; the communicator's cause
/// if it ends meanwhile. Nothing is submitted then.
#[inline]
pub(super) fn wait(call: &Call<'_>) -> Result<Devices> {
    if is_first(call.comm.device) { wait_for_call(call) } else { Ok(Devices::default()) }
}

/// The same for the calls of a group.
pub(super) fn wait_for_all(calls: &[Call<'_>]) -> Result<Devices> {
    let mut devices = Devices::default();
    for call in calls {
        devices.0 |= wait(call)?.0;
    }
    Ok(devices)
}

/// The same before a graph with operations of `inner` is instantiated.
pub(super) fn wait_for_graph(inner: &Inner) -> Result<()> {
    if is_first(inner.device) { wait_for_device(inner, CAPTURE).map(drop) } else { Ok(()) }
}

/// A graph was instantiated that has operations on `device`.
pub(super) fn instantiated(device: Device) {
    launched(Devices::one(device));
}

/// On these devices an operation has been launched now.
#[inline]
pub(super) fn launched(devices: Devices) {
    if devices.0 != 0 {
        LAUNCHED.fetch_or(devices.0, Ordering::Relaxed);
    }
}

#[inline]
fn is_first(device: Device) -> bool {
    LAUNCHED.load(Ordering::Relaxed) & Devices::one(device).0 == 0
}

#[cold]
fn wait_for_call(call: &Call<'_>) -> Result<Devices> {
    if call.count == 0 {
        return Ok(Devices::default());
    }
    let devices = wait_for_device(call.comm, call.operation)?;
    // A call that is captured may connect ranks now, which launches a kernel; its own comes later.
    Ok(if call.stream.records() { Devices::default() } else { devices })
}

#[cold]
fn wait_for_device(inner: &Inner, operation: &'static str) -> Result<Devices> {
    let device = inner.device;
    if !environment::sets_stack_size() {
        let mut busy = Busy::with(&[device]);
        let deadline = SharedDeadline::within(inner.timeout());
        let done = deadline.until(|| match inner.refusal(operation) {
            Some(error) => Err(error),
            None => Ok(busy.is_over().then_some(())),
        })?;
        done.ok_or_else(|| {
            let detail = format!(
                "the first operation of a process on {device} waits for the work there, which is not done. Nothing was \
                 submitted. With NCCL_SET_STACK_SIZE=1, communicators wait for it when they start, and operations do not"
            );
            deadline.error(operation, detail).waited_by(inner.rank)
        })?;
    }
    Ok(Devices::one(device))
}
