//! Where an operation is to run, and what is checked there: devices, memory, lengths.

use super::buffers::{Buffer, Elements};
use super::call::Call;
use super::kind::Kind;
use crate::cuda::{Access, Allocation, Device, Region, Stream};
use crate::element::ElementKind;
use crate::error::{Error, Result};
use crate::nccl::rank::another::{Foreign, foreign};
use crate::nccl::rank::inner::Inner;

/// Where an operation is to run.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) operation: &'static str,
    pub(crate) comm: &'a Inner,
    pub(crate) stream: &'a Stream,
}

impl<'a> Site<'a> {
    #[inline]
    pub(crate) fn new(operation: &'static str, comm: &'a Inner, stream: &'a Stream) -> Result<Self> {
        let site = Self { operation, comm, stream };
        site.check_device("stream", stream.device())?;
        Ok(site)
    }

    #[inline]
    fn check_device(&self, what: &'static str, device: Device) -> Result<()> {
        if device == self.comm.device { Ok(()) } else { Err(self.wrong_device(what, device)) }
    }

    #[cold]
    fn wrong_device(&self, what: &'static str, got: impl std::fmt::Display) -> Error {
        Error::argument(self.operation, what, format_args!("{} of rank {}", self.comm.device, self.comm.rank), got)
    }

    /// Memory that this communicator may touch.
    #[inline]
    fn check_region(&self, what: &'static str, region: Region<'a>, access: Access) -> Result<Region<'a>> {
        let is_within_reach = region.alloc.serves(self.comm.device, access);
        let is_owned = region.alloc.admits(self.comm.id);
        if is_within_reach && is_owned && !self.comm.windows.is_cut(&region) {
            return Ok(region);
        }
        Err(self.refused(what, region.alloc, is_within_reach, is_owned))
    }

    #[cold]
    fn refused(&self, what: &'static str, alloc: &Allocation, is_within_reach: bool, is_owned: bool) -> Error {
        if !is_within_reach {
            return self.wrong_device(what, alloc.who());
        }
        if is_owned {
            let (expected, got) = ("memory within a window, or outside of all", "memory that lies partly in one");
            return Error::argument(self.operation, what, expected, got);
        }
        let Foreign { expected, got, own } = foreign(self.comm, alloc.owner(), "memory", "a buffer");
        let advice = "or use a DeviceBuffer, which works with any communicator";
        Error::argument(self.operation, what, expected, format_args!("{got}; allocate it from {own}, {advice}"))
    }

    #[inline]
    pub(crate) fn read(&self, buffer: Buffer<'a>) -> Result<Region<'a>> {
        self.check_region("send", buffer.region, Access::Read)
    }

    #[inline]
    pub(crate) fn write(&self, buffer: Buffer<'a>) -> Result<Region<'a>> {
        self.check_region("recv", buffer.region, Access::Write)
    }

    /// One buffer that is read and written.
    #[inline]
    pub(crate) fn in_place(&self, buffer: Buffer<'a>) -> Result<Region<'a>> {
        self.check_region("buffer", buffer.region, Access::Write)
    }

    #[inline]
    pub(crate) fn call(&self, kind: Kind, elements: Elements, count: usize) -> Call<'a> {
        let of = elements.of;
        // The number of bytes does not overflow: the elements lie in memory.
        let (compared, carried) = match elements.kind {
            Some(element) => (count, (kind.carrier(element), count)),
            None => {
                let bytes = count * elements.size;
                (if of.is_shared() { bytes } else { count }, (ElementKind::U8, bytes))
            }
        };
        Call::new(self.operation, self.comm, self.stream, kind, (of, compared), carried)
    }

    /// `count` elements for each rank.
    #[inline]
    pub(crate) fn all(&self, what: &'static str, count: usize) -> Result<usize> {
        count.checked_mul(self.comm.size).ok_or_else(|| {
            Error::argument(
                self.operation,
                what,
                format!("a count that can be multiplied by {} ranks", self.comm.size),
                count,
            )
        })
    }

    /// The part of one rank in a buffer that holds a part for each.
    #[inline]
    pub(crate) fn part(&self, what: &'static str, len: usize) -> Result<usize> {
        if len.is_multiple_of(self.comm.size) {
            return Ok(len / self.comm.size);
        }
        Err(Error::argument(
            self.operation,
            what,
            format!("a length that {} ranks can share evenly", self.comm.size),
            format!("{len} elements"),
        ))
    }

    #[inline]
    pub(crate) fn at_least(&self, what: &'static str, needed: usize, len: usize) -> Result<()> {
        if len >= needed { Ok(()) } else { Err(self.too_short(what, needed, len)) }
    }

    #[cold]
    fn too_short(&self, what: &'static str, needed: usize, len: usize) -> Error {
        Error::argument(self.operation, what, format!("at least {needed} elements"), format!("{len} elements"))
    }

    /// Checks the buffer of a root from which each rank takes as many elements as its own buffer has.
    #[inline]
    pub(crate) fn exactly(&self, what: &'static str, needed: usize, len: usize) -> Result<()> {
        if len == needed { Ok(()) } else { Err(self.differs(what, needed, len)) }
    }

    #[cold]
    fn differs(&self, what: &'static str, needed: usize, len: usize) -> Error {
        let expected = format!("{needed} elements, as each rank takes as many as its recv has");
        Error::argument(self.operation, what, expected, format!("{len} elements"))
    }

    pub(crate) fn is_root(&self, root: usize) -> bool {
        self.comm.rank == root
    }

    pub(crate) fn root_only(&self, what: &'static str, form: &str) -> Error {
        Error::argument(self.operation, what, "both buffers at the root", form)
    }
}
