//! Who uses memory, as long as its work is queued or runs.

use super::mapped::Mapped;
use crate::emulator::memory::access::Access;
use crate::emulator::memory::block::{Block, Origin};
use std::sync::Arc;

/// As long as this lives, queued or running work uses device memory: freeing or unmapping it meanwhile is reported, and it is not
/// handed out again. Drop it when the work is done, before the work is seen to be done.
#[derive(Debug, Default)]
pub(crate) struct InUse(Option<Held>);

#[derive(Debug)]
enum Held {
    Block(Arc<Block>),
    /// One mapping after the other.
    Mapped(Box<[Arc<Mapped>]>),
}

impl InUse {
    pub(super) fn block(block: Arc<Block>) -> Self {
        block.used(true);
        Self(Some(Held::Block(block)))
    }

    /// `mapped` is not empty.
    pub(super) fn mapped(mapped: Vec<Arc<Mapped>>) -> Self {
        mapped.iter().for_each(|mapped| mapped.used(true));
        Self(Some(Held::Mapped(mapped.into())))
    }

    /// The ordinal of the device whose memory it is; `None` where no bytes are used.
    pub(crate) fn device(&self) -> Option<i32> {
        self.0.as_ref().map(|held| match held {
            Held::Block(block) => block.ground.ordinal,
            Held::Mapped(mapped) => mapped[0].physical.nature.ordinal,
        })
    }

    /// Whether it was mapped, so that others can map it too.
    #[cfg(feature = "nccl")]
    pub(crate) fn is_mapped(&self) -> bool {
        match &self.0 {
            None => false,
            Some(Held::Block(block)) => block.origin == Origin::Nccl,
            Some(Held::Mapped(_)) => true,
        }
    }

    /// Whether it is memory of cudaMalloc.
    pub(crate) fn is_of_malloc(&self) -> bool {
        matches!(&self.0, Some(Held::Block(block)) if block.origin == Origin::Malloc)
    }

    /// What the device with this ordinal may do with all of it. Anything where there is nothing.
    pub(crate) fn access(&self, device: i32) -> Access {
        match &self.0 {
            None => Access::ReadWrite,
            Some(Held::Block(block)) => block.access(device),
            Some(Held::Mapped(mapped)) => {
                mapped.iter().map(|mapped| mapped.rights.of(device)).min().unwrap_or(Access::None)
            }
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        match &self.0 {
            None => {}
            Some(Held::Block(block)) => block.used(false),
            Some(Held::Mapped(mapped)) => mapped.iter().for_each(|mapped| mapped.used(false)),
        }
    }
}
