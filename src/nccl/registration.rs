//! Memory that a communicator knows, so that NCCL need not copy it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::communicator::Communicator;
use super::memory::register;
use super::rank::inner::Inner;
use crate::cuda::AsSlice;
use crate::element::Element;
use crate::error::{Error, Result};

/// Wraps the handle of `ncclCommRegister`: memory of a buffer that NCCL moves from and to without copying it first.
///
/// Made by [`Communicator::register`]. It borrows the communicator, and keeps the memory alive by itself: the buffer is used as before,
/// written to as well, and may be dropped. Dropping this waits for nothing, and takes nothing away: the memory stays registered, and
/// alive, until all ranks come together next, see [`Communicator::reclaim`].
///
/// ```
/// # use gpucomm::{Clique, Device, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// let weights = gpucomm::nccl::alloc::<f32>(&stream, 1 << 20)?;
/// let registration = comm.register(&weights)?;
/// if let Some(reason) = registration.without_effect() {
///     println!("NCCL copies it all the same: {reason}");
/// }
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ncclCommRegister")]
pub struct Registration<'comm> {
    // Dropped before the communicator that it may keep.
    entry: Entry,
    _shared: Option<Arc<Communicator>>,
    _communicator: PhantomData<&'comm Communicator>,
}

/// What the communicator knows of it.
struct Entry {
    inner: Arc<Inner>,
    outcome: register::Outcome,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Ok(number) = self.outcome {
            self.inner.windows.drop_registration(number);
        }
    }
}

/// Memory of any origin.
impl Communicator {
    /// Wraps `ncclCommRegister`: registers the memory of a buffer, all of it, of which `memory` is any part.
    ///
    /// All ranks call it, among their collectives, each with a buffer of its own, of any length. From then on NCCL moves what lies there
    /// without copying it to buffers of its own first, in messages and in larger collectives of which *both* buffers are registered: less
    /// of the device is taken for that. Ranks do with registered memory what they do with windows: where one
    /// passes registered memory to an operation, all do, and to those that compare places (`all_reduce`, `all_gather`, `reduce_scatter`,
    /// `all_to_all`) what they have registered together, at the same element.
    ///
    /// NCCL only does so for memory that other ranks can reach: that of [`Communicator::alloc_local`], of
    /// [`nccl::alloc`](crate::nccl::alloc) and of [`cuda::vmm`](crate::cuda::vmm), and memory of others which was mapped as one (`cuMemMap`).
    /// With any other, of a pool of this crate among them, operations go on as before; [`Registration::without_effect`] says why. A window is registered already, and refused.
    ///
    /// An owner of memory of others must not own the communicator: that would not end then. Where a communicator is aborted, NCCL leaves
    /// memory that was used while it was registered mapped on the other ranks, so devices have less until the process ends.
    ///
    /// ```
    /// use gpucomm::{Clique, Device, Result, Stream};
    ///
    /// # let devices = match Device::all() { Ok(devices) => devices, Err(_) => return };
    /// # fn both(devices: &[Device]) -> Result<()> {
    /// Clique::init_all(devices)?.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     let send = comm.alloc_local::<f32>(&stream, 1 << 20)?;
    ///     let mut recv = comm.alloc_local::<f32>(&stream, comm.size() << 20)?;
    ///     let _registered = [comm.register(&send)?, comm.register(&recv)?];
    ///     comm.all_gather((&send, &mut recv), &stream)?;
    ///     stream.synchronize()
    /// })?;
    /// # Ok(())
    /// # }
    /// # both(&devices).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for memory of another device or of another communicator, for a window, and for a
    /// view of memory of others, which nobody keeps alive; [`InvalidUsage`](crate::Error::InvalidUsage) for memory that is registered
    /// already, within a [`group`](super::group) and within a host function; [`Disagreement`](crate::Error::Disagreement) where the ranks of a
    /// clique do something else, or ranks can reach the memory of some only; [`Timeout`](crate::Error::Timeout) where one does not come, or
    /// what uses memory that was dropped goes on; what NCCL says.
    #[doc(alias = "ncclCommRegister")]
    pub fn register<'a, T: Element>(&self, memory: impl AsSlice<'a, T>) -> Result<Registration<'_>> {
        const OPERATION: &str = "register";
        let outcomes = register::many(OPERATION, &[self.inner()], &[memory.into().region()])?;
        let outcome = outcomes.into_iter().next();
        outcome
            .map(|outcome| Registration::new(self.inner(), outcome))
            .ok_or_else(|| Error::argument(OPERATION, "ranks", "one", 0))
    }
}

impl Registration<'_> {
    /// What became of a registration with `inner`.
    pub(crate) fn new(inner: &Arc<Inner>, outcome: register::Outcome) -> Self {
        let entry = Entry { inner: Arc::clone(inner), outcome };
        Self { entry, _shared: None, _communicator: PhantomData }
    }

    /// Why NCCL copies this memory all the same; `None` where it has registered it. Whether it then copies in a certain operation, which
    /// may have a better way, NCCL does not tell.
    pub fn without_effect(&self) -> Option<&'static str> {
        self.entry.outcome.err()
    }

    /// The same registration, which keeps its communicator alive instead of borrowing it: for who puts both into one struct.
    ///
    /// ```
    /// # use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Stream};
    /// # use gpucomm::nccl::Registration;
    /// # use std::sync::Arc;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// struct Rank {
    ///     weights: DeviceBuffer<f32>,
    ///     registration: Registration<'static>,
    ///     comm: Arc<Communicator>,
    /// }
    ///
    /// fn rank(comm: Communicator) -> gpucomm::Result<Rank> {
    ///     let comm = Arc::new(comm);
    ///     let weights = gpucomm::nccl::alloc(&Stream::new(comm.device())?, 1 << 20)?;
    ///     let registration = comm.register(&weights)?.into_shared(&comm)?;
    ///     Ok(Rank { weights, registration, comm })
    /// }
    /// # std::thread::scope(|scope| {
    /// #     for comm in clique.into_ranks() {
    /// #         scope.spawn(|| rank(comm).map(drop));
    /// #     }
    /// # });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) where it is one of another communicator; it is dropped then.
    pub fn into_shared(self, communicator: &Arc<Communicator>) -> Result<Registration<'static>> {
        if self.entry.inner.id != communicator.inner().id {
            const EXPECTED: &str = "the communicator of the registration";
            return Err(Error::argument("into_shared", "communicator", EXPECTED, "another one"));
        }
        let shared = Some(Arc::clone(communicator));
        Ok(Registration { entry: self.entry, _shared: shared, _communicator: PhantomData })
    }
}

impl fmt::Debug for Registration<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inner, without_effect) = (&self.entry.inner, self.without_effect());
        f.debug_struct("Registration")
            .field("rank", &inner.rank)
            .field("device", &inner.device)
            .field("without_effect", &without_effect)
            .finish()
    }
}
