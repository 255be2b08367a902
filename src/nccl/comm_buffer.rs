//! Buffers that belong to a communicator.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::communicator::Communicator;
use super::memory::kind::{Fitting, MemoryKind};
use super::rank::inner::Inner;
use crate::cuda::{
    Access, Address, Allocation, AsSlice, AsSliceMut, Device, Lend, Lent, LentMut, LentUses, Slice, SliceMut, Stream,
};
use crate::element::{self, Element};
use crate::error::{Error, Result};

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
///
/// ```
/// # use gpucomm::{Clique, Device, InPlace, ReduceOp, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// let mut x = comm.alloc_from(&stream, &[comm.rank() as f32; 8])?;
/// comm.all_reduce(InPlace(&mut x), ReduceOp::Max, &stream)?;
/// println!("{} elements on {}, {}", x.len(), x.device(), if x.is_window() { "a window" } else { "no window" });
/// let mut y = comm.alloc::<f32>(&stream, 8)?;
/// y.copy_from(&stream, &x)?;
/// y.slice_mut(1..).fill(&stream, 0.0)?;
/// let (mut first, _) = y.split_at_mut(4);
/// first.slice_mut(3..).copy_from_slice(&stream, &[5.0])?;
/// assert_eq!(y.slice(..4).to_vec(&stream)?, [(comm.size() - 1) as f32, 0.0, 0.0, 5.0]);
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
pub struct CommBuffer<'comm, T: Element, K: MemoryKind = Fitting> {
    alloc: Arc<Allocation>,
    address: Address,
    len: usize,
    window: bool,
    _shared: Option<Arc<Communicator>>,
    _communicator: PhantomData<(&'comm Communicator, T, K)>,
}

impl<'comm, T: Element, K: MemoryKind> CommBuffer<'comm, T, K> {
    /// Over memory that `inner` was given.
    pub(crate) fn new(inner: &Inner, alloc: Arc<Allocation>, len: usize) -> Self {
        let address = alloc.address();
        let window = inner.windows.is_window(&Slice::<T>::of(&alloc, address, len).region());
        Self { alloc, address, len, window, _shared: None, _communicator: PhantomData }
    }

