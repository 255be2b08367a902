//! Buffers that belong to a communicator.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::communicator::Communicator;
use super::memory::kind::{Fitting, MemoryKind};
use super::rank::inner::Inner;
use crate::cuda::{Address, Allocation, Slice, SliceMut, device_methods};
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
/// The parts of a buffer that was split ([`into_split`](Self::into_split)) lie in the same window. Ranks that pass a part to a
/// collective pass the same part of it.
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

    /// Whether the memory is a symmetric window.
    pub fn is_window(&self) -> bool {
        self.window
    }

    fn allocation(&self) -> &Allocation {
        &self.alloc
    }

    /// Another buffer over the same memory. The caller has checked that `len` elements lie at `address`,
    /// and no other buffer shows any of them.
    fn showing<U: Element>(&self, address: Address, len: usize) -> CommBuffer<'comm, U, K> {
        let (alloc, _shared) = (Arc::clone(&self.alloc), self._shared.clone());
        CommBuffer { alloc, address, len, window: self.window, _shared, _communicator: PhantomData }
    }
}

device_methods! {
    own ['comm, T: Element, K: MemoryKind] CommBuffer<'comm, T, K>, "CommBuffer", cast CommBuffer<'comm, U, K>, (
        "# use gpucomm::{Clique, Device, DeviceBuffer, Error, PinnedBuffer, Stream};
# use std::time::Duration;
# fn main() -> gpucomm::Result<()> {
# let clique = Clique::init_all(&Device::all()?)?;
# clique.spmd(|comm| {
# let stream = Stream::new(comm.device())?;
let mut x = comm.alloc_from(&stream, &[1, 2, 3, 4])?;",
        "# Ok(())
# })?;
# Ok(())
# }"
    )
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
