//! Memory that NCCL allocates and registers, windows over it, and the addresses at which kernels reach them.
//!
//! Every rank can reach every buffer here anyway, so a window changes nothing about how an operation runs. What NCCL
//! demands of windows is checked.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use crate::bugs::Nccl;
use crate::cuda::core::{capture, device};
use crate::cuda::tasks::memory;
use crate::lock::Mutex;
use crate::meet::segment::Segment;
use crate::memory::heap::Origin;
use crate::memory::mapped;
use crate::memory::object::Location;
use crate::memory::usage::{InUse, locate, reach};
use crate::nccl::basics::error::{Failure, Outcome, cuda, heed_captures};
use crate::nccl::basics::kind::Kind;
use crate::nccl::basics::variables;
use crate::nccl::calls::group;
use crate::nccl::calls::group::Job;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::registry;
use crate::nccl::state::shared::Shared;
use crate::nccl::state::windows::{Part, Window};
use crate::nccl::wait::host;
use crate::nccl::wait::host::Members;
use crate::settings::settings;
use crate::sys::{NCCL_WIN_COLL_SYMMETRIC, cudaError, ncclResult_t, ncclWindow_t};
use crate::{fault, report};

/// What a window's address must be a multiple of.
const ALIGN: usize = 4096;

/// The first version that says no to what is no memory, and gives no window where it has none.
const STRICT: Nccl = 2_29_02;

/// The first version that maps memory anew for each window over it.
const MAPS_ANEW: Nccl = 2_30_03;

/// The first version in which ranks may have windows of different sizes.
const SIZES_DIFFER: Nccl = 2_30_07;

/// Memory of `ncclMemAlloc`, by its address.
static ALLOCATED: Mutex<BTreeMap<usize, Allocation>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Allocation {
    /// What the device's allocator gave: at most [`ALIGN`] bytes in front.
    base: usize,
    bytes: usize,
    /// Windows over it, with their numbers: all there ever were.
    windows: Vec<(Arc<Segment>, u64)>,
}

/// `ncclMemAlloc`, on the current device.
pub(crate) fn allocate(bytes: usize) -> Outcome<*mut c_void> {
    let device = device::current_device();
    if bytes == 0 {
        return Ok(std::ptr::null_mut());
    }
    let out_of_memory = || cuda(&format!("{bytes} bytes on device {device}"), cudaError::cudaErrorMemoryAllocation);
    let failed = |error| cuda(&format!("cannot allocate {bytes} bytes on device {device}"), error);
    if fault::on_alloc(device::device(device).map_err(failed)?.number(), bytes) {
        return Err(out_of_memory());
    }
    let bytes = bytes.checked_next_multiple_of(ALIGN).ok_or_else(out_of_memory)?;
    let padded = bytes.checked_add(ALIGN).ok_or_else(out_of_memory)?;
    let base = memory::allocate(device, padded, Origin::Nccl).map_err(failed)?;
    let pointer = base.wrapping_byte_add(base.addr().wrapping_neg() % ALIGN);
    ALLOCATED.lock().insert(pointer.addr(), Allocation { base: base.expose_provenance(), bytes, windows: Vec::new() });
    Ok(pointer)
}

/// `ncclMemFree`. Memory of `cudaMalloc` is accepted too, as NCCL does.
///
/// A rank that ended with a window over it still maps it, before NCCL 2.29.7: the device does not get it back then.
pub(crate) fn free(pointer: *mut c_void) -> Outcome {
    let allocation = ALLOCATED.lock().remove(&pointer.addr());
    let freed = match &allocation {
        None => memory::unmap(pointer),
        Some(Allocation { base, windows, .. }) => {
            let base = std::ptr::with_exposed_provenance_mut(*base);
            let stranded = windows.iter().any(|(segment, number)| segment.common().stranded.contains(*number));
            if stranded { memory::strand(base) } else { memory::unmap(base) }
        }
    };
    freed.map_err(|error| cuda(&format!("cannot free {pointer:p}"), error))
}

#[derive(Clone, Copy)]
struct Out(*mut ncclWindow_t);

// SAFETY: the caller of the C function keeps the place valid until the call, or the group it is part of, has ended.
unsafe impl Send for Out {}

impl Out {
    fn put(self, window: usize) {
        // SAFETY: checked not to be null; see above for how long it is valid.
        unsafe { *self.0 = std::ptr::without_provenance_mut(window) };
    }
}

