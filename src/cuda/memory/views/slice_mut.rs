//! Views of device memory, to write.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::slice::{AsSlice, Slice};
use crate::cuda::devices::device::Device;
use crate::cuda::memory::allocated::allocation::Allocation;
use crate::cuda::memory::allocated::region::Region;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::memory::basics::range::{or_panic, resolve};
use crate::cuda::order::turns::{Turns, Waits};
use crate::deadline::default_timeout;
use crate::element::{self, Element};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// A view of elements in device memory, to write: what `&mut [T]` is to host memory, without access from the host.
///
/// ```
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # use gpucomm::cuda::SliceMut;
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// fn count(mut values: SliceMut<'_, i32>, stream: &Stream) -> gpucomm::Result<()> {
///     assert_eq!(values.device(), stream.device());
///     if !values.is_empty() {
///         let numbers: Vec<_> = (0..values.len() as i32).collect();
///         values.copy_from_slice(stream, &numbers)?;
///     }
///     assert_eq!(values.as_slice().len(), values.slice(..).len());
///     Ok(())
/// }
///
/// let mut x = DeviceBuffer::<i32>::zeroed(&stream, 4)?;
/// count(x.slice_mut(1..), &stream)?;
/// assert_eq!(x.to_vec(&stream)?, [0, 0, 1, 2]);
/// # Ok(())
/// # }
/// ```
pub struct SliceMut<'a, T: Element> {
    alloc: &'a Allocation,
    address: Address,
    len: usize,
    _elements: PhantomData<&'a mut [T]>,
}

/// What can be given as a [`SliceMut`]: device memory to write to, whole or in part.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no device memory, with elements of type `{T}`, to write to",
    label = "expected `&mut buffer`, or a part such as `buffer.slice_mut(..8)`",
    note = "results get to the host by `buffer.to_vec(&stream)`, and to a `PinnedBuffer` by `copy_to_pinned`"
)]
pub trait AsSliceMut<'a, T: Element>: Into<SliceMut<'a, T>> {}

impl<'a, T: Element> SliceMut<'a, T> {
    /// `len` elements of `alloc`, shown at `address`, which nobody else may show at the same time.
    #[inline]
    pub(crate) fn of(alloc: &'a Allocation, address: Address, len: usize) -> Self {
        debug_assert!(len * size_of::<T>() <= alloc.bytes());
        Self { alloc, address, len, _elements: PhantomData }
    }

    /// How many elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that holds them.
    #[inline]
    pub fn device(&self) -> Device {
        self.alloc.device()
    }

