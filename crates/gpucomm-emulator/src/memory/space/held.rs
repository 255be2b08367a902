//! Who uses memory, as long as its work is queued or runs.

use super::mapped::Mapped;
use super::physical::Physical;
use crate::memory::access::Access;
use crate::memory::block::{Block, Origin};
use crate::races::touches::{Actor, Touching};
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

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
