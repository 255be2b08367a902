//! What devices may do with memory, and the error of a call that may not.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::settings::MOST_DEVICES;
use crate::sys::cudaError;

/// What a device may do with memory, as CUDA numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub(crate) enum Access {
    None = 0,
    Read = 1,
    ReadWrite = 3,
}

/// A bit for each device.
type Devices = [AtomicU64; MOST_DEVICES / 64];

/// What each device of this process may do with some memory.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    readers: Devices,
    writers: Devices,
}

/// The word and the bit of the device with this ordinal.
fn place(device: i32) -> (usize, u64) {
    (device as usize / 64, 1 << (device % 64))
}

impl Rights {
    /// What the device with this ordinal may do.
    pub(crate) fn of(&self, device: i32) -> Access {
        let (word, bit) = place(device);
        let has = |devices: &Devices| devices[word].load(Ordering::Acquire) & bit;
        match (has(&self.readers), has(&self.writers)) {
            (0, 0) => Access::None,
            (_, 0) => Access::Read,
            _ => Access::ReadWrite,
        }
    }

    /// Changes what the device with this ordinal may do. Gives back what it could do before.
    pub(crate) fn set(&self, device: i32, access: Access) -> Access {
        let before = self.of(device);
        let (word, bit) = place(device);
        for (devices, least) in [(&self.readers, Access::Read), (&self.writers, Access::ReadWrite)] {
            if access >= least {
                devices[word].fetch_or(bit, Ordering::AcqRel);
            } else {
                devices[word].fetch_and(!bit, Ordering::AcqRel);
            }
        }
        before
    }
}

/// Why a range of device memory cannot be used, or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The error of the call.
    pub cuda: cudaError,
    /// What is wrong with which address; names what lies nearest.
    pub text: String,
}

impl Fault {
    /// An argument is wrong.
    pub(crate) fn value(text: impl Into<String>) -> Self {
        Self { cuda: cudaError::cudaErrorInvalidValue, text: text.into() }
    }
}

#[cfg(test)]
mod access_tests {
    use super::*;

    #[test]
    fn devices_have_rights_of_their_own() {
        let rights = Rights::default();
        for (device, access) in [(0, Access::Read), (63, Access::ReadWrite), (5, Access::None), (255, Access::Read)] {
            assert_eq!(rights.set(device, access), Access::None);
        }
        assert_eq!(
            [0, 1, 5, 63, 64, 127, 255].map(|device| rights.of(device)),
            [Access::Read, Access::None, Access::None, Access::ReadWrite, Access::None, Access::None, Access::Read]
        );
        assert_eq!(rights.set(63, Access::Read), Access::ReadWrite);
        assert_eq!((rights.of(63), rights.of(0)), (Access::Read, Access::Read));
    }
}
