//! The id by which the ranks of a new communicator find each other.

use std::ffi::c_char;
use std::fmt;

use super::{begun, environment};
use crate::error::Result;
use crate::exchange::Exchange;
use crate::nccl::raw::check::check;
use crate::nccl::raw::outside::outside_of_host_functions;
use crate::{sys, version};

/// An id for one communicator: made on one rank, sent to all the others by any means, and used once.
///
/// 128 bytes that mean something to NCCL only.
///
/// ```
/// # use gpucomm::UniqueId;
/// # fn main() -> gpucomm::Result<()> {
/// let id = UniqueId::new()?;
/// // The bytes go to the other ranks, by any means.
/// let bytes = *id.as_bytes();
/// assert_eq!(UniqueId::from_bytes(bytes), id);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias("ncclUniqueId", "NcclUniqueId"))]
pub struct UniqueId {
    bytes: [u8; Self::BYTES],
}

impl UniqueId {
    /// Bytes of an id.
    pub const BYTES: usize = 128;

    /// Wraps `ncclGetUniqueId`: a new id. Needs no GPU.
    ///
    /// The calling process answers the other ranks while they start, so it must live until the communicator exists.
    ///
    /// ```
    /// # use gpucomm::UniqueId;
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// // One rank makes it, and tells the others.
    /// let mut bytes = [0; UniqueId::BYTES];
    /// if exchange.rank() == 0 {
    ///     bytes = *UniqueId::new()?.as_bytes();
    /// }
    /// let told = exchange.broadcast(&bytes, 0)?;
    /// bytes.copy_from_slice(&told);
    /// let id = UniqueId::from_bytes(bytes);
    /// # let _ = id;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::LibraryTooOld`](crate::Error::LibraryTooOld); [`Error::InvalidArgument`](crate::Error::InvalidArgument) where
    /// `NCCL_COMM_BLOCKING` is 0 or `NCCL_CTA_POLICY` 2, see [`Communicator::init_rank`](crate::nccl::Communicator::init_rank); what NCCL says.
    #[doc(alias = "ncclGetUniqueId")]
    pub fn new() -> Result<Self> {
        outside_of_host_functions("UniqueId::new")?;
        version::check_nccl()?;
        environment::check("UniqueId::new")?;
        let mut id = sys::ncclUniqueId { internal: [0; Self::BYTES] };
        begun::begin();
        // SAFETY: `id` is a place for one id.
        check("ncclGetUniqueId", unsafe { sys::ncclGetUniqueId(&mut id) })?;
        Ok(Self::from_raw(&id))
    }

    /// That which NCCL has made.
    pub(crate) fn from_raw(id: &sys::ncclUniqueId) -> Self {
        Self { bytes: id.internal.map(|byte| byte.to_ne_bytes()[0]) }
    }

    /// An id for all ranks of an exchange: rank 0 makes it (`ncclGetUniqueId`), and all get it.
    ///
    /// ```
    /// use gpucomm::exchange::{Exchange, Threads};
    /// use gpucomm::{Communicator, Device, Stream, UniqueId};
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// # if Device::count().is_ok_and(|count| count < 2) { return Ok(()) }
    /// # let place = Threads::new(2);
    /// # std::thread::scope(|scope| {
    /// #     for rank in 0..2 {
    /// #         let place = &place;
    /// #         scope.spawn(move || {
    /// #             let exchange = Exchange::join(place.store(rank).unwrap()).unwrap();
    /// #             one(&exchange, Device::new(rank).unwrap()).unwrap()
    /// #         });
    /// #     }
    /// # });
    /// # Ok(())
    /// # }
    /// fn one(exchange: &Exchange, device: Device) -> gpucomm::Result<()> {
    ///     let id = UniqueId::shared(exchange)?;
    ///     // SAFETY: all ranks of the exchange run this program, and so issue the same operations in the same order.
    ///     let comm = unsafe { Communicator::init_rank(device, exchange.size(), &id, exchange.rank())? };
    ///     comm.barrier(&Stream::new(device)?)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`UniqueId::new`], and as [`Exchange::broadcast`].
    pub fn shared(exchange: &Exchange) -> Result<Self> {
        exchange.share_id("UniqueId::shared", || Ok(*Self::new()?.as_bytes())).map(Self::from_bytes)
    }

    /// An id that another rank sent.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self { bytes }
    }

    /// The bytes to send to the other ranks.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.bytes
    }

    /// The id as C has it. `c_char` is signed on some targets and unsigned on others; the bits are the same.
    pub(crate) fn to_raw(self) -> sys::ncclUniqueId {
        sys::ncclUniqueId { internal: self.bytes.map(|byte| c_char::from_ne_bytes([byte])) }
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId(")?;
        for byte in &self.bytes[..8] {
            write!(f, "{byte:02x}")?;
        }
        write!(f, "…)")
    }
}
