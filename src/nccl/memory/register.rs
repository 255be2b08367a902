//! Registering memory of any origin, on all ranks.
//!
//! `ncclCommRegister` itself concerns one rank. But whether NCCL moves memory without copying each rank decides by itself, from what it
//! has registered, and where ranks differ they hang, or data goes astray. So ranks come to a registration as they come to an allocation,
//! compare whether it is memory that they can reach, and give it one number; and it is taken away where windows are. What they do
//! with the memory they compare as they do for windows.
//!
//! Only memory is given to NCCL that it shows to other ranks: what was mapped as one. Of other memory it says nothing, and copies it.
//!
//! In graphs NCCL registers memory by itself, for which nobody comes together: see [`signature`](crate::nccl::validate::signature).
//!
//! NCCL looks for whole pages. So memory that shares a page with something else is not registered either: that would be taken for
//! registered, on one rank and perhaps not on the next.

use std::sync::Arc;

use crate::cuda::{Allocation, Region};
use crate::error::{Error, Result};
use crate::nccl::enqueue::in_group;
use crate::nccl::lifecycle::failed_call;
use crate::nccl::rank::another::{Foreign, foreign};
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::outside::outside_of_host_functions;

/// What became of a registration: its number, or why NCCL treats the memory as any other.
pub(crate) type Outcome = std::result::Result<u64, &'static str>;

/// Registers memory of each of several ranks that one thread drives.
pub(crate) fn many(operation: &'static str, members: &[&Arc<Inner>], regions: &[Region<'_>]) -> Result<Vec<Outcome>> {
    in_group::outside_of_groups(operation)?;
    // Before the other ranks wait for this one.
    outside_of_host_functions(operation)?;
    let memory = members.iter().zip(regions).map(|(inner, region)| check(operation, inner, region));
    register(operation, members, memory.collect::<Result<_>>()?)
}

/// The memory of a region, if `inner` may register it.
fn check(operation: &'static str, inner: &Inner, region: &Region<'_>) -> Result<Arc<Allocation>> {
    let memory = kept(operation, inner, region)?;
    if inner.windows.is_window(region) {
        let (expected, got) = ("memory that is not registered", "a window, which is");
        return Err(Error::argument(operation, "memory", expected, got));
    }
    Ok(memory)
}

/// Refuses what has NCCL reduce otherwise than other memory, where two runs are to be equal bit by bit.
pub(super) fn check_plain(operation: &'static str, inner: &Inner) -> Result<()> {
    if inner.local_ranks.is_deterministic() { Err(plain(operation)) } else { Ok(()) }
}

/// Why there is no such memory.
#[cold]
pub(super) fn plain(operation: &'static str) -> Error {
    let needs = "a communicator that is not Config::with_deterministic: what is in windows, or registered, is added up otherwise than what is not";
    Error::Unsupported { operation, needs: needs.into() }
}

/// The memory of a region, kept alive, if NCCL may be told of it.
pub(super) fn kept(operation: &'static str, inner: &Inner, region: &Region<'_>) -> Result<Arc<Allocation>> {
    check_plain(operation, inner)?;
    let wrong = |expected: &dyn std::fmt::Display, got: &dyn std::fmt::Display| {
        Err(Error::argument(operation, "memory", expected, got))
    };
    if region.device() != inner.device {
        return wrong(&format_args!("{} of rank {}", inner.device, inner.rank), &region.device());
    }
    if region.alloc.owner() != 0 && region.alloc.owner() != inner.id {
        let Foreign { expected, got, own } = foreign(inner, region.alloc.owner(), "memory", "a buffer");
        let advice = "or by nccl::alloc, whose memory works with any communicator";
        return wrong(&expected, &format_args!("{got}; allocate it from {own}, {advice}"));
    }
    match region.alloc.keep() {
        Some(memory) => Ok(memory),
        None => wrong(&"memory that a buffer keeps alive", &"a view of memory of others"),
    }
}

/// NCCL before 2.28.7 cannot be stopped before what it has registered is taken away.
const TOO_OLD: &str = "NCCL is older than 2.28.7";

#[cfg(not(nccl_ge_2_28_7))]
fn register(_: &'static str, _: &[&Arc<Inner>], memory: Vec<Arc<Allocation>>) -> Result<Vec<Outcome>> {
    Ok(memory.iter().map(|_| Err(TOO_OLD)).collect())
}

#[cfg(nccl_ge_2_28_7)]
use shown::register;

