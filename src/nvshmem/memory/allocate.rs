//! Allocating symmetric memory, on all PEs together.

use std::sync::Arc;

use super::block::Block;
use super::buffer::SymmetricBuffer;
use super::room::{has_heap, has_room, span};
use crate::cuda::{Address, SliceMut};
use crate::element::{self, Element};
use crate::error::{Error, Result};
use crate::nvshmem::life::context::Context;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::meeting::{Kind, Plan};
use crate::nvshmem::state::wait_state::Awaited;
use crate::sys;

/// The greatest alignment: that of the pages that the heap is made of.
const MOST_ALIGNED: usize = 2 << 20;

/// What the memory is to hold at first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Zeros,
    Anything,
}

impl Context {
    /// Wraps `nvshmem_malloc`: `len` elements on every PE, all zero. Collective: all PEs call it with the same length, and it returns where all
    /// PEs have their zeros, so that anybody may put at once.
    ///
    /// What all PEs have dropped is freed on the way.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SymmetricBuffer, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: there is no other PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let stream = Stream::new(ctx.device())?;
    /// let x = ctx.alloc::<f32>(1000)?;
    /// assert_eq!(x.to_vec(&stream)?, [0.0; 1000]);
    /// # drop(x);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for more bytes than there are addresses, on this PE alone; [`Error::Disagreement`] where PEs ask for different things, on all of them; [`Error::OutOfMemory`] on all where one may not have enough: the heap grows by steps, of 512 MiB where `NVSHMEM_CUMEM_GRANULARITY` does not say
    /// otherwise, up to `NVSHMEM_MAX_MEMORY_PER_GPU`, and the library does not survive one for which there is no memory;
    /// [`Error::Timeout`] where not all come in time, and [`Error::Departed`] soon after the exchange knows that a PE has ended, or where the others had
    /// given up before this one came: the context is lost then. What CUDA says.
    #[doc(alias = "nvshmem_malloc")]
    pub fn alloc<T: Element>(&self, len: usize) -> Result<SymmetricBuffer<'_, T>> {
        self.allocate("Context::alloc", len, None, First::Zeros)
    }

    /// Wraps `nvshmem_malloc`: as [`alloc`](Self::alloc), but the elements are what the memory held before.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SymmetricBuffer, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: there is no other PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let stream = Stream::new(ctx.device())?;
    /// let mut x = ctx.alloc_uninit::<u8>(1000)?;
    /// x.fill(&stream, 7)?;
    /// # drop(x);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[doc(alias = "nvshmem_malloc")]
    pub fn alloc_uninit<T: Element>(&self, len: usize) -> Result<SymmetricBuffer<'_, T>> {
        self.allocate("Context::alloc_uninit", len, None, First::Anything)
    }

    /// Wraps `nvshmem_align`: as [`alloc`](Self::alloc), at an address that is a multiple of `alignment`, a power of two of at most 2 MiB.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SymmetricBuffer, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: there is no other PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let x = ctx.alloc_aligned::<u8>(1000, 4096)?;
    /// assert!(x.as_raw().addr().is_multiple_of(4096));
    /// # drop(x);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another alignment; as [`alloc`](Self::alloc).
    #[doc(alias = "nvshmem_align")]
    pub fn alloc_aligned<T: Element>(&self, len: usize, alignment: usize) -> Result<SymmetricBuffer<'_, T>> {
        const OPERATION: &str = "Context::alloc_aligned";
        if !alignment.is_power_of_two() || alignment > MOST_ALIGNED {
            return Err(Error::argument(OPERATION, "alignment", "a power of two up to 2 MiB", alignment));
        }
        self.allocate(OPERATION, len, Some(alignment.max(align_of::<T>()).max(size_of::<usize>())), First::Zeros)
    }

    /// Comes together with all other PEs, and frees what all of them have dropped. Collective. A team is destroyed only if the device of each member has
    /// nothing to do, because NVSHMEM waits for all of it.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SymmetricBuffer, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: there is no other PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let x = ctx.alloc::<f32>(1000)?;
    /// // Put down; freed when all PEs have dropped it, and come together.
    /// drop(x);
    /// ctx.reclaim()?;
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where not all come in time, and [`Error::Departed`] soon after the exchange knows that a PE has ended, or where the others had
    /// given up before this one came: the context is lost then.
    pub fn reclaim(&self) -> Result<()> {
        const OPERATION: &str = "Context::reclaim";
        self.inner().ready(OPERATION)?;
        self.inner().meet(&Plan::new(OPERATION, Kind::Reclaim)).map(drop)
    }

    fn allocate<T: Element>(
        &self,
        operation: &'static str,
        len: usize,
        alignment: Option<usize>,
        first: First,
    ) -> Result<SymmetricBuffer<'_, T>> {
        element::must_fit::<T>();
        let inner = self.inner();
        inner.ready(operation)?;
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(|| Error::argument(operation, "len", "a number of elements that fits into memory", len))?;
        let block = make(inner, operation, bytes, alignment, first)?;
        let address = block.alloc.address();
        Ok(SymmetricBuffer::new(block, address, len))
    }
}

