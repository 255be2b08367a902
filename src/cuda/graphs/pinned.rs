//! Pinned memory that belongs to a graph.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::ptr;
use std::sync::Arc;

use super::graph::Graph;
use crate::cuda::memory::basics::range::or_panic;
use crate::cuda::memory::bracket::{Lend, Lent, LentMut, LentUses};
use crate::cuda::memory::host::memory::PinnedMemory;
use crate::cuda::memory::host::pinned::PinnedBuffer;
use crate::cuda::memory::host::slice::{AsPinned, PinnedSlice};
use crate::cuda::memory::host::slice_mut::{AsPinnedMut, PinnedSliceMut};
use crate::cuda::order::stream::Stream;
use crate::cuda::order::uses::Access;
use crate::element::{self, Element};
use crate::error::{Error, Result};

/// Pinned memory that has moved into a capture, by [`Stream::move_in`], and belongs to its graph.
///
/// Within the capture, copies and kernels take it as they take a [`PinnedBuffer`]. The host gets at it through the graph, by
/// [`Graph::pinned`] and [`Graph::pinned_mut`], while nobody can launch that.
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// let stream = Stream::new(Device::new(0)?)?;
/// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 3)?;
/// let (input, output) = (PinnedBuffer::<f32>::zeroed(3)?, PinnedBuffer::<f32>::zeroed(3)?);
/// let mut moved = None;
/// let mut graph = stream.capture(|stream| {
///     let (input, mut output) = (stream.move_in(input)?, stream.move_in(output)?);
///     x.copy_from_pinned(stream, &input)?;
///     // … what is done with it …
///     x.copy_to_pinned(stream, &mut output)?;
///     moved = Some((input, output));
///     Ok(())
/// })?;
/// let (input, output) = moved.expect("the capture has ended well");
/// for step in 0..3 {
///     graph.pinned_mut(&input)?.fill(step as f32);
///     graph.launch(&stream)?;
///     // Waits until the copy is done.
///     assert_eq!(graph.pinned(&output)?, [step as f32; 3]);
/// }
/// # Ok(())
/// # }
/// ```
pub struct GraphPinned<T: Element> {
    memory: Arc<PinnedMemory>,
    len: usize,
    _elements: PhantomData<T>,
}

impl Stream {
    /// Moves pinned memory into the capture that this stream belongs to: the graph keeps it, and nobody else looks at it while that may be
    /// launched. Wraps nothing of CUDA. See [`GraphPinned`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # let mut x = DeviceBuffer::<i32>::zeroed(&stream, 4)?;
    /// let mut memory = None;
    /// let graph = stream.capture(|stream| {
    ///     let input = stream.move_in(PinnedBuffer::from_slice(&[1, 2, 3, 4])?)?;
    ///     x.copy_from_pinned(stream, &input)?;
    ///     memory = Some(input);
    ///     Ok(())
    /// })?;
    /// graph.launch(&stream)?;
    /// assert_eq!(x.to_vec(&stream)?, [1, 2, 3, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](Error::InvalidUsage) outside of captures. The memory is gone then.
    pub fn move_in<T: Element>(&self, pinned: PinnedBuffer<T>) -> Result<GraphPinned<T>> {
        const OPERATION: &str = "Stream::move_in";
        self.part_of_capture(OPERATION)?;
        let Some(capture) = self.capture_of() else {
            let reason = "memory moves into captures: give it to a stream that the closure of one is lent".to_owned();
            return Err(Error::InvalidUsage { operation: OPERATION, reason });
        };
        let (memory, len) = pinned.into_memory();
        Ok(GraphPinned { memory: memory.move_in(capture), len, _elements: PhantomData })
    }
}

impl Graph {
    /// The elements, after the launches that write them are done. Waits for those, no longer than the default timeout.
    ///
    /// Whoever has the graph alone can look at what it may change: while the elements are there, it is not launched.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # let x = DeviceBuffer::from_slice(&stream, &[5; 4])?;
    /// let mut memory = None;
    /// let mut graph = stream.capture(|stream| {
    ///     let mut output = stream.move_in(PinnedBuffer::<i32>::zeroed(4)?)?;
    ///     x.copy_to_pinned(stream, &mut output)?;
    ///     memory = Some(output);
    ///     Ok(())
    /// })?;
    /// graph.launch(&stream)?;
    /// assert_eq!(graph.pinned(&memory.expect("it was captured"))?, [5; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for memory that is no part of this graph, or elements that are no values of their type; as
    /// [`PinnedBuffer::as_slice`](crate::PinnedBuffer::as_slice).
    pub fn pinned<'g, T: Element>(&'g mut self, memory: &'g GraphPinned<T>) -> Result<&'g [T]> {
        const OPERATION: &str = "Graph::pinned";
        self.check_part(OPERATION, &memory.memory)?;
        memory.view().read_alone(OPERATION)
    }

