//! What completes the transfers of this PE.

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::life::on_stream::OnStream;
use crate::nvshmem::state::call::COLLECTIVE;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::place::Place;
use crate::sys;

impl Context {
    /// Wraps `nvshmem_fence`: what the host has put to a PE before is there before what it puts to that PE later. For PEs that are near it waits for
    /// transfers that are under way.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (data, flag) = (ctx.alloc::<u8>(5)?, ctx.alloc::<i32>(1)?);
    /// ctx.put(&data, &DeviceBuffer::from_slice(&stream, b"hello")?, Pe(0))?;
    /// // Who sees the flag finds the data.
    /// ctx.fence()?;
    /// ctx.put_value(&flag, 1, Pe(0))?;
    /// # ctx.quiet()?;
    /// # assert_eq!((data.to_vec(&stream)?, flag.to_vec(&stream)?), (b"hello".to_vec(), vec![1]));
    /// # drop((data, flag)); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where transfers of scopes on streams are under way for longer than the timeout; what CUDA says.
    #[doc(alias = "nvshmem_fence")]
    pub fn fence(&self) -> Result<()> {
        const OPERATION: &str = "Context::fence";
        self.inner().ready(OPERATION)?;
        let _beside = self.inner().wait_idle_beside(OPERATION)?;
        // SAFETY: the library runs.
        self.inner().on_host(OPERATION, || unsafe { sys::nvshmem_fence() })
    }

    /// Wraps `nvshmem_quiet`: waits until what the host has put is at the other PEs, where they and everybody find it.
    ///
    /// It does not wait for streams: what a stream has put, [`OnStream::quiet`] completes, on the same stream.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let data = ctx.alloc::<u8>(5)?;
    /// ctx.put(&data, &DeviceBuffer::from_slice(&stream, b"hello")?, Pe(0))?;
    /// ctx.quiet()?;
    /// assert_eq!(data.to_vec(&stream)?, b"hello");
    /// # drop(data); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "nvshmem_quiet")]
    pub fn quiet(&self) -> Result<()> {
        self.on_host().quiet()
    }

    /// Wraps `nvshmemx_flush`: waits until the sources of what the host has put may be used again. Before NVSHMEM 3.7 it is
    /// [`quiet`](Self::quiet), which waits for more.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (data, mut source) = (ctx.alloc::<u8>(5)?, DeviceBuffer::from_slice(&stream, b"hello")?);
    /// ctx.put(&data, &source, Pe(0))?;
    /// ctx.flush()?;
    /// source.fill(&stream, 0)?;
    /// ctx.quiet()?;
    /// assert_eq!(data.to_vec(&stream)?, b"hello");
    /// # drop(data); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`quiet`](Self::quiet).
    #[doc(alias = "nvshmemx_flush")]
    pub fn flush(&self) -> Result<()> {
        self.on_host().flush()
    }
}

impl OnStream<'_> {
    /// Enqueues a wait until what the stream has put before is at the other PEs. Other streams complete what they have put themselves. Wraps
    /// `nvshmemx_quiet_on_stream`.
    #[doc(alias = "nvshmemx_quiet_on_stream")]
    pub fn quiet(&self) -> Result<()> {
        let (inner, place) = self.at("Context::quiet", "OnStream::quiet");
        completed(inner, place, sys::nvshmem_quiet, sys::nvshmemx_quiet_on_stream)
    }

    /// Enqueues a wait until the sources of what the stream has put may be used again. Before NVSHMEM 3.7 it is [`quiet`](Self::quiet), which waits
    /// for more. Wraps `nvshmemx_flush_on_stream`.
    #[doc(alias = "nvshmemx_flush_on_stream")]
    pub fn flush(&self) -> Result<()> {
        let (inner, place) = self.at("Context::flush", "OnStream::flush");
        #[cfg(nvshmem_ge_3_7)]
        let (host, enqueue) = (sys::nvshmemx_flush, sys::nvshmemx_flush_on_stream);
        #[cfg(not(nvshmem_ge_3_7))]
        let (host, enqueue) = (sys::nvshmem_quiet, sys::nvshmemx_quiet_on_stream);
        completed(inner, place, host, enqueue)
    }
}

/// Calls a function that waits for transfers of this PE, and needs no more than that the library runs.
fn completed(
    inner: &Inner,
    Place { operation, stream }: Place<'_>,
    host: unsafe extern "C" fn(),
    enqueue: unsafe extern "C" fn(sys::cudaStream_t),
) -> Result<()> {
    if let Some(stream) = stream {
        // SAFETY: the library runs, and the stream is one of its device.
        return inner.on_stream(operation, stream, COLLECTIVE, (), |stream| unsafe { enqueue(stream) });
    }
    // SAFETY: the library runs.
    inner.on_host(operation, || unsafe { host() })
}
