//! Allocating the memory of a [`CommBuffer`](super::CommBuffer).

use std::ptr;
use std::sync::Arc;

use super::check;
use super::comm_buffer::CommBuffer;
use super::inner::{Inner, Window};
use super::prepare::Site;
use super::reaper;
use super::submit;
use crate::cuda::{Allocation, Stream, WindowTag};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::sys;

const OPERATION: &str = "alloc";
const LOCAL: &str = "alloc_local";

/// Windows begin and end at pages of this size.
const PAGE: usize = 4096;

/// Memory of NCCL that is freed unless it is handed on.
struct Memory<'a> {
    ptr: *mut std::ffi::c_void,
    bytes: usize,
    inner: &'a Arc<Inner>,
}

impl<'a> Memory<'a> {
    /// Wraps `ncclMemAlloc`.
    fn new(inner: &'a Arc<Inner>, bytes: usize) -> Result<Self> {
        const FUNCTION: &str = "ncclMemAlloc";
        let _current = inner.device.set_current()?;
        let mut ptr = ptr::null_mut();
        // SAFETY: writes a pointer to the address given; the device is current.
        let result = unsafe { sys::ncclMemAlloc(&mut ptr, bytes) };
        match check::check(FUNCTION, result) {
            Ok(()) => Ok(Self { ptr, bytes, inner }),
            Err(error) if is_out_of_memory(&error, inner, bytes) => {
                Err(Error::OutOfMemory { operation: FUNCTION, bytes, place: inner.device.to_string() })
            }
            Err(error) => Err(error),
        }
    }

    /// Hands the memory on to a buffer of zeros.
    fn into_buffer<'comm, T: Element>(
        self,
        window: Option<(Window, u64)>,
        stream: &Stream,
        len: usize,
    ) -> Result<CommBuffer<'comm, T>> {
        let mut buffer = CommBuffer::new(self.into_allocation(window, len * size_of::<T>()), len);
        buffer.fill(stream, T::ZERO)?;
        Ok(buffer)
    }

    /// Hands the memory on to an allocation of `bytes` that frees it.
    fn into_allocation(self, window: Option<(Window, u64)>, bytes: usize) -> Arc<Allocation> {
        debug_assert!(bytes <= self.bytes);
        let memory = std::mem::ManuallyDrop::new(self);
        let tag = WindowTag { communicator: memory.inner.id, window: window.map_or(0, |(_, number)| number) };
        let owner = Arc::clone(memory.inner);
        let window = window.map(|(window, _)| window);
        Allocation::external(
            memory.ptr,
            bytes,
            memory.inner.device,
            Some(tag),
            Box::new(move |freed| reaper::bury(freed, &owner, window)),
        )
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        if let Ok(_current) = self.inner.device.set_current() {
            // SAFETY: from `ncclMemAlloc`; nothing has used it.
            let _ = unsafe { sys::ncclMemFree(self.ptr) };
        }
    }
}

/// Whether memory ran out. NCCL's code says no more than that a CUDA call failed; its text says which error that was,
/// but may be of another call.
fn is_out_of_memory(error: &Error, inner: &Inner, bytes: usize) -> bool {
    let Error::Nccl { code, last, .. } = error else { return false };
    *code == sys::ncclResult_t::ncclUnhandledCudaError.0 as i32
        && (last.as_ref().is_some_and(|text| text.contains("out of memory"))
            || inner.device.memory_info().map_or(true, |info| info.free < bytes))
}

/// Bytes of a buffer, in whole pages: an empty one has a page too, so that it can be a window.
fn size_of_elements<T: Element>(operation: &'static str, len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>())
        .map(|bytes| bytes.max(1))
        .and_then(|bytes| bytes.checked_next_multiple_of(PAGE))
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .ok_or_else(|| Error::argument(operation, "len", "a length whose bytes can be counted", len))
}

/// What both ways to allocate check first; the bytes of a buffer.
fn begin<T: Element>(
    operation: &'static str,
    members: &[&Arc<Inner>],
    streams: &[&Stream],
    len: usize,
) -> Result<usize> {
    submit::outside_of_groups(operation)?;
    let bytes = size_of_elements::<T>(operation, len)?;
    for (inner, stream) in members.iter().zip(streams) {
        Site::new(operation, inner, stream)?;
    }
    Ok(bytes)
}

/// A buffer, zeroed, that is no window: the other ranks have no part in it.
pub(crate) fn local<'comm, T: Element>(
    inner: &Arc<Inner>,
    stream: &Stream,
    len: usize,
) -> Result<CommBuffer<'comm, T>> {
    let bytes = begin::<T>(LOCAL, &[inner], &[stream], len)?;
    drop(inner.enter(LOCAL)?);
    Memory::new(inner, bytes)?.into_buffer(None, stream, len)
}

/// A buffer of one rank, zeroed. Where windows exist, all ranks must call this.
pub(crate) fn one<'comm, T: Element>(inner: &Arc<Inner>, stream: &Stream, len: usize) -> Result<CommBuffer<'comm, T>> {
    let buffers = many::<T>(&[inner], &[stream], len)?;
    buffers.into_iter().next().ok_or_else(|| Error::argument(OPERATION, "ranks", "one", 0))
}

