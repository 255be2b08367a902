//! What devices may do with mapped memory.

use super::place;
use crate::cuda::devices::device::Device;
use crate::cuda::memory::allocated::allocation::Reach;
use crate::error::{Error, Result};
use crate::sys;

/// What one device may do with memory that is mapped: a `CUmemAccessDesc`.
///
/// ```
/// # use gpucomm::Device;
/// # use gpucomm::cuda::vmm::{Access, PhysicalMemory};
/// # fn main() -> gpucomm::Result<()> {
/// let devices = Device::all()?;
/// // One device writes, those that can reach it read.
/// let readers = devices[1..].iter().filter(|peer| peer.can_access_peer(devices[0]).unwrap_or(false));
/// let mut access = vec![Access::read_write(devices[0])];
/// access.extend(readers.map(|reader| Access::read(*reader)));
/// let mapping = PhysicalMemory::new(devices[0], 2 << 20)?.map(&access)?;
/// assert!(mapping.access()[0].writes());
/// assert!(mapping.access()[1..].iter().all(|reader| reader.device() != devices[0] && !reader.writes()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    device: Device,
    writes: bool,
}

impl Access {
    /// The device may read it.
    pub fn read(device: Device) -> Self {
        Self { device, writes: false }
    }

    /// The device may read it and write to it.
    pub fn read_write(device: Device) -> Self {
        Self { device, writes: true }
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Whether it may write, too.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// As C has it.
    pub(crate) fn descriptor(&self) -> sys::CUmemAccessDesc_v1 {
        // SAFETY: integers only, of which zero is a value.
        let mut descriptor: sys::CUmemAccessDesc_v1 = unsafe { std::mem::zeroed() };
        descriptor.location = place::on(self.device);
        descriptor.flags = if self.writes {
            sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        } else {
            sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ
        };
        descriptor
    }
}

/// Checks what is given for memory of `home`: each device once, and none that cannot reach it.
pub(super) fn check(operation: &'static str, home: Device, all: &[Access]) -> Result<()> {
    let wrong = |expected: String, got: String| Err(Error::argument(operation, "access", expected, got));
    if all.is_empty() {
        return wrong("what at least one device may do".into(), "nothing".into());
    }
    for (at, one) in all.iter().enumerate() {
        if all[..at].iter().any(|other| other.device == one.device) {
            return wrong("each device once".into(), format!("{} twice", one.device));
        }
        if one.device != home && !one.device.can_access_peer(home)? {
            return wrong(format!("devices that can reach the memory of {home}"), format!("{}", one.device));
        }
    }
    Ok(())
}

/// As allocations have it.
pub(super) fn reach(all: &[Access]) -> Reach {
    all.iter().map(|one| (one.device, one.writes)).collect()
}
