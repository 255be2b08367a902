//! Allocating and freeing device memory, at once or in stream order.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cuda::core::device::Device;
use crate::cuda::core::handle::Registry;
use crate::cuda::core::queue::Task;
use crate::cuda::core::stream::Stream;
use crate::cuda::core::{capture, device, frees};
use crate::cuda::tasks::host;
use crate::memory::access::Access;
use crate::memory::heap::{Block, Origin};
use crate::memory::object::Location;
use crate::memory::usage::InUse;
use crate::memory::{heap, object, usage};
use crate::report;
use crate::sys::cudaError;

/// How long an allocation waits for frees that are on their way before it gives up.
const PATIENCE: Duration = Duration::from_secs(2);

/// What addresses of ncclMemAlloc are multiples of.
const NCCL_ALIGN: usize = 4096;

pub(crate) static POOLS: Registry<Pool> = Registry::new(0x53);

/// A pool: what is freed into it stays with its device, as all memory of this emulator does.
#[derive(Debug)]
pub(crate) struct Pool {
    pub device: &'static Device,
}

/// Device memory as cudaMalloc gives it, or as another origin; null for no bytes.
pub(crate) fn allocate(ordinal: i32, bytes: usize, origin: Origin) -> Result<*mut c_void, cudaError> {
    let device = device::device(ordinal)?;
    let _shared = device::share_driver(device);
    device.check()?;
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let block = find_room(device, bytes as u64, origin)?;
    Ok(device.heap.ground.arena()?.at(block.offset).cast())
}

/// The memory of ncclMemAlloc in which an address lies, which was mapped as one: where it begins, and its bytes.
pub(crate) fn of_nccl(address: usize) -> Option<(usize, usize)> {
    allocated(address, |origin| origin == Origin::Nccl)
}

/// The memory of any function that allocates in which an address lies: where it begins, and its bytes.
pub(crate) fn around(address: usize) -> Option<(usize, usize)> {
    allocated(address, |_| true)
}

fn allocated(address: usize, which: impl Fn(Origin) -> bool) -> Option<(usize, usize)> {
    let (heap, place) = heap::owner(address)?;
    let block = heap.find(address, place.offset, 1).ok().filter(|block| which(block.origin))?;
    let begin = address - (place.offset - block.offset) as usize;
    // That of ncclMemAlloc has a page more than it shows, so that it can begin where one does.
    let spare = if block.origin == Origin::Nccl { NCCL_ALIGN } else { 0 };
    Some((begin.next_multiple_of(spare.max(1)), block.bytes as usize - spare))
}

/// What lies at an address, as CUDA numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing that CUDA knows.
    Unregistered = 0,
    /// Pinned memory of the host.
    Host = 1,
    /// Memory of a device.
    Device = 2,
}

/// What lies at an address, and the device that it belongs to, or was allocated by way of; -2 for none.
pub(crate) fn kind_at(address: usize) -> Result<(Kind, i32), cudaError> {
    device::current()?.check()?;
    if let Some(device) = usage::device_at(address) {
        return Ok((Kind::Device, device));
    }
    #[cfg(feature = "nvshmem")]
    if let Some(device) = usage::symmetric_at(address) {
        return Ok((Kind::Device, device));
    }
    Ok(host::device_of(address).map_or((Kind::Unregistered, -2), |device| (Kind::Host, device)))
}

/// Frees device memory as cudaFree does: waits until the device has done all that was enqueued, unless the memory came from
/// a pool. Null is fine.
pub(crate) fn free(ptr: *mut c_void) -> Result<(), cudaError> {
    if ptr.is_null() {
        return device::current()?.check();
    }
    let (device, block) = condemn("cudaFree", ptr)?;
    if block.origin != Origin::Pool {
        device::wait_for_device(device);
    }
    check_seen("cudaFree", &block);
    frees::release(block, "cudaFree");
    device.check()
}

/// Frees device memory as ncclMemFree does, which unmaps it: waits for nothing, so the memory must not be in use. Null is
/// fine.
pub(crate) fn unmap(ptr: *mut c_void) -> Result<(), cudaError> {
    if ptr.is_null() {
        return Ok(());
    }
    let (device, block) = condemn("ncclMemFree", ptr)?;
    check_seen("ncclMemFree", &block);
    frees::release(block, "ncclMemFree");
    device.check()
}

/// Ends the life of device memory as [`unmap`] does, but the device does not get it back: somebody who is gone still maps it.
#[cfg(feature = "nccl")]
pub(crate) fn strand(ptr: *mut c_void) -> Result<(), cudaError> {
    let (device, block) = condemn("ncclMemFree", ptr)?;
    check_seen("ncclMemFree", &block);
    frees::refuse_uses(&block, "ncclMemFree");
    // It stays among the live ones for ever; only the machine's own memory need not be lost as well.
    device.heap.ground.arena()?.punch(block.offset, block.bytes);
    device.check()
}

