//! Multicast objects by their handles.

use super::vmm::{self, Thing};
use crate::cuda::core::device;
use crate::cuda::tasks::vmm::refuse;
use crate::memory::access::Fault;
use crate::memory::mapped;
use crate::memory::multicast::{Multicast, Shape};
use crate::refusals::Step;
use crate::report;
use crate::settings::settings;
use crate::sys::cudaError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// From so many bytes on, H200s recommend steps of as many.
const LARGE: u64 = 512 << 20;
/// How often a bind that waits looks.
const INTERVAL: Duration = Duration::from_millis(1);

/// Whether devices have multicast: where there is one only, H200s say that it has none.
pub(crate) fn is_supported() -> bool {
    settings().devices > 1 && !settings().multicast.unsupported
}

fn supported() -> Result<(), Fault> {
    if is_supported() {
        return Ok(());
    }
    Err(Fault { cuda: cudaError::cudaErrorNotSupported, text: "the devices have no multicast".into() })
}

/// Wraps `cuMulticastGetGranularity`: the least step, and the recommended one. What else is asked for does not matter on H200s.
pub(crate) fn granularity(bytes: u64) -> Result<(usize, usize), Fault> {
    supported()?;
    let recommended = if bytes < LARGE { mapped::GRANULARITY } else { LARGE as usize };
    Ok((mapped::GRANULARITY, recommended))
}

/// Wraps `cuMulticastCreate`.
pub(crate) fn create(shape: Shape) -> Result<u64, Fault> {
    supported()?;
    refuse(Step::Create)?;
    Multicast::new(device::current_device(), shape).map(|made| vmm::own(Thing::Multicast(made)))
}

/// Wraps `cuMulticastAddDevice`.
pub(crate) fn add(handle: u64, ordinal: i32) -> Result<(), Fault> {
    let multicast = vmm::multicast(handle)?;
    device::device(ordinal).map_err(|cuda| Fault { cuda, text: format!("there is no device {ordinal}") })?;
    supported()?;
    refuse(Step::Add)?;
    multicast.add(ordinal)
}

/// What is to be bound.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// Of a handle, from an offset on.
    Memory(u64, u64),
    Address(usize),
}

/// Wraps `cuMulticastBindMem` and `cuMulticastBindAddr`, in both versions: the older one does not say for which device.
pub(crate) fn bind(handle: u64, device: Option<i32>, at: u64, source: Source, bytes: u64) -> Result<(), Fault> {
    let multicast = vmm::multicast(handle)?;
    let (physical, owner) = match source {
        Source::Memory(memory, _) => {
            let physical = vmm::physical(memory)?;
            let owner = physical.nature.ordinal;
            (Some(physical), owner)
        }
        Source::Address(address) => {
            let owner = crate::memory::usage::device_at(address);
            (None, owner.ok_or_else(|| vmm::nothing_at(address))?)
        }
    };
    if device.is_some_and(|device| device != owner) {
        return Err(Fault::value(format!("memory of device {owner}, for device {device:?}")));
    }
    multicast.check(owner, at, bytes)?;
    refuse(Step::Bind)?;
    wait(&multicast);
    multicast.has(owner)?;
    match (source, physical) {
        (Source::Memory(_, from), Some(physical)) => multicast.bind(physical, at, from, bytes),
        (Source::Address(address), _) => multicast.bind_address(owner, at, address, bytes),
        (Source::Memory(..), None) => unreachable!("it was looked up above"),
    }
}

/// Returns when all devices were added, as the driver does: perhaps never.
pub(crate) fn wait(multicast: &Multicast) {
    let (since, mut told) = (Instant::now(), false);
    while !multicast.is_complete() {
        std::thread::sleep(INTERVAL);
        if !told && settings().deadlock.is_some_and(|patience| since.elapsed() >= patience) {
            told = true;
            let (added, devices) = (multicast.added(), multicast.shape().devices);
            report::line(format!("{} waits for devices: {added} of {devices} were added", report::call()));
        }
    }
}

/// Wraps `cuMulticastUnbind`.
pub(crate) fn unbind(handle: u64, ordinal: i32, at: u64, bytes: u64) -> Result<(), Fault> {
    let multicast = vmm::multicast(handle)?;
    refuse(Step::Unbind)?;
    if multicast.unbind(ordinal, at, bytes)? {
        return Ok(());
    }
    let text =
        format!("cuMulticastUnbind: {bytes} bytes at {at} of device {ordinal}, expected just what was bound at once");
    report::violation(&text);
    Err(Fault::value(text))
}

/// Wraps `cuMemMap` for a multicast object.
pub(crate) fn map(multicast: &Arc<Multicast>, base: usize, bytes: usize) -> Result<(), Fault> {
    refuse(Step::Map)?;
    wait(multicast);
    multicast.map(base, bytes)
}
