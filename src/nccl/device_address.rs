//! Where kernels of a rank reach the windows of other ranks.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};

use super::communicator::Communicator;
use super::one_sided::{Found, WindowRange};
use super::rank::inner::Inner;
use super::raw::check::check;
use super::raw::outside::outside_of_host_functions;
use crate::cuda::multicast::{McPtr, Of};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::sys;
use crate::version::{self, Version};

/// The first version that tells addresses.
const FIRST: Version = Version::new(2, 29, 2);

/// An address by which kernels on the device of one rank reach memory of a window, of that rank or another one.
///
/// It is a number to the host, which neither reads nor writes there. It borrows nothing: it is good as long as the window is there on all ranks, and
/// what is done with it is not tracked, nor put in order with anything.
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// # let device = match gpucomm::Device::new(0) { Ok(device) => device, Err(_) => return Ok(()) };
/// # let (clique, stream) = (gpucomm::Clique::init_all(&[device])?, gpucomm::Stream::new(device)?);
/// # let comm = clique.rank(0);
/// let x = comm.alloc_from(&stream, &[1f32, 2.0, 3.0])?;
/// match comm.peer_address(gpucomm::CommBuffer::at(&x, 1), 0) {
///     // An argument of a kernel.
///     Ok(address) => println!("{:p}", address.as_raw()),
///     Err(error) => println!("there is none: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceAddress(NonNull<c_void>);

// SAFETY: a number, which nothing here follows.
unsafe impl Send for DeviceAddress {}
// SAFETY: as above.
unsafe impl Sync for DeviceAddress {}

impl DeviceAddress {
    /// As C has it; never null.
    pub fn as_raw(self) -> *mut c_void {
        self.0.as_ptr()
    }
}

impl fmt::Debug for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceAddress({:p})", self.0)
    }
}

