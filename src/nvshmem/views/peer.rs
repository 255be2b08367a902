//! Memory of another PE, at addresses of this process.

use std::ffi::c_int;
use std::sync::Arc;

use super::lend::lends;
use crate::cuda::{Access, Address, AsSlice, AsSliceMut, LentUses, Stream};
use crate::element::{self, Element};
use crate::error::{Error, Result};
use crate::nvshmem::memory::buffer::SymmetricBuffer;
use crate::nvshmem::memory::slice::SymmetricSlice;
use crate::nvshmem::memory::there::check_len;
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::order::Order;
use crate::sys;

/// How many elements the other end of a copy has.
const RULE: &str = "as many as the view has";

/// Symmetric memory of one PE, as kernels and copies of this one get at it: by NVLink or PCIe, at an address that the library has mapped it at.
///
/// [`Stream::launch`] takes it like memory of the device. Puts and gets do not: they want the address of this PE's part, and the number of the PE.
///
/// What other PEs do there meanwhile nobody here knows: barriers, signals and waits order that. What this PE does with its views of that part of another one is in
/// order, whatever the streams; its puts and gets are not in that order. What it does with a view of its own part is ordered like all else that it does with it.
///
/// Any thread that has the buffer can copy by views, also while the context is within [`Context::nonblocking`](crate::nvshmem::Context::nonblocking); there, but for
/// those of this PE's own part, which the transfers of the scope may be at work on.
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, ContextUniqueId};
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// # let stream = Stream::new(device)?;
/// let buffer = ctx.alloc::<u32>(100)?;
/// let next = Pe((ctx.pe().0 + 1) % ctx.n_pes());
/// let Some(mut view) = buffer.peer(next)? else { panic!("it is reached by the network") };
/// view.copy_from(&stream, &DeviceBuffer::from_slice(&stream, &[7; 100])?)?;
/// let mut back = DeviceBuffer::<u32>::zeroed(&stream, 100)?;
/// view.copy_to(&stream, &mut back)?;
/// assert_eq!(back.to_vec(&stream)?, [7; 100]);
/// assert_eq!((view.pe(), view.len(), view.is_empty()), (next, 100, false));
/// # assert!(!view.as_raw().is_null() && buffer.symmetric(10..).peer(next)?.is_some());
/// # drop(buffer);
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
pub struct PeerView<'a, T: Element> {
    slice: SymmetricSlice<'a, T>,
    pe: Pe,
    address: Address,
    /// What this PE does with views of that part; of its own, the memory knows.
    order: Option<Arc<Order>>,
}

impl<T: Element> SymmetricBuffer<'_, T> {
    /// Wraps `nvshmem_ptr`: all elements on `pe`, where this PE gets at them directly; `None` where it does not.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a PE that there is none; where the context is lost.
    #[doc(alias = "nvshmem_ptr")]
    pub fn peer(&self, pe: Pe) -> Result<Option<PeerView<'_, T>>> {
        PeerView::of("SymmetricBuffer::peer", self.as_symmetric(), pe)
    }
}

impl<'a, T: Element> SymmetricSlice<'a, T> {
    /// Wraps `nvshmem_ptr`: these elements on `pe`, where this PE gets at them directly; `None` where it does not.
    ///
    /// # Errors
    /// As [`SymmetricBuffer::peer`].
    #[doc(alias = "nvshmem_ptr")]
    pub fn peer(&self, pe: Pe) -> Result<Option<PeerView<'a, T>>> {
        PeerView::of("SymmetricSlice::peer", *self, pe)
    }
}