/// `ncclCommWindowRegister`: collective, but a rank whose buffer is refused leaves the others waiting.
///
/// # Safety
/// `out` is null or valid for a write until the call, or the group it is part of, has ended.
pub(crate) unsafe fn register(
    comm: &Arc<Comm>,
    buffer: *mut c_void,
    bytes: usize,
    out: *mut ncclWindow_t,
    flags: i32,
) -> Outcome<ncclResult_t> {
    let nothing = buffer.is_null() || bytes == 0;
    let is_strict = settings().nccl >= STRICT;
    if !is_strict && (nothing || !(settings().windows || registers_buffers())) {
        // NCCL takes that for nothing to do, and leaves the place as it was.
        return Ok(ncclResult_t::ncclSuccess);
    }
    if out.is_null() {
        let text = "the place for the window is null";
        return Err(if is_strict { Failure::argument(text) } else { Failure::unnoticed(text) });
    }
    let out = Out(out);
    if is_strict {
        out.put(0);
        if nothing {
            return Err(Failure::argument(format!("{bytes} bytes at {buffer:p} are no memory of a window")));
        }
        if !settings().windows {
            // Where ranks cannot map each other's memory.
            return Ok(ncclResult_t::ncclSuccess);
        }
    }
    group::call(|| {
        let epoch = comm.ensure_usable()?;
        let job = comm.clone();
        let address = buffer.expose_provenance();
        let run = Box::new(move || {
            out.put(0);
            // Who fails here leaves the others waiting in the exchange.
            heed_captures("ncclCommWindowRegister")?;
            if !settings().windows {
                let handle = register_buffer(&job, std::ptr::with_exposed_provenance_mut(address), bytes)?;
                out.put(handle.addr());
                return Ok(());
            }
            let window = agree(&job, epoch, address, bytes, flags)?;
            job.place().into_iter().for_each(|place| place.connect_all());
            out.put(job.windows.add(window));
            Ok(())
        });
        group::add_window(Job { comm: comm.clone(), name: "ncclCommWindowRegister", run })
    })
}

fn agree(comm: &Comm, epoch: u32, address: usize, bytes: usize, flags: i32) -> Outcome<Window> {
    let number = {
        let mut issued = comm.issued.lock();
        issued.windows += 1;
        issued.windows
    };
    let range = address..address + bytes;
    // Who is refused tells nobody: the others wait for it.
    let Checked { begin, used, base, length } = check(comm, &range, flags)?;
    let symmetric = flags.cast_unsigned() & NCCL_WIN_COLL_SYMMETRIC != 0;
    if symmetric && comm.windows.overlaps(&range) {
        report::violation(format!(
            "ncclCommWindowRegister: a symmetric window lies over some of {bytes} bytes at {address:#x} on rank {} already: which one NCCL \
             takes is undefined",
            comm.rank
        ));
    }
    let extent = Extent {
        bytes: bytes as u64,
        flags,
        offset: (address - base) as u64,
        length: length as u64,
        mapped: comm.windows.maps(base),
    };
    let (parts, length) = compare(comm, epoch, &extent, &begin)?;
    let place = comm.windows.take_place(length);
    if let Err(failure) = compare_places(comm, epoch, place) {
        comm.windows.give_place(place);
        return Err(failure);
    }
    let window = Window::new((number, place), range, base, symmetric, used, parts);
    let mut allocated = ALLOCATED.lock();
    let found = allocated.range_mut(..=address).next_back();
    let holds = found.filter(|(start, allocation)| address < **start + allocation.bytes);
    if let (Some((_, allocation)), Some(segment)) = (holds, comm.segment.get()) {
        allocation.windows.push((segment.clone(), number));
    }
    drop(allocated);
    Ok(window)
}

/// What ranks have to have in common.
struct Extent {
    bytes: u64,
    flags: i32,
    /// Bytes in front of the window, of what was mapped as one, and all of those.
    offset: u64,
    length: u64,
    /// Whether another window maps that already.
    mapped: bool,
}

/// The part of each rank, and the bytes of address space that the window takes.
fn compare(comm: &Comm, epoch: u32, extent: &Extent, begin: &Location) -> Outcome<(Box<[Part]>, u64)> {
    let nccl = settings().nccl;
    let flags = extent.flags.cast_unsigned();
    let mut words = vec![extent.bytes, u64::from(flags), extent.offset, extent.length, u64::from(extent.mapped)];
    words.extend(begin.words());
    let shown = host::exchange(comm, &Members::all(comm, epoch), Kind::WindowRegister, &words)?;
    let mut most = 0;
    let mut parts = Vec::with_capacity(shown.len());
    for (peer, [size, theirs, offset, length, mapped, one, two, three, four, ..]) in shown.into_iter().enumerate() {
        if (size != extent.bytes && nccl < SIZES_DIFFER) || theirs != u64::from(flags) {
            let (rank, bytes) = (comm.rank, extent.bytes);
            return Err(Failure::unnoticed(format!(
                "rank {peer} registers {size} bytes with flags {theirs:#x}, rank {rank} {bytes} bytes with flags {flags:#x}"
            )));
        }
        let wrong =
            |what: &str| report::violation(format!("ncclCommWindowRegister: {what} on ranks {} and {peer}", comm.rank));
        if offset != extent.offset {
            wrong("the window begins at another byte of what was mapped as one, so data lands in other memory,");
        }
        if length != extent.length && nccl < SIZES_DIFFER {
            wrong("the memory under the window was mapped in another size, so later windows lie at other places,");
        }
        if (mapped != 0) != extent.mapped && nccl < MAPS_ANEW {
            wrong("only one has the memory under the window in another one too, and waits for nobody to map it,");
        }
        most = length.max(most);
        parts.push(Part { begin: Location::from_words([one, two, three, four]), bytes: size });
    }
    Ok((parts.into(), most))
}

