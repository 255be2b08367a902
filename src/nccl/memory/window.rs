//! Windows over memory that there is: of users, or of others.
//!
//! NCCL meets in a registration, and a rank whose memory it refuses leaves the others waiting there. So each looks at its own first,
//! and they compare: whether it can be a window, and where in what was mapped as one it begins, which has to be the same byte, as NCCL
//! computes the addresses of all ranks from the place of its own. Before 2.30.7 the sizes have to be the same too.

use std::sync::Arc;

use super::register;
use super::unsupported::Unsupported;
use crate::cuda::{Access, Allocation, Region};
use crate::error::{Error, Result};
use crate::nccl::enqueue::in_group;
use crate::nccl::lifecycle::failed_call;
use crate::nccl::rank::inner::Inner;
use crate::nccl::raw::outside::outside_of_host_functions;

/// What became of a window of one rank.
pub(crate) struct Made {
    /// Its number, if there is one.
    pub(crate) number: std::result::Result<u64, Unsupported>,
    /// How many bytes that of each rank has.
    pub(crate) bytes: Arc<[usize]>,
}

/// Memory that is to be a window.
struct Wanted {
    memory: Arc<Allocation>,
    #[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
    ptr: *mut std::ffi::c_void,
    bytes: usize,
}

/// Windows over memory of each of several ranks that one thread drives.
pub(crate) fn many(operation: &'static str, members: &[&Arc<Inner>], regions: &[Region<'_>]) -> Result<Vec<Made>> {
    in_group::outside_of_groups(operation)?;
    // Before the other ranks wait for this one.
    outside_of_host_functions(operation)?;
    let memory = members.iter().zip(regions).map(|(inner, region)| check(operation, inner, region));
    make(operation, members, memory.collect::<Result<_>>()?)
}

/// The memory of a region, if `inner` may make a window of it.
fn check(operation: &'static str, inner: &Inner, region: &Region<'_>) -> Result<Wanted> {
    let memory = register::kept(operation, inner, region)?;
    if !memory.serves(inner.device, Access::Write) {
        let expected = format!("memory that {} may write, as other ranks write into windows", inner.device);
        return Err(Error::argument(operation, "memory", expected, memory.who()));
    }
    if inner.windows.is_taken(region) {
        let name = &inner.name;
        let reason = format!(
            "the memory, or some of it, is a window or registered with communicator {name} already: what NCCL does with memory that is \
             registered twice is undefined"
        );
        return Err(Error::InvalidUsage { operation, reason });
    }
    Ok(Wanted { memory, ptr: region.ptr(), bytes: region.bytes })
}

#[cfg(not(nccl_ge_2_27))]
fn make(_: &'static str, members: &[&Arc<Inner>], memory: Vec<Wanted>) -> Result<Vec<Made>> {
    let of = |(inner, wanted): (&&Arc<Inner>, Wanted)| {
        drop(wanted.memory);
        Made { number: Err(Unsupported::Version), bytes: vec![wanted.bytes; inner.size].into() }
    };
    Ok(members.iter().zip(memory).map(of).collect())
}

#[cfg(nccl_ge_2_27)]
use shown::make;

#[cfg(nccl_ge_2_27)]
mod shown {
    use super::*;
    use crate::cuda::{restoring, vmm};
    use crate::known_bugs::ENDLESS_WINDOWS;
    use crate::nccl::memory::pages::{self, Mapped};
    use crate::nccl::memory::publish::{self, Piece};
    use crate::nccl::memory::retire;
    use crate::nccl::memory::retire::Member;
    use crate::nccl::rank::gate::Locked;
    use crate::nccl::rank::guarded::Guarded;
    use crate::nccl::validate::signature::{Extent, Signature};
    use crate::nccl::wait::begin_call::begin_calls;
    use crate::shared_deadline::SharedDeadline;
    use crate::version::{Version, running_nccl};

    /// Windows begin at multiples of so many bytes behind the start of what was mapped as one.
    const ALIGN: usize = 4096;

    /// The first version in which the windows of ranks may have different sizes.
    const SIZES_DIFFER: Version = Version::new(2, 30, 7);

    pub(super) fn make(operation: &'static str, members: &[&Arc<Inner>], memory: Vec<Wanted>) -> Result<Vec<Made>> {
        let _call = SharedDeadline::begin();
        wait_idle(operation, members, &memory)?;
        let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
        let mut approaching = retire::approach(members, operation)?;
        let made = restoring(|| together(operation, &mut approaching, memory))
            .map_err(|error| failed_call::end(&refs, operation, error))?;
        drop(approaching);
        made
    }

    /// Waits until nothing uses the memory: peers may write to it as soon as it is a window, on streams that are ordered behind nothing here.
    fn wait_idle(operation: &'static str, members: &[&Arc<Inner>], memory: &[Wanted]) -> Result<()> {
        for (inner, wanted) in members.iter().zip(memory) {
            let what = "uses of memory that is to be a window";
            retire::wait_until_idle(inner, operation, what, || wanted.memory.is_idle())?;
        }
        Ok(())
    }

