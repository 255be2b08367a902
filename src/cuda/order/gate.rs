//! Keeps work that may not end off a device for a moment.
//!
//! NCCL waits for the whole device when it frees a communicator, and holds a lock of the driver
//! meanwhile. It is asked to do so only when the device is idle, as far as this crate knows. A host
//! function, a kernel or a graph that is launched between that look and the end of the call would
//! hold up every later call for that device. So would an operation of a communicator that has
//! started since. So whoever launches one, or adds a communicator, [enters](enter) the gate of the
//! device, and NCCL frees while the gate is [shut].

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::cuda::devices::device::Device;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::shared_deadline::SharedDeadline;

/// How many devices have a gate of their own. If there are more, some share one.
const GATES: usize = 64;

/// The upper bits tell how many hold a gate shut, the lower ones how many launches are inside.
const SHUT: u32 = 1 << 16;

static GATES_OF_DEVICES: [AtomicU32; GATES] = [const { AtomicU32::new(0) }; GATES];

/// One launch inside a gate.
pub(crate) struct Entered(&'static AtomicU32);

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A gate that is shut, as long as this lives. Several may hold it shut: the ranks of one
/// communicator do, each on its own thread.
#[cfg(feature = "nccl")]
pub(crate) struct Shut(&'static AtomicU32);

#[cfg(feature = "nccl")]
impl Drop for Shut {
    fn drop(&mut self) {
        self.0.fetch_sub(SHUT, Ordering::Release);
    }
}

fn number(device: Device) -> usize {
    device.ordinal().unsigned_abs() as usize % GATES
}

#[inline]
fn try_enter(device: Device) -> Option<Entered> {
    let gate = &GATES_OF_DEVICES[number(device)];
    // Given back by the drop also if the gate is shut.
    let before = gate.fetch_add(1, Ordering::Acquire);
    let entered = Entered(gate);
    (before < SHUT).then_some(entered)
}

/// Whether NCCL frees a communicator on `device` while others are kept out.
#[cfg(feature = "nccl")]
pub(crate) fn is_shut(device: Device) -> bool {
    GATES_OF_DEVICES[number(device)].load(Ordering::Relaxed) >= SHUT
}

/// Enters the gate of `device` for one launch, for `operation`. Waits while the gate is shut.
///
/// # Errors
/// [`Error::Timeout`](crate::Error::Timeout) if it stays shut.
#[inline]
pub(crate) fn enter(operation: &'static str, device: Device, timeout: Duration) -> Result<Entered> {
    try_enter(device).map_or_else(|| wait(operation, device, timeout), Ok)
}

#[cold]
fn wait(operation: &'static str, device: Device, timeout: Duration) -> Result<Entered> {
    let deadline = SharedDeadline::within(timeout);
    let entered = deadline.until(|| Ok(try_enter(device)))?;
    entered.ok_or_else(|| late(operation, device, &deadline))
}

/// Enters the gates of all `devices`, as [`enter`] does that of one. Is inside none of them while it
/// waits.
#[cfg(feature = "nccl")]
pub(crate) fn enter_all(operation: &'static str, devices: &[Device], deadline: &Deadline) -> Result<Vec<Entered>> {
    let mut shut = None;
    let entered = deadline.until(|| {
        let enter = |&device: &Device| try_enter(device).ok_or_else(|| shut = Some(device));
        Ok(devices.iter().map(enter).collect::<std::result::Result<Vec<_>, _>>().ok())
    })?;
    entered.ok_or_else(|| match shut {
        Some(device) => late(operation, device, deadline),
        None => deadline.error(operation, "the gates of its devices stay shut"),
    })
}

#[cold]
fn late(operation: &'static str, device: Device, deadline: &Deadline) -> Error {
    deadline.error(operation, format!("NCCL frees a communicator on {device}, and waits for all work there"))
}

/// Shuts the gates of `devices`. Returns `None` if a launch does not leave one of them within this
/// time.
#[cfg(feature = "nccl")]
pub(crate) fn shut(devices: &[Device], within: Duration) -> Option<Vec<Shut>> {
    let mut numbers: Vec<_> = devices.iter().map(|device| number(*device)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let deadline = Deadline::after(within);
    let try_shut = |gate: &'static AtomicU32| {
        let shut = |gate: u32| gate.is_multiple_of(SHUT).then(|| gate + SHUT);
        let shut = gate.fetch_update(Ordering::AcqRel, Ordering::Relaxed, shut);
        Ok(shut.is_ok().then(|| Shut(gate)))
    };
    let shut = |number: usize| deadline.until(|| try_shut(&GATES_OF_DEVICES[number])).ok().flatten();
    numbers.into_iter().map(shut).collect()
}

#[cfg(all(test, feature = "nccl", gpucomm_emulator))]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(20);

    /// For what is possible. Other tests may shut these gates for a moment, or be inside.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn nobody_enters_while_a_gate_is_shut() {
        let device = Device::new(0).unwrap();
        let entered = enter("test", device, LONG).unwrap();
        assert!(shut(&[device], MOMENT).is_none(), "a launch is inside");
        drop(entered);
        let gates = shut(&[device, device], LONG).expect("no launch is inside");
        drop(shut(&[device], LONG).expect("several may shut it"));
        assert!(matches!(enter("test", device, MOMENT), Err(Error::Timeout { operation: "test", .. })));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(enter("test", device, LONG).unwrap()));
            drop(gates);
            waits.join().unwrap();
        });
        assert!(shut(&[device], LONG).is_some());
    }

    #[test]
    fn who_waits_for_one_gate_is_inside_no_other() {
        let [first, second] = [1, 2].map(|device| Device::new(device).unwrap());
        let gates = shut(&[second], LONG).expect("no launch is inside");
        let late = enter_all("test", &[first, second], &Deadline::after(MOMENT)).map(drop).unwrap_err();
        assert!(late.to_string().contains("NCCL frees a communicator on device"), "{late}");
        drop(shut(&[first], LONG).expect("a launch that has given up is inside no gate"));
        drop(gates);
        let entered = enter_all("test", &[first, second], &Deadline::after(LONG)).unwrap();
        assert!(shut(&[first], MOMENT).is_none() && shut(&[second], MOMENT).is_none());
        drop(entered);
    }
}