/// Memory that may be used by work enqueued on `stream` from now on.
pub(crate) fn allocate_async(
    device: &'static Device,
    bytes: usize,
    stream: &Arc<Stream>,
) -> Result<*mut c_void, cudaError> {
    device.check()?;
    stream.device.check()?;
    capture::refuse(&stream.line)
        .inspect_err(|_| report::line(format!("{}: graphs of the emulator allocate no memory", report::call())))?;
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let arena = device.heap.ground.arena()?;
    let bytes = bytes as u64;
    let block = match frees::reuse(device, bytes, &stream.line) {
        Some(block) => block,
        None => match allocate_block(device, bytes, Origin::Pool)? {
            Some(block) => block,
            None => match frees::steal(device, bytes) {
                Some((block, free)) => {
                    stream.follow(free)?;
                    block
                }
                None => find_room(device, bytes, Origin::Pool)?,
            },
        },
    };
    stream.place_block("cudaMallocFromPoolAsync", &block);
    Ok(arena.at(block.offset).cast())
}

/// Frees memory once `stream` has done what was enqueued before. A graph frees only what it has allocated, which is nothing here.
pub(crate) fn free_async(ptr: *mut c_void, stream: &Arc<Stream>) -> Result<(), cudaError> {
    stream.device.check()?;
    if capture::mark(&stream.line)?.is_some() {
        return Err(cudaError::cudaErrorInvalidValue);
    }
    let (device, block) = condemn("cudaFreeAsync", ptr)?;
    stream.place_block("cudaFreeAsync", &block);
    if stream.is_idle() {
        frees::release(block, "cudaFreeAsync");
        return Ok(());
    }
    let free = stream.push(Task::Free(block.clone()))?;
    frees::expect(device, block, free);
    Ok(())
}

/// Reports what is not known to be done with memory whose life ends, where the host frees it.
fn check_seen(operation: &str, block: &Block) {
    if let Some(unseen) = block.touches.unseen(&(0..block.bytes), 0) {
        let (bytes, ordinal) = (block.bytes, block.ground.ordinal);
        report::violation(format!("{operation} frees {bytes} bytes of device {ordinal}: {unseen}"));
    }
}

/// A new allocation that nobody used before, or no longer uses. Memory that is reused in the order of a stream does not come
/// here: it holds what was there.
fn allocate_block(device: &'static Device, bytes: u64, origin: Origin) -> Result<Option<Arc<Block>>, cudaError> {
    let arena = device.heap.ground.arena()?;
    let block = device.heap.allocate(bytes, origin);
    if let Some(block) = &block {
        // SAFETY: the range was free until now, and its pointer is not handed out yet.
        unsafe { object::poison(arena.at(block.offset), bytes as usize) };
    }
    Ok(block)
}

fn find_room(device: &'static Device, bytes: u64, origin: Origin) -> Result<Arc<Block>, cudaError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Asked before: what is freed in between has room then.
        let free = frees::any(device);
        if let Some(block) = allocate_block(device, bytes, origin)? {
            return Ok(block);
        }
        let Some(free) = free else { return Err(cudaError::cudaErrorMemoryAllocation) };
        if !free.wait_for(deadline.saturating_duration_since(Instant::now())) {
            return Err(cudaError::cudaErrorMemoryAllocation);
        }
    }
}

fn condemn(operation: &str, ptr: *mut c_void) -> Result<(&'static Device, Arc<Block>), cudaError> {
    let Some((heap, Location { offset, .. })) = heap::owner(ptr.addr()) else {
        report::violation(format!("{operation}: {ptr:p} is no device memory"));
        return Err(cudaError::cudaErrorInvalidValue);
    };
    let device = device::device(heap.ground.ordinal)?;
    device.check()?;
    if let Some(block) = heap.condemn(offset) {
        return Ok((device, block));
    }
    let why = match heap.find(ptr.addr(), offset, 1) {
        Ok(block) => format!("it lies {} bytes behind the start of its allocation", offset - block.offset),
        Err(fault) => format!("freed twice, or never allocated ({})", fault.text),
    };
    report::violation(format!("{operation}: {ptr:p} cannot be freed: {why}"));
    Err(cudaError::cudaErrorInvalidValue)
}

/// Refuses work of `device` that is to use memory in a way that is not open to it. CUDA says no more than the code; why stands on
/// stderr.
pub(super) fn check_access(operation: &str, used: &InUse, device: i32, wanted: Access) -> Result<(), cudaError> {
    let has = used.access(device);
    if has >= wanted {
        return Ok(());
    }
    let owner = used.device().unwrap_or(device);
    let [has, wanted] = [has, wanted].map(|access| match access {
        Access::None => "no",
        Access::Read => "read",
        Access::ReadWrite => "read and write",
    });
    report::line(format!(
        "{operation}: device {device} has {has} access to this memory of device {owner}, expected {wanted} access"
    ));
    Err(cudaError::cudaErrorInvalidValue)
}
