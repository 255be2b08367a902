//! Allocating the memory of a [`CommBuffer`](crate::nccl::CommBuffer).

use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::block::{self, Size};
#[cfg(nccl_ge_2_27)]
use super::kind::SYMMETRIC_UP_TO;
#[cfg(nccl_ge_2_27)]
use super::publish::{self, Piece, makes_windows};
use super::register;
#[cfg(nccl_ge_2_27)]
use super::retire;
#[cfg(nccl_ge_2_27)]
use super::retire::Member;
use crate::cuda::{Address, Allocation, FreeHook, Owner, SliceMut, Stream, undisturbing};
#[cfg(nccl_ge_2_27)]
use crate::cuda::{Freed, Uses, restoring};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nccl::calls::site::Site;
use crate::nccl::enqueue::in_group;
use crate::nccl::lifecycle::failed_call;
use crate::nccl::lifecycle::reclaim;
use crate::nccl::rank::inner::Inner;
#[cfg(nccl_ge_2_27)]
use crate::nccl::rank::windows::Reclaim;
use crate::nccl::raw::outside::outside_of_host_functions;
#[cfg(nccl_ge_2_27)]
use crate::nccl::validate::signature::Signature;
#[cfg(nccl_ge_2_27)]
use crate::nccl::validate::validator::Validator;
#[cfg(nccl_ge_2_27)]
use crate::nccl::wait::begin_call::{LockedRanks, begin_calls};
#[cfg(nccl_ge_2_27)]
use crate::nccl::wait::patience::Patience;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

const LOCAL: &str = "alloc_local";

/// What memory of all ranks is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A window where that is of use, for its size.
    Fitting,
    /// A window.
    Symmetric,
}

impl Wanted {
    /// Whether so many bytes are to be a window, where there are windows.
    #[cfg(nccl_ge_2_27)]
    fn is_window(self, bytes: usize) -> bool {
        self == Self::Symmetric || bytes <= SYMMETRIC_UP_TO
    }

