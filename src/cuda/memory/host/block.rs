//! Pinned memory that is kept for the life of the process.
//!
//! `cudaFreeHost` waits for devices, those of peers among them, while a peer may wait for this very thread; so nothing
//! here calls it, but for [`trim_pinned`], which users call. Memory comes back with the marks behind its last uses, and is
//! used again once they are reached. Calls of CUDA are made without the lock.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::sync::mpsc;

use smallvec::SmallVec;

use crate::cuda::devices::check::{check, check_memory};
use crate::cuda::devices::current;
use crate::cuda::devices::device::Device;
use crate::cuda::devices::settle::{settle, undisturbing};
use crate::cuda::order::busy::Busy;
use crate::cuda::order::mark::{Mark, Marks};
use crate::deadline::{Deadline, default_timeout};
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};
use crate::sys;

/// The smallest block.
const LEAST: usize = 4 << 10;

/// From here on sizes are four to a doubling, below it one.
const COARSE: usize = 1 << 20;

/// Streams whose oldest block is asked for when there is no free one: asking costs a microsecond.
const ASKED: usize = 8;

/// A piece of pinned memory. Dropping it leaks it: give it back.
#[derive(Debug)]
pub(crate) struct Block {
    ptr: *mut u8,
    size: usize,
}

// SAFETY: the block is owned memory of the host, and only its owner touches it.
unsafe impl Send for Block {}

/// A block that devices may still use.
#[derive(Debug)]
struct Parked {
    block: Block,
    marks: Marks,
    /// Whether it counts for the share of a stream.
    staged: bool,
}

/// Blocks that were parked behind one stream, the oldest first.
#[derive(Debug, Default)]
struct Lane {
    /// That of the stream.
    serial: u64,
    parked: VecDeque<Parked>,
    /// Bytes of those that count for its share.
    staged: usize,
}

struct Kept {
    free: BTreeMap<usize, Vec<Block>>,
    lanes: Vec<Lane>,
    /// The lane that is asked next.
    next: usize,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { free: BTreeMap::new(), lanes: Vec::new(), next: 0 });

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock()
}

/// The size of the block for so many bytes.
fn round_up(bytes: usize) -> usize {
    let power = bytes.max(LEAST).checked_next_power_of_two();
    match power {
        Some(power) if power <= COARSE => power,
        Some(power) => bytes.next_multiple_of(power / 8),
        None => bytes,
    }
}

