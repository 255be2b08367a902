//! The captures of this crate that are under way, by device, and what is kept apart from them.
//!
//! CUDA cannot wait for a device while a stream of it is being captured, in whatever mode: it refuses, and may spoil the capture. Libraries
//! wait for devices on the inside, of which streams know nothing. So whoever has them do so keeps captures away meanwhile. Those of others,
//! which are not made by this crate, nobody knows here.

use std::thread;
use std::thread::ThreadId;

use crate::cuda::devices::device::Device;
use crate::deadline::{Deadline, default_timeout};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
use crate::error::Error;
use crate::error::Result;
use crate::lock::{Mutex, MutexGuard};

/// What there is of both.
struct All {
    /// A device of a capture, and who captures.
    open: Vec<(Device, ThreadId)>,
    /// Devices on which no capture begins, as often as somebody wants that.
    quiet: Vec<Device>,
}

static ALL: Mutex<All> = Mutex::new(All { open: Vec::new(), quiet: Vec::new() });

impl All {
    /// Whether somebody captures on one of `devices`.
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    fn are_captured(&self, devices: &[Device]) -> bool {
        self.open.iter().any(|(device, _)| devices.contains(device))
    }
}

fn all() -> MutexGuard<'static, All> {
    ALL.lock()
}

/// A capture of this thread has streams of a device, for as long as this lives.
pub(crate) struct Open(Device, ThreadId);

impl Open {
    /// Waits while the device is kept quiet.
    pub(super) fn begin(operation: &'static str, device: Device) -> Result<Self> {
        let thread = thread::current().id();
        let enter = || {
            let mut all = all();
            let free = !all.quiet.contains(&device);
            if free {
                all.open.push((device, thread));
            }
            free
        };
        if !enter() {
            let deadline = Deadline::after(default_timeout());
            let entered = deadline.until(|| Ok(enter().then_some(())))?;
            let detail = || format!("a call that waits for all of {device}, where nothing is captured meanwhile");
            entered.ok_or_else(|| deadline.error(operation, detail()))?;
        }
        Ok(Self(device, thread))
    }

    pub(super) fn device(&self) -> Device {
        self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut all = all();
        if let Some(at) = all.open.iter().position(|open| *open == (self.0, self.1)) {
            all.open.swap_remove(at);
        }
    }
}

/// Devices on which no capture begins for as long as this lives.
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
#[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
#[derive(Debug)]
pub(crate) struct Quiet(Vec<Device>);

#[cfg(any(feature = "nccl", feature = "nvshmem"))]
#[cfg_attr(not(nccl_ge_2_29_7), allow(dead_code))]
impl Quiet {
    /// Fails where this thread captures on one of `devices`.
    pub(crate) fn check(operation: &'static str, devices: &[Device]) -> Result<()> {
        let me = thread::current().id();
        let Some(device) =
            all().open.iter().find(|(device, thread)| *thread == me && devices.contains(device)).map(|open| open.0)
        else {
            return Ok(());
        };
        let reason = format!(
            "this waits for all of {device}, which CUDA does not while a stream of it is being captured: end the capture before"
        );
        Err(Error::InvalidUsage { operation, reason })
    }

    /// Returns true if nobody captures on any of `devices` now, so that [`keep`](Self::keep) would not wait.
    #[cfg(feature = "nvshmem")]
    pub(crate) fn can_be_kept(devices: &[Device]) -> bool {
        !all().are_captured(devices)
    }

    /// Waits until nobody captures on any of `devices`, unless there is a `refusal`; from then on nobody does. All of them at once, so that captures
    /// of several threads that wait for each other come to their ends.
    pub(crate) fn keep(
        operation: &'static str,
        devices: &[Device],
        deadline: &Deadline,
        refusal: impl Fn() -> Option<Error>,
    ) -> Result<Self> {
        let kept = deadline.until(|| {
            let mut all = all();
            if all.are_captured(devices) {
                drop(all);
                return refusal().map_or(Ok(None), Err);
            }
            all.quiet.extend(devices);
            Ok(Some(Self(devices.to_vec())))
        })?;
        kept.ok_or_else(|| deadline.error(operation, "a capture of another thread: no device is waited for meanwhile"))
    }
}

#[cfg(any(feature = "nccl", feature = "nvshmem"))]
impl Drop for Quiet {
    fn drop(&mut self) {
        let mut all = all();
        for device in &self.0 {
            if let Some(at) = all.quiet.iter().position(|quiet| quiet == device) {
                all.quiet.swap_remove(at);
            }
        }
    }
}