fn compare_places(comm: &Comm, epoch: u32, place: u64) -> Outcome {
    let shown = host::exchange(comm, &Members::all(comm, epoch), Kind::WindowRegister, &[place])?;
    for (peer, [theirs, ..]) in shown.iter().enumerate() {
        if *theirs != place {
            report::violation(format!(
                "ncclCommWindowRegister: the window lies at {place:#x} on rank {} and at {theirs:#x} on rank {peer}: they have taken windows \
                 away at different points, and with NVLS data would land in other memory",
                comm.rank
            ));
        }
    }
    Ok(())
}

/// Memory of one rank that can be a window.
struct Checked {
    begin: Location,
    used: InUse,
    /// What was mapped as one.
    base: usize,
    length: usize,
}

/// NCCL asks the driver for the allocation behind an address, which must be one that can be mapped. It looks at nothing else but where the
/// window begins.
fn check(comm: &Comm, range: &Range<usize>, flags: i32) -> Outcome<Checked> {
    let (address, bytes) = (range.start, range.len());
    if flags.cast_unsigned() & !NCCL_WIN_COLL_SYMMETRIC != 0 {
        return Err(Failure::unnoticed(format!(
            "the window's flags are {flags:#x}, expected 0 or NCCL_WIN_COLL_SYMMETRIC"
        )));
    }
    let pointer: *const c_void = std::ptr::with_exposed_provenance(address);
    let foreign = |call| {
        let rank = comm.rank;
        cuda(&format!("{call} of {pointer:p}, the window of rank {rank}"), cudaError::cudaErrorInvalidValue)
    };
    let (_, first) = locate(pointer, 1).map_err(|_| foreign("cuMemGetAddressRange"))?;
    let mapped = memory::of_nccl(address).or_else(|| mapped::at(address).map(|mapped| mapped.span()));
    let Some((base, length)) = mapped.filter(|_| first.is_mapped()) else {
        return Err(foreign("cuMemRetainAllocationHandle"));
    };
    if !(address - base).is_multiple_of(ALIGN) {
        return Err(Failure::argument(format!("the window starts at {pointer:p}, expected a multiple of {ALIGN}")));
    }
    if mapped::at(address).is_some_and(|mapped| mapped.physical.nature.handles == 0) && comm.size > 1 {
        return Err(foreign("cuMemExportToShareableHandle"));
    }
    let (begin, used) = locate(pointer, bytes).map_err(|fault| Failure::unnoticed(fault.text))?;
    if let Some(device) = used.device().filter(|&device| device != comm.device) {
        return Err(Failure::unnoticed(format!(
            "the window lies on device {device}, expected device {} of rank {}",
            comm.device, comm.rank
        )));
    }
    Ok(Checked { begin, used, base, length })
}

/// Where a window of this rank begins: `ncclWinGetUserPtr`.
pub(crate) fn begin(comm: &Comm, window: ncclWindow_t) -> Outcome<usize> {
    let found = comm.windows.parts(window.addr()).map(|(begin, _)| begin);
    found.ok_or_else(|| Failure::argument(format!("{window:p} is no window of this communicator")))
}

/// `ncclCommWindowDeregister`: local.
pub(crate) fn deregister(comm: &Comm, window: ncclWindow_t) -> Outcome {
    if window.is_null() {
        return Ok(());
    }
    if !settings().windows {
        return deregister_buffer(comm, window.cast());
    }
    // NCCL waits for what it has just enqueued on a stream of its own, and does not look whether it could.
    let _ = capture::check();
    match comm.windows.remove(window.addr()) {
        None => Err(Failure::internal(format!("{window:p} is no window of this communicator"))),
        // NCCL unmaps it at once. A revoke has waited for what used it.
        Some(true) if !comm.is_revoked() => Err(Failure::usage(format!(
            "ncclCommWindowDeregister on rank {}: operations use the window, which NCCL unmaps under them",
            comm.rank
        ))
        .reported()),
        Some(_) => Ok(()),
    }
}

