//! One-sided operations: a rank writes to memory of another, and tells it so.

use std::marker::PhantomData;

use super::calls::buffers::Buffer;
use super::calls::site::Site;
use super::clique::Clique;
use super::comm_buffer::CommBuffer;
use super::communicator::Communicator;
use super::enqueue::one_sided;
use super::enqueue::one_sided::{Put, What};
use super::memory::kind::MemoryKind;
use super::memory::signals;
use super::rank::another::{Foreign, foreign};
use super::rank::inner::Inner;
use super::window::Window;
use crate::cuda::{AsSlice, AsSliceMut, Region, Slice, Stream};
use crate::element::{self, Element, ElementKind};
use crate::error::{Error, Result};
use crate::nccl::validate::element_type::Type;

/// Where in the windows of other ranks a [put](Communicator::put_signal) goes: at an element of a window of which each rank has a part.
#[derive(Debug, Clone, Copy)]
pub struct WindowRange<'a, T: Element> {
    over: Over<'a>,
    _element: PhantomData<T>,
}

#[derive(Debug, Clone, Copy)]
enum Over<'a> {
    /// So many bytes behind its start.
    Window(&'a Window<'a>, usize),
    /// From an address of this rank on, of so many bytes on every rank; and whether they have allocated that together, as a window.
    Buffer(Region<'a>, bool),
}

/// What is known of a target: the number of the window, bytes from its start, and those of this rank's part and a peer's.
pub(super) struct Found {
    pub(super) window: u64,
    pub(super) offset: usize,
    pub(super) own: usize,
    pub(super) theirs: usize,
}

impl Window<'_> {
    /// The place `offset` elements behind the start, on whatever rank: for [`Communicator::put_signal`].
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Clique, Device, Stream};
    ///
    /// # let devices = match Device::all() { Ok(devices) => devices, Err(_) => return Ok(()) };
    /// let clique = Clique::init_all(&devices)?;
    /// clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     let before = (comm.rank() + comm.size() - 1) % comm.size();
    ///     let mine = comm.alloc_from(&stream, &[comm.rank() as f64; 3])?;
    ///     let mut theirs = gpucomm::nccl::alloc::<f64>(&stream, 512)?;
    ///     let window = comm.window(&theirs)?;
    ///     if window.unsupported().is_some() || comm.prepare_one_sided(&stream).is_err() {
    ///         return Ok(());
    ///     }
    ///     comm.put_signal(&mine, (comm.rank() + 1) % comm.size(), window.at(100), &stream)?;
    ///     comm.wait_signal_for(&[(before, 1)], &mut theirs, &stream)?;
    ///     assert_eq!(theirs.slice(99..103).to_vec(&stream)?[1..], [before as f64; 3]);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn at<T: Element>(&self, offset: usize) -> WindowRange<'_, T> {
        WindowRange { over: Over::Window(self, offset.saturating_mul(size_of::<T>())), _element: PhantomData }
    }
}

impl<T: Element, K: MemoryKind> CommBuffer<'_, T, K> {
    /// The place `offset` elements behind the start, in the buffers that other ranks have allocated with this one: for
    /// [`Communicator::put_signal`], where there is an example.
    ///
    /// # Panics
    /// Where `offset` is greater than the length.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = match gpucomm::Device::new(0) { Ok(device) => device, Err(_) => return Ok(()) };
    /// # let (clique, stream) = (gpucomm::Clique::init_all(&[device])?, gpucomm::Stream::new(device)?);
    /// # let comm = clique.rank(0);
    /// let buffer = comm.alloc_from(&stream, &[1u8, 2, 3, 4])?;
    /// if buffer.is_window() && comm.prepare_one_sided(&stream).is_ok() {
    ///     // To itself.
    ///     comm.put_signal(buffer.slice(..2), 0, gpucomm::CommBuffer::at(&buffer, 2), &stream)?;
    ///     comm.wait_signal(&[(0, 1)], &stream)?;
    ///     assert_eq!(buffer.to_vec(&stream)?, [1, 2, 1, 2]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn at(&self, offset: usize) -> WindowRange<'_, T> {
        WindowRange { over: Over::Buffer(self.slice(offset..).region(), self.is_window()), _element: PhantomData }
    }
}