    /// The address on the device; null where the whole buffer is empty. For calls of other libraries, which have to be
    /// ordered against the uses of the buffer by yourself.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 10)?;
    /// let first = x.as_raw().addr();
    /// assert_eq!(x.slice_mut(1..).as_raw().addr(), first + 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> *mut c_void {
        self.region().ptr()
    }

    #[inline]
    pub(crate) fn region(&self) -> Region<'_> {
        Region { alloc: self.alloc, address: self.address, bytes: self.len * size_of::<T>() }
    }

    /// The region for as long as the memory is borrowed.
    #[inline]
    pub(crate) fn into_region(self) -> Region<'a> {
        Region { alloc: self.alloc, address: self.address, bytes: self.len * size_of::<T>() }
    }

    /// The same view for a shorter time, so that this one is still there afterwards.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[1f32; 10])?;
    /// let mut part = x.slice_mut(5..);
    /// // Taken by value by the operation, and used again after it.
    /// comm.all_reduce(InPlace(part.reborrow()), ReduceOp::Sum, &stream)?;
    /// part.slice_mut(..1).fill(&stream, 0.0)?;
    /// assert_eq!(x.slice(4..7).to_vec(&stream)?, [1.0, 0.0, comm.size() as f32]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reborrow(&mut self) -> SliceMut<'_, T> {
        SliceMut { alloc: self.alloc, address: self.address, len: self.len, _elements: PhantomData }
    }

    /// Takes the elements as they are, also where they come from an operation of a communicator that has failed or was
    /// aborted. Failures are known of whole buffers only, so this does nothing where the view is a part of one.
    /// Waits until that communicator has stopped.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32; 10])?;
    /// comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    /// comm.aborter().abort("something else has failed");
    /// x.as_slice_mut().accept();
    /// stream.accept();
    /// println!("{:?}", x.to_vec(&stream)?);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept(&mut self) {
        if self.region().is_whole() {
            // Launches of graphs do not come in between, unless one takes too long.
            let waits = Waits { operation: "SliceMut::accept", timeout: default_timeout, refusal: || None };
            let _turns = Turns::of(waits, [self.alloc.tracker()]);
            self.alloc.lineage().accept();
        }
    }

    /// The same elements, to read.
    #[inline]
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice::of(self.alloc, self.address, self.len)
    }

    /// The elements of `range`, to read.
    ///
    /// # Panics
    /// Where the range does not lie within this view.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        self.as_slice().slice(range)
    }

    /// The elements of `range`, to read.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 3])?;
    /// let mut part = x.slice_mut(1..);
    /// assert_eq!(part.try_slice(1..)?.to_vec(&stream)?, [3]);
    /// assert!(part.try_slice(..3).is_err() && part.try_slice_mut(..3).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the range does not lie within this view.
    pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        self.as_slice().try_slice(range)
    }

    /// The elements of `range`.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<u8>::zeroed(&stream, 4)?;
    /// let mut part = x.slice_mut(1..);
    /// part.slice_mut(..1).fill(&stream, 1)?;
    /// part.slice_mut(2..).fill(&stream, 2)?;
    /// assert_eq!(x.to_vec(&stream)?, [0, 1, 0, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where the range does not lie within this view.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        or_panic(self.reborrow().into_range("SliceMut::slice_mut", &range))
    }

    /// The elements of `range`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the range does not lie within this view.
    pub fn try_slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        self.reborrow().into_range("SliceMut::try_slice_mut", &range)
    }

    /// The elements of `range`, for `operation`.
    pub(crate) fn into_range(self, operation: &'static str, range: &impl RangeBounds<usize>) -> Result<Self> {
        let range = resolve(operation, range, self.len)?;
        Ok(Self { address: self.address.add(range.start * size_of::<T>()), len: range.len(), ..self })
    }

    /// The elements before `mid` and those from it on. Both may be used at the same time, on different streams and
    /// threads; on the device, uses of different streams that write come one after the other even so, because order is
    /// kept for the buffer as a whole.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4])?;
    /// let mut whole = x.as_slice_mut();
    /// let (front, mut back) = whole.split_at_mut(2);
    /// back.copy_from(&stream, front)?;
    /// assert_eq!(x.to_vec(&stream)?, [1, 2, 1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn split_at_mut(&mut self, mid: usize) -> (SliceMut<'_, T>, SliceMut<'_, T>) {
        self.reborrow().into_parts("SliceMut::split_at_mut", mid)
    }

    /// Like [`SliceMut::split_at_mut`], for parts that live as long as the whole: such as those that a group borrows.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, Stream, group};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut halo = DeviceBuffer::<f32>::zeroed(&stream, 2)?;
    /// let own = DeviceBuffer::from_slice(&stream, &[comm.rank() as f32])?;
    /// let (left, right) = ((comm.rank() + comm.size() - 1) % comm.size(), (comm.rank() + 1) % comm.size());
    /// let (from_left, from_right) = halo.as_slice_mut().into_split(1);
    /// group(|g| {
    ///     g.send(comm, &own, right, &stream)?;
    ///     g.recv(comm, from_left, left, &stream)?;
    ///     g.send(comm, &own, left, &stream)?;
    ///     g.recv(comm, from_right, right, &stream)
    /// })?;
    /// assert_eq!(halo.to_vec(&stream)?, [left as f32, right as f32]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub fn into_split(self, mid: usize) -> (Self, Self) {
        self.into_parts("SliceMut::into_split", mid)
    }

    /// The parts before `mid` and from it on, for `operation`.
    ///
    /// # Panics
    /// Where `mid` is greater than the length.
    #[track_caller]
    pub(crate) fn into_parts(self, operation: &'static str, mid: usize) -> (Self, Self) {
        let other = Self { alloc: self.alloc, address: self.address, len: self.len, _elements: PhantomData };
        (or_panic(self.into_range(operation, &(..mid))), or_panic(other.into_range(operation, &(mid..))))
    }
}

impl<'a, T: Element> AsSlice<'a, T> for &'a SliceMut<'_, T> {}
impl<'a, T: Element> AsSlice<'a, T> for SliceMut<'a, T> {}
impl<'a, T: Element> AsSliceMut<'a, T> for SliceMut<'a, T> {}
impl<'a, T: Element> AsSliceMut<'a, T> for &'a mut SliceMut<'_, T> {}

impl<'a, T: Element> From<&'a SliceMut<'_, T>> for Slice<'a, T> {
    fn from(slice: &'a SliceMut<'_, T>) -> Self {
        slice.as_slice()
    }
}

impl<'a, T: Element> From<SliceMut<'a, T>> for Slice<'a, T> {
    fn from(slice: SliceMut<'a, T>) -> Self {
        Slice::of(slice.alloc, slice.address, slice.len)
    }
}

impl<'a, T: Element> From<&'a mut SliceMut<'_, T>> for SliceMut<'a, T> {
    fn from(slice: &'a mut SliceMut<'_, T>) -> Self {
        slice.reborrow()
    }
}

impl<T: Element> std::fmt::Debug for SliceMut<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SliceMut<{}>({} elements on {})", element::name::<T>(), self.len, self.device())
    }
}
