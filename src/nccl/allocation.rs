//! What a communicator allocates.

use std::sync::Arc;

use super::comm_buffer::CommBuffer;
use super::communicator::Communicator;
use super::memory::allocate;
use super::memory::allocate::Wanted;
use super::memory::kind::{Local, Symmetric};
use crate::cuda::Stream;
use crate::element::Element;
use crate::error::{Error, Result};

/// Memory of NCCL.
impl Communicator {
    /// Wraps `ncclMemAlloc` and, since NCCL 2.27, `ncclCommWindowRegister`: `len` zeroed elements that belong to this
    /// communicator.
    ///
    /// Up to [`SYMMETRIC_UP_TO`](super::SYMMETRIC_UP_TO) bytes it is a window ([`CommBuffer::is_window`]), where ranks reach each other's memory and
    /// NCCL is 2.29.7 or newer; before, windows have bugs that nothing goes around, see
    /// [`Config::with_force_windows`](super::Config::with_force_windows). That is what is fastest, as far as it was measured; who knows better says so in
    /// the type: [`Communicator::alloc_symmetric`], [`Communicator::alloc_local`].
    ///
    /// All ranks call it, with the same `len`. The first use by `stream` costs nothing, other streams wait for it. Windows that all ranks have
    /// dropped before go here, once the device has done with them; see [`Communicator::reclaim`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = comm.alloc::<f32>(&stream, 1000)?;
    /// comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`OutOfMemory`](crate::Error::OutOfMemory) if a rank has too little memory. Since NCCL 2.27, ranks that compare what they do
    ///   (those of a clique, and checked ones) get it on all of them, and the communicator goes on: try again with less. Between
    ///   processes that do not compare, the rank that has too little aborts the communicator if the memory was to be a window, for
    ///   which the others wait. NCCL itself breaks the communicator if it finds no memory of its own for a window. Before NCCL 2.27
    ///   there are no windows and the ranks do not meet: only the rank that has too little gets the error, and the communicator goes on.
    /// - [`Disagreement`](crate::Error::Disagreement) if the ranks of a clique ask for different sizes.
    /// - [`Timeout`](crate::Error::Timeout) if a rank does not come, or work that uses dropped memory goes on.
    #[doc(alias("ncclMemAlloc", "ncclCommWindowRegister"))]
    pub fn alloc<T: Element>(&self, stream: &Stream, len: usize) -> Result<CommBuffer<'_, T>> {
        Ok(CommBuffer::new(self.inner(), allocate::one::<T>("alloc", self.inner(), stream, len, Wanted::Fitting)?, len))
    }

    /// Like [`Communicator::alloc`], with the elements of `source`.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// let mut x = comm.alloc_from(&stream, &[1f32; 1000])?;
    /// comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    /// assert_eq!(x.to_vec(&stream)?, [comm.size() as f32; 1000]);
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::alloc`].
    pub fn alloc_from<T: Element>(&self, stream: &Stream, source: &[T]) -> Result<CommBuffer<'_, T>> {
        const OPERATION: &str = "alloc_from";
        let len = source.len();
        let mut buffer = CommBuffer::new(
            self.inner(),
            allocate::one::<T>(OPERATION, self.inner(), stream, len, Wanted::Fitting)?,
            len,
        );
        buffer.as_slice_mut().copy_from_slice_for(OPERATION, stream, source)?;
        Ok(buffer)
    }

    /// Like [`Communicator::alloc`], but the buffer keeps the communicator alive instead of borrowing it; see
    /// [`CommBuffer::into_shared`] for buffers that were made otherwise.
    ///
    /// ```
    /// # use gpucomm::{Clique, CommBuffer, Communicator, Device, Stream};
    /// # use std::sync::Arc;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// struct Rank {
    ///     comm: Arc<Communicator>,
    ///     weights: CommBuffer<'static, f32>,
    /// }
    ///
    /// fn rank(comm: Communicator) -> gpucomm::Result<Rank> {
    ///     let comm = Arc::new(comm);
    ///     let stream = Stream::new(comm.device())?;
    ///     Ok(Rank { weights: comm.alloc_shared(&stream, 1000)?, comm })
    /// }
    /// # std::thread::scope(|scope| {
    /// #     let ranks: Vec<_> = clique.into_ranks().into_iter().map(|comm| scope.spawn(|| rank(comm))).collect();
    /// #     for rank in ranks {
    /// #         let Rank { comm, weights } = rank.join().expect("no panic")?;
    /// #         assert_eq!(weights.device(), comm.device());
    /// #     }
    /// #     Ok::<_, gpucomm::Error>(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::alloc`].
    pub fn alloc_shared<T: Element>(self: &Arc<Self>, stream: &Stream, len: usize) -> Result<CommBuffer<'static, T>> {
        CommBuffer::new(
            self.inner(),
            allocate::one::<T>("alloc_shared", self.inner(), stream, len, Wanted::Fitting)?,
            len,
        )
        .into_shared(self)
    }

    /// Wraps `ncclMemAlloc` and `ncclCommWindowRegister`: like [`Communicator::alloc`], and a window whatever its size. For what other ranks put to,
    /// and for operations that are faster between windows at all sizes, such as large gathers.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Error, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// match comm.alloc_symmetric::<f32>(&stream, 10_000_000) {
    ///     Ok(shards) => assert!(shards.is_window()),
    ///     Err(Error::Unsupported { needs, .. }) => println!("no windows here: they take {needs}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::alloc`]; [`Unsupported`](crate::Error::Unsupported) where there are no windows.
    #[doc(alias("ncclMemAlloc", "ncclCommWindowRegister"))]
    pub fn alloc_symmetric<T: Element>(&self, stream: &Stream, len: usize) -> Result<CommBuffer<'_, T, Symmetric>> {
        const OPERATION: &str = "alloc_symmetric";
        let alloc = allocate::one::<T>(OPERATION, self.inner(), stream, len, Wanted::Symmetric)?;
        let buffer = CommBuffer::new(self.inner(), alloc, len);
        if !buffer.is_window() {
            let needs = "ranks that reach each other's memory";
            return Err(Error::Unsupported { operation: OPERATION, needs: needs.into() });
        }
        Ok(buffer)
    }

    /// Wraps `ncclMemAlloc` alone: like [`Communicator::alloc`], but no window, so that a rank allocates by itself.
    ///
    /// NCCL allocates such memory for no communicator in particular. So operations of any communicator
    /// take the buffer, such as those that were split from this one. Only this one can register it.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// // One rank alone needs it: the others do not come.
    /// if comm.rank() == 0 {
    ///     let mut staging = comm.alloc_local::<f32>(&stream, 1000)?;
    ///     assert!(!staging.is_window());
    ///     staging.fill(&stream, 1.0)?;
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory); [`Aborted`](crate::Error::Aborted);
    /// [`InvalidArgument`](crate::Error::InvalidArgument) where `stream` is of another device, or the bytes of `len` elements cannot be
    /// counted.
    #[doc(alias = "ncclMemAlloc")]
    pub fn alloc_local<T: Element>(&self, stream: &Stream, len: usize) -> Result<CommBuffer<'_, T, Local>> {
        Ok(CommBuffer::new(self.inner(), allocate::local::<T>(self.inner(), stream, len)?, len))
    }

    /// Wraps `ncclCommWindowDeregister`, `ncclMemFree` and `ncclCommDeregister`: frees the memory of windows that were dropped, and takes
    /// away what was [registered](Communicator::register). All ranks call it, among their collectives.
    ///
    /// Dropping a [`CommBuffer`] that is a window does not take the window away, and keeps its memory: ranks that do so at different
    /// moments come to different views of where windows lie. All ranks do it together at the next allocation or registration, here, or when
    /// the communicator is closed. So it is with registrations. In a clique those go that all ranks have dropped before; across processes those that this
    /// rank has, which is why ranks must drop alike, see [`Communicator::init_rank`]. Memory of [`Communicator::alloc_local`] is freed
    /// as soon as the device has done with it.
    ///
    /// Memory that an operation of a graph has used stays for longer, as NCCL knows it for a while by its address when the graph is gone:
    /// until some dozens of other operations were issued on the communicator, where it is known when NCCL looks (before 2.31), or until the communicator has
    /// ended. This does not wait for that.
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = Stream::new(comm.device())?;
    /// drop(comm.alloc::<f32>(&stream, 1 << 20)?);
    /// // If it was a window, its memory is free after this, not only at the next allocation.
    /// comm.reclaim()?;
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout) where a rank does not come, or what uses the memory goes on;
    /// [`Disagreement`](crate::Error::Disagreement) where the ranks of a clique do something else.
    #[doc(alias("ncclCommWindowDeregister", "ncclMemFree", "ncclCommDeregister"))]
    pub fn reclaim(&self) -> Result<()> {
        allocate::reclaim("reclaim", &[self.inner()])
    }
}
