//! Windows over memory that there is.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::communicator::Communicator;
use super::memory::unsupported::Unsupported;
use super::memory::window;
use super::memory::window::Made;
use super::rank::inner::Inner;
#[cfg(nccl_ge_2_29)]
use super::raw::check;
use crate::cuda::AsSlice;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::sys;

/// Wraps `ncclWindow_t`: memory of a buffer, or of a part of one, that all ranks of a communicator show each other.
///
/// Made by [`Communicator::window`]; [`CommBuffer`](super::CommBuffer) is memory with a window of its own, and the easy way. It borrows the
/// communicator, and keeps the memory alive by itself: the buffer is used as before, written to as well, and may be dropped. Dropping this
/// waits for nothing, and takes nothing away: the window stays, and its memory alive, until all ranks come together next, see
/// [`Communicator::reclaim`]. Forgotten, it stays until the communicator ends.
///
/// ```
/// # use gpucomm::{Clique, Device, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let clique = Clique::init_all(&Device::all()?)?;
/// # clique.spmd(|comm| {
/// # let stream = Stream::new(comm.device())?;
/// let x = gpucomm::nccl::alloc::<f32>(&stream, 4096)?;
/// let window = comm.window(&x)?;
/// if window.unsupported().is_none() {
///     assert_eq!(window.bytes(), 4 * 4096);
///     // Of a rank of another length it is that.
///     assert_eq!(window.bytes_on(0), Some(4 * 4096));
///     assert!(window.as_raw().is_some());
/// }
/// # Ok(())
/// # })?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ncclWindow_t")]
pub struct Window<'comm> {
    // Dropped before the communicator that it may keep.
    entry: Entry,
    _shared: Option<Arc<Communicator>>,
    _communicator: PhantomData<&'comm Communicator>,
}

/// What the communicator knows of it.
struct Entry {
    inner: Arc<Inner>,
    made: Made,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Ok(number) = self.made.number {
            self.inner.windows.drop_registration(number);
        }
    }
}

/// Windows over memory of any origin that NCCL can show.
impl Communicator {
    /// Wraps `ncclCommWindowRegister` with `NCCL_WIN_COLL_SYMMETRIC`: a window over `memory`, which is a buffer or a part of one.
    ///
    /// All ranks call it, among their collectives, each with memory of its own: that of [`nccl::alloc`](crate::nccl::alloc), of
    /// [`Communicator::alloc_local`] or of [`cuda::vmm`](crate::cuda::vmm), made with [handles](crate::cuda::vmm::HandleTypes) to share it by. It begins at the
    /// same byte of what was mapped as one on all ranks, a multiple of 4096, and ends where a page does, or what was mapped. Since NCCL 2.30.7
    /// ranks of a [`Clique`](super::Clique) may pass different lengths; else these, and how much was mapped, are the same. What has windows before that
    /// over other parts of the same memory has them on all ranks.
    ///
    /// From then on operations on the memory are as those on a [`CommBuffer`](super::CommBuffer) that is a window: ranks pass the same one,
    /// at the same element. What an operation is given lies within the window, or outside of all.
    /// Several communicators may have windows over the same memory, each one at a time.
    ///
    /// What was enqueued before and uses the memory is waited for: other ranks may write there as soon as it is a window.
    ///
    /// Where the communicator has no windows, that is no error: [`Window::unsupported`] says why, and operations on the memory go on.
    ///
    /// An owner of memory of others must not own the communicator: that would not end then.
    ///
    /// ```
    /// use gpucomm::nccl::Unsupported;
    /// use gpucomm::{Clique, Device, InPlace, ReduceOp, Result, Stream};
    ///
    /// # let devices = match Device::all() { Ok(devices) => devices, Err(_) => return };
    /// # fn both(devices: &[Device]) -> Result<()> {
    /// Clique::init_all(devices)?.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     let mut x = gpucomm::nccl::alloc::<f32>(&stream, 4096)?;
    ///     let window = comm.window(x.slice(1024..))?;
    ///     match window.unsupported() {
    ///         None => assert_eq!(window.bytes(), 4 * 3072),
    ///         Some(Unsupported::KnownBug(name)) => println!("no window: {name}"),
    ///         Some(reason) => println!("no window: {reason}"),
    ///     }
    ///     comm.all_reduce(InPlace(x.slice_mut(1024..)), ReduceOp::Sum, &stream)?;
    ///     stream.synchronize()
    /// })?;
    /// # Ok(())
    /// # }
    /// # both(&devices).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for memory of another device or of another communicator, for a view of memory of
    /// others, which nobody keeps alive, and, on all ranks, for memory that NCCL makes no windows of, such as that of pools;
    /// [`InvalidUsage`](crate::Error::InvalidUsage) for memory that is a window, or registered, with this communicator already, within a
    /// [`group`](super::group) and within a host function; [`Disagreement`](crate::Error::Disagreement) where the ranks of a clique do
    /// something else, or their memory does not fit together; [`Timeout`](crate::Error::Timeout) where one does not come, or what uses memory that was
    /// dropped goes on; what NCCL says.
    #[doc(alias = "ncclCommWindowRegister")]
    pub fn window<'a, T: Element>(&self, memory: impl AsSlice<'a, T>) -> Result<Window<'_>> {
        const OPERATION: &str = "window";
        let made = window::many(OPERATION, &[self.inner()], &[memory.into().region()])?;
        let made = made.into_iter().next();
        made.map(|made| Window::new(self.inner(), made)).ok_or_else(|| Error::argument(OPERATION, "ranks", "one", 0))
    }
}