#[cfg(nccl_ge_2_28_7)]
mod shown {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::cuda::{restoring, undisturbing};
    use crate::nccl::memory::pages;
    use crate::nccl::memory::retire;
    use crate::nccl::memory::retire::Member;
    use crate::nccl::rank::windows::{Handle, NOWHERE};
    use crate::nccl::raw::check;
    use crate::nccl::validate::signature::{REGISTERED, Signature};
    use crate::nccl::wait::begin_call::begin_calls;
    use crate::shared_deadline::SharedDeadline;
    use crate::sys;
    use crate::version::{Version, running_nccl};

    /// The first version that can be stopped.
    const FIRST: Version = Version::new(2, 28, 7);

    pub(super) fn register(
        operation: &'static str,
        members: &[&Arc<Inner>],
        memory: Vec<Arc<Allocation>>,
    ) -> Result<Vec<Outcome>> {
        if !running_nccl().is_ok_and(|version| version >= FIRST) {
            return Ok(memory.iter().map(|_| Err(TOO_OLD)).collect());
        }
        let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
        let _call = SharedDeadline::begin();
        let mut approaching = retire::approach(members, operation)?;
        let registered = restoring(|| together(operation, &mut approaching, memory))
            .map_err(|error| failed_call::end(&refs, operation, error))?;
        drop(approaching);
        registered
    }

    /// The outer error is one that the other ranks wait behind.
    fn together(
        operation: &'static str,
        approaching: &mut [Member<'_>],
        memory: Vec<Arc<Allocation>>,
    ) -> Result<Result<Vec<Outcome>>> {
        let members: Vec<&Inner> = approaching.iter().map(|member| &**member.inner).collect();
        let mut locked = begin_calls(&members, operation)?;
        // All or none.
        let reasons = memory.iter().map(|memory| is_copied(operation, memory)).collect::<Result<Vec<_>>>()?;
        let copied = reasons.into_iter().flatten().next();
        let signature = |_| Signature::show(copied.is_none());
        let (entries, _promised) = retire::meet(approaching, &mut locked, operation, signature)?;
        if let Some(copied) = copied {
            return Ok(Ok(memory.iter().map(|_| Err(copied)).collect()));
        }
        let places = members.into_iter().zip(&locked).zip(entries);
        let mut outcomes = Vec::with_capacity(memory.len());
        for (((inner, (_, handle)), entry), memory) in places.zip(memory) {
            let number = REGISTERED | entry.map_or_else(next_number, |entry| entry + 1);
            match one(operation, inner, *handle, number, memory) {
                Ok(outcome) => outcomes.push((inner, outcome)),
                Err(error) => {
                    let made = outcomes.iter().filter_map(|(inner, outcome)| Some((inner, outcome.ok()?)));
                    made.for_each(|(inner, number)| inner.windows.drop_registration(number));
                    return Ok(Err(error));
                }
            }
        }
        Ok(Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect()))
    }

    /// Wraps `ncclCommRegister`, under the lock of the rank.
    fn one(
        operation: &'static str,
        inner: &Inner,
        handle: sys::ncclComm_t,
        number: u64,
        memory: Arc<Allocation>,
    ) -> Result<Outcome> {
        let place = (memory.address().ptr().addr(), memory.bytes());
        if !inner.windows.lay_over(&memory, place, number) {
            let reason = "the memory is registered already, or too much is".into();
            return Err(Error::InvalidUsage { operation, reason });
        }
        let id = memory.id();
        let made = inner.device.bind(operation).and_then(|_current| {
            inner.inside(operation, || {
                let mut registered = std::ptr::null_mut();
                // SAFETY: a live communicator during a visit, memory of its device that is kept alive until it is deregistered, and a
                // place for the handle.
                let mut call = || unsafe {
                    sys::ncclCommRegister(handle, memory.address().ptr(), memory.bytes(), &raw mut registered)
                };
                undisturbing(|| check::check("ncclCommRegister", call()))?;
                if registered.is_null() {
                    return Ok(Err(
                        "NCCL registers nothing here (NCCL_LOCAL_REGISTER=0 or NCCL_P2P_USE_CUDA_MEMCPY=1)",
                    ));
                }
                // Before the visit ends: an abort takes away what it finds.
                inner.windows.keep(number, Handle::Memory(registered), NOWHERE, memory);
                Ok(Ok(number))
            })
        });
        let made = made.and_then(|made| made);
        if !matches!(made, Ok(Ok(_))) {
            inner.windows.lift(id, number);
        }
        made
    }

    /// Why NCCL treats this memory as any other, if it does.
    fn is_copied(operation: &'static str, memory: &Allocation) -> Result<Option<&'static str>> {
        let found = pages::find(operation, memory, (memory.address().ptr(), memory.bytes()))?;
        Ok(found.err())
    }

    /// A number for memory of a communicator whose ranks do not compare.
    fn next_number() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 32);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}
