//! What devices may do with memory, and the error of a call that may not.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::cudaError;

/// What a device may do with memory, as CUDA numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub(crate) enum Access {
    None = 0,
    Read = 1,
    ReadWrite = 3,
}

/// What each device of this process may do with some memory.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    readers: AtomicU64,
    writers: AtomicU64,
}

impl Rights {
    /// What the device with this ordinal may do.
    pub(crate) fn of(&self, device: i32) -> Access {
        let bit = 1u64 << device;
        match (self.readers.load(Ordering::Acquire) & bit, self.writers.load(Ordering::Acquire) & bit) {
            (0, 0) => Access::None,
            (_, 0) => Access::Read,
            _ => Access::ReadWrite,
        }
    }

    /// Changes what the device with this ordinal may do. Gives back what it could do before.
    pub(crate) fn set(&self, device: i32, access: Access) -> Access {
        let before = self.of(device);
        let bit = 1u64 << device;
        for (bits, least) in [(&self.readers, Access::Read), (&self.writers, Access::ReadWrite)] {
            if access >= least {
                bits.fetch_or(bit, Ordering::AcqRel);
            } else {
                bits.fetch_and(!bit, Ordering::AcqRel);
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
        for (device, access) in [(0, Access::Read), (63, Access::ReadWrite), (5, Access::None)] {
            assert_eq!(rights.set(device, access), Access::None);
        }
        assert_eq!(
            [0, 1, 5, 63].map(|device| rights.of(device)),
            [Access::Read, Access::None, Access::None, Access::ReadWrite]
        );
        assert_eq!(rights.set(63, Access::Read), Access::ReadWrite);
        assert_eq!((rights.of(63), rights.of(0)), (Access::Read, Access::Read));
    }
}
