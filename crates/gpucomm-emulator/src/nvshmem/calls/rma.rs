//! Puts and gets: bytes from one PE to another.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::cuda::core::work::Running;
use crate::lock::Mutex;
use crate::nvshmem::basics::{Kind, Outcome, refused, variable_is_set, wrong};
use crate::nvshmem::calls::local::{Local, copy_of};
use crate::nvshmem::calls::signals::{Given, Signal};
use crate::nvshmem::calls::stream::{Doing, Place as Where, enqueue, refuse_capture};
use crate::nvshmem::state::boot::{Activity, Boot};
use crate::nvshmem::state::heap::Place;
use crate::nvshmem::state::life;
use crate::nvshmem::state::pe::Pe;
use crate::races::Touching;
use crate::sys::{cudaStream_t, *};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Put,
    Get,
}

/// A transfer, as it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) way: Way,
    /// Whether it is the blocking variant: done when the call returns, or when the stream has passed it.
    pub(crate) blocks: bool,
    /// The symmetric address at the other PE, and the address at this one.
    pub(crate) remote: *mut c_void,
    pub(crate) local: *mut c_void,
    /// Bytes of an element, and how many there are.
    pub(crate) element: usize,
    pub(crate) count: usize,
    /// From one element to the next, in elements: there and here.
    pub(crate) strides: (isize, isize),
    pub(crate) pe: i32,
    pub(crate) signal: Option<Signal>,
}

// SAFETY: the pointers are to memory of devices or of the host, which is looked up before it is used. No thread owns any of that.
unsafe impl Send for Transfer {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Transfer {}

/// Memory that a transfer uses.
#[derive(Debug)]
pub(crate) struct Ends {
    pe: usize,
    there: *mut u8,
    here: *mut u8,
    _place: Option<Place>,
    local: Local,
    signal: Option<Given>,
}

// SAFETY: as for `Transfer`: the guards in here keep the memory.
unsafe impl Send for Ends {}

/// From the first to the last of so many elements.
fn extent(element: usize, count: usize, stride: isize) -> Outcome<usize> {
    let overflow =
        || wrong(format!("{count} elements of {element} bytes, {stride} apart, are more than there are addresses"));
    if count == 0 {
        return Ok(0);
    }
    let stride = usize::try_from(stride).ok().filter(|&stride| stride > 0);
    let stride = stride.ok_or_else(|| wrong("the distance of elements is expected to be positive"))?;
    let elements = (count - 1).checked_mul(stride).and_then(|last| last.checked_add(1)).ok_or_else(overflow)?;
    elements.checked_mul(element).filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(overflow)
}

impl Transfer {
    /// Of `bytes` bytes, side by side.
    pub(crate) fn bytes(
        way: Way,
        blocks: bool,
        (remote, local): (*mut c_void, *mut c_void),
        bytes: usize,
        pe: i32,
    ) -> Self {
        Self { way, blocks, remote, local, element: 1, count: bytes, strides: (1, 1), pe, signal: None }
    }

    fn is_dense(&self) -> bool {
        self.strides == (1, 1)
    }

    /// Looks up both ends.
    fn ends(&self, pe: &Pe) -> Outcome<Ends> {
        let other = pe.pe(self.pe)?;
        if !pe.reaches(other) && !self.is_dense() {
            return Err(wrong(format!(
                "elements that are apart cannot go to or from PE {other}, which PE {} does not reach: NVSHMEM ends the process",
                pe.me()
            )));
        }
        let (there, here) =
            (extent(self.element, self.count, self.strides.0)?, extent(self.element, self.count, self.strides.1)?);
        let (far, near) = match self.way {
            Way::Put => ("the target", "the source"),
            Way::Get => ("the source", "the target"),
        };
        let place = if there == 0 { None } else { Some(pe.heap.place(far, self.remote, there)?) };
        let local = Local::of(pe, near, self.local, here)?;
        if !pe.reaches(other) {
            Local::check_known(pe, near, self.local, here)?;
        }
        let signal = self.signal.map(|signal| signal.at(pe, other)).transpose()?;
        let there = place.as_ref().map_or(std::ptr::null_mut(), |place| pe.heap.at(other, place.offset));
        Ok(Ends { pe: other, there, here: self.local.cast(), _place: place, local, signal })
    }

