//! From the pointer of a program, or a place that another rank names, to the memory that is meant, which is held while work uses it.
//!
//! Memory is an allocation of a device's heap, or what the program has mapped itself.

use std::any::Any;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::{fmt, io};

use crate::memory::access::{Access, Fault};
use crate::memory::heap::{Block, Origin};
use crate::memory::map::Kind;
use crate::memory::mapped::{Mapped, Physical};
use crate::memory::object::{ALIGN, Location};
use crate::memory::{heap, map, mapped};
use crate::races::{Actor, Touching};

/// As long as this lives, queued or running work uses device memory: freeing or unmapping it meanwhile is reported, and it is not
/// handed out again. Drop it when the work is done, before the work is seen to be done.
#[derive(Debug, Default)]
pub(crate) struct InUse {
    held: Option<Held>,
    /// What is used: bytes of the allocation, or addresses where memory is mapped.
    range: Range<u64>,
}

#[derive(Debug)]
enum Held {
    Block(Arc<Block>),
    /// One mapping after the other.
    Mapped(Box<[Arc<Mapped>]>),
    /// Addresses of a multicast object, to be written to.
    Spread(Box<Spread>),
}

/// What is written to a multicast object.
#[derive(Debug)]
struct Spread {
    mapped: Arc<Mapped>,
    /// Where the memory of each of its devices is mapped that is written to.
    targets: Vec<Target>,
    /// What of that this process has bound.
    parts: Vec<Part>,
    /// Keeps it mapped there.
    _keeps: Keeps,
}

/// Where a device's part of a write begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target(usize);

impl Target {
    pub(crate) fn new(address: usize) -> Self {
        Self(address)
    }
}

/// Memory that is bound to a multicast object.
#[derive(Debug)]
pub(crate) enum Part {
    Physical(Arc<Physical>, Range<u64>),
    Used(InUse),
}

struct Keeps(#[allow(dead_code, reason = "it is dropped")] Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Keeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeps")
    }
}

/// Memory that was mapped as one, told apart from what lies at the same addresses before and after it.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Block(Weak<Block>),
    Physical(Weak<Physical>),
}

impl PartialEq for Piece {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Block(one), Self::Block(other)) => one.ptr_eq(other),
            (Self::Physical(one), Self::Physical(other)) => one.ptr_eq(other),
            _ => false,
        }
    }
}

impl InUse {
    /// So many bytes from an offset in the device's memory on.
    pub(super) fn block(block: Arc<Block>, offset: u64, bytes: usize) -> Self {
        block.used(true);
        let begin = offset - block.offset;
        Self { held: Some(Held::Block(block)), range: begin..begin + bytes as u64 }
    }

    /// So many bytes from an address on; `mapped` is not empty.
    pub(super) fn mapped(mapped: Vec<Arc<Mapped>>, address: usize, bytes: usize) -> Self {
        mapped.iter().for_each(|mapped| mapped.used(true));
        Self { held: Some(Held::Mapped(mapped.into())), range: address as u64..(address + bytes) as u64 }
    }

    /// So many bytes from an address of a multicast object on, which go to these places.
    pub(crate) fn spread(
        mapped: Arc<Mapped>,
        address: usize,
        bytes: usize,
        targets: Vec<Target>,
        parts: Vec<Part>,
        keeps: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        mapped.used(true);
        let spread = Spread { mapped, targets, parts, _keeps: Keeps(keeps) };
        Self { held: Some(Held::Spread(Box::new(spread))), range: address as u64..(address + bytes) as u64 }
    }

    /// Writes what is to be written from its address `ptr` on, to each place where that goes.
    pub(crate) fn each(&self, ptr: *mut c_void, mut write: impl FnMut(*mut c_void)) {
        let Some(Held::Spread(spread)) = &self.held else { return write(ptr) };
        let offset = ptr.addr() - self.range.start as usize;
        for Target(begin) in &spread.targets {
            write(std::ptr::with_exposed_provenance_mut(begin + offset));
        }
    }

    /// Tells what `actor` does with it.
    pub(crate) fn tell<'a>(&'a self, writes: bool, actor: Actor, tell: &mut dyn FnMut(Touching<'a>)) {
        match &self.held {
            None => {}
            Some(Held::Block(block)) => {
                tell(Touching { memory: &block.touches, by: 0, range: self.range.clone(), writes, actor });
            }
            Some(Held::Mapped(mapped)) => {
                let addresses = self.range.start as usize..self.range.end as usize;
                for mapped in mapped {
                    let (memory, by, range) = (&mapped.physical.touches, mapped.span().0, mapped.part(&addresses));
                    tell(Touching { memory, by, range, writes, actor });
                }
            }
            Some(Held::Spread(spread)) => {
                let by = spread.mapped.span().0;
                for part in &spread.parts {
                    match part {
                        Part::Physical(memory, range) => {
                            let range = range.clone();
                            tell(Touching { memory: &memory.touches, by, range, writes, actor });
                        }
                        Part::Used(used) => used.tell(writes, actor, tell),
                    }
                }
            }
        }
    }

    /// Whether it is memory of ncclMemAlloc, all of which can be shared by descriptors.
    pub(crate) fn is_of_nccl(&self) -> bool {
        matches!(&self.held, Some(Held::Block(block)) if block.origin == Origin::Nccl)
    }

    /// The ordinal of the device whose memory it is; `None` where no bytes are used.
    pub(crate) fn device(&self) -> Option<i32> {
        self.held.as_ref().and_then(|held| match held {
            Held::Block(block) => Some(block.ground.ordinal),
            Held::Mapped(mapped) => Some(mapped[0].physical.nature.ordinal),
            // Of several.
            Held::Spread(_) => None,
        })
    }

