//! Memory of a pool that is freed in the order of a stream, when that has room for it.
//!
//! Dropping a buffer never waits. Behind work that hangs, the frees of many buffers would fill the launch queue of their
//! stream, and the next one would wait inside the driver. So what finds no room is kept here until its uses are done;
//! then any stream of its device will do. So is what a stream used that is being captured: freed there, the graph would free it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use super::in_flight::ENTRY;
use super::lanes::Uses;
use super::mark::Marks;
use super::ranged::Span;
use super::stream::Stream;
use super::uses::Access;
use crate::cuda::devices::check::check_on;
use crate::cuda::devices::device::Device;
use crate::error::{Error, Result};
use crate::lock::Mutex;
use crate::sys;

struct Later {
    ptr: *mut c_void,
    device: Device,
    behind: Behind,
}

/// What the memory is kept for.
enum Behind {
    /// Behind all uses.
    Marks(Marks),
    /// The uses themselves, where one is of a stream that is being captured: that can have no mark.
    Uses(Uses),
}

// SAFETY: the pointer is an address of device memory that only `free_on` gives back; everything else is Send.
unsafe impl Send for Later {}

static WAITING: Mutex<Vec<Later>> = Mutex::new(Vec::new());

/// How many may be found in use before the others are left for the next time: asking takes a microsecond.
const TRIES: usize = 4;

/// Whether there may be anything in [`WAITING`].
static ANY: AtomicBool = AtomicBool::new(false);

/// Wraps `cudaFreeAsync`: frees `ptr` in the order of `home`, after all uses. Does not wait.
///
/// # Safety
/// `ptr` is from `cudaMallocFromPoolAsync`, not freed yet, and all that uses it is in `uses`.
pub(crate) unsafe fn free(ptr: *mut c_void, home: &Stream, mut uses: Uses) -> Result<()> {
    home.device().ready("cudaFreeAsync")?;
    if home.is_captured() || uses.awaits_capture() {
        keep([Later { ptr, device: home.device(), behind: Behind::Uses(uses) }]);
        return Ok(());
    }
    if home.in_flight().has_reserve(home.queue())? {
        uses.order(Span::ALL, Access::Write, home)?;
        // SAFETY: as the caller promises; `home` waits for every use of other streams.
        return unsafe { free_on(ptr, home) };
    }
    keep([Later { ptr, device: home.device(), behind: Behind::Marks(uses.into_marks()?) }]);
    Ok(())
}

/// # Safety
/// `ptr` is from `cudaMallocFromPoolAsync`, of the device of `stream`, not freed yet, and `stream` is behind all that uses
/// it.
unsafe fn free_on(ptr: *mut c_void, stream: &Stream) -> Result<()> {
    let _current = stream.queue().hold_device("cudaFreeAsync")?;
    // SAFETY: as the caller promises.
    let code = unsafe { sys::cudaFreeAsync(ptr, stream.raw()) };
    stream.count(ENTRY);
    check_on(stream.device().ordinal(), "cudaFreeAsync", code)
}

fn keep(some: impl IntoIterator<Item = Later>) {
    WAITING.lock().extend(some);
    ANY.store(true, Ordering::Release);
}

/// Frees what is used no more, on `stream`, which was found to go on.
#[inline]
pub(crate) fn retry(stream: &Stream) {
    if ANY.load(Ordering::Relaxed) {
        try_all(stream);
    }
}

#[cold]
fn try_all(stream: &Stream) {
    let all = {
        let mut waiting = WAITING.lock();
        ANY.store(false, Ordering::Relaxed);
        std::mem::take(&mut *waiting)
    };
    let mut left = Vec::new();
    let mut all = all.into_iter();
    while left.len() < TRIES
        && let Some(mut one) = all.next()
    {
        // Where the device has failed, the memory is leaked. A stream that is being captured since a moment ago is asked again.
        match one.try_on(stream) {
            Ok(true) => {}
            Ok(false) | Err(Error::InvalidUsage { .. }) => left.push(one),
            Err(_) => {}
        }
    }
    // Those that were not tried come first the next time.
    let left: Vec<_> = all.chain(left).collect();
    if !left.is_empty() {
        keep(left);
    }
}

impl Later {
    fn try_on(&mut self, stream: &Stream) -> Result<bool> {
        match &mut self.behind {
            Behind::Marks(marks) => {
                while let Some(mark) = marks.last() {
                    if !mark.reached()? {
                        return Ok(false);
                    }
                    marks.pop();
                }
            }
            Behind::Uses(uses) => {
                if !uses.is_done()? {
                    return Ok(false);
                }
            }
        }
        if self.device != stream.device() || !stream.in_flight().has_reserve(stream.queue())? {
            return Ok(false);
        }
        // SAFETY: as the caller of `free` promised, and all uses are done.
        unsafe { free_on(self.ptr, stream) }.map(|()| true)
    }
}

#[cfg(all(test, gpucomm_emulator))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::cuda::DeviceBuffer;

    /// Behind work that hangs, what is dropped adds nothing to a stream that has no room for it.
    #[test]
    fn nothing_is_added_to_a_full_stream() {
        let stream = Stream::new(Device::new(0).unwrap()).unwrap();
        let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 10).unwrap();
        let (open, opened) = mpsc::channel::<()>();
        stream.launch_host(move || assert!(opened.recv().is_err())).unwrap();
        buffer.fill(&stream, 1).unwrap();
        stream.count(10_000);
        assert!(!stream.in_flight().has_reserve(stream.queue()).unwrap());
        let before = stream.in_flight().position();
        drop(buffer);
        assert_eq!(stream.in_flight().position(), before);
        // The emulator says what is freed while it is in use.
        retry(&Stream::new(stream.device()).unwrap());
        drop(open);
        stream.synchronize().unwrap();
    }
}
