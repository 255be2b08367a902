//! Blocks of memory that NCCL allocates.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use crate::cuda::{Device, scarce, undisturbing};
use crate::element::{Element, must_fit};
use crate::error::{Error, Result};
use crate::nccl::raw::{check, warnings};
use crate::sys;

/// Windows begin and end at pages of this size.
const PAGE: usize = 4096;

/// How large a buffer is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Bytes of its elements.
    pub(super) used: usize,
    /// Bytes in whole pages: an empty one has a page too, so that it can be a window.
    pub(super) pages: usize,
}

impl Size {
    pub(super) fn of<T: Element>(operation: &'static str, len: usize) -> Result<Self> {
        must_fit::<T>();
        let used = len.checked_mul(size_of::<T>());
        let pages = used.and_then(|used| used.max(1).checked_next_multiple_of(PAGE));
        match (used, pages.filter(|&pages| isize::try_from(pages).is_ok())) {
            (Some(used), Some(pages)) => Ok(Self { used, pages }),
            _ => Err(Error::argument(operation, "len", "a length whose bytes can be counted", len)),
        }
    }
}

/// Wraps `ncclMemAlloc`. Where memory has run out, that of buffers which were dropped is waited for, of whatever communicator on the
/// device: of one that was aborted, perhaps.
pub(super) fn allocate(device: Device, size: Size, timeout: Duration) -> Result<*mut c_void> {
    scarce::persist(device, timeout, || attempt(device, size.pages))
}

fn attempt(device: Device, bytes: usize) -> Result<*mut c_void> {
    const FUNCTION: &str = "ncclMemAlloc";
    let _current = device.set_current()?;
    let mut ptr = ptr::null_mut();
    undisturbing(|| {
        // SAFETY: writes a pointer to the address given; the device is current.
        let result = unsafe { sys::ncclMemAlloc(&mut ptr, bytes) };
        if result == sys::ncclResult_t::ncclUnhandledCudaError && is_out_of_memory(device, bytes) {
            return Err(Error::OutOfMemory { operation: FUNCTION, bytes, place: device.to_string() });
        }
        check::check(FUNCTION, result)
    })?;
    Ok(ptr)
}

/// Whether an allocation of so many bytes, in which a call of CUDA has just failed, failed for lack
/// of memory. NCCL's warning may be of another call, so the device is asked too.
fn is_out_of_memory(device: Device, bytes: usize) -> bool {
    warnings::names_out_of_memory() || device.memory_info().map_or(true, |info| info.free < bytes)
}