    /// Whether it was mapped, so that others can map it too.
    #[cfg(feature = "nccl")]
    pub(crate) fn is_mapped(&self) -> bool {
        match &self.held {
            None => false,
            Some(Held::Block(block)) => block.origin == Origin::Nccl,
            Some(Held::Mapped(_) | Held::Spread(_)) => true,
        }
    }

    /// The memory that was mapped as one and holds all of it, which begins at `address`; and the addresses of that.
    #[cfg(feature = "nccl")]
    pub(crate) fn piece(&self, address: usize) -> Option<(Range<usize>, Piece)> {
        match self.held.as_ref()? {
            Held::Block(block) if block.origin == Origin::Nccl => {
                let begin = address - self.range.start as usize;
                Some((begin..begin + block.bytes as usize, Piece::Block(Arc::downgrade(block))))
            }
            Held::Mapped(mapped) if mapped.len() == 1 => {
                let (begin, bytes) = mapped[0].span();
                Some((begin..begin + bytes, Piece::Physical(Arc::downgrade(&mapped[0].physical))))
            }
            Held::Block(_) | Held::Mapped(_) | Held::Spread(_) => None,
        }
    }

    /// Whether the program has mapped it itself.
    pub(crate) fn is_mapped_by_program(&self) -> bool {
        matches!(&self.held, Some(Held::Mapped(_) | Held::Spread(_)))
    }

    /// Whether it is memory of cudaMalloc.
    pub(crate) fn is_of_malloc(&self) -> bool {
        matches!(&self.held, Some(Held::Block(block)) if block.origin == Origin::Malloc)
    }

    /// What the device with this ordinal may do with all of it. Anything where there is nothing.
    pub(crate) fn access(&self, device: i32) -> Access {
        match &self.held {
            None => Access::ReadWrite,
            Some(Held::Block(block)) => block.access(device),
            Some(Held::Mapped(mapped)) => {
                mapped.iter().map(|mapped| mapped.rights.of(device)).min().unwrap_or(Access::None)
            }
            Some(Held::Spread(spread)) => spread.mapped.rights.of(device),
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        match &self.held {
            None => {}
            Some(Held::Block(block)) => block.used(false),
            Some(Held::Mapped(mapped)) => mapped.iter().for_each(|mapped| mapped.used(false)),
            Some(Held::Spread(spread)) => spread.mapped.used(false),
        }
    }
}

#[cfg(feature = "nvshmem")]
use crate::memory::symmetric;

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
        Kind::Reserved => mapped::at(address).map(|mapped| mapped.physical.nature.ordinal),
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
        Found::Mapped(mapped) => mapped::name(address, mapped),
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
            let mapped = mapped::covering(address, bytes)?;
            if let Some(mapped) = mapped.iter().find(|mapped| mapped.is_multicast) {
                let text =
                    format!("{mapped} are addresses of a multicast object, which are written to, and never read");
                return Err(Fault::value(text));
            }
            Ok((name(address, Found::Mapped(&mapped))?, InUse::mapped(mapped, address, bytes)))
        }
    }
}

/// A pointer of this process to `bytes` bytes at `place`, which may belong to another process: what that says is not believed. Objects of
/// others are mapped once and stay mapped, so the pointer stays valid when their process ends.
pub(crate) fn reach(place: &Location, bytes: usize) -> io::Result<*mut u8> {
    if bytes == 0 {
        return Ok(std::ptr::without_provenance_mut(ALIGN));
    }
    if place.fd < 0 || place.offset.checked_add(bytes as u64).is_none_or(|end| end > place.bytes) {
        let text = format!("{bytes} bytes at {place:?} do not lie in its object");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let address = match map::known(place, bytes).or_else(|| mapped::known(place, bytes)) {
        Some(address) => address,
        None if place.pid == std::process::id() => return Err(place.gone()),
        None => map::open(place, bytes)?,
    };
    Ok(std::ptr::with_exposed_provenance_mut(address))
}

#[cfg(test)]
mod reach_tests {
    use super::*;
    use crate::memory::map::{Kind, add, find};
    use crate::memory::object::Object;

    #[test]
    fn addresses_are_found_in_their_objects() {
        let bytes = 4 * ALIGN as u64;
        let objects = [7, 8].map(|device| Object::new(device, bytes).unwrap());
        let bases = objects.each_ref().map(|object| add(object, Kind::Ground { ordinal: 0 }).unwrap());
        for (object, base) in objects.iter().zip(bases) {
            for offset in [0, 1, bytes - 1] {
                let place = find(base + offset as usize).unwrap().place(base + offset as usize);
                assert_eq!(place, Location { offset, ..object.begin() });
                assert_eq!(reach(&place, 1).unwrap().addr(), base + offset as usize);
                let rest = (bytes - offset) as usize;
                assert_eq!(reach(&place, rest).unwrap().addr(), base + offset as usize);
                for more in [rest + 1, usize::MAX] {
                    assert!(reach(&place, more).is_err(), "{offset} {more}");
                }
            }
            let next = base + bytes as usize;
            assert!(find(next).is_none_or(|mapping| !mapping.place(next).same_object(&object.begin())));
            assert!(reach(&Location { offset: bytes, ..object.begin() }, 1).is_err());
            assert!(reach(&Location { offset: u64::MAX, ..object.begin() }, 1).is_err());
            assert!(reach(&Location { nonce: object.begin().nonce.wrapping_add(1), ..object.begin() }, 1).is_err());
            // Who says that the object is larger says nothing about this one.
            assert!(reach(&Location { bytes: bytes + 1, ..object.begin() }, bytes as usize + 1).is_err());
        }
        assert!(find(0).is_none() && find(usize::MAX).is_none());
        assert!(reach(&Location::EMPTY, 0).is_ok() && reach(&Location::EMPTY, 1).is_err());
    }
}