impl Block {
    /// Wraps `cudaHostAlloc`: a block of at least `bytes` bytes, kept or new. What is in it is unspecified, but
    /// initialised.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let size = round_up(bytes);
        if let Some(block) = kept().pop(size) {
            return Ok(block);
        }
        collect(size, None)?;
        if let Some(block) = kept().pop(size) {
            return Ok(block);
        }
        match Self::allocate(size) {
            // A larger one that is free will do.
            Err(error @ Error::OutOfMemory { .. }) => kept().pop_larger(size).ok_or(error),
            other => other,
        }
    }

    fn allocate(size: usize) -> Result<Self> {
        current::any_ready("cudaHostAlloc")?;
        let lost = match Self::allocate_here(size) {
            Err(error @ Error::DeviceLost { .. }) => error,
            other => return other,
        };
        // The memory is for every device, but is allocated by way of the current one.
        for device in current::all_in_use()? {
            if let Ok(_current) = device.set_current()
                && let Ok(block) = Self::allocate_here(size)
            {
                return Ok(block);
            }
        }
        Err(lost)
    }

    fn allocate_here(size: usize) -> Result<Self> {
        let mut ptr: *mut c_void = std::ptr::null_mut();
        undisturbing(|| {
            // SAFETY: writes a pointer to the address given.
            let code = unsafe { sys::cudaHostAlloc(&raw mut ptr, size, sys::cudaHostAllocPortable) };
            check_memory("cudaHostAlloc", code, size, || String::from("the host"))
        })?;
        // SAFETY: `size` bytes were allocated, and nobody else has them. Any value will do, but there must be one.
        unsafe { ptr.write_bytes(0, size) };
        Ok(Self { ptr: ptr.cast(), size })
    }

    /// A block of `size` bytes for copies of the stream with this serial number, unless `share` bytes of such blocks are in
    /// use by it. Does not wait.
    pub(crate) fn staged(serial: u64, size: usize, share: usize) -> Result<Option<Self>> {
        let block = {
            let mut kept = kept();
            if kept.staged(serial) + size <= share { kept.pop(size) } else { None }
        };
        if block.is_some() {
            return Ok(block);
        }
        collect(size, Some(serial))?;
        if kept().staged(serial) + size > share {
            return Ok(None);
        }
        match Self::new(size) {
            // Those that are in use come back.
            Err(Error::OutOfMemory { .. }) if kept().lanes.iter().any(|lane| lane.staged > 0) => Ok(None),
            other => other.map(Some),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Gives back a block that no device uses.
    pub(crate) fn release(self) {
        kept().push(self);
    }

    /// Gives back a block that devices use until all of `marks` are reached; `staged` as it was taken.
    pub(crate) fn park(self, marks: Marks, staged: bool) {
        match marks.first().map(Mark::serial) {
            None => self.release(),
            Some(serial) => {
                let mut kept = kept();
                let lane = kept.lane(serial);
                lane.staged += if staged { self.size } else { 0 };
                lane.parked.push_back(Parked { block: self, marks, staged });
            }
        }
    }
}

impl Parked {
    fn is_done(&mut self) -> Result<bool> {
        while let Some(mark) = self.marks.last() {
            if !mark.reached()? {
                return Ok(false);
            }
            self.marks.pop();
        }
        Ok(true)
    }

    fn share(&self) -> usize {
        if self.staged { self.block.size } else { 0 }
    }
}

impl Kept {
    fn push(&mut self, block: Block) {
        self.free.entry(block.size).or_default().push(block);
    }

    fn pop(&mut self, size: usize) -> Option<Block> {
        self.free.get_mut(&size)?.pop()
    }

    fn pop_larger(&mut self, size: usize) -> Option<Block> {
        self.free.range_mut(size..).find_map(|(_, blocks)| blocks.pop())
    }

    fn lane(&mut self, serial: u64) -> &mut Lane {
        let at = self.lanes.iter().position(|lane| lane.serial == serial).unwrap_or_else(|| {
            self.lanes.push(Lane { serial, ..Lane::default() });
            self.lanes.len() - 1
        });
        &mut self.lanes[at]
    }

    fn staged(&self, serial: u64) -> usize {
        self.lanes.iter().find(|lane| lane.serial == serial).map_or(0, |lane| lane.staged)
    }

    /// Takes the oldest blocks of some lanes, that of `first` among them, but for lanes in `stuck`.
    fn oldest(&mut self, first: Option<u64>, stuck: &[u64]) -> SmallVec<[(u64, Parked); ASKED]> {
        self.lanes.retain(|lane| !lane.parked.is_empty() || lane.staged > 0);
        let mut taken = SmallVec::new();
        let mut take = |lane: &mut Lane| {
            if taken.len() < ASKED
                && !stuck.contains(&lane.serial)
                && let Some(parked) = lane.parked.pop_front()
            {
                taken.push((lane.serial, parked));
            }
        };
        if let Some(lane) = self.lanes.iter_mut().find(|lane| Some(lane.serial) == first) {
            take(lane);
        }
        let start = self.next.checked_rem(self.lanes.len()).unwrap_or(0);
        let (before, after) = self.lanes.split_at_mut(start);
        after.iter_mut().chain(before).filter(|lane| Some(lane.serial) != first).for_each(&mut take);
        self.next = start + taken.len();
        taken
    }
}

/// Looks for blocks that are used no more, until there is one of `size`, on the stream `first` before others.
fn collect(size: usize, first: Option<u64>) -> Result<()> {
    let mut stuck: SmallVec<[u64; ASKED]> = SmallVec::new();
    while stuck.len() < ASKED {
        let oldest = kept().oldest(first, &stuck);
        if oldest.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        let asked: SmallVec<[_; ASKED]> = oldest
            .into_iter()
            .map(|(serial, mut parked)| {
                let done = parked.is_done();
                (serial, parked, done)
            })
            .collect();
        let mut kept = kept();
        for (serial, parked, done) in asked {
            let lane = kept.lane(serial);
            match done {
                Ok(false) => {
                    lane.parked.push_front(parked);
                    stuck.push(serial);
                }
                Ok(true) => {
                    lane.staged -= parked.share();
                    kept.push(parked.block);
                }
                Err(error) => {
                    // The device failed; nobody knows whether it will touch the block again.
                    lane.staged -= parked.share();
                    failed = Some(error).filter(|_| first == Some(serial)).or(failed);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if kept.free.get(&size).is_some_and(|blocks| !blocks.is_empty()) {
            return Ok(());
        }
    }
    Ok(())
}

/// Wraps `cudaFreeHost`: gives pinned memory back to the system that this crate keeps and nobody uses; how many bytes.
///
/// Pinned buffers that were dropped are kept to be used again, and so is the memory through which other memory of the host
/// is copied, because `cudaFreeHost` waits until all devices are done with all that is enqueued, and every other call of CUDA
/// waits for it meanwhile. So this first waits, for at most the default timeout, until the streams that the crate knows are done;
/// it does not know those of [`Stream::from_raw`](crate::Stream::from_raw) and of other libraries.
///
/// ```
/// # use gpucomm::PinnedBuffer;
/// # fn main() -> gpucomm::Result<()> {
/// let staging = PinnedBuffer::<u8>::zeroed(1 << 20)?;
/// drop(staging);
/// // Kept to be used again; this gives it back.
/// let bytes = gpucomm::cuda::trim_pinned()?;
/// assert!(bytes >= 1 << 20);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Timeout`] if a device is not done in time: nothing was freed then, unless `cudaFreeHost` waits for what the crate does
/// not know, and frees the memory later. [`Error::InvalidUsage`] within a host function of a stream; what CUDA says.
#[doc(alias = "cudaFreeHost")]
pub fn trim_pinned() -> Result<usize> {
    const OPERATION: &str = "trim_pinned";
    Device::count_for(OPERATION)?;
    let device = Device::current()?;
    let deadline = Deadline::after(default_timeout());
    // No block has this size, so that all of them are looked at.
    collect(0, None)?;
    if kept().free.values().all(Vec::is_empty) {
        return Ok(0);
    }
    let mut busy = Busy::with(&current::all_in_use()?);
    if deadline.until(|| Ok(busy.is_over().then_some(())))?.is_none() {
        let on = busy.device().map_or_else(String::new, |device| format!(" on {device}"));
        let detail = format!("a stream{on}: cudaFreeHost would wait for it, and every other call of CUDA for that");
        return Err(deadline.error(OPERATION, detail));
    }
    // More blocks came back during the wait.
    collect(0, None)?;
    let blocks: Vec<Block> = std::mem::take(&mut kept().free).into_values().flatten().collect();
    if blocks.is_empty() {
        return Ok(0);
    }
    let (tell, told) = mpsc::sync_channel(1);
    let free = move || {
        let mut bytes = 0;
        // A thread that has not chosen has device 0, where the call may set up a context.
        let mut result = settle(device);
        for block in blocks {
            // SAFETY: from cudaHostAlloc, and nobody uses it any more.
            let code = unsafe { sys::cudaFreeHost(block.ptr.cast()) };
            bytes += block.size;
            result = result.and(check("cudaFreeHost", code));
        }
        let _ = tell.send(result.map(|()| bytes));
    };
    let thread = std::thread::Builder::new().name(OPERATION.into()).spawn(free);
    thread.map_err(|error| Error::InvalidUsage {
        operation: OPERATION,
        reason: format!("cannot start a thread: {error}"),
    })?;
    told.recv_timeout(deadline.remaining())
        .unwrap_or_else(|_| Err(deadline.error(OPERATION, "cudaFreeHost, which waits for all devices")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_waste_less_than_half() {
        for bytes in (0..5000).chain((1 << 20) - 3..(1 << 20) + 3).chain([3 << 20, (5 << 20) + 1, 1 << 33, 77 << 30]) {
            let size = round_up(bytes);
            assert!(size >= bytes && size >= LEAST && size.is_multiple_of(4096), "{bytes}: {size}");
            assert!(size <= (2 * bytes).max(LEAST), "{bytes}: {size}");
            assert!(bytes <= COARSE || size - bytes <= bytes / 4, "{bytes}: {size}");
            assert_eq!(round_up(size), size);
        }
        assert_eq!(round_up(usize::MAX), usize::MAX);
    }
}