    /// Moves the bytes, from `here` at this PE, or to it.
    ///
    /// # Safety
    /// The ends are looked up and kept, and `here` has as many bytes as they have.
    unsafe fn go(&self, there: *mut u8, here: *mut u8) {
        let (from, to) = if self.way == Way::Put { (here, there) } else { (there, here) };
        if self.is_dense() {
            // SAFETY: the caller vouches for both. As on a device, bytes that others use meanwhile are unspecified.
            return unsafe { write(to, from, self.element * self.count) };
        }
        let (far, near) = self.strides;
        let (step_from, step_to) = if self.way == Way::Put { (near, far) } else { (far, near) };
        for index in 0..self.count as isize {
            let at = |step: isize| index * step * self.element as isize;
            // SAFETY: as above; both extents were checked.
            unsafe { write(to.offset(at(step_to)), from.offset(at(step_from)), self.element) };
        }
    }

    /// Does it, or lets it come late.
    fn perform(self, pe: &Pe, mut ends: Ends) {
        // What a PE puts to itself is a copy on the stream, or before the call is over.
        let may_wait = if self.blocks { self.way == Way::Put && ends.pe != pe.me() } else { true };
        if !may_wait || !pe.late.holds(&pe.boot, self.blocks) {
            // SAFETY: the ends are looked up, and kept until this is over.
            unsafe { self.go(ends.there, ends.here) };
            return ends.arrived(&pe.boot);
        }
        let staged = (self.blocks && self.is_dense()).then(|| {
            // SAFETY: the source has as many bytes, as was checked.
            unsafe { copy_of(ends.here, self.element * self.count) }
        });
        if self.blocks && staged.is_none() {
            // SAFETY: as above.
            unsafe { self.go(ends.there, ends.here) };
            return ends.arrived(&pe.boot);
        }
        if staged.is_some() {
            // The source is the caller's again.
            ends.local = Local::Registered;
        }
        pe.late.hold(
            &pe.boot,
            Box::new(move |boot| {
                let (it, mut ends, mut staged) = (self, ends, staged);
                if let Some(staged) = &mut staged {
                    ends.here = staged.as_mut_ptr().cast();
                }
                // SAFETY: the ends are kept until now, and what was staged is as long.
                unsafe { it.go(ends.there, ends.here) };
                ends.arrived(boot);
            }),
        );
    }
}

impl Ends {
    /// The bytes are there: so the signal is, and who waits looks.
    fn arrived(&self, boot: &Boot) {
        if let Some(signal) = &self.signal {
            signal.give();
        }
        boot.ring(self.pe);
    }
}

/// Copies; a word at once, where it is one, for somebody may wait for it.
///
/// # Safety
/// So many bytes can be read and written.
pub(crate) unsafe fn write(to: *mut u8, from: *const u8, bytes: usize) {
    macro_rules! words {
        ($($size:literal $word:ty, $atomic:ty;)*) => {
            match bytes {
                // SAFETY: aligned, and the caller vouches for the bytes.
                $($size if to.addr().is_multiple_of($size) => unsafe {
                    <$atomic>::from_ptr(to.cast::<$word>()).store(from.cast::<$word>().read_unaligned(), Ordering::Release);
                },)*
                // SAFETY: the caller vouches for the bytes. They may be the same under two addresses.
                _ => unsafe { libc::memmove(to.cast(), from.cast(), bytes); },
            }
        };
    }
    words! { 1 u8, AtomicU8; 2 u16, AtomicU16; 4 u32, AtomicU32; 8 u64, AtomicU64; }
}

impl Doing for Transfer {
    type Kept = Ends;

