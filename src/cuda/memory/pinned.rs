//! Pinned memory of the host, that devices copy from and to without waiting.

use std::ffi::c_void;

use super::block::Block;
use super::bytes::bytes_of;
use super::values;
use crate::cuda::devices::device::{Device, in_host_function, outside_host_functions};
use crate::cuda::order::lanes::Tracker;
use crate::cuda::works::lineage::Lineage;
use crate::cuda::works::work::Origins;
use crate::deadline::{Deadline, default_timeout};
use crate::element::{self, Element};
use crate::error::Result;

/// Elements in pinned memory of the host. Copies between it and devices are asynchronous; access from the host waits
/// for them.
///
/// Dropping it never waits: the memory is kept, and used again once no device uses it any more. See
/// [`trim_pinned`](crate::cuda::trim_pinned).
pub struct PinnedBuffer<T: Element> {
    /// `None` for no elements.
    block: Option<Block>,
    ptr: *mut T,
    len: usize,
    uses: Tracker,
    lineage: Lineage,
}

// SAFETY: it owns its memory, elements are Send, and the uses are behind a mutex.
unsafe impl<T: Element> Send for PinnedBuffer<T> {}
// SAFETY: as above; shared access only reads the memory, and elements are Sync.
unsafe impl<T: Element> Sync for PinnedBuffer<T> {}

impl<T: Element> PinnedBuffer<T> {
    /// Wraps `cudaHostAlloc`: `len` zeros in pinned memory that every device can use. Where memory of that size is kept, it
    /// is used again.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory); [`InvalidArgument`](crate::Error::InvalidArgument) for a length whose bytes cannot be
    /// counted; what CUDA says.
    pub fn new(len: usize) -> Result<Self> {
        Self::make("PinnedBuffer::new", len)
    }

    fn make(operation: &'static str, len: usize) -> Result<Self> {
        Device::count_for(operation)?;
        let bytes = bytes_of::<T>(operation, len)?;
        let block = if bytes > 0 { Some(Block::new(bytes)?) } else { None };
        let ptr = block.as_ref().map_or(std::ptr::null_mut(), Block::ptr);
        if bytes > 0 {
            // SAFETY: the block has that many bytes, and nobody else uses it.
            unsafe { ptr.write_bytes(0, bytes) };
        }
        Ok(Self { block, ptr: ptr.cast(), len, uses: Tracker::new(), lineage: Lineage::new() })
    }

    /// Wraps `cudaHostAlloc`: a copy of `values` in pinned memory.
    ///
    /// # Errors
    /// As [`PinnedBuffer::new`].
    pub fn from_slice(values: &[T]) -> Result<Self> {
        let mut buffer = Self::make("PinnedBuffer::from_slice", values.len())?;
        buffer.as_mut_slice()?.copy_from_slice(values);
        Ok(buffer)
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address on the host, which devices use as well; null for an empty buffer. For calls of other libraries, which have to be
    /// ordered against the copies to and from the buffer by yourself.
    pub fn as_raw(&self) -> *mut c_void {
        self.ptr.cast()
    }

    pub(crate) fn ptr(&self) -> *mut T {
        self.ptr
    }

    pub(crate) fn uses(&self) -> &Tracker {
        &self.uses
    }

    /// Which operations of communicators the elements come from.
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Takes the elements as they are, also where they come from an operation of a communicator that has failed.
    /// Waits until that communicator has stopped.
    pub fn accept(&mut self) {
        self.lineage.accept();
    }

    /// What the copies wait for: what the elements come from, and what is before them on their streams.
    fn waits_for(&self) -> Origins {
        let mut origins = self.lineage.origins();
        self.uses.lanes().iter().for_each(|stream| origins.merge(&stream.history().origins()));
        origins
    }

    /// Waits for the copies `to` the elements, or of them, until `done` says so; then tells whether what they come from has failed.
    fn wait_for_copies(&self, operation: &'static str, to: &str, done: impl Fn() -> Result<bool>) -> Result<()> {
        let origins = self.lineage.origins();
        let what = || format!("copies {to} {} elements{}", self.len, self.waits_for().pending());
        let deadline = Deadline::after(default_timeout());
        let look = || self.waits_for().look_around();
        deadline.poll_and_look(operation, what, look, || outside(operation, done()))?;
        origins.judge_within(operation, &deadline)
    }

    /// The bytes of the elements, of which there are some, when the copies to them are done.
    fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes, initialised when they were allocated. Copies to them need an exclusive borrow, and the caller has waited
        // for the earlier ones.
        unsafe { std::slice::from_raw_parts(self.ptr.cast(), self.len * size_of::<T>()) }
    }

    /// The elements, after the copies to them are done. Waits for those, no longer than the default timeout.
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout); where the elements come from an operation of a communicator that has failed, each time why, such
    /// as [`Aborted`](crate::Error::Aborted); [`InvalidArgument`](crate::Error::InvalidArgument) where they are no values of a type that has
    /// invalid ones, such as `bool`, of which all are looked at each time; what CUDA says.
    pub fn as_slice(&self) -> Result<&[T]> {
        const OPERATION: &str = "PinnedBuffer::as_slice";
        self.wait_for_copies(OPERATION, "to", || self.uses.written())?;
        if self.len == 0 {
            return Ok(&[]);
        }
        values::check::<T>(OPERATION, self.bytes())?;
        // SAFETY: `len` elements, initialised when they were allocated, any bit pattern being one, or looked at. Copies to them
        // need an exclusive borrow, and the earlier ones are done.
        Ok(unsafe { std::slice::from_raw_parts(self.ptr, self.len) })
    }

    /// The elements, after the copies to and from them are done. Waits for those, no longer than the default timeout.
    ///
    /// # Errors
    /// As [`PinnedBuffer::as_slice`]; say [`PinnedBuffer::accept`] to overwrite what a failed operation has left.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        const OPERATION: &str = "PinnedBuffer::as_mut_slice";
        self.wait_for_copies(OPERATION, "of", || self.uses.idle())?;
        if self.len == 0 {
            return Ok(&mut []);
        }
        values::check::<T>(OPERATION, self.bytes())?;
        // SAFETY: as in `as_slice`; the borrow is exclusive, and no device uses the memory.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) })
    }
}

/// Where CUDA could not be asked because this is a host function, the error of `operation` that says so: what is done with needs
/// no question.
fn outside(operation: &'static str, asked: Result<bool>) -> Result<bool> {
    asked.or_else(|error| outside_host_functions(operation).and(Err(error)))
}

impl<T: Element> std::fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedBuffer<{}>({} elements)", element::name::<T>(), self.len)
    }
}

impl<T: Element> Drop for PinnedBuffer<T> {
    /// Does not wait.
    fn drop(&mut self) {
        let uses = self.uses.take();
        let Some(block) = self.block.take() else { return };
        if in_host_function() {
            // CUDA must not be called here.
            std::mem::forget((uses, block));
            return;
        }
        // Where the device has failed, the memory is leaked: nobody knows whether it is used.
        if let Ok(marks) = uses.into_marks() {
            block.park(marks, false);
        }
    }
}
