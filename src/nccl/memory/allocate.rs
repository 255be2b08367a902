//! Allocating the memory of a [`CommBuffer`](crate::nccl::CommBuffer).

use std::mem::ManuallyDrop;
#[cfg(nccl_ge_2_27)]
use std::ptr;
use std::sync::Arc;
#[cfg(nccl_ge_2_27)]
use std::sync::atomic::{AtomicU64, Ordering};

use super::block::{self, Size};
#[cfg(nccl_ge_2_27)]
use super::retire;
#[cfg(nccl_ge_2_27)]
use super::retire::Member;
use crate::cuda::{Address, Allocation, FreeHook, SliceMut, Stream, undisturbing};
#[cfg(nccl_ge_2_27)]
use crate::cuda::{Freed, Uses, restoring};
use crate::deadline::Deadline;
use crate::element::Element;
use crate::error::{Error, Result};
#[cfg(nccl_ge_2_27)]
use crate::known_bugs::ENDLESS_WINDOWS;
#[cfg(nccl_ge_2_27)]
use crate::nccl::agree::signature::Signature;
use crate::nccl::calls::site::Site;
#[cfg(nccl_ge_2_27)]
use crate::nccl::enqueue::point;
use crate::nccl::enqueue::submit;
use crate::nccl::life::reaper;
#[cfg(nccl_ge_2_27)]
use crate::nccl::raw::check;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::nccl::state::inner::Inner;
#[cfg(nccl_ge_2_27)]
use crate::nccl::state::windows::Burial;
#[cfg(nccl_ge_2_27)]
use crate::nccl::wait::entry::begin_visits;
#[cfg(nccl_ge_2_27)]
use crate::nccl::wait::entry::{Entered, enter_all};
use crate::sys;

const LOCAL: &str = "alloc_local";

/// Memory of NCCL that is freed unless it is handed on.
struct Memory<'a> {
    ptr: *mut std::ffi::c_void,
    size: Size,
    inner: &'a Arc<Inner>,
}

impl<'a> Memory<'a> {
    fn new(inner: &'a Arc<Inner>, size: Size) -> Result<Self> {
        let ptr = block::allocate(inner.device, size, inner.timeout())?;
        Ok(Self { ptr, size, inner })
    }

    /// Hands the memory on to an allocation that frees it: of a window with this number, if it is one.
    fn into_allocation(self, operation: &'static str, window: Option<u64>) -> Result<Arc<Allocation>> {
        let memory = ManuallyDrop::new(self);
        let owner = Arc::clone(memory.inner);
        let free: FreeHook = match window {
            None => Box::new(move |freed| reaper::bury(freed, &owner)),
            Some(number) => Box::new(move |freed| {
                if let Some(burial) = owner.windows.bury(number, freed) {
                    reaper::receive(burial, &owner);
                }
            }),
        };
        let alloc = Allocation::external(
            Address::new(memory.ptr),
            memory.size.used,
            memory.inner.device,
            memory.inner.id,
            free,
        );
        match window {
            Some(number) if !memory.inner.windows.lay_over(alloc.id(), number) => {
                let reason = "a window lies over the memory already, or there are too many";
                Err(Error::InvalidUsage { operation, reason: reason.into() })
            }
            _ => Ok(alloc),
        }
    }

    /// Frees the memory once NCCL has let go of the communicator, which may know it.
    #[cfg(nccl_ge_2_27)]
    fn leave(self) {
        let memory = ManuallyDrop::new(self);
        let freed = Freed { id: 0, address: Address::new(memory.ptr), device: memory.inner.device, uses: Uses::new() };
        reaper::receive(Burial::AfterTheEnd(freed), memory.inner);
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        if let Ok(_current) = self.inner.device.set_current() {
            // SAFETY: from `ncclMemAlloc`; nothing has used it.
            let _ = undisturbing(|| Ok(unsafe { sys::ncclMemFree(self.ptr) }));
        }
    }
}