impl<T: Element> WindowRange<'_, T> {
    pub(super) fn find(&self, operation: &'static str, inner: &Inner, peer: usize) -> Result<Found> {
        let wrong = |got: &dyn std::fmt::Display| {
            Err(Error::argument(operation, "target", format_args!("a window of communicator {}", inner.name), got))
        };
        let of_another = |owner: u64, found: &str| {
            let Foreign { expected, got, own } = foreign(inner, owner, "a window", found);
            Err(Error::argument(operation, "target", expected, format_args!("{got}; make it of {own}")))
        };
        match self.over {
            Over::Window(window, offset) => {
                if window.communicator() != inner.id {
                    return of_another(window.communicator(), "one");
                }
                let number = match window.number() {
                    Ok(number) => number,
                    Err(reason) => {
                        let needs = format!("a window of NCCL over the target, and there is none: {reason}");
                        return Err(Error::Unsupported { operation, needs });
                    }
                };
                let (own, theirs) = (window.bytes(), window.bytes_on(peer).unwrap_or(0));
                Ok(Found { window: number, offset, own, theirs })
            }
            Over::Buffer(region, is_window) => {
                if region.alloc.owner() != inner.id {
                    return match region.alloc.owner() {
                        0 => wrong(&"a buffer that is no window"),
                        owner => of_another(owner, "a buffer"),
                    };
                }
                // Of an empty rest, whose address is that of nothing, or of something else.
                let base = Region { address: region.alloc.address(), ..region };
                let (window, _) = inner.windows.place(&base);
                // One that this rank has made over a part of its memory says nothing of what the others have there.
                if !is_window || !inner.windows.is_window(&base) {
                    return wrong(&"a buffer that is no window");
                }
                let (offset, bytes) = (region.ptr().addr() - base.ptr().addr(), region.alloc.bytes());
                Ok(Found { window, offset, own: bytes, theirs: bytes })
            }
        }
    }
}

/// # One-sided operations
///
/// They are of NCCL 2.29 and newer.
///
/// A rank puts elements into the window of another, on a stream of its own, and the other rank takes no part in that: it has a signal,
/// for which it waits, on a stream or before it reads.
///
/// Puts and signals from one rank to another arrive in the order in which they were enqueued, on whatever streams. Nothing else is
/// ordered: what is put while the other rank uses that memory has unspecified values, as has what that rank does with it. So let it be told,
/// by a signal the other way, when it may be written to again. Signals are counted: who waits for three waits for the third since those it
/// has waited for before.
///
/// NCCL does what is enqueued on a communicator one after the other, on whatever streams: who waits for a signal keeps back its own puts,
/// signals and collectives that come after. So ranks that each wait for the other before they give a signal wait for ever.
///
/// An abort ends a wait whose signal never comes only as far as CUDA lets go of it: NCCL has the device itself wait for a value in memory. Such
/// a stream may stay where it is, until the process ends; what waits for it gets a timeout.
///
/// They are no part of [groups](super::group), nor of captures. Kernels that call NCCL are not in this crate.
impl Communicator {
    /// Wraps `ncclSignal` and `ncclWaitSignal`, from each rank to itself: the first one-sided operation, in which NCCL has all ranks meet.
    ///
    /// All ranks call it, among their collectives, before they use the others; once is enough, and later calls do nothing.
    ///
    /// # Errors
    /// [`Unsupported`](crate::Error::Unsupported) with NCCL before 2.29.2, and on all ranks where the devices cannot map each other's memory;
    /// otherwise as [`Communicator::reclaim`].
    #[doc(alias("ncclSignal", "ncclWaitSignal"))]
    pub fn prepare_one_sided(&self, stream: &Stream) -> Result<()> {
        signals::prepare("prepare_one_sided", &[self.inner()], &[stream])
    }