/// A buffer for each of several ranks that one thread drives.
pub(crate) fn many<'comm, T: Element>(
    members: &[&Arc<Inner>],
    streams: &[&Stream],
    len: usize,
) -> Result<Vec<CommBuffer<'comm, T>>> {
    let bytes = begin::<T>(OPERATION, members, streams, len)?;
    let memory = members.iter().map(|inner| Memory::new(inner, bytes)).collect::<Result<Vec<_>>>();
    let windows = match &memory {
        Ok(memory) => register(members, memory)?,
        // The others are about to wait for this rank.
        Err(error) => return Err(give_up(members, error.clone())),
    };
    let mut buffers = Vec::with_capacity(members.len());
    for ((memory, window), stream) in memory?.into_iter().zip(windows).zip(streams) {
        buffers.push(memory.into_buffer(window, stream, len)?);
    }
    Ok(buffers)
}

/// In a clique with several ranks, a rank that cannot take part ends the clique: registration is collective.
fn give_up(members: &[&Arc<Inner>], error: Error) -> Error {
    let others = members.first().is_some_and(|inner| inner.size > members.len());
    if others && cfg!(nccl_ge_2_27) {
        let members: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
        return submit::failed(&members, error);
    }
    error
}

#[cfg(not(nccl_ge_2_27))]
fn register(members: &[&Arc<Inner>], _memory: &[Memory<'_>]) -> Result<Vec<Option<(Window, u64)>>> {
    Ok(members.iter().map(|_| None).collect())
}

/// Wraps `ncclCommWindowRegister`, in one group for all members.
#[cfg(nccl_ge_2_27)]
fn register(members: &[&Arc<Inner>], memory: &[Memory<'_>]) -> Result<Vec<Option<(Window, u64)>>> {
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    register_locked(members, memory).map_err(|error| submit::failed(&refs, error))
}

#[cfg(nccl_ge_2_27)]
fn register_locked(members: &[&Arc<Inner>], memory: &[Memory<'_>]) -> Result<Vec<Option<(Window, u64)>>> {
    use super::comm_buffer::next_window;
    use crate::deadline::Deadline;

    const FUNCTION: &str = "ncclCommWindowRegister";
    let flags = sys::NCCL_WIN_COLL_SYMMETRIC as std::ffi::c_int;
    let mut entered = Vec::with_capacity(members.len());
    for inner in members {
        entered.push(inner.enter(OPERATION)?);
    }
    let bytes = memory.first().map_or(0, |memory| memory.bytes);
    let mut numbers = Vec::with_capacity(members.len());
    for inner in members {
        numbers.push(agree(inner, bytes)?);
    }
    if let (Some(inner), Some(Some(entry))) = (members.first(), numbers.first())
        && let Some(family) = &inner.family
    {
        let deadline = Deadline::after(inner.timeout());
        family.ledger.rendezvous(*entry, &deadline, || inner.refusal(OPERATION))?;
    }
    let mut windows = vec![ptr::null_mut(); members.len()];
    super::inner::begin_visits(members.iter().map(|inner| &***inner), OPERATION)?;
    // SAFETY: ended below, whatever happens in between: nothing there panics or returns.
    let mut result = check::check("ncclGroupStart", unsafe { sys::ncclGroupStart() });
    if result.is_ok() {
        for (((_, handle), memory), window) in entered.iter().zip(memory).zip(&mut windows) {
            // SAFETY: a live communicator during a visit, memory of NCCL, and a place for the window, which is written
            // when the group ends.
            let code = unsafe { sys::ncclCommWindowRegister(*handle, memory.ptr, memory.bytes, window, flags) };
            result = result.and(check::check(FUNCTION, code));
        }
        // SAFETY: this thread has opened the group above.
        result = result.and(check::check(FUNCTION, unsafe { sys::ncclGroupEnd() }));
    }
    for (inner, window) in members.iter().zip(&windows) {
        if !window.is_null() {
            inner.windows().push(Window(*window));
        }
        inner.end_visit();
    }
    result?;
    Ok(windows
        .into_iter()
        .zip(numbers)
        // NCCL answers no window, without an error, where the ranks cannot reach each other's memory.
        .map(|(window, entry): (sys::ncclWindow_t, _)| {
            (!window.is_null()).then(|| (Window(window), entry.map_or_else(next_window, |entry| entry + 1)))
        })
        .collect())
}

/// Compares the size with the other ranks of the clique; the number of the registration.
#[cfg(nccl_ge_2_27)]
fn agree(inner: &Inner, bytes: usize) -> Result<Option<u64>> {
    let Some(family) = &inner.family else { return Ok(None) };
    let signature = super::signature::Signature::register(bytes);
    let mut waiting = None;
    let mut wait = |round| submit::keep_waiting(inner, OPERATION, &mut waiting, round);
    let entry = family.ledger.collective(inner.rank, &signature, &mut wait);
    entry.map(Some).map_err(|refusal| submit::refused(OPERATION, inner.rank, refusal, &signature))
}