/// A block of `bytes`, of which all PEs have a part when this returns.
fn make(
    inner: &Arc<Inner>,
    operation: &'static str,
    bytes: usize,
    alignment: Option<usize>,
    first: First,
) -> Result<Arc<Block>> {
    let plan = |able| Plan {
        numbers: [bytes as u64, alignment.unwrap_or(0) as u64, u64::from(first == First::Zeros), 0, 0, 0],
        explain: |[bytes, alignment, zeros, ..]| match alignment {
            0 if *zeros == 0 => format!("{bytes} bytes, without zeros"),
            0 => format!("{bytes} bytes"),
            _ => format!("{bytes} bytes, aligned to {alignment}"),
        },
        able,
        ..Plan::new(operation, Kind::Alloc)
    };
    if bytes == 0 {
        inner.meet(&plan(true))?;
        return Ok(Block::new(inner, Address::new(std::ptr::null_mut()), 0, 0));
    }
    let able = || has_room(inner, bytes, alignment).unwrap_or(false);
    let deadline = inner.deadline();
    let meet = || inner.meet_beside_no_capture(|| plan(able()), &deadline);
    let mut unable = meet()?;
    if !unable.is_empty() {
        // What all have dropped is free since.
        unable = meet()?;
    }
    if let Some(pe) = unable.first() {
        return Err(Error::OutOfMemory { operation, bytes, place: format!("the device of PE {pe}") });
    }
    let allocated = inner.on_quiet_device(operation, &Awaited::All, || {
        // SAFETY: the library runs, and all PEs call it now with the same numbers.
        unsafe {
            match alignment {
                None => sys::nvshmem_malloc(bytes),
                Some(alignment) => sys::nvshmem_align(alignment, bytes),
            }
        }
    });
    // The others have it.
    let address = allocated.inspect_err(|error| inner.lose(error))?;
    if address.is_null() && !has_heap(inner) {
        // All that lay there is gone, and no PE can come together with others any more.
        let error = Error::OutOfMemory { operation, bytes, place: inner.device.to_string() };
        inner.lose(&error);
        return Err(error);
    }
    let span = span(bytes, alignment);
    let block = (!address.is_null()).then(|| Block::new(inner, Address::new(address), bytes, span));
    let zeroed = match &block {
        Some(block) if first == First::Zeros => {
            SliceMut::<u8>::of(&block.alloc, block.alloc.address(), bytes).fill(&inner.stream, 0)
        }
        _ => Ok(()),
    };
    // Zeros come before the barrier of this meeting, on the same stream.
    let able = block.is_some() && zeroed.is_ok();
    let unable = inner.meet(&Plan { able, ..Plan::new(operation, Kind::Settle) })?;
    if let Err(error) = zeroed {
        // The others have lost theirs: here is a part, but not what was asked for.
        inner.lose(&error);
        return Err(error);
    }
    match (block, unable.first()) {
        (Some(block), None) => Ok(block),
        (Some(_), Some(pe)) => {
            // One PE has no part: the heaps differ from now on.
            let error = Error::OutOfMemory { operation, bytes, place: format!("the device of PE {pe}") };
            inner.lose(&error);
            Err(error)
        }
        (None, _) => {
            let error = Error::OutOfMemory { operation, bytes, place: inner.device.to_string() };
            if unable.len() < inner.n_pes {
                inner.lose(&error);
            }
            Err(error)
        }
    }
}
