//! The id by which PEs find each other.

use std::fmt;

use super::once;
use crate::cuda::outside_host_functions;
use crate::error::Result;
use crate::exchange::Exchange;
use crate::nvshmem::state::code::check;
use crate::nvshmem::state::environment;
use crate::{sys, version};

/// An id for one start of NVSHMEM: made on one PE, sent to all the others by any means, and used once.
///
/// 128 bytes that mean something to NVSHMEM only.
///
/// ```
/// # use gpucomm::nvshmem::ContextUniqueId;
/// # fn main() -> gpucomm::Result<()> {
/// let id = ContextUniqueId::new()?;
/// // The bytes go to the other PEs, by any means.
/// let bytes = *id.as_bytes();
/// assert_eq!(ContextUniqueId::from_bytes(bytes), id);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContextUniqueId {
    bytes: [u8; Self::BYTES],
}

const OPERATION: &str = "nvshmem::ContextUniqueId::new";

impl ContextUniqueId {
    /// Bytes of an id.
    pub const BYTES: usize = 128;

    /// Wraps `nvshmemx_get_uniqueid`: a new id. Needs no GPU.
    ///
    /// The calling process answers the other PEs while they start, so it must live until they have.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`](crate::Error::InvalidUsage) while a context is there or starts in this process, after one that did not end well or has its PEs from an
    /// [environment](crate::nvshmem::ContextOptions::with_environment), after an id that could not be made, while somebody else runs the library, and if a variable of NVSHMEM holds a value with which the library crashes: it reads its variables once, for the first id or start; [`Error::LibraryTooOld`](crate::Error::LibraryTooOld); [`Error::Nvshmem`](crate::Error::Nvshmem), where the plug-in of the library that makes it is not to be found, for example.
    #[doc(alias = "nvshmemx_get_uniqueid")]
    pub fn new() -> Result<Self> {
        outside_host_functions(OPERATION)?;
        once::beside_no_context(OPERATION, Self::make)
    }

    fn make() -> Result<Self> {
        version::check_nvshmem()?;
        environment::check(OPERATION)?;
        environment::record();
        let mut id = Self::empty();
        // SAFETY: `id` is a place for one id, and states its version.
        let made = check("nvshmemx_get_uniqueid", unsafe { sys::nvshmemx_get_uniqueid(&mut id) });
        // The library has closed its plug-in, and would go on with it all the same.
        made.inspect_err(|_| once::spoilt())?;
        // SAFETY: both are 128 bytes without padding, and every byte is a value.
        let bytes = unsafe { std::mem::transmute::<sys::nvshmemx_uniqueid_t, [u8; Self::BYTES]>(id) };
        Ok(Self { bytes })
    }

    /// Returns an id that all ranks of an exchange share: rank 0 makes it, and the others receive it.
    ///
    /// ```
    /// use gpucomm::Device;
    /// use gpucomm::exchange::{Exchange, Threads};
    /// use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// // A single rank. `Launch::join` returns the exchange of all ranks that a launcher has started.
    /// let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// let id = ContextUniqueId::shared(&exchange)?;
    /// let options = ContextOptions::new().with_device(Device::new(0)?).with_unique_id(&id, exchange.rank(), exchange.size());
    /// // SAFETY: all PEs run this program.
    /// let ctx = unsafe { Context::init(&options)? };
    /// assert_eq!(ctx.n_pes(), exchange.size());
    /// ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`ContextUniqueId::new`], and as [`Exchange::broadcast`].
    pub fn shared(exchange: &Exchange) -> Result<Self> {
        Self::shared_of(exchange, Self::new)
    }

    /// The same for a start, beside which nobody else makes one.
    pub(super) fn shared_for_start(exchange: &Exchange) -> Result<Self> {
        Self::shared_of(exchange, Self::make)
    }

    fn shared_of(exchange: &Exchange, make: fn() -> Result<Self>) -> Result<Self> {
        exchange.share_id("nvshmem::ContextUniqueId::shared", || Ok(make()?.bytes)).map(Self::from_bytes)
    }

    /// An id that another PE sent.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self { bytes }
    }

    /// The bytes, for the other PEs.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.bytes
    }

    /// As the library has it.
    pub(crate) fn raw(&self) -> sys::nvshmemx_uniqueid_t {
        // SAFETY: both are 128 bytes without padding, and every byte is a value.
        unsafe { std::mem::transmute::<[u8; Self::BYTES], sys::nvshmemx_uniqueid_t>(self.bytes) }
    }

    /// What the library is given to be filled.
    fn empty() -> sys::nvshmemx_uniqueid_t {
        let mut id = std::mem::MaybeUninit::zeroed();
        // SAFETY: `id` is a place for one id, all of whose bytes are set.
        unsafe {
            sys::gpucommNvshmemUniqueIdInit(id.as_mut_ptr());
            id.assume_init()
        }
    }
}

impl fmt::Debug for ContextUniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContextUniqueId(..)")
    }
}