    /// What ranks compare of it.
    #[cfg(nccl_ge_2_27)]
    fn signature(self, size: Size) -> Signature {
        if self.is_window(size.used) { Signature::register(size.used) } else { Signature::alloc_large(size.used) }
    }
}

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
        let owner = Owner::Only(self.inner.id);
        self.into_allocation_of(owner, operation, window)
    }

    fn into_allocation_of(self, whose: Owner, operation: &'static str, window: Option<u64>) -> Result<Arc<Allocation>> {
        let memory = ManuallyDrop::new(self);
        let owner = Arc::clone(memory.inner);
        let free: FreeHook = match window {
            None => Box::new(move |freed| reclaim::free_when_idle(freed, &owner)),
            Some(number) => Box::new(move |freed| {
                if let Some(memory) = owner.windows.drop_buffer(number, freed) {
                    reclaim::reclaim(memory, &owner);
                }
            }),
        };
        let alloc = Allocation::external(Address::new(memory.ptr), memory.size.used, memory.inner.device, whose, free);
        let place = (memory.ptr.addr(), memory.size.pages);
        match window {
            Some(number) if !memory.inner.windows.lay_over(&alloc, place, number) => {
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
        let (address, device) = (Address::new(memory.ptr), memory.inner.device);
        let freed = Freed { id: 0, address, device, uses: Uses::new(), lingers: false };
        reclaim::reclaim(Reclaim::AfterEnd(freed), memory.inner);
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
    in_group::outside_of_groups(operation)?;
    // Before the other ranks wait for this one.
    outside_of_host_functions(operation)?;
    let size = Size::of::<T>(operation, len)?;
    for (inner, stream) in members.iter().zip(streams) {
        Site::new(operation, inner, stream)?;
        stream.no_part_of_capture(operation)?;
    }
    Ok(size)
}

/// Memory, zeroed, that is no window: the other ranks have no part in it.
pub(crate) fn local<T: Element>(inner: &Arc<Inner>, stream: &Stream, len: usize) -> Result<Arc<Allocation>> {
    let size = begin::<T>(LOCAL, &[inner], &[stream], len)?;
    drop(inner.begin_call(LOCAL)?);
    // `ncclMemAlloc` takes no communicator, and without a window no communicator knows the memory: it is
    // like that of `nccl::alloc`, which any communicator may use.
    let memory = Memory::new(inner, size)?.into_allocation_of(Owner::Open(inner.id), LOCAL, None)?;
    zeros::<T>(LOCAL, memory, stream, len)
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
    wanted: Wanted,
) -> Result<Arc<Allocation>> {
    let memory = many::<T>(operation, &[inner], &[stream], len, wanted)?;
    memory.into_iter().next().ok_or_else(|| Error::argument(operation, "ranks", "one", 0))
}

/// Memory of each of several ranks that one thread drives, zeroed.
pub(crate) fn many<T: Element>(
    operation: &'static str,
    members: &[&Arc<Inner>],
    streams: &[&Stream],
    len: usize,
    wanted: Wanted,
) -> Result<Vec<Arc<Allocation>>> {
    let size = begin::<T>(operation, members, streams, len)?;
    if wanted == Wanted::Symmetric && !makes_windows(members) {
        members.iter().try_for_each(|inner| register::check_plain(operation, inner))?;
        return Err(no_windows(operation));
    }
    // All of it has an owner before anything else can fail.
    let (memory, is_zeroed) = allocate(operation, members, size, wanted)?;
    if is_zeroed {
        return Ok(memory);
    }
    memory.into_iter().zip(streams).map(|(alloc, stream)| zeros::<T>(operation, alloc, stream, len)).collect()
}

#[cfg(not(nccl_ge_2_27))]
fn makes_windows(_: &[&Arc<Inner>]) -> bool {
    false
}

/// Why there are no symmetric windows.
#[cold]
fn no_windows(operation: &'static str) -> Error {
    let needs = "NCCL 2.29.7 or newer, or Config::with_force_windows with 2.27 or newer";
    Error::Unsupported { operation, needs: needs.into() }
}

/// Memory of each member, and whether it is zeroed, for all streams.
type Allocated = (Vec<Arc<Allocation>>, bool);

#[cfg(not(nccl_ge_2_27))]
fn allocate(operation: &'static str, members: &[&Arc<Inner>], size: Size, _: Wanted) -> Result<Allocated> {
    let memory = members.iter().map(|inner| Memory::new(inner, size)).collect::<Result<Vec<_>>>()?;
    let owned = memory.into_iter().map(|memory| memory.into_allocation(operation, None));
    Ok((owned.collect::<Result<_>>()?, false))
}

/// Memory of each member, as windows that belong together.
#[cfg(nccl_ge_2_27)]
fn allocate(operation: &'static str, members: &[&Arc<Inner>], size: Size, wanted: Wanted) -> Result<Allocated> {
    let _call = SharedDeadline::begin();
    let mut approaching = retire::approach(members, operation)?;
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let memory = restoring(|| allocate_together(operation, &mut approaching, size, wanted))
        .map_err(|error| failed_call::end(&refs, operation, error))?;
    drop(approaching);
    memory
}

/// The outer error is one that the other ranks wait behind.
#[cfg(nccl_ge_2_27)]
fn allocate_together(
    operation: &'static str,
    approaching: &mut [Member<'_>],
    size: Size,
    wanted: Wanted,
) -> Result<Result<Allocated>> {
    let members: Vec<_> = approaching.iter().map(|member| member.inner).collect();
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let mut locked = begin_calls(&refs, operation)?;
    let (entries, _promised) = retire::meet(approaching, &mut locked, operation, |_| wanted.signature(size))?;
    let is_window = makes_windows(&members) && wanted.is_window(size.used);
    // From here on all ranks of a clique have issued what came before, so nothing on a device waits for this thread, and a call that
    // waits for the device comes back.
    let made = make(operation, &members, size, is_window);
    let is_short = matches!(made, Err(Error::OutOfMemory { .. }));
    // Ranks that compare tell each other, so that all have the memory, or none. Of others, those that make windows wait for this one.
    let short = if made.is_ok() || is_short { vote(operation, &members, &mut locked, !is_short)? } else { None };
    let memory = match (made, short) {
        (Ok(memory), None) => memory,
        (Ok(memory), Some(rank)) => {
            drop(memory);
            let place = format!("the device of rank {rank}");
            return Ok(Err(Error::OutOfMemory { operation, bytes: size.used, place }));
        }
        (Err(error), Some(_)) => return Ok(Err(error)),
        (Err(error), None) => {
            let is_awaited = is_window && members.first().is_some_and(|inner| inner.size > members.len());
            return if is_awaited || !is_short { Err(error) } else { Ok(Err(error)) };
        }
    };
    let (numbers, registered) = if is_window {
        let piece = |(memory, entry): (&Memory<'_>, &Option<u64>)| Piece {
            ptr: memory.ptr,
            bytes: memory.size.pages,
            number: publish::number(*entry),
            entry: *entry,
            over: None,
        };
        let pieces = memory.iter().zip(&entries).map(piece).collect();
        publish::together(operation, &members, &locked, pieces, |_| Signature::register(size.used))?
    } else {
        (vec![None; members.len()], Ok(()))
    };
    let mut owned = Vec::with_capacity(members.len());
    for (memory, number) in memory.into_iter().zip(numbers) {
        match number {
            None if registered.is_err() => memory.leave(),
            number => owned.push(memory.into_allocation(operation, number)?),
        }
    }
    registered?;
    Ok(Ok((owned, is_window)))
}

/// Memory of each member; zeroed, if it is to be windows.
#[cfg(nccl_ge_2_27)]
fn make<'a>(
    operation: &'static str,
    members: &[&'a Arc<Inner>],
    size: Size,
    is_window: bool,
) -> Result<Vec<Memory<'a>>> {
    let memory = members.iter().map(|inner| Memory::new(inner, size)).collect::<Result<Vec<_>>>()?;
    if is_window && let Err(error) = zero(operation, &memory) {
        memory.into_iter().for_each(Memory::leave);
        return Err(error);
    }
    Ok(memory)
}

/// Says to the other ranks of a point to which all have come whether `members` were able to make their memory; the first rank that was
/// not. `None` also where ranks do not compare.
#[cfg(nccl_ge_2_27)]
fn vote(
    operation: &'static str,
    members: &[&Arc<Inner>],
    locked: &mut LockedRanks<'_>,
    able: bool,
) -> Result<Option<usize>> {
    let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
    let mut point = 0;
    for (inner, (guard, _)) in members.iter().zip(locked.iter_mut()) {
        if let Some(checked) = inner.validation.over_exchange() {
            // A round of its own: the exchange carries what ranks show with what they compare.
            guard.points += 1;
            checked.show_point(guard.points, Vec::new(), usize::from(able));
            // It is part of the allocation, so no number is counted and nothing is written down, as in a clique.
            inner.validation.before_point(inner, operation, &Signature::allocated())?;
            checked.see_point(operation, guard.points)?;
            return Ok(checked.points.bytes(guard.points).iter().position(|able| *able == 0));
        }
        point = guard.points;
        inner.validation.in_process().iter().for_each(|in_process| in_process.points.vote(inner.rank, point, able));
    }
    let Some((first, in_process)) = members.first().and_then(|inner| Some((inner, inner.validation.in_process()?)))
    else {
        return Ok(None);
    };
    let mut patience = Patience::default();
    loop {
        let missing = in_process.points.undecided(point);
        if missing.is_empty() {
            return Ok(in_process.points.unable(point));
        }
        patience.wait(
            operation,
            &refs,
            |_| None,
            first,
            || format!("ranks {missing:?} have not allocated their part"),
        )?;
    }
}

/// Zeroes memory, and waits for that: peers may write to a window as soon as it is one, on streams that are ordered behind nothing here.
#[cfg(nccl_ge_2_27)]
fn zero(operation: &'static str, memory: &[Memory<'_>]) -> Result<()> {
    let mut streams = Vec::with_capacity(memory.len());
    for Memory { ptr, size, inner } in memory {
        let stream = Stream::new(inner.device)?;
        let shown =
            Allocation::external(Address::new(*ptr), size.pages, inner.device, Owner::Anybody, Box::new(|_| {}));
        SliceMut::<u8>::of(&shown, shown.address(), size.pages).fill_for(operation, &stream, 0)?;
        streams.push((stream, inner.timeout()));
    }
    streams.iter().try_for_each(|(stream, timeout)| stream.synchronize_timeout(*timeout))
}

/// Frees the memory of windows that all ranks have dropped. All ranks must call this.
#[cfg_attr(not(nccl_ge_2_27), allow(unused_variables))]
pub(crate) fn reclaim(operation: &'static str, members: &[&Arc<Inner>]) -> Result<()> {
    in_group::outside_of_groups(operation)?;
    outside_of_host_functions(operation)?;
    let _call = SharedDeadline::begin();
    #[cfg(nccl_ge_2_27)]
    {
        let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
        let mut approaching = retire::approach(members, operation)?;
        let mut together = || {
            let mut locked = begin_calls(&refs, operation)?;
            retire::meet(&mut approaching, &mut locked, operation, |_| Signature::reclaim())
        };
        together().map_err(|error| failed_call::end(&refs, operation, error))?;
    }
    for inner in members {
        let deadline = SharedDeadline::within(inner.timeout());
        if !reclaim::drain(inner.id, &deadline) {
            let late = deadline.error(operation, "memory that was dropped is still in use");
            return Err(late.waited_by(inner.rank));
        }
    }
    Ok(())
}