/// Where kernels reach windows.
impl Communicator {
    /// Wraps `ncclGetPeerDevicePointer`, which `nccl_device.h` declares: where kernels of this rank reach `target` on rank `peer`, which maps its memory for
    /// this one. Nobody else has to call it.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = gpucomm::Clique::init_all(&gpucomm::Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = gpucomm::Stream::new(comm.device())?;
    /// let x = gpucomm::nccl::alloc::<f32>(&stream, 4096)?;
    /// let window = comm.window(&x)?;
    /// // Where each rank has its 100th element, for a kernel that reads all of them.
    /// let all = (0..comm.size()).map(|peer| comm.peer_address(window.at::<f32>(100), peer));
    /// match all.collect::<gpucomm::Result<Vec<_>>>() {
    ///     Ok(all) => assert_eq!(all.len(), comm.size()),
    ///     Err(error) => println!("kernels do not reach it: {error}"),
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::Error::Unsupported) with NCCL before 2.29.2, and where this rank does not reach the memory of `peer`, as on another host;
    /// [`InvalidArgument`](crate::Error::InvalidArgument) where `target` is no window of this communicator, or lies behind the end of that of this rank
    /// or of `peer`, and where there is no rank `peer`; [`InvalidUsage`](crate::Error::InvalidUsage) within a host function; why the communicator
    /// has ended; what NCCL says.
    #[doc(alias = "ncclGetPeerDevicePointer")]
    pub fn peer_address<T: Element>(&self, target: WindowRange<'_, T>, peer: usize) -> Result<DeviceAddress> {
        const OPERATION: &str = "peer_address";
        let inner = self.inner();
        begin(OPERATION)?;
        inner.check_rank(OPERATION, "peer", peer)?;
        let found = target.find(OPERATION, inner, peer)?;
        within(OPERATION, &found, size_of::<T>(), found.own.min(found.theirs))?;
        // SAFETY: a live window of this communicator, during a visit, a place within it, and a place for the answer.
        let address = ask(OPERATION, "ncclGetPeerDevicePointer", inner, found.window, |window, place| unsafe {
            sys::gpucommNcclPeerPointer(window, found.offset, peer as c_int, place)
        })?;
        reached(OPERATION, address, || format!("rank {peer} to be one whose memory rank {} maps", inner.rank))
    }

    /// Wraps `ncclGetLsaDevicePointer`, which `nccl_device.h` declares: as [`Communicator::peer_address`], by the number that a rank has among those
    /// that map each other's memory, the LSA team of this rank. Where all do ([`CommProperties::lsa_teams`](super::CommProperties::lsa_teams) is 1), that is its rank.
    /// What is not looked at here is how long the window of that rank is: where ranks have windows of different lengths, which NCCL takes since 2.30.7,
    /// the address may lie behind its end.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = match gpucomm::Device::new(0) { Ok(device) => device, Err(_) => return Ok(()) };
    /// # let (clique, stream) = (gpucomm::Clique::init_all(&[device])?, gpucomm::Stream::new(device)?);
    /// # let comm = clique.rank(0);
    /// let x = comm.alloc_from(&stream, &[1u8; 64])?;
    /// if let Ok(address) = comm.lsa_address(gpucomm::CommBuffer::at(&x, 0), 0) {
    ///     assert_eq!(comm.peer_address(gpucomm::CommBuffer::at(&x, 0), 0)?, address);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::peer_address`]; NCCL says [`Nccl`](crate::Error::Nccl) to a number that no rank of the team has.
    #[doc(alias = "ncclGetLsaDevicePointer")]
    pub fn lsa_address<T: Element>(&self, target: WindowRange<'_, T>, lsa_rank: usize) -> Result<DeviceAddress> {
        const OPERATION: &str = "lsa_address";
        let inner = self.inner();
        begin(OPERATION)?;
        inner.check_rank(OPERATION, "lsa_rank", lsa_rank)?;
        let found = target.find(OPERATION, inner, inner.rank)?;
        within(OPERATION, &found, size_of::<T>(), found.own)?;
        // SAFETY: as in `peer_address`; NCCL looks whether there is such a rank.
        let address = ask(OPERATION, "ncclGetLsaDevicePointer", inner, found.window, |window, place| unsafe {
            sys::gpucommNcclLsaPointer(window, found.offset, lsa_rank as c_int, place)
        })?;
        reached(OPERATION, address, || format!("number {lsa_rank} to be that of a rank which maps its memory"))
    }

    /// Wraps `ncclGetLsaMultimemDevicePointer`, which `nccl_device.h` declares: where kernels of this rank reach `target` on all ranks that map each other's
    /// memory at once, through the switches between them, which multiply what is written there and reduce what is read. The other function of that kind,
    /// `ncclGetMultimemDevicePointer`, takes a handle that only the interface for kernels makes, and is left to code that uses that.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// # let clique = gpucomm::Clique::init_all(&gpucomm::Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = gpucomm::Stream::new(comm.device())?;
    /// let x = comm.alloc::<f32>(&stream, 1024)?;
    /// if comm.properties().is_ok_and(|properties| properties.multimem) && x.is_window() {
    ///     // SAFETY: all ranks run this program, and each has a thread of its own.
    ///     let address = unsafe { comm.multimem_address(gpucomm::CommBuffer::at(&x, 0))? };
    ///     println!("{address:?}");
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::peer_address`]; [`Unsupported`](crate::Error::Unsupported) where there are no such switches, or NVLink SHARP is off.
    ///
    /// # Safety
    /// When it is called first, NCCL makes a multicast object together with the other ranks of the team, and talks to them without saying about what. So all of
    /// them call it, each on a thread of its own, in the same place among all else that they do on this communicator. Where one does not, the
    /// others wait inside NCCL.
    #[doc(alias = "ncclGetLsaMultimemDevicePointer")]
    pub unsafe fn multimem_address<T: Element>(&self, target: WindowRange<'_, T>) -> Result<DeviceAddress> {
        const OPERATION: &str = "multimem_address";
        let inner = self.inner();
        begin(OPERATION)?;
        let found = target.find(OPERATION, inner, inner.rank)?;
        within(OPERATION, &found, size_of::<T>(), found.own)?;
        // SAFETY: as in `peer_address`; that the others call it too the caller promises.
        let address = ask(OPERATION, "ncclGetLsaMultimemDevicePointer", inner, found.window, |window, place| unsafe {
            sys::gpucommNcclMultimemPointer(window, found.offset, place)
        })?;
        reached(OPERATION, address, || "switches that reduce and multiply, and NVLink SHARP to be on".to_owned())
    }
}

/// Where kernels reach windows of several ranks at once.
impl Communicator {
    /// Wraps `ncclGetLsaMultimemDevicePointer`, as [`Communicator::multimem_address`]: `len` elements from `target` on as what
    /// [multicast](crate::cuda::multicast) gives. Of a launch that it is lent to, nothing is known by it: the memory is lent beside it.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// # let clique = gpucomm::Clique::init_all(&gpucomm::Device::all()?)?;
    /// # clique.spmd(|comm| {
    /// # let stream = gpucomm::Stream::new(comm.device())?;
    /// let x = comm.alloc::<f32>(&stream, 1024)?;
    /// if comm.properties().is_ok_and(|properties| properties.multimem) && x.is_window() {
    ///     // SAFETY: all ranks run this program, and each has a thread of its own.
    ///     let all = unsafe { comm.multimem_ptr(gpucomm::CommBuffer::at(&x, 0), x.len())? };
    ///     println!("{all:?}");
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there; [`InvalidArgument`](crate::Error::InvalidArgument) where so many elements do not lie within the window.
    ///
    /// # Safety
    /// As there.
    #[doc(alias = "ncclGetLsaMultimemDevicePointer")]
    pub unsafe fn multimem_ptr<'t, T: Element>(&self, target: WindowRange<'t, T>, len: usize) -> Result<McPtr<'t, T>> {
        const OPERATION: &str = "multimem_ptr";
        begin(OPERATION)?;
        let found = target.find(OPERATION, self.inner(), self.inner().rank)?;
        within(OPERATION, &found, len.saturating_mul(size_of::<T>()), found.own)?;
        // SAFETY: as the caller promises.
        let address = unsafe { self.multimem_address(target) }?;
        Ok(McPtr::of(address.as_raw(), len, Of::Others))
    }
}

fn begin(operation: &'static str) -> Result<()> {
    outside_of_host_functions(operation)?;
    version::needs(operation, FIRST)
}

/// Refuses an element that does not lie in so many bytes of a window.
fn within(operation: &'static str, found: &Found, size: usize, bytes: usize) -> Result<()> {
    // NCCL takes no address behind the last byte, of elements without any as well.
    let end = found.offset.saturating_add(size.max(1));
    if end <= bytes {
        return Ok(());
    }
    let expected = format!("an element within the {bytes} bytes that this rank and that one have there");
    Err(Error::argument(operation, "target", expected, format!("bytes {} to {end}", found.offset)))
}

/// Asks for an address of window `number` of `inner` by `call`, which is made during a visit, with the window and a place for the answer.
fn ask(
    operation: &'static str,
    function: &'static str,
    inner: &Inner,
    number: u64,
    call: impl FnOnce(sys::ncclWindow_t, *mut *mut c_void) -> sys::ncclResult_t,
) -> Result<*mut c_void> {
    let (_guard, _handle) = inner.begin_call(operation)?;
    let Some(window) = inner.windows.window(number) else {
        return Err(Error::argument(
            operation,
            "target",
            format_args!("a window of communicator {}", inner.name),
            "one that has gone",
        ));
    };
    let mut address = ptr::null_mut();
    let result = inner.inside(operation, || call(window, &raw mut address))?;
    check(function, result).map(|()| address)
}

fn reached(operation: &'static str, address: *mut c_void, needs: impl FnOnce() -> String) -> Result<DeviceAddress> {
    NonNull::new(address).map(DeviceAddress).ok_or_else(|| Error::Unsupported { operation, needs: needs() })
}
