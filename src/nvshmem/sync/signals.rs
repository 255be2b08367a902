//! Memory for signals.

use super::signal::Signal;
use crate::cuda::{Stream, or_panic};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::memory::buffer::SymmetricBuffer;
use crate::nvshmem::memory::slice::SymmetricSlice;

/// So many signals on every PE, which begin as zeros. Made by [`Context::alloc_signals`].
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, SignalOp, ContextUniqueId, Pe}; use gpucomm::{Device, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// // One for each PE that may send.
/// let mut came = ctx.alloc_signals(ctx.n_pes())?;
/// let from = ctx.pe().0;
/// ctx.on(&stream).signal_op(came.at(from), SignalOp::Set(3), Pe(0))?;
/// stream.synchronize()?;
/// assert_eq!(ctx.signal_fetch(came.at(from))?, 3);
/// came.reset(&stream)?;
/// assert_eq!(came.to_vec(&stream)?, vec![0; came.len()]);
/// # drop(came); ctx.close()?; Ok(()) }
/// ```
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SignalOp, ContextUniqueId};
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # let stream = Stream::new(device)?;
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let signals = ctx.alloc_signals(2)?;
/// assert_eq!((signals.is_empty(), signals.as_symmetric().len()), (false, 2));
/// let words = signals.into_buffer();
/// assert_eq!(words.to_vec(&stream)?, [0, 0]);
/// # drop(words);
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
pub struct SymmetricSignals<'ctx>(SymmetricBuffer<'ctx, u64>);

impl Context {
    /// Wraps `nvshmem_malloc`: `len` signals on every PE, all zero. Collective, as [`alloc`](Self::alloc) is.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[doc(alias = "nvshmem_malloc")]
    pub fn alloc_signals(&self, len: usize) -> Result<SymmetricSignals<'_>> {
        self.alloc(len).map(SymmetricSignals)
    }
}

impl<'ctx> SymmetricSignals<'ctx> {
    /// Signals on each PE.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no signals.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them.
    ///
    /// # Panics
    /// Where there are not so many.
    #[track_caller]
    pub fn at(&self, at: usize) -> Signal<'_> {
        or_panic(self.0.as_symmetric().slice_for("SymmetricSignals::at", &(at..=at)).and_then(Signal::new))
    }

    /// The words that they are.
    pub fn as_symmetric(&self) -> SymmetricSlice<'_, u64> {
        self.0.as_symmetric()
    }

    /// Sets those of this PE to zero, in the order of `stream`: after waits for them that were enqueued before. What other PEs do meanwhile is lost, or not.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn reset(&mut self, stream: &Stream) -> Result<()> {
        self.0.fill(stream, u64::ZERO)
    }

    /// Those of this PE on the host; waits.
    ///
    /// # Errors
    /// As [`SymmetricBuffer::to_vec`].
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<u64>> {
        self.0.to_vec(stream)
    }

    /// Wraps `nvshmem_free`: frees the signals on all PEs. Collective, as [`SymmetricBuffer::free`].
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// ctx.alloc_signals(2)?.free(&ctx)?;
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`SymmetricBuffer::free`].
    #[doc(alias = "nvshmem_free")]
    pub fn free(self, ctx: &Context) -> Result<()> {
        self.0.free(ctx)
    }

    /// The same as a buffer.
    pub fn into_buffer(self) -> SymmetricBuffer<'ctx, u64> {
        self.0
    }
}

/// All elements are signals.
impl<'ctx> From<SymmetricBuffer<'ctx, u64>> for SymmetricSignals<'ctx> {
    fn from(buffer: SymmetricBuffer<'ctx, u64>) -> Self {
        Self(buffer)
    }
}

impl std::fmt::Debug for SymmetricSignals<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SymmetricSignals").field("len", &self.len()).finish_non_exhaustive()
    }
}