/// What both ways to allocate check first; the size of a buffer.
fn begin<T: Element>(
    operation: &'static str,
    members: &[&Arc<Inner>],
    streams: &[&Stream],
    len: usize,
) -> Result<Size> {
    submit::outside_of_groups(operation)?;
    // Before the other ranks wait for this one.
    outside_of_host_functions(operation)?;
    let size = Size::of::<T>(operation, len)?;
    for (inner, stream) in members.iter().zip(streams) {
        Site::new(operation, inner, stream)?;
    }
    Ok(size)
}

/// Memory, zeroed, that is no window: the other ranks have no part in it.
pub(crate) fn local<T: Element>(inner: &Arc<Inner>, stream: &Stream, len: usize) -> Result<Arc<Allocation>> {
    let size = begin::<T>(LOCAL, &[inner], &[stream], len)?;
    drop(inner.enter(LOCAL)?);
    zeros::<T>(LOCAL, Memory::new(inner, size)?.into_allocation(LOCAL, None)?, stream, len)
}

/// The same allocation, whose `len` elements are zeroed.
fn zeros<T: Element>(
    operation: &'static str,
    alloc: Arc<Allocation>,
    stream: &Stream,
    len: usize,
) -> Result<Arc<Allocation>> {
    SliceMut::<T>::of(&alloc, alloc.address(), len).fill_for(operation, stream, T::ZERO)?;
    Ok(alloc)
}

/// Memory of one rank, zeroed. Where windows exist, all ranks must call this.
pub(crate) fn one<T: Element>(
    operation: &'static str,
    inner: &Arc<Inner>,
    stream: &Stream,
    len: usize,
) -> Result<Arc<Allocation>> {
    let memory = many::<T>(operation, &[inner], &[stream], len)?;
    memory.into_iter().next().ok_or_else(|| Error::argument(operation, "ranks", "one", 0))
}

/// Memory of each of several ranks that one thread drives, zeroed.
pub(crate) fn many<T: Element>(
    operation: &'static str,
    members: &[&Arc<Inner>],
    streams: &[&Stream],
    len: usize,
) -> Result<Vec<Arc<Allocation>>> {
    let size = begin::<T>(operation, members, streams, len)?;
    // All of it has an owner before anything else can fail.
    let memory = allocate(operation, members, size)?;
    memory.into_iter().zip(streams).map(|(alloc, stream)| zeros::<T>(operation, alloc, stream, len)).collect()
}

#[cfg(not(nccl_ge_2_27))]
fn allocate(operation: &'static str, members: &[&Arc<Inner>], size: Size) -> Result<Vec<Arc<Allocation>>> {
    let memory = members.iter().map(|inner| Memory::new(inner, size)).collect::<Result<Vec<_>>>()?;
    memory.into_iter().map(|memory| memory.into_allocation(operation, None)).collect()
}

/// Memory of each member, as windows that belong together.
#[cfg(nccl_ge_2_27)]
fn allocate(operation: &'static str, members: &[&Arc<Inner>], size: Size) -> Result<Vec<Arc<Allocation>>> {
    let mut approaching = retire::approach(members, operation)?;
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let memory = restoring(|| allocate_together(operation, &mut approaching, size))
        .map_err(|error| submit::failed(&refs, operation, error))?;
    drop(approaching);
    memory
}