    /// The elements, after the launches that use them are done. Waits for those, no longer than the default timeout. See
    /// [`Graph::pinned`].
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # let mut x = DeviceBuffer::<i32>::zeroed(&stream, 4)?;
    /// let mut memory = None;
    /// let mut graph = stream.capture(|stream| {
    ///     let input = stream.move_in(PinnedBuffer::<i32>::zeroed(4)?)?;
    ///     x.copy_from_pinned(stream, &input)?;
    ///     memory = Some(input);
    ///     Ok(())
    /// })?;
    /// let input = memory.expect("it was captured");
    /// for step in 0..3 {
    ///     graph.pinned_mut(&input)?.fill(step);
    ///     graph.launch(&stream)?;
    ///     assert_eq!(x.to_vec(&stream)?, [step; 4]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn pinned_mut<'g, T: Element>(&'g mut self, memory: &'g GraphPinned<T>) -> Result<&'g mut [T]> {
        const OPERATION: &str = "Graph::pinned_mut";
        self.check_part(OPERATION, &memory.memory)?;
        // This graph alone uses it, and whoever has that alone looks at one piece at a time.
        PinnedSliceMut::of(&memory.memory, memory.memory.address(), memory.len).write_alone(OPERATION)
    }

    fn check_part(&self, operation: &'static str, memory: &PinnedMemory) -> Result<()> {
        if self.shared().trackers().any(|tracker| ptr::eq(tracker, memory.uses())) {
            return Ok(());
        }
        Err(Error::argument(operation, "memory", "pinned memory that the graph uses", "other memory"))
    }
}

impl<T: Element> GraphPinned<T> {
    /// How many elements.
    ///
    /// ```
    /// # use gpucomm::{Device, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # stream.capture(|stream| {
    /// let input = stream.move_in(PinnedBuffer::<i32>::zeroed(4)?)?;
    /// assert_eq!((input.len(), input.is_empty()), (4, false));
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements of `range`, for copies and kernels of the capture.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # let mut x = DeviceBuffer::<i32>::zeroed(&stream, 2)?;
    /// let graph = stream.capture(|stream| {
    ///     let input = stream.move_in(PinnedBuffer::from_slice(&[1, 2, 3, 4])?)?;
    ///     x.copy_from_pinned(stream, &input.slice(1..3))
    /// })?;
    /// graph.launch(&stream)?;
    /// assert_eq!(x.to_vec(&stream)?, [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where the range does not lie within the memory.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> PinnedSlice<'_, T> {
        self.view().slice(range)
    }

    /// The elements of `range`, for copies and kernels of the capture that write them.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let (x, y) = (DeviceBuffer::from_slice(&stream, &[1; 2])?, DeviceBuffer::from_slice(&stream, &[2; 2])?);
    /// let mut memory = None;
    /// let mut graph = stream.capture(|stream| {
    ///     let mut output = stream.move_in(PinnedBuffer::<i32>::zeroed(4)?)?;
    ///     x.copy_to_pinned(stream, &mut output.slice_mut(..2))?;
    ///     y.copy_to_pinned(stream, &mut output.slice_mut(2..))?;
    ///     memory = Some(output);
    ///     Ok(())
    /// })?;
    /// graph.launch(&stream)?;
    /// assert_eq!(graph.pinned(&memory.expect("it was captured"))?, [1, 1, 2, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where the range does not lie within the memory.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> PinnedSliceMut<'_, T> {
        or_panic(self.view_mut().into_range("GraphPinned::slice_mut", &range))
    }

    pub(crate) fn view(&self) -> PinnedSlice<'_, T> {
        PinnedSlice::of(&self.memory, self.memory.address(), self.len)
    }

    pub(crate) fn view_mut(&mut self) -> PinnedSliceMut<'_, T> {
        PinnedSliceMut::of(&self.memory, self.memory.address(), self.len)
    }
}

impl<'a, T: Element> AsPinned<'a, T> for &'a GraphPinned<T> {}
impl<'a, T: Element> AsPinnedMut<'a, T> for &'a mut GraphPinned<T> {}

impl<'a, T: Element> From<&'a GraphPinned<T>> for PinnedSlice<'a, T> {
    fn from(moved: &'a GraphPinned<T>) -> Self {
        moved.view()
    }
}

impl<'a, T: Element> From<&'a mut GraphPinned<T>> for PinnedSliceMut<'a, T> {
    fn from(moved: &'a mut GraphPinned<T>) -> Self {
        moved.view_mut()
    }
}

impl<T: Element> Lend for &GraphPinned<T> {
    type Lent<'l> = Lent<'l, T>;

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        uses.add_pinned(&self.memory, Access::Read);
    }

    fn lent<'l>(&self) -> Lent<'l, T> {
        Lent::of(self.memory.address().ptr().cast(), self.len)
    }
}

impl<T: Element> Lend for &mut GraphPinned<T> {
    type Lent<'l> = LentMut<'l, T>;

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        uses.add_pinned(&self.memory, Access::Write);
    }

    fn lent<'l>(&self) -> LentMut<'l, T> {
        LentMut::of(self.memory.address().ptr().cast(), self.len)
    }
}

impl<T: Element> fmt::Debug for GraphPinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraphPinned<{}>({} elements)", element::name::<T>(), self.len)
    }
}
