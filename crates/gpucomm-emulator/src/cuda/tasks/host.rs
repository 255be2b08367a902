//! What happens on the host: pinned memory, and functions that a stream calls.

use crate::cuda::core::device::{self, Device};
use crate::cuda::core::stream::Stream;
use crate::cuda::core::work::{HOST_FUNCTION, Run, Running, Work};
use crate::lock::{Condvar, Mutex};
use crate::memory::object;
use crate::races::Point;
use crate::races::{Actor, Touches, Touching};
use crate::report;
use crate::settings::settings;
use crate::sys::{cudaError, cudaHostFn_t};
use std::alloc::Layout;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

const PAGE: usize = 4096;

static PINNED: Mutex<BTreeMap<usize, Arc<Pinned>>> = Mutex::new(BTreeMap::new());

/// One allocation of cudaHostAlloc.
#[derive(Debug)]
pub(crate) struct Pinned {
    address: usize,
    /// The one that was current when it was allocated.
    device: &'static Device,
    layout: Layout,
    bytes: usize,
    uses: Mutex<usize>,
    unused: Condvar,
    touches: Touches,
}

/// As long as this lives, queued or running work uses pinned memory.
#[derive(Debug)]
pub(crate) struct PinnedUse {
    pinned: Arc<Pinned>,
    range: Range<u64>,
}

impl PinnedUse {
    /// Tells what `actor` does with it.
    pub(crate) fn tell<'a>(&'a self, writes: bool, actor: Actor, tell: &mut dyn FnMut(Touching<'a>)) {
        tell(Touching { memory: &self.pinned.touches, by: 0, range: self.range.clone(), writes, actor });
    }
}

impl Drop for PinnedUse {
    fn drop(&mut self) {
        let mut uses = self.pinned.uses.lock();
        *uses -= 1;
        if *uses == 0 {
            self.pinned.unused.notify_all();
        }
    }
}

/// Host memory that the device can reach; null for no bytes.
pub(crate) fn allocate(bytes: usize) -> Result<*mut c_void, cudaError> {
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let device = device::current()?;
    if settings().driver_lock > 1 {
        device::wait_for_devices();
    }
    let layout = Layout::from_size_align(bytes, PAGE).map_err(|_| cudaError::cudaErrorMemoryAllocation)?;
    // SAFETY: the layout has a size above zero.
    let memory = unsafe { std::alloc::alloc(layout) };
    if memory.is_null() {
        return Err(cudaError::cudaErrorMemoryAllocation);
    }
    // SAFETY: that many bytes were just allocated.
    unsafe { object::poison(memory, bytes) };
    let address = memory.expose_provenance();
    let pinned = Pinned {
        address,
        device,
        layout,
        bytes,
        uses: Mutex::new(0),
        unused: Condvar::new(),
        touches: Touches::default(),
    };
    PINNED.lock().insert(address, Arc::new(pinned));
    Ok(memory.cast())
}

/// Frees what [`allocate`] gave: waits, as cudaFreeHost does, until the device that was current then has done all that was
/// enqueued, host functions included, whether or not it uses the memory.
pub(crate) fn free(ptr: *mut c_void) -> Result<(), cudaError> {
    if ptr.is_null() {
        return Ok(());
    }
    let Some(pinned) = PINNED.lock().remove(&ptr.addr()) else {
        report::violation(format!("{ptr:p} is no pinned memory: freed twice, or not from cudaHostAlloc"));
        return Err(cudaError::cudaErrorInvalidValue);
    };
    if settings().driver_lock > 1 {
        device::wait_for_devices();
    } else {
        device::wait_for_device(pinned.device);
    }
    if let Some(unseen) = pinned.touches.unseen(&(0..pinned.bytes as u64), 0) {
        let bytes = pinned.bytes;
        report::violation(format!("cudaFreeHost frees {bytes} bytes: {unseen}"));
    }
    // A copy that was checked before the memory left the register, and enqueued after.
    let mut uses = pinned.uses.lock();
    while *uses > 0 {
        uses = pinned.unused.wait(uses);
    }
    drop(uses);
    let memory = std::ptr::with_exposed_provenance_mut(pinned.address);
    // SAFETY: the memory came from the allocator with this layout; it left the register above, so nobody else frees it and
    // no new use begins, and the uses there were have ended.
    unsafe { std::alloc::dealloc(memory, pinned.layout) };
    Ok(())
}

/// Counts `bytes` bytes at `address` as in use, if they begin in pinned memory; an error where they run past its end.
pub(crate) fn hold(address: usize, bytes: usize) -> Result<Option<PinnedUse>, String> {
    let all = PINNED.lock();
    let Some((_, pinned)) = all.range(..=address).next_back() else { return Ok(None) };
    let offset = address - pinned.address;
    if offset >= pinned.bytes {
        return Ok(None);
    }
    if bytes > pinned.bytes - offset {
        return Err(format!(
            "{bytes} bytes at {address:#x} run past the end of the pinned memory of {} bytes at {:#x}",
            pinned.bytes, pinned.address
        ));
    }
    *pinned.uses.lock() += 1;
    Ok(Some(PinnedUse { pinned: pinned.clone(), range: offset as u64..(offset + bytes) as u64 }))
}

/// The number of the device by way of which the pinned memory was allocated that lies at `address`, if that is some.
pub(crate) fn device_of(address: usize) -> Option<i32> {
    let all = PINNED.lock();
    let (_, pinned) = all.range(..=address).next_back()?;
    (address - pinned.address < pinned.bytes).then_some(pinned.device.ordinal)
}

thread_local! {
    static CALLED_BACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a function that a stream calls. Such a function must not call CUDA.
pub(crate) fn is_callback() -> bool {
    CALLED_BACK.get()
}

#[derive(Debug, Clone, Copy)]
struct Call {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: who calls cudaLaunchHostFunc promises that the function may be called with this data on any thread.
unsafe impl Send for Call {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Call {}

/// One call.
struct Calling {
    call: Call,
    at: Option<Point>,
}

impl Work for Call {
    type Run = Calling;

    fn name(&self) -> &'static str {
        HOST_FUNCTION
    }

    fn start(&self) -> Result<Calling, cudaError> {
        Ok(Calling { call: *self, at: None })
    }
}

impl Run for Calling {
    fn place(&mut self, at: &Point) {
        self.at = Some(at.clone());
    }

    fn run(self: Box<Self>, _: &Running) {
        // Whoever is told so by the function knows that all before it is done.
        self.at.iter().for_each(Point::see_before);
        let call = self.call;
        CALLED_BACK.set(true);
        // SAFETY: the caller of cudaLaunchHostFunc vouches for the function and its data: for one call, or, in a capture, for one at
        // each launch of the graph.
        unsafe { (call.function)(call.data) };
        CALLED_BACK.set(false);
    }
}

/// Lets `stream` call a function of the host, and a graph at each launch. It is not called once the device has failed.
pub(crate) fn launch(stream: &Arc<Stream>, function: cudaHostFn_t, data: *mut c_void) -> Result<(), cudaError> {
    let call = Call { function: function.ok_or(cudaError::cudaErrorInvalidValue)?, data };
    stream.device.check()?;
    stream.submit(&call)
}