    /// The outer error is one that the other ranks wait behind.
    fn together(
        operation: &'static str,
        approaching: &mut [Member<'_>],
        memory: Vec<Wanted>,
    ) -> Result<Result<Vec<Made>>> {
        let members: Vec<&Arc<Inner>> = approaching.iter().map(|member| member.inner).collect();
        let refs: Vec<&Inner> = members.iter().map(|inner| &***inner).collect();
        let mut locked = begin_calls(&refs, operation)?;
        let found = memory.iter().map(|wanted| look(operation, wanted)).collect::<Result<Vec<_>>>()?;
        for (member, wanted) in approaching.iter_mut().zip(&memory) {
            member.bytes = wanted.bytes;
        }
        let extents = members.iter().zip(&memory).zip(&found);
        let extents: Vec<_> = extents.map(|((inner, wanted), found)| extent(inner, wanted, found)).collect();
        let signature = |at: usize| Signature::window(extents[at]);
        let (entries, _promised) = retire::meet(approaching, &mut locked, operation, signature)?;
        let told = |(member, (guard, _)): (&Member<'_>, &(_, _))| {
            let guard: &Locked<'_, Guarded> = guard;
            let shown = member.inner.validation.points().map(|points| points.bytes(guard.points));
            shown.unwrap_or_else(|| vec![member.bytes; member.inner.size]).into()
        };
        let sizes: Vec<Arc<[usize]>> = approaching.iter().zip(&locked).map(told).collect();
        // On all ranks alike, as they have compared.
        let mapped = match found.into_iter().collect::<std::result::Result<Vec<_>, _>>() {
            Ok(mapped) => mapped,
            Err(reason) => {
                let expected = "memory that NCCL makes windows of: of `nccl::alloc`, `alloc_local` or `cuda::vmm`";
                return Ok(Err(Error::argument(operation, "memory", expected, reason)));
            }
        };
        if !publish::makes_windows(&members) {
            let missed = |bytes| Made { number: Err(Unsupported::KnownBug(ENDLESS_WINDOWS.name)), bytes };
            return Ok(Ok(sizes.into_iter().map(missed).collect()));
        }
        let mut pieces = Vec::with_capacity(memory.len());
        let mut laid = Vec::with_capacity(memory.len());
        for (((inner, wanted), Mapped { base, .. }), entry) in members.iter().zip(memory).zip(mapped).zip(entries) {
            let Wanted { memory, ptr, bytes } = wanted;
            let number = publish::number(entry);
            if !inner.windows.lay_over(&memory, (ptr.addr(), bytes), number) {
                let reason =
                    "other ranks have not dropped the window that was over this memory before, or there are too many";
                return Err(Error::InvalidUsage { operation, reason: reason.into() });
            }
            laid.push((memory.id(), number));
            pieces.push(Piece { ptr, bytes, number, entry, over: Some((memory, base)) });
        }
        let (numbers, registered) = publish::together(operation, &members, &locked, pieces, signature)?;
        for ((inner, (id, number)), made) in members.iter().zip(laid).zip(&numbers) {
            if made.is_none() {
                inner.windows.lift(id, number);
            } else if registered.is_err() {
                inner.windows.drop_registration(number);
            }
        }
        registered?;
        let made = |(number, bytes): (Option<u64>, _)| Made { number: number.ok_or(Unsupported::Library), bytes };
        Ok(Ok(numbers.into_iter().zip(sizes).map(made).collect()))
    }

    /// What was mapped as one that has this memory, or why that can be no window.
    fn look(operation: &'static str, wanted: &Wanted) -> Result<std::result::Result<Mapped, &'static str>> {
        let found = pages::find(operation, &wanted.memory, (wanted.ptr, wanted.bytes))?;
        let Ok(mapped) = found else { return Ok(found) };
        if !(wanted.ptr.addr() - mapped.base).is_multiple_of(ALIGN) {
            return Ok(Err(
                "the memory does not begin at a multiple of 4096 bytes behind the start of what was mapped as one",
            ));
        }
        let _current = wanted.memory.device().bind(operation)?;
        match vmm::handles_at(operation, wanted.ptr) {
            Some(vmm::HandleTypes::NONE) => Ok(Err(
                "the memory was made without handles to share it by (`HandleTypes::FD`, and where there is a fabric, `FABRIC`)",
            )),
            _ => Ok(Ok(mapped)),
        }
    }

    /// What the ranks compare.
    fn extent(inner: &Inner, wanted: &Wanted, found: &std::result::Result<Mapped, &'static str>) -> Option<Extent> {
        let Ok(Mapped { base, bytes: mapped }) = *found else { return None };
        let (bytes, offset) = (wanted.bytes, wanted.ptr.addr() - base);
        let differ = running_nccl().is_ok_and(|version| version >= SIZES_DIFFER);
        let (bytes, mapped) = if differ { (0, 0) } else { (bytes as u64, mapped as u64) };
        Some(Extent { bytes, mapped, offset: offset as u64, beside: inner.windows.beside(base) })
    }
}
