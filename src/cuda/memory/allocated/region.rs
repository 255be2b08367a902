//! What operations are given of memory.

use std::ffi::c_void;

use super::allocation::Allocation;
use crate::cuda::devices::device::Device;
use crate::cuda::memory::basics::address::Address;
use crate::cuda::order::ranged::Span;
use crate::cuda::order::stream::Stream;
use crate::cuda::order::uses::Access;
use crate::error::Result;

/// A range of the bytes of an allocation, at the address at which it is shown.
///
/// Who uses the memory, and where its bytes come from, the allocation knows, so that this holds for all addresses at which the same
/// bytes are shown. The address stands here: to find the one, nobody needs the other. Of a view of memory of others nothing is kept:
/// whoever made that has promised what the record of uses is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region<'a> {
    pub(crate) alloc: &'a Allocation,
    pub(crate) address: Address,
    pub(crate) bytes: usize,
}

impl Region<'_> {
    /// Whether these are all bytes of the allocation.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.alloc.is_all(self.bytes)
    }

    /// Which bytes of the allocation these are.
    #[cold]
    pub(crate) fn span(&self) -> Span {
        self.alloc.span(self.address, self.bytes)
    }

    /// As [`Allocation::order`], for these bytes.
    #[inline]
    pub(crate) fn order(&self, access: Access, stream: &Stream) -> Result<bool> {
        if self.alloc.tracker().is_solo(stream) {
            return Ok(true);
        }
        self.alloc.order(self.span(), access, stream)
    }

    /// As [`Allocation::note`], for these bytes.
    #[inline]
    pub(crate) fn note(&self, access: Access, stream: &Stream) {
        if !self.alloc.tracker().is_solo(stream) {
            self.alloc.note(self.span(), access, stream);
        }
    }

    /// Where it begins on the device; null in an allocation of no bytes.
    #[inline]
    pub(crate) fn ptr(&self) -> *mut c_void {
        self.address.ptr()
    }

    #[inline]
    pub(crate) fn device(&self) -> Device {
        self.alloc.device()
    }

    /// A part of it, whose bounds were checked.
    #[inline]
    #[cfg(any(feature = "nccl", feature = "nvshmem"))]
    pub(crate) fn part(self, offset: usize, bytes: usize) -> Self {
        Self { address: self.address.add(offset), bytes, ..self }
    }
}