    /// Wraps `ncclPutSignal`: writes the elements of `local` to rank `peer`, at `target`, and gives it a signal. Returns at once.
    ///
    /// `local` lies in a window of this communicator as well. It may be written to again when `stream` has come so far.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Clique, Device, Stream};
    ///
    /// # let devices = match Device::all() { Ok(devices) => devices, Err(_) => return Ok(()) };
    /// let clique = Clique::init_all(&devices)?;
    /// clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     let (next, before) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
    ///     let mine = comm.alloc_from(&stream, &[comm.rank() as u32; 100])?;
    ///     let mut theirs = comm.alloc::<u32>(&stream, 100)?;
    ///     if !theirs.is_window() || comm.prepare_one_sided(&stream).is_err() {
    ///         return Ok(()); // This NCCL has none.
    ///     }
    ///     comm.put_signal(&mine, next, theirs.at(0), &stream)?;
    ///     comm.wait_signal_for(&[(before, 1)], &mut theirs, &stream)?;
    ///     assert_eq!(theirs.to_vec(&stream)?, [before as u32; 100]);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) where `local` or `target` is in no window of this communicator, or the elements do
    /// not fit into what `peer` has of it, or begin behind what this rank has, where NCCL looks; where a rank puts to itself, over what it puts; for a rank that there is not;
    /// [`InvalidUsage`](crate::Error::InvalidUsage) before [`Communicator::prepare_one_sided`] and within a group; those of operations.
    #[doc(alias = "ncclPutSignal")]
    pub fn put_signal<'a, T: Element>(
        &self,
        local: impl AsSlice<'a, T>,
        peer: usize,
        target: WindowRange<'_, T>,
        stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "put_signal";
        let local: Slice<'_, T> = local.into();
        let (inner, len) = (self.inner(), local.len());
        let site = Site::new(OPERATION, inner, stream)?;
        inner.check_rank(OPERATION, "peer", peer)?;
        let found = target.find(OPERATION, inner, peer)?;
        let local = site.read(Buffer::from(local))?;
        if len == 0 {
            return one_sided::one(site, &What::Signal(peer));
        }
        if !inner.windows.is_window(&local) {
            let expected = format!("memory in a window of communicator {}", inner.name);
            return Err(Error::argument(OPERATION, "local", expected, "memory outside of all"));
        }
        let room = found.theirs.saturating_sub(found.offset) / size_of::<T>();
        if room < len {
            let expected = format!("at most {room} elements, which rank {peer} has there");
            return Err(Error::argument(OPERATION, "local", expected, format!("{len} elements")));
        }
        // Of a long put that of each piece.
        let last = found.offset + (local.bytes - 1) / one_sided::CHUNK * one_sided::CHUNK;
        if last >= found.own {
            let expected = format!(
                "a place below the {} bytes that this rank has of the window, where NCCL looks for it",
                found.own
            );
            return Err(Error::argument(OPERATION, "target", expected, format!("byte {last}")));
        }
        let (window, begin) = inner.windows.place(&local);
        let (end, bytes) = (begin + local.bytes, found.offset..found.offset + local.bytes);
        if peer == inner.rank && window == found.window && begin < bytes.end && bytes.start < end {
            let expected = format!("a place outside of bytes {begin} to {end} of the window, which are put");
            return Err(Error::argument(
                OPERATION,
                "target",
                expected,
                format!("bytes {} to {}", bytes.start, bytes.end),
            ));
        }
        let carried = element::kind::<T>().map_or((ElementKind::U8, len * size_of::<T>()), |kind| (kind, len));
        let put =
            Put { local, of: Type::of::<T>(), elements: len, carried, window: found.window, offset: found.offset };
        one_sided::one(site, &What::Put(peer, put))
    }

    /// Wraps `ncclSignal`: gives rank `peer` a signal, after the puts and signals to it before. Returns at once.
    ///
    /// # Errors
    /// As [`Communicator::put_signal`].
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Clique, Device, Stream};
    ///
    /// # let devices = match Device::all() { Ok(devices) => devices, Err(_) => return Ok(()) };
    /// let clique = Clique::init_all(&devices)?;
    /// clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     if comm.prepare_one_sided(&stream).is_err() {
    ///         return Ok(()); // This NCCL has none.
    ///     }
    ///     // Rank 0 goes on when all others have told it.
    ///     if comm.rank() > 0 {
    ///         comm.signal(0, &stream)?;
    ///     } else if comm.size() > 1 {
    ///         let all: Vec<_> = (1..comm.size()).map(|rank| (rank, 1)).collect();
    ///         comm.wait_signal(&all, &stream)?;
    ///     }
    ///     stream.synchronize()
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ncclSignal")]
    pub fn signal(&self, peer: usize, stream: &Stream) -> Result<()> {
        const OPERATION: &str = "signal";
        let site = Site::new(OPERATION, self.inner(), stream)?;
        self.inner().check_rank(OPERATION, "peer", peer)?;
        one_sided::one(site, &What::Signal(peer))
    }

    /// Wraps `ncclWaitSignal`: what is enqueued on `stream` from now on begins when so many signals of each of these ranks have come, since
    /// those that were waited for before, and what was put with them is there. Returns at once.
    ///
    /// It orders `stream` alone. What was put, other streams find only behind an event of this one; better name the memory that it went to,
    /// see [`Communicator::wait_signal_for`].
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for a rank that there is not, and for no signals; otherwise as
    /// [`Communicator::put_signal`].
    #[doc(alias = "ncclWaitSignal")]
    pub fn wait_signal(&self, signals: &[(usize, usize)], stream: &Stream) -> Result<()> {
        const OPERATION: &str = "wait_signal";
        let site = Site::new(OPERATION, self.inner(), stream)?;
        wait(site, signals, None)
    }

    /// Wraps `ncclWaitSignal`: like [`Communicator::wait_signal`], for signals of what was put into `memory`: whatever uses that later, on
    /// whatever stream, comes after them.
    ///
    /// What was enqueued before on other streams is not waited for: other ranks write there when they do.
    ///
    /// # Errors
    /// As [`Communicator::wait_signal`], and [`InvalidArgument`](crate::Error::InvalidArgument) for memory in no window of this communicator.
    #[doc(alias = "ncclWaitSignal")]
    pub fn wait_signal_for<'a, T: Element>(
        &self,
        signals: &[(usize, usize)],
        memory: impl AsSliceMut<'a, T>,
        stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "wait_signal_for";
        let site = Site::new(OPERATION, self.inner(), stream)?;
        let memory = site.write(Buffer::from(memory.into()))?;
        if memory.bytes > 0 && !self.inner().windows.is_window(&memory) {
            let expected = format!("memory in a window of communicator {}", self.inner().name);
            return Err(Error::argument(OPERATION, "memory", expected, "memory outside of all"));
        }
        wait(site, signals, Some(memory))
    }
}

