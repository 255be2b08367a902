//! Pinned blocks through which host memory is copied.
//!
//! The device never reads or writes memory that a caller lent: values go through a block that the library owns. A wait
//! that gives up leaves the block, with the mark of its copy, to be reused when the device is done with it; the
//! caller's slice is out of the game at once.
//!
//! Each stream has a share of its own, so that one that is stuck takes nothing from the others.

use smallvec::smallvec;

use super::block::Block;
use crate::cuda::order::mark::Mark;
use crate::cuda::order::stream::Stream;
use crate::deadline::Deadline;
use crate::error::Result;

/// Bytes of a block for small copies.
const SMALL: usize = 64 << 10;

/// Bytes of a block for large copies.
const LARGE: usize = 4 << 20;

/// Bytes of blocks that the copies of one stream may use.
const SHARE: usize = 64 << 20;

/// A block for a part of a copy. Dropping it leaks it: say [`Staged::release`] or [`Staged::park`].
#[derive(Debug)]
pub(crate) struct Staged(Block);

impl Staged {
    /// A block for what is left of a copy on `stream`, `bytes`, if there is one without waiting.
    pub(crate) fn try_take(stream: &Stream, bytes: usize) -> Result<Option<Self>> {
        let size = if bytes <= SMALL { SMALL } else { LARGE };
        Ok(Block::staged(stream.serial(), size, SHARE)?.map(Self))
    }

    /// A block for what is left of a copy, `bytes`; waits for one if all of the share are in use. Whoever holds a block
    /// must not wait for another one here.
    pub(crate) fn take(operation: &'static str, stream: &Stream, bytes: usize, deadline: &Deadline) -> Result<Self> {
        let origins = || stream.history().origins();
        let block = deadline.until_and_look(|| origins().look_around(), || Self::try_take(stream, bytes))?;
        block.ok_or_else(|| {
            let what = "memory for staging, of which the stream uses its share for copies that are not done";
            let late = deadline.error(operation, format!("{what}{}", origins().pending())).between(origins().between());
            stream.give_up_all(&late);
            origins().give_up(&late);
            late
        })
    }

    pub(crate) fn size(&self) -> usize {
        self.0.size()
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        self.0.ptr()
    }

    /// Gives back a block that no device uses.
    pub(crate) fn release(self) {
        self.0.release();
    }

    /// Gives back a block that the stream uses until `mark`.
    pub(crate) fn park(self, mark: Mark) {
        self.0.park(smallvec![mark], true);
    }

    /// Leaks a block, because nobody knows whether a device uses it.
    pub(crate) fn abandon(self) {
        // Blocks have no destructor.
    }
}