    /// The same buffer, which keeps its communicator alive instead of borrowing it: for who puts both into one struct.
    ///
    /// ```
    /// # use gpucomm::{Clique, CommBuffer, Device, Stream};
    /// # use std::sync::Arc;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # std::thread::scope(|scope| {
    /// #     for comm in clique.into_ranks() {
    /// #         scope.spawn(move || {
    /// let comm = Arc::new(comm);
    /// let stream = Stream::new(comm.device())?;
    /// let x: CommBuffer<'static, f32> = comm.alloc_from(&stream, &[1.0; 10])?.into_shared(&comm)?;
    /// // The buffer keeps the communicator.
    /// drop(comm);
    /// assert_eq!(x.to_vec(&stream)?, [1.0; 10]);
    /// #             Ok::<_, gpucomm::Error>(())
    /// #         });
    /// #     }
    /// # });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) where the buffer is one of another communicator; it is gone then.
    pub fn into_shared(self, communicator: &Arc<Communicator>) -> Result<CommBuffer<'static, T, K>> {
        let owner = self.alloc.owner();
        if owner != 0 && owner != communicator.inner().id {
            const EXPECTED: &str = "the communicator of the buffer";
            return Err(Error::argument("into_shared", "communicator", EXPECTED, "another one"));
        }
        let Self { alloc, address, len, window, .. } = self;
        Ok(CommBuffer {
            alloc,
            address,
            len,
            window,
            _shared: Some(Arc::clone(communicator)),
            _communicator: PhantomData,
        })
    }

    /// The same buffer, as one of any kind: for who keeps several kinds in one place.
    ///
    /// ```
    /// # use gpucomm::{Clique, CommBuffer, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let buffers: [CommBuffer<'_, f32>; 2] = [comm.alloc(&stream, 100)?, comm.alloc_local(&stream, 100)?.into_fitting()];
    /// # drop(buffers);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_fitting(self) -> CommBuffer<'comm, T> {
        let Self { alloc, address, len, window, _shared, .. } = self;
        CommBuffer { alloc, address, len, window, _shared, _communicator: PhantomData }
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
    #[inline]
    pub fn device(&self) -> Device {
        self.alloc.device()
    }

    /// Whether the memory is a symmetric window.
    pub fn is_window(&self) -> bool {
        self.window
    }

    /// The address on the device. What is done with it is not tracked.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let x = comm.alloc::<f32>(&stream, 10)?;
    /// stream.synchronize()?;
    /// assert!(!x.as_raw().is_null());
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> *mut c_void {
        self.address.ptr()
    }

    /// All elements, to be read.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = comm.alloc_from(&stream, &[1.0f32, 2.0])?;
    /// x.as_slice_mut().slice_mut(1..).fill(&stream, 7.0)?;
    /// assert_eq!(x.as_slice().to_vec(&stream)?, [1.0, 7.0]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice::of(&self.alloc, self.address, self.len)
    }

    /// All elements, to be written.
    pub fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut::of(&self.alloc, self.address, self.len)
    }

    /// The first elements and those from `mid` on, which is not beyond the end, as buffers of their own.
    pub(crate) fn halves(self, mid: usize) -> (Self, Self) {
        let next = Self {
            alloc: Arc::clone(&self.alloc),
            address: self.address.add(mid * size_of::<T>()),
            len: self.len - mid,
            window: self.window,
            _shared: self._shared.clone(),
            _communicator: PhantomData,
        };
        (Self { len: mid, ..self }, next)
    }

    /// The same buffer with the elements of `next`, where these lie behind its own.
    pub(crate) fn with(self, next: Self) -> Option<Self> {
        let follows =
            Arc::ptr_eq(&self.alloc, &next.alloc) && next.address == self.address.add(self.len * size_of::<T>());
        follows.then(|| Self { len: self.len + next.len, ..self })
    }

    /// Takes the elements as they are, also where they come from an operation of a communicator that has failed or was
    /// aborted: copies of them to the host report that no more. Waits until that communicator has stopped.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = comm.alloc_from(&stream, &[1f32; 10])?;
    /// comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    /// comm.aborter().abort("something else has failed");
    /// assert!(x.to_vec(&stream).is_err());
    /// x.accept();
    /// stream.accept();
    /// println!("{:?}", x.to_vec(&stream)?);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept(&mut self) {
        self.as_slice_mut().accept();
    }

    /// Copies from the host; see [`SliceMut::copy_from_slice`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = comm.alloc::<f32>(&stream, 2)?;
    /// x.copy_from_slice(&stream, &[1.0, 2.0])?;
    /// assert_eq!(x.to_vec(&stream)?, [1.0, 2.0]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn copy_from_slice(&mut self, stream: &Stream, source: &[T]) -> Result<()> {
        self.as_slice_mut().copy_from_slice(stream, source)
    }

    /// Copies to the host, and waits; see [`Slice::copy_to_slice`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let x = comm.alloc_from(&stream, &[1.0f32, 2.0])?;
    /// let mut values = [0.0; 2];
    /// x.copy_to_slice(&stream, &mut values)?;
    /// assert_eq!(values, [1.0, 2.0]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn copy_to_slice(&self, stream: &Stream, target: &mut [T]) -> Result<()> {
        self.as_slice().copy_to_slice(stream, target)
    }

    /// The elements on the host; waits. See [`Slice::to_vec`].
    ///
    /// # Errors
    /// As there.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.as_slice().to_vec(stream)
    }

    /// Copies from device memory; see [`SliceMut::copy_from`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_from<'a>(&mut self, stream: &Stream, source: impl AsSlice<'a, T>) -> Result<()> {
        self.as_slice_mut().copy_from(stream, source)
    }

    /// Sets every element; see [`SliceMut::fill`].
    ///
    /// # Errors
    /// As there.
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.as_slice_mut().fill(stream, value)
    }
}

impl<'a, T: Element, K: MemoryKind> AsSlice<'a, T> for &'a CommBuffer<'_, T, K> {}
impl<'a, T: Element, K: MemoryKind> AsSlice<'a, T> for &'a mut CommBuffer<'_, T, K> {}
impl<'a, T: Element, K: MemoryKind> AsSliceMut<'a, T> for &'a mut CommBuffer<'_, T, K> {}

impl<'a, T: Element, K: MemoryKind> From<&'a CommBuffer<'_, T, K>> for Slice<'a, T> {
    fn from(buffer: &'a CommBuffer<'_, T, K>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Element, K: MemoryKind> From<&'a mut CommBuffer<'_, T, K>> for Slice<'a, T> {
    fn from(buffer: &'a mut CommBuffer<'_, T, K>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Element, K: MemoryKind> From<&'a mut CommBuffer<'_, T, K>> for SliceMut<'a, T> {
    fn from(buffer: &'a mut CommBuffer<'_, T, K>) -> Self {
        buffer.as_slice_mut()
    }
}

impl<T: Element, K: MemoryKind> Lend for &CommBuffer<'_, T, K> {
    type Lent<'l> = Lent<'l, T>;

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        uses.add(self.as_slice(), Access::Read);
    }

    fn lent<'l>(&self) -> Lent<'l, T> {
        Lent::of(self.as_raw().cast(), self.len)
    }
}

impl<T: Element, K: MemoryKind> Lend for &mut CommBuffer<'_, T, K> {
    type Lent<'l> = LentMut<'l, T>;

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        uses.add(self.as_slice(), Access::Write);
    }

    fn lent<'l>(&self) -> LentMut<'l, T> {
        LentMut::of(self.as_raw().cast(), self.len)
    }
}

impl<T: Element, K: MemoryKind> fmt::Debug for CommBuffer<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommBuffer")
            .field("element", &format_args!("{}", element::name::<T>()))
            .field("len", &self.len)
            .field("device", &self.device())
            .field("window", &self.is_window())
            .finish()
    }
}