impl Window<'_> {
    /// What became of a window of `inner`.
    pub(crate) fn new(inner: &Arc<Inner>, made: Made) -> Self {
        Self { entry: Entry { inner: Arc::clone(inner), made }, _shared: None, _communicator: PhantomData }
    }

    /// Why there is no window; `None` where there is one. The same on all ranks.
    pub fn unsupported(&self) -> Option<Unsupported> {
        self.entry.made.number.err()
    }

    /// How many bytes it has on this rank.
    pub fn bytes(&self) -> usize {
        self.entry.made.bytes[self.entry.inner.rank]
    }

    /// How many bytes it has on `rank`, which were told when it was made; `None` where there is no such rank.
    pub fn bytes_on(&self, rank: usize) -> Option<usize> {
        self.entry.made.bytes.get(rank).copied()
    }

    /// The communicator that it is of.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn communicator(&self) -> u64 {
        self.entry.inner.id
    }

    /// Its number, or why there is none.
    #[cfg_attr(not(nccl_ge_2_29), allow(dead_code))]
    pub(crate) fn number(&self) -> std::result::Result<u64, Unsupported> {
        self.entry.made.number
    }

    /// Wraps `ncclWinGetUserPtr`: the address at which the memory begins; `None` where there is no window, and once the communicator has
    /// ended. What is done with it is not tracked.
    ///
    /// # Errors
    /// [`Unsupported`](crate::Error::Unsupported) with NCCL before 2.29.2; what NCCL says.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = match gpucomm::Device::new(0) { Ok(device) => device, Err(_) => return Ok(()) };
    /// # let (clique, stream) = (gpucomm::Clique::init_all(&[device])?, gpucomm::Stream::new(device)?);
    /// let memory = gpucomm::nccl::alloc::<u8>(&stream, 4096)?;
    /// let window = clique.rank(0).window(&memory)?;
    /// if let Ok(Some(address)) = window.user_ptr() {
    ///     assert_eq!(address, memory.as_raw());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclWinGetUserPtr")]
    #[cfg(nccl_ge_2_29)]
    pub fn user_ptr(&self) -> Result<Option<*mut std::ffi::c_void>> {
        const OPERATION: &str = "Window::user_ptr";
        crate::version::needs(OPERATION, crate::Version::new(2, 29, 2))?;
        let inner = &self.entry.inner;
        let (Ok(number), Ok((_guard, handle))) = (self.number(), inner.begin_call(OPERATION)) else { return Ok(None) };
        let Some(window) = inner.windows.window(number) else { return Ok(None) };
        let mut address = std::ptr::null_mut();
        let result = inner.inside(OPERATION, || {
            // SAFETY: a live communicator during a visit, a window of its own, and a place for the address.
            unsafe { sys::ncclWinGetUserPtr(handle, window, &raw mut address) }
        })?;
        check::check("ncclWinGetUserPtr", result).map(|()| Some(address))
    }

    /// The `ncclWindow_t`; `None` where there is none, and once the communicator has ended. What is done with it is not tracked.
    pub fn as_raw(&self) -> Option<sys::ncclWindow_t> {
        let (_guard, _handle) = self.entry.inner.begin_call("Window::as_raw").ok()?;
        self.entry.inner.windows.window(self.entry.made.number.ok()?)
    }

    /// The same window, which keeps its communicator alive instead of borrowing it: for who puts both into one struct.
    ///
    /// ```
    /// # use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Stream};
    /// # use gpucomm::nccl::Window;
    /// # use std::sync::Arc;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// struct Rank {
    ///     weights: DeviceBuffer<f32>,
    ///     window: Window<'static>,
    ///     comm: Arc<Communicator>,
    /// }
    ///
    /// fn rank(comm: Communicator) -> gpucomm::Result<Rank> {
    ///     let comm = Arc::new(comm);
    ///     let weights = gpucomm::nccl::alloc(&Stream::new(comm.device())?, 4096)?;
    ///     let window = comm.window(&weights)?.into_shared(&comm)?;
    ///     Ok(Rank { weights, window, comm })
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
    pub fn into_shared(self, communicator: &Arc<Communicator>) -> Result<Window<'static>> {
        if self.entry.inner.id != communicator.inner().id {
            const EXPECTED: &str = "the communicator of the window";
            return Err(Error::argument("Window::into_shared", "communicator", EXPECTED, "another one"));
        }
        let shared = Some(Arc::clone(communicator));
        Ok(Window { entry: self.entry, _shared: shared, _communicator: PhantomData })
    }
}

impl fmt::Debug for Window<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.entry.inner;
        f.debug_struct("Window")
            .field("rank", &inner.rank)
            .field("device", &inner.device)
            .field("bytes", &self.entry.made.bytes)
            .field("unsupported", &self.unsupported())
            .finish()
    }
}
