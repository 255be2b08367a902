//! Pinned blocks through which host memory is copied.
//!
//! The device never reads or writes memory that a caller lent: values go through a block that the library owns. A wait
//! that gives up leaves the block, with the mark of its copy, to be reused when the device is done with it; the
//! caller's slice is out of the game at once.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::check::check_memory;
use super::mark::Mark;
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::sys;

/// Bytes of a block for small copies, and how many there are at most.
const SMALL: (usize, usize) = (64 << 10, 256);
/// Bytes of a block for large copies, and how many there are at most.
const LARGE: (usize, usize) = (4 << 20, 16);

/// A piece of pinned memory. Dropping it leaks it: say [`Block::release`] or [`Block::park`].
pub(crate) struct Block {
    ptr: *mut u8,
    small: bool,
}

// SAFETY: the block is owned memory of the host, and only its owner touches it.
unsafe impl Send for Block {}

struct Class {
    size: usize,
    most: usize,
    made: usize,
    free: Vec<Block>,
    parked: VecDeque<(Block, Mark)>,
}

impl Class {
    const fn new((size, most): (usize, usize)) -> Self {
        Self { size, most, made: 0, free: Vec::new(), parked: VecDeque::new() }
    }

    /// A block that is free, or whose copy is done.
    fn take(&mut self) -> Option<Block> {
        if let Some(block) = self.free.pop() {
            return Some(block);
        }
        // Asking costs a microsecond, so only the oldest are asked while more blocks can be made.
        let asked = if self.made < self.most { 2 } else { self.parked.len() };
        for at in 0..asked.min(self.parked.len()) {
            match self.parked[at].1.reached() {
                Ok(false) => {}
                Ok(true) => return self.parked.remove(at).map(|(block, _)| block),
                Err(_) => {
                    // The device failed; nobody knows whether it will touch the block again.
                    std::mem::forget(self.parked.remove(at));
                    self.made -= 1;
                    return None;
                }
            }
        }
        None
    }
}

static SMALL_BLOCKS: Mutex<Class> = Mutex::new(Class::new(SMALL));
static LARGE_BLOCKS: Mutex<Class> = Mutex::new(Class::new(LARGE));

fn class(small: bool) -> MutexGuard<'static, Class> {
    let class = if small { &SMALL_BLOCKS } else { &LARGE_BLOCKS };
    class.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Block {
    /// A block for what is left of a copy, `bytes`, if there is one without waiting.
    pub(crate) fn try_take(bytes: usize) -> Result<Option<Self>> {
        let small = bytes <= SMALL.0;
        let mut class = class(small);
        if let Some(block) = class.take() {
            return Ok(Some(block));
        }
        if class.made == class.most {
            return Ok(None);
        }
        let size = class.size;
        let mut ptr = std::ptr::null_mut();
        // SAFETY: writes a pointer to the address given.
        let code = unsafe { sys::cudaHostAlloc(&raw mut ptr, size, sys::cudaHostAllocPortable) };
        match check_memory("cudaHostAlloc", code, size, || String::from("the host")) {
            // Others are in use: one of them will do.
            Err(Error::OutOfMemory { .. }) if class.made > 0 => return Ok(None),
            other => other?,
        }
        class.made += 1;
        drop(class);
        // SAFETY: `size` bytes were allocated, and nobody else has them. Zeroed, so that what a failed copy leaves is
        // a value.
        unsafe { ptr.write_bytes(0, size) };
        Ok(Some(Self { ptr: ptr.cast(), small }))
    }

    /// A block for what is left of a copy, `bytes`; waits for one if all are in use. Whoever holds a block must not
    /// wait for another one here.
    pub(crate) fn take(operation: &'static str, bytes: usize, deadline: &Deadline) -> Result<Self> {
        let mut round = 0;
        loop {
            if let Some(block) = Self::try_take(bytes)? {
                return Ok(block);
            }
            if deadline.expired() {
                return Err(
                    deadline.error(operation, "memory for staging, all of which is used by copies that are not done")
                );
            }
            backoff(round);
            round += 1;
        }
    }

    pub(crate) fn size(&self) -> usize {
        if self.small { SMALL.0 } else { LARGE.0 }
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Gives back a block that no device uses.
    pub(crate) fn release(self) {
        let mut class = class(self.small);
        class.free.push(self);
    }

    /// Gives back a block that a device uses until `mark`.
    pub(crate) fn park(self, mark: Mark) {
        let mut class = class(self.small);
        class.parked.push_back((self, mark));
    }

    /// Leaks a block, because nobody knows whether a device uses it.
    pub(crate) fn abandon(self) {
        class(self.small).made -= 1;
    }
}