    fn keep(&self, pe: &Arc<Pe>) -> Outcome<Ends> {
        self.ends(pe)
    }

    fn tell<'a>(&self, ends: &'a Ends, name: &'static str, tell: &mut dyn FnMut(Touching<'a>)) {
        ends.local.tell(self.way == Way::Get, name, tell);
    }

    fn act(&self, pe: &Arc<Pe>, ends: Ends, _: &Running) {
        self.perform(pe, ends);
    }

    fn is_copy(&self, pe: &Pe) -> bool {
        self.signal.is_none() && self.is_dense() && pe.pe(self.pe).is_ok_and(|other| pe.reaches(other))
    }
}

/// Fails where the transport does nothing for the host.
fn check_host(pe: &Pe, other: i32) -> Outcome {
    if variable_is_set("NVSHMEM_IB_ENABLE_IBGDA", false) && !pe.reaches(pe.pe(other)?) {
        return Err(wrong(format!(
            "the host puts or gets, and PE {other} is reached by IBGDA, which is for devices and streams: NVSHMEM ends the process"
        )));
    }
    Ok(())
}

/// Does it now.
pub(crate) fn now(transfer: Transfer) -> Outcome {
    let pe = life::pe()?;
    check_host(&pe, transfer.pe)?;
    let ends = transfer.ends(&pe)?;
    ends.local.ensure_seen(transfer.way == Way::Get);
    transfer.perform(&pe, ends);
    Ok(())
}

/// Does it when a stream comes to it.
pub(crate) fn on_stream(transfer: Transfer, stream: cudaStream_t) -> Outcome {
    let pe = life::pe()?;
    let place = if transfer.blocks { Where::On } else { Where::Beside };
    enqueue(&pe, (stream, place), transfer)
}

/// A single element that is put.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Single {
    pub(crate) remote: *mut c_void,
    pub(crate) value: [u8; 8],
    pub(crate) bytes: usize,
    pub(crate) pe: i32,
}

// SAFETY: as for `Transfer`.
unsafe impl Send for Single {}
// SAFETY: as for `Transfer`.
unsafe impl Sync for Single {}

impl Single {
    fn perform(self, pe: &Pe, place: Place, other: usize) {
        let there = Ends {
            pe: other,
            there: pe.heap.at(other, place.offset),
            here: std::ptr::null_mut(),
            _place: Some(place),
            local: Local::Registered,
            signal: None,
        };
        let put = move |boot: &Boot| {
            let there = there;
            // SAFETY: so many bytes were looked up, and are kept until now.
            unsafe { write(there.there, self.value.as_ptr(), self.bytes) };
            there.arrived(boot);
        };
        if other != pe.me() && pe.late.holds(&pe.boot, true) {
            pe.late.hold(&pe.boot, Box::new(put))
        } else {
            put(&pe.boot)
        }
    }

    fn place(&self, pe: &Pe) -> Outcome<(Place, usize)> {
        let other = pe.pe(self.pe)?;
        Ok((pe.heap.place("the target", self.remote, self.bytes)?, other))
    }
}

impl Doing for Single {
    type Kept = (Place, usize);

    fn keep(&self, pe: &Arc<Pe>) -> Outcome<Self::Kept> {
        self.place(pe)
    }

    fn act(&self, pe: &Arc<Pe>, (place, other): Self::Kept, _: &Running) {
        self.perform(pe, place, other);
    }
}

/// Puts it now.
pub(crate) fn put_single(single: Single) -> Outcome {
    let pe = life::pe()?;
    check_host(&pe, single.pe)?;
    let (place, other) = single.place(&pe)?;
    single.perform(&pe, place, other);
    Ok(())
}