/// The outer error is one that the other ranks wait behind.
#[cfg(nccl_ge_2_27)]
fn allocate_together(
    operation: &'static str,
    approaching: &mut [Member<'_>],
    size: Size,
) -> Result<Result<Vec<Arc<Allocation>>>> {
    let members: Vec<_> = approaching.iter().map(|member| member.inner).collect();
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let mut entered = enter_all(&refs, operation)?;
    let (entries, _promised) = retire::meet(approaching, &mut entered, operation, &Signature::register(size.used))?;
    // From here on all ranks of a clique have issued what came before, so nothing on a device waits for this thread, and a call that
    // waits for the device comes back.
    let memory = match members.iter().map(|inner| Memory::new(inner, size)).collect::<Result<Vec<_>>>() {
        Ok(memory) => memory,
        // The others are about to wait for this rank, if there are any.
        Err(error) if members.first().is_some_and(|inner| inner.size > members.len()) => return Err(error),
        Err(error) => return Ok(Err(error)),
    };
    let (numbers, registered) = register(operation, &members, &entered, &memory, &entries)?;
    let mut owned = Vec::with_capacity(members.len());
    for (memory, number) in memory.into_iter().zip(numbers) {
        match number {
            None if registered.is_err() => memory.leave(),
            number => owned.push(memory.into_allocation(operation, number)?),
        }
    }
    registered?;
    Ok(Ok(owned))
}

/// A number for a window of a communicator whose ranks do not compare.
#[cfg(nccl_ge_2_27)]
fn next_window() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Wraps `ncclCommWindowRegister`, in one group for all members. The number of each window, and what NCCL says, which may be an error
/// although there are some; it answers no window, without an error, where the ranks cannot reach each other's memory.
#[cfg(nccl_ge_2_27)]
fn register(
    operation: &'static str,
    members: &[&Arc<Inner>],
    entered: &Entered<'_>,
    memory: &[Memory<'_>],
    entries: &[Option<u64>],
) -> Result<(Vec<Option<u64>>, Result<()>)> {
    const FUNCTION: &str = "ncclCommWindowRegister";
    if ENDLESS_WINDOWS.is_running() && !members.iter().all(|inner| inner.force_windows) {
        return Ok((vec![None; members.len()], Ok(())));
    }
    let flags = sys::NCCL_WIN_COLL_SYMMETRIC as std::ffi::c_int;
    let mut windows: Vec<sys::ncclWindow_t> = vec![ptr::null_mut(); members.len()];
    for ((inner, (guard, _)), (memory, entry)) in members.iter().zip(entered).zip(memory.iter().zip(entries)) {
        // Windows were taken away since the ranks met, each in a visit of its own.
        point::write_down(inner, guard, operation, &Signature::register(memory.size.used), *entry);
    }
    begin_visits(members.iter().map(|inner| &***inner), operation)?;
    // SAFETY: ended below, whatever happens in between: nothing there panics or returns.
    let mut result = check::check("ncclGroupStart", unsafe { sys::ncclGroupStart() });
    if result.is_ok() {
        for (((_, handle), memory), window) in entered.iter().zip(memory).zip(&mut windows) {
            // SAFETY: a live communicator during a visit, memory of NCCL, and a place for the window, which is written
            // when the group ends.
            let code = unsafe { sys::ncclCommWindowRegister(*handle, memory.ptr, memory.size.pages, window, flags) };
            result = result.and(check::check(FUNCTION, code));
        }
        // SAFETY: this thread has opened the group above. The windows are registered on it, where there is one.
        result = result.and(undisturbing(|| check::check(FUNCTION, unsafe { sys::ncclGroupEnd() })));
    }
    let known = members.iter().zip(windows).zip(entries).map(|((inner, window), entry)| {
        let number = (!window.is_null()).then(|| entry.map_or_else(next_window, |entry| entry + 1));
        // Before the visit ends: an abort takes those off that it finds.
        if let Some(number) = number {
            inner.windows.add(number, window);
        }
        inner.end_visit();
        number
    });
    Ok((known.collect(), result))
}

/// Frees the memory of windows that all ranks have dropped. All ranks must call this.
#[cfg_attr(not(nccl_ge_2_27), allow(unused_variables))]
pub(crate) fn reclaim(operation: &'static str, members: &[&Arc<Inner>]) -> Result<()> {
    submit::outside_of_groups(operation)?;
    outside_of_host_functions(operation)?;
    #[cfg(nccl_ge_2_27)]
    {
        let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
        let mut approaching = retire::approach(members, operation)?;
        let mut together = || {
            let mut entered = enter_all(&refs, operation)?;
            retire::meet(&mut approaching, &mut entered, operation, &Signature::reclaim())
        };
        together().map_err(|error| submit::failed(&refs, operation, error))?;
    }
    for inner in members {
        let deadline = Deadline::after(inner.timeout());
        if !reaper::drain(inner.id, &deadline) {
            return Err(deadline.error(operation, "memory that was dropped is still in use"));
        }
    }
    Ok(())
}
