//! Streams of cudarc, on which this crate enqueues too, and what is lent there.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::lendable::Lendable;
use super::lent_memory::{LEND, LentMemory};
use super::pair::{Pair, device_of, is_of_thread};
use crate::cuda::order::stream::Stream;
use crate::error::{Error, Result};
use crate::sys;

/// A stream of cudarc, on which this crate enqueues too. It is a [`Stream`] wherever one is asked for, and keeps cudarc's alive.
///
/// Clones, and others made of the same stream, are the same queue.
///
/// ```no_run
/// use cudarc::driver::CudaContext;
/// use gpucomm::DeviceBuffer;
/// use gpucomm::cuda::cudarc::SharedStream;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let theirs = CudaContext::new(0)?.new_stream()?;
/// let shared = SharedStream::new(&theirs)?;
/// let x = DeviceBuffer::from_slice(&shared, &[1, 2, 3])?;
/// assert_eq!(x.to_vec(&shared)?, [1, 2, 3]);
/// assert_eq!(shared.theirs(), &theirs);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedStream {
    pair: Pair,
}

impl SharedStream {
    /// The stream as this crate has it.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a stream of another context than the primary one of its device, which is the one that NCCL uses, and for the default
    /// stream of a thread (`per_thread_stream`); [`InvalidUsage`](Error::InvalidUsage) within a host function, or where no thread can be started; what
    /// CUDA says.
    pub fn new(stream: &Arc<CudaStream>) -> Result<Self> {
        const OPERATION: &str = "SharedStream::new";
        let device = device_of(OPERATION, stream)?;
        device.ready(OPERATION)?;
        let raw: sys::cudaStream_t = stream.cu_stream().cast();
        if is_of_thread(stream) {
            let expected = "a stream that all threads see";
            return Err(Error::argument(OPERATION, "stream", expected, "the default stream of a thread"));
        }
        // SAFETY: a stream of this device, which lives until the last handle of cudarc's is dropped.
        let ours = unsafe { Stream::from_raw_kept(OPERATION, device, raw, || Box::new(Arc::clone(stream)))? };
        Ok(Self { pair: Pair { ours, theirs: Arc::clone(stream) } })
    }

    /// The stream as cudarc has it.
    pub fn theirs(&self) -> &Arc<CudaStream> {
        &self.pair.theirs
    }

    /// Lends memory of cudarc to operations of this crate, for as long as `f` runs, which enqueues them.
    ///
    /// What is lent may be used on any stream of this crate, in any number of operations. Before that, this stream waits for what cudarc has enqueued with the memory; after
    /// it, this stream comes behind all these uses, and cudarc's events are recorded there: see [what comes after what](crate::cuda::cudarc#what-comes-after-what).
    /// It also waits for all that the stream of the memory was given so far. That stream in turn waits for the uses. Nothing waits on the host. The uses count whatever `f` returns, and where it panics.
    ///
    /// Where a use cannot be put in order, as the stream or that of the memory is being captured when `f` returns, or cudarc's events cannot be recorded, this waits until the uses are done. If they are not within the [default timeout](crate::default_timeout),
    /// **the process is aborted**, with a message: cudarc would go on to write to memory that is in use, or free it. Where the device is lost, nothing uses it.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for memory of another device or context, for memory of the default stream of a thread, and for elements that are not aligned;
    /// [`Timeout`](Error::Timeout) where too much is on its way; [`InvalidUsage`](Error::InvalidUsage) within a host function, and while the stream or that of the memory is being captured;
    /// what CUDA says, by way of cudarc, which also tells here what it could tell nobody before (`CudaContext::check_err`). `f` has not run then. Those of `f`; and where cudarc's events cannot be
    /// recorded, what CUDA says: `f` has run then, and the uses are done.
    pub fn lend<'m, M: Lendable<'m>, R, E: From<Error>>(
        &self,
        memory: M,
        f: impl for<'l> FnOnce(M::Lent<'l>) -> Result<R, E>,
    ) -> Result<R, E> {
        let _current = self.device().bind(LEND)?;
        let mut lent = LentMemory::new(self.pair.clone());
        let place = memory.enter(&mut lent)?;
        self.pair.told()?;
        let value = f(M::lent(place, &lent))?;
        lent.close()?;
        Ok(value)
    }
}

impl Deref for SharedStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.pair.ours
    }
}

impl fmt::Debug for SharedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedStream").field(&self.pair.ours).finish()
    }
}