/// Puts it when a stream comes to that. The library hands over the address of the value on the stack of the call: of a PE that it
/// reaches, to a copy, which takes the value at once, and only a graph later; of another one, to a kernel.
pub(crate) fn put_single_on_stream(single: Single, stream: cudaStream_t) -> Outcome {
    let pe = life::pe()?;
    refuse_capture(stream, "a launch of the graph reads the value from a stack that is gone")?;
    let other = pe.pe(single.pe)?;
    if !pe.reaches(other) {
        return Err(wrong(format!(
            "a single element cannot be put on a stream to PE {other}, which PE {} does not reach: the device reads the stack of the host",
            pe.me()
        )));
    }
    enqueue(&pe, (stream, Where::On), single)
}

/// Gets a single element.
pub(crate) fn get_single<T: Copy + Default>(remote: *const T, pe: i32) -> Outcome<T> {
    let this = life::pe()?;
    let other = this.pe(pe)?;
    if !this.reaches(other) {
        return Err(wrong(format!(
            "a single element cannot be got from PE {other}, which PE {} does not reach: NVSHMEM ends the process",
            this.me()
        )));
    }
    let place = this.heap.place("the source", remote.cast(), size_of::<T>())?;
    let mut value = T::default();
    // SAFETY: so many bytes were looked up, and the value has as many.
    unsafe { write((&raw mut value).cast(), this.heap.at(other, place.offset), size_of::<T>()) };
    Ok(value)
}

/// The one that was started, and how many there were.
static REGION: Mutex<(Option<u64>, u64)> = Mutex::new((None, 0));

/// `nvshmemx_region_start`.
pub(crate) fn start_batch(hints: u32, has_place: bool) -> Outcome<nvshmemx_region_handle_t> {
    life::pe()?;
    let invalid = |text: String| refused(NVSHMEMX_ERROR_INVALID_VALUE, text);
    if !has_place {
        return Err(invalid("the place for the handle is null".to_owned()));
    }
    if hints & !NVSHMEMX_REGION_HINT_BATCH_RMA != 0 {
        return Err(invalid(format!("hints {hints:#x} are not known")));
    }
    let mut region = REGION.lock();
    if let (Some(handle), _) = *region {
        return Err(invalid(format!("region {handle} has started and not stopped: there is one at a time")));
    }
    let handle = region.1 + 1;
    *region = (Some(handle), handle);
    Ok(handle)
}

/// `nvshmemx_region_stop`.
pub(crate) fn stop_batch(handle: nvshmemx_region_handle_t) -> Outcome {
    life::pe()?;
    let mut region = REGION.lock();
    if region.0 != Some(handle) {
        return Err(refused(NVSHMEMX_ERROR_INVALID_VALUE, format!("region {handle} is not the one that has started")));
    }
    region.0 = None;
    Ok(())
}

/// What the library calls `NVSHMEMX_QP_DEFAULT`.
const DEFAULT: nvshmemx_qp_handle_t = 0;

/// `nvshmemx_qp_create`: an array that the caller frees.
pub(crate) fn create_queue_pairs(count: c_int) -> Outcome<*mut nvshmemx_qp_handle_t> {
    let pe = life::pe()?;
    let Ok(wanted @ 1..) = usize::try_from(count) else {
        return Err(wrong(format!("{count} queue pairs, expected some: the library looks at the first one")));
    };
    pe.quiesce();
    let world = pe.teams.get(NVSHMEM_TEAM_WORLD)?;
    let activity = Activity { kind: Kind::QueuePairs, team: 0, number: 0, bytes: 0 };
    world.group.meet(&pe.boot, activity, &[count as u64], None)?.end()?;
    // SAFETY: a size that is not zero.
    let array = unsafe { libc::calloc(wanted, size_of::<nvshmemx_qp_handle_t>()) }.cast::<nvshmemx_qp_handle_t>();
    if array.is_null() {
        return Err(refused(NVSHMEMX_ERROR_OUT_OF_MEMORY, format!("no memory for {wanted} queue pairs")));
    }
    for at in 0..wanted {
        // SAFETY: within what was allocated.
        unsafe { array.add(at).write(DEFAULT) };
    }
    Ok(array)
}