// Where kernels reach the windows of other ranks.
//
// NCCL maps the windows of all ranks that can map each other's memory into one range, and computes the place there; it takes a rank that it does not
// reach for none, and looks at the offset by the size of its own window. Here a window of another rank of this process lies where
// that rank has it.

/// `ncclGetPeerDevicePointer`: null where the rank is not reached.
pub(crate) fn peer_pointer(window: ncclWindow_t, offset: usize, peer: c_int) -> Outcome<*mut c_void> {
    find(window, |comm| {
        let known = usize::try_from(peer).ok().filter(|&peer| peer < comm.size);
        let known = known.ok_or_else(|| Failure::argument(format!("rank {peer} of {}", comm.size)))?;
        place(comm, window, offset, known)
    })
}

/// `ncclGetLsaDevicePointer`: all ranks are in the one group of those that map each other's memory.
pub(crate) fn lsa_pointer(window: ncclWindow_t, offset: usize, rank: c_int) -> Outcome<*mut c_void> {
    peer_pointer(window, offset, rank)
}

/// `ncclGetLsaMultimemDevicePointer`: null, as where there is no multicast.
pub(crate) fn multimem_pointer(window: ncclWindow_t) -> Outcome<*mut c_void> {
    find(window, |_| Ok(std::ptr::null_mut()))
}

fn find<R>(window: ncclWindow_t, then: impl FnOnce(&Comm) -> Outcome<R>) -> Outcome<R> {
    if window.is_null() {
        return Err(Failure::argument("the window is null"));
    }
    match registry::of_window(window.addr()) {
        Some(comm) => then(&comm),
        None => Err(Failure::argument(format!("{window:p} is no window"))),
    }
}

fn place(comm: &Comm, window: ncclWindow_t, offset: usize, peer: usize) -> Outcome<*mut c_void> {
    let (_, parts) = comm.windows.parts(window.addr()).ok_or_else(|| Failure::internal("the window has gone"))?;
    let own = parts[comm.rank].bytes;
    if offset as u64 >= own {
        return Err(Failure::argument(format!("byte {offset} of a window of {own} bytes")));
    }
    if offset as u64 >= parts[peer].bytes {
        let text = format!("byte {offset} of a window that has {} bytes on rank {peer}", parts[peer].bytes);
        return Err(Failure::unnoticed(text));
    }
    let mut begin = parts[peer].begin;
    if begin.pid != std::process::id() {
        return Ok(std::ptr::null_mut());
    }
    begin.offset += offset as u64;
    Ok(reach(&begin, 1).map_or(std::ptr::null_mut(), |address| address.cast()))
}

// Memory that a rank registers for itself, so that NCCL moves it without copying.
//
// Every rank can reach every buffer here anyway, so that changes nothing about how an operation runs. What NCCL demands of it is checked.

/// Whether NCCL registers anything: NCCL_LOCAL_REGISTER, which it reads once.
pub(super) fn registers_buffers() -> bool {
    static ON: LazyLock<bool> =
        LazyLock::new(|| variables::value("NCCL_LOCAL_REGISTER").is_none_or(|value| value.trim() != "0"));
    *ON
}

/// `ncclCommRegister`: local. The handle, which is null where NCCL registers nothing.
pub(crate) fn register_buffer(comm: &Comm, buffer: *mut c_void, bytes: usize) -> Outcome<*mut c_void> {
    if !registers_buffers() {
        return Ok(std::ptr::null_mut());
    }
    comm.ensure_usable()?;
    let (_, used) = locate(buffer, bytes).map_err(|fault| Failure::unnoticed(fault.text))?;
    if used.device() != Some(comm.device) {
        return Err(Failure::unnoticed(format!(
            "{bytes} bytes at {buffer:p} are registered, which do not lie on device {} of rank {}",
            comm.device, comm.rank
        )));
    }
    if let Some((range, piece)) = used.piece(buffer.addr()) {
        let fresh = comm.graph_cache.check(&range, &piece);
        fresh.map_err(|what| Failure::usage(format!("ncclCommRegister on rank {}: {what}", comm.rank)).reported())?;
    }
    let handle = comm.registrations.add(buffer.addr(), bytes, used);
    Ok(std::ptr::without_provenance_mut(handle))
}

/// `ncclCommDeregister`: local.
pub(crate) fn deregister_buffer(comm: &Comm, handle: *mut c_void) -> Outcome {
    if handle.is_null() {
        return Ok(());
    }
    // NCCL frees a small array of its own on the device.
    let _ = capture::check();
    comm.registrations.remove(handle.addr(), comm.is_revoked()).map_err(|what| {
        let text = format!("ncclCommDeregister on rank {}: {what}", comm.rank);
        Failure::usage(text).reported()
    })
}