fn wait(site: Site<'_>, signals: &[(usize, usize)], memory: Option<Region<'_>>) -> Result<()> {
    for &(peer, count) in signals {
        site.comm.check_rank(site.operation, "signals", peer)?;
        if !(1..=i32::MAX as usize).contains(&count) {
            let expected = format!("1 to {} signals of each rank", i32::MAX);
            return Err(Error::argument(site.operation, "signals", expected, count));
        }
    }
    if signals.is_empty() {
        return Err(Error::argument(site.operation, "signals", "those of one rank or more", "none"));
    }
    one_sided::one(site, &What::Wait(signals, memory))
}

impl Clique {
    /// Wraps `ncclSignal` and `ncclWaitSignal`: [`Communicator::prepare_one_sided`] of all ranks, for one thread that drives them; rank `r` on
    /// `streams[r]`.
    ///
    /// # Errors
    /// As there; [`Error::InvalidArgument`] where there is not one stream a rank.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Clique, Device, Result, Stream};
    ///
    /// # let devices = match Device::all() { Ok(devices) => devices, Err(_) => return Ok(()) };
    /// let clique = Clique::init_all(&devices)?;
    /// let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device)).collect::<Result<_>>()?;
    /// if let Err(error) = clique.prepare_one_sided(&streams) {
    ///     println!("no one-sided operations: {error}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ncclSignal", "ncclWaitSignal"))]
    pub fn prepare_one_sided(&self, streams: &[Stream]) -> Result<()> {
        const OPERATION: &str = "Clique::prepare_one_sided";
        if streams.len() != self.size() {
            let (expected, got) =
                (format!("{} streams, one a rank", self.size()), format!("{} streams", streams.len()));
            return Err(Error::argument(OPERATION, "streams", expected, got));
        }
        let members: Vec<_> = self.ranks().iter().map(Communicator::inner).collect();
        signals::prepare(OPERATION, &members, &streams.iter().collect::<Vec<_>>())
    }
}