impl<'a, T: Element> PeerView<'a, T> {
    fn of(operation: &'static str, slice: SymmetricSlice<'a, T>, pe: Pe) -> Result<Option<Self>> {
        let inner = &slice.block().inner;
        // No call here waits for the library: the thread that has the context may be within a scope.
        inner.ready_in_scope(operation)?;
        let number: c_int = inner.pe_of(operation, pe)?;
        if !inner.near[pe.0] {
            return Ok(None);
        }
        let local = slice.address();
        let order = (pe.0 != inner.pe).then(|| slice.block().views_of(pe.0));
        if local.ptr().is_null() {
            return Ok(Some(Self { slice, pe, address: local, order }));
        }
        // SAFETY: the library runs, `pe` is one, and the address lies in symmetric memory; what this reads the start has set.
        let there = unsafe { sys::nvshmem_ptr(local.ptr(), number) };
        Ok((!there.is_null()).then(|| Self { slice, pe, address: Address::new(there), order }))
    }

    /// Whose memory it is.
    pub fn pe(&self) -> Pe {
        self.pe
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.slice.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }

    /// Where it begins, in this process, for kernels of its device; null where the whole buffer is empty. What is done with it is not tracked.
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.address.ptr()
    }

    /// Wraps `cudaMemcpyAsync`: copies from there to `target`, without waiting.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the lengths differ; what CUDA says.
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn copy_to<'t>(&self, stream: &Stream, target: impl AsSliceMut<'t, T>) -> Result<()> {
        const OPERATION: &str = "PeerView::copy_to";
        let mut target = target.into();
        check_len(OPERATION, "target", self.len(), RULE, target.len())?;
        if target.is_empty() {
            return Ok(());
        }
        self.ready(OPERATION)?;
        let (to, from, bytes) = (target.as_raw(), self.address.ptr(), self.slice.bytes());
        self.slice.block().inner.on_stream_in_scope(OPERATION, stream, 1, (self, &mut target), |stream| {
            // SAFETY: both have so many bytes, the target is borrowed exclusively, and the bracket keeps both for as long as this takes.
            unsafe { sys::cudaMemcpyAsync(to, from, bytes, sys::cudaMemcpyKind::cudaMemcpyDefault, stream) };
        })
    }

    /// Wraps `cudaMemcpyAsync`: copies `source` there, without waiting.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the lengths differ, and where this PE's own memory overlaps `source`; what CUDA says.
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn copy_from<'t>(&mut self, stream: &Stream, source: impl AsSlice<'t, T>) -> Result<()> {
        const OPERATION: &str = "PeerView::copy_from";
        let source = source.into();
        check_len(OPERATION, "source", self.len(), RULE, source.len())?;
        if source.is_empty() {
            return Ok(());
        }
        self.ready(OPERATION)?;
        let (to, from, bytes) = (self.address.ptr(), source.as_raw(), self.slice.bytes());
        if to.addr().abs_diff(from.addr()) < bytes {
            let expected = "memory that does not overlap the view";
            return Err(Error::argument(OPERATION, "source", expected, format_args!("{bytes} bytes at {from:p}")));
        }
        let inner = &self.slice.block().inner;
        inner.on_stream_in_scope(OPERATION, stream, 1, (&mut *self, source), |stream| {
            // SAFETY: both have so many bytes and lie apart, and the bracket keeps both for as long as this takes.
            unsafe { sys::cudaMemcpyAsync(to, from, bytes, sys::cudaMemcpyKind::cudaMemcpyDefault, stream) };
        })
    }

    /// Fails for this PE's own part while a scope is at work.
    fn ready(&self, operation: &'static str) -> Result<()> {
        if self.order.is_some() { Ok(()) } else { self.slice.block().inner.ready(operation) }
    }

    fn note<'s>(&'s self, uses: &mut LentUses<'s>, access: Access) {
        uses.add_used(&**self.slice.block(), Access::Read);
        match &self.order {
            Some(order) => uses.add_used(&**order, access),
            None => uses.add(self.slice.local(), access),
        }
    }
}

lends! { PeerView }

impl<T: Element> std::fmt::Debug for PeerView<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeerView<{}>({} elements of PE {})", element::name::<T>(), self.len(), self.pe)
    }
}
