//! From a pointer of the program to the memory that is meant.

use super::held::InUse;
use super::mapped::Mapped;
use super::table;
use crate::memory::fault::Fault;
use crate::memory::heap;
use crate::memory::map::{self, Kind};
use crate::memory::object::Location;
#[cfg(feature = "nvshmem")]
use crate::memory::symmetric;
use std::ffi::c_void;
use std::sync::Arc;

/// Whether an address is the program's name for device memory, if there is any at it.
pub(crate) fn is_device(address: usize) -> bool {
    map::find(address).is_some_and(|mapping| mapping.kind != Kind::Foreign)
}

/// Whether the program has reserved an address.
pub(crate) fn is_reserved(address: usize) -> bool {
    map::find(address).is_some_and(|mapping| mapping.kind == Kind::Reserved)
}

/// The device whose memory lies at `address`, if somebody has that: allocated and not freed, or mapped.
pub(crate) fn device_at(address: usize) -> Option<i32> {
    let mapping = map::find(address)?;
    match mapping.kind {
        Kind::Foreign => None,
        Kind::Reserved => table::at(address).map(|mapped| mapped.physical.nature.ordinal),
        Kind::Ground { ordinal } => {
            heap::of(ordinal)?.find(address, mapping.place(address).offset, 1).ok().map(|_| ordinal)
        }
        #[cfg(feature = "nvshmem")]
        Kind::Symmetric { heap } => {
            let heap = symmetric::heap(heap)?;
            heap.find(address, mapping.place(address).offset, 1).ok().map(|_| heap.ground.ordinal)
        }
    }
}

/// The device whose memory there is at `address` of a symmetric heap, allocated or not.
#[cfg(feature = "nvshmem")]
pub(crate) fn symmetric_at(address: usize) -> Option<i32> {
    let mapping = map::find(address)?;
    let Kind::Symmetric { heap } = mapping.kind else { return None };
    let heap = symmetric::heap(heap)?;
    let backed = heap.backed.load(std::sync::atomic::Ordering::Relaxed);
    (mapping.place(address).offset < backed).then_some(heap.ground.ordinal)
}

/// Checks that `bytes` bytes from `ptr` lie inside one live allocation of a device of this process, or in mappings without a gap,
/// and counts them as in use. No bytes are always fine.
pub(crate) fn hold(ptr: *const c_void, bytes: usize) -> Result<InUse, Fault> {
    look(ptr, bytes, |_, _| Ok(())).map(|(_, used)| used)
}

/// The same, and says where they lie, for other ranks.
pub(crate) fn locate(ptr: *const c_void, bytes: usize) -> Result<(Location, InUse), Fault> {
    let named = |address, found: Found<'_>| match found {
        Found::Nothing => Ok(Location::EMPTY),
        Found::Allocated(place) => Ok(place),
        Found::Mapped(mapped) => table::name(address, mapped),
    };
    look(ptr, bytes, named)
}

/// What lies at an address.
enum Found<'a> {
    Nothing,
    Allocated(Location),
    Mapped(&'a [Arc<Mapped>]),
}

fn look<R>(
    ptr: *const c_void,
    bytes: usize,
    name: impl Fn(usize, Found<'_>) -> Result<R, Fault>,
) -> Result<(R, InUse), Fault> {
    let address = ptr.addr();
    if bytes == 0 {
        return Ok((name(address, Found::Nothing)?, InUse::default()));
    }
    let strange = || Fault::value(format!("{ptr:p} is no device memory ({bytes} bytes were to be used)"));
    let mapping = map::find(address).ok_or_else(strange)?;
    let allocated = |heap: &heap::Heap| {
        let place = mapping.place(address);
        let block = heap.find(address, place.offset, bytes)?;
        Ok((name(address, Found::Allocated(place))?, InUse::block(block, place.offset, bytes)))
    };
    match mapping.kind {
        Kind::Foreign => Err(strange()),
        Kind::Ground { ordinal } => allocated(heap::of(ordinal).ok_or_else(strange)?),
        #[cfg(feature = "nvshmem")]
        Kind::Symmetric { heap } => allocated(symmetric::heap(heap).ok_or_else(strange)?),
        Kind::Reserved => {
            let mapped = table::covering(address, bytes)?;
            if let Some(mapped) = mapped.iter().find(|mapped| mapped.is_multicast) {
                let text =
                    format!("{mapped} are addresses of a multicast object, which are written to, and never read");
                return Err(Fault::value(text));
            }
            Ok((name(address, Found::Mapped(&mapped))?, InUse::mapped(mapped, address, bytes)))
        }
    }
}
