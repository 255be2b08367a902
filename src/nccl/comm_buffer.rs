//! Buffers that belong to a communicator.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::communicator::Communicator;
use crate::cuda::{Allocation, Device, Slice, SliceMut, Stream};
use crate::element::Element;
use crate::error::Result;

/// Device memory that NCCL allocated (`ncclMemAlloc`), registered as a symmetric window of its communicator where the
/// installed NCCL has them and [`Communicator::alloc_local`] did not make it.
///
/// The fastest memory for small messages: with windows, ranks read each other's buffers directly. It borrows the
/// communicator, which therefore cannot be closed or dropped before. Copies, slices and collectives take it like a
/// [`DeviceBuffer`](crate::DeviceBuffer).
///
/// Made by [`Communicator::alloc`] and its like. Dropping it waits for nothing: memory that is no window is freed when the device has done
/// with it, a window with its memory where all ranks come together next, see [`Communicator::reclaim`].
///
/// Between windows, elements of one or two bytes are best sent from addresses that are multiples of four: some versions of NCCL give
/// wrong data otherwise (`misaligned-windows` of [`known_bugs`](crate::known_bugs)), so such calls take a way of their own there, which is
/// slower for small messages.
pub struct CommBuffer<'comm, T: Element> {
    alloc: Arc<Allocation>,
    len: usize,
    _shared: Option<Arc<Communicator>>,
    _communicator: PhantomData<(&'comm Communicator, T)>,
}

/// Numbers for windows of communicators whose ranks do not compare.
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
static NEXT_WINDOW: AtomicU64 = AtomicU64::new(1 << 32);

#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) fn next_window() -> u64 {
    NEXT_WINDOW.fetch_add(1, Ordering::Relaxed)
}

impl<'comm, T: Element> CommBuffer<'comm, T> {
    pub(crate) fn new(alloc: Arc<Allocation>, len: usize) -> Self {
        Self { alloc, len, _shared: None, _communicator: PhantomData }
    }

    /// The same buffer, which keeps its communicator alive instead of borrowing it.
    pub(crate) fn shared(self, communicator: Arc<Communicator>) -> CommBuffer<'static, T> {
        CommBuffer { alloc: self.alloc, len: self.len, _shared: Some(communicator), _communicator: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that holds the memory.
    pub fn device(&self) -> Device {
        self.alloc.device()
    }

    /// Whether the memory is a symmetric window.
    pub fn is_window(&self) -> bool {
        self.alloc.window().is_some_and(|tag| tag.window != 0)
    }

    /// The address on the device. What is done with it is not tracked.
    pub fn as_raw(&self) -> *mut c_void {
        self.alloc.ptr()
    }

    /// All elements, to be read.
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice::of(&self.alloc, self.len)
    }

    /// All elements, to be written.
    pub fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut::of(&self.alloc, self.len)
    }

    /// The elements of `range`, to be read.
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        self.as_slice().slice(range)
    }

    /// The elements of `range`, to be written.
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        match self.as_slice_mut().into_range("SliceMut::slice_mut", &range) {
            Ok(slice) => slice,
            Err(error) => panic!("{error}"),
        }
    }

    /// The elements before `mid` and those from it on, to be written.
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn split_at_mut(&mut self, mid: usize) -> (SliceMut<'_, T>, SliceMut<'_, T>) {
        self.as_slice_mut().into_parts("SliceMut::split_at_mut", mid)
    }

    /// Takes the elements as they are, also where they come from an operation of a communicator that has failed or was
    /// aborted: copies of them to the host report that no more. Waits until that communicator has stopped.
    pub fn accept(&mut self) {
        self.as_slice_mut().accept();
    }

    /// Copies from the host; see [`SliceMut::copy_from_slice`].
    pub fn copy_from_slice(&mut self, stream: &Stream, source: &[T]) -> Result<()> {
        self.as_slice_mut().copy_from_slice(stream, source)
    }

    /// Copies to the host, and waits; see [`Slice::copy_to_slice`].
    pub fn copy_to_slice(&self, stream: &Stream, target: &mut [T]) -> Result<()> {
        self.as_slice().copy_to_slice(stream, target)
    }

    /// The elements on the host; waits. See [`Slice::to_vec`].
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.as_slice().to_vec(stream)
    }

    /// Copies from device memory; see [`SliceMut::copy_from`].
    pub fn copy_from<'a>(&mut self, stream: &Stream, source: impl Into<Slice<'a, T>>) -> Result<()> {
        self.as_slice_mut().copy_from(stream, source)
    }

    /// Sets every element; see [`SliceMut::fill`].
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.as_slice_mut().fill(stream, value)
    }
}

impl<'a, T: Element> From<&'a CommBuffer<'_, T>> for Slice<'a, T> {
    fn from(buffer: &'a CommBuffer<'_, T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Element> From<&'a mut CommBuffer<'_, T>> for Slice<'a, T> {
    fn from(buffer: &'a mut CommBuffer<'_, T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Element> From<&'a mut CommBuffer<'_, T>> for SliceMut<'a, T> {
    fn from(buffer: &'a mut CommBuffer<'_, T>) -> Self {
        buffer.as_slice_mut()
    }
}

impl<T: Element> fmt::Debug for CommBuffer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommBuffer")
            .field("element", &T::KIND)
            .field("len", &self.len)
            .field("device", &self.device())
            .field("window", &self.is_window())
            .finish()
    }
}
