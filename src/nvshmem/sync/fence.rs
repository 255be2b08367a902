//! What completes the transfers of this PE.

use crate::cuda::Stream;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::state::call::COLLECTIVE;
use crate::sys;

impl Context {
    /// Wraps `nvshmem_fence`: what the host has put to a PE before is there before what it puts to that PE later. For PEs that are near it waits for
    /// transfers that are under way.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (data, flag) = (ctx.alloc::<u8>(5)?, ctx.alloc::<i32>(1)?);
    /// ctx.put(&data, &DeviceBuffer::from_slice(&stream, b"hello")?, Pe(0))?;
    /// // Who sees the flag finds the data.
    /// ctx.fence()?;
    /// ctx.put_value(&flag, 1, Pe(0))?;
    /// # ctx.quiet()?;
    /// # assert_eq!((data.to_vec(&stream)?, flag.to_vec(&stream)?), (b"hello".to_vec(), vec![1]));
    /// # drop((data, flag)); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] where transfers of scopes on streams are under way for longer than the timeout; what CUDA says.
    pub fn fence(&self) -> Result<()> {
        const OPERATION: &str = "Context::fence";
        self.inner().ready(OPERATION)?;
        let _beside = self.inner().wait_idle_beside(OPERATION)?;
        // SAFETY: the library runs.
        self.inner().on_host(OPERATION, || unsafe { sys::nvshmem_fence() })
    }

    /// Wraps `nvshmem_quiet`: waits until what the host has put is at the other PEs, where they and everybody find it.
    ///
    /// It does not wait for streams: what [`put_on_stream`](Self::put_on_stream) and the like have enqueued, [`quiet_on_stream`](Self::quiet_on_stream)
    /// completes, on the same stream.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let data = ctx.alloc::<u8>(5)?;
    /// ctx.put(&data, &DeviceBuffer::from_slice(&stream, b"hello")?, Pe(0))?;
    /// ctx.quiet()?;
    /// assert_eq!(data.to_vec(&stream)?, b"hello");
    /// # drop(data); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What CUDA says.
    pub fn quiet(&self) -> Result<()> {
        // SAFETY: the library runs.
        self.inner().on_host("Context::quiet", || unsafe { sys::nvshmem_quiet() })
    }

    /// Wraps `nvshmemx_quiet_on_stream`: enqueues a wait until what `stream` has put before is at the other PEs. It can be part of a graph.
    ///
    /// What other streams have enqueued is theirs to complete.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (data, source) = (ctx.alloc::<u8>(5)?, DeviceBuffer::from_slice(&stream, b"hello")?);
    /// ctx.put_on_stream(&data, &source, Pe(0), &stream)?;
    /// ctx.quiet_on_stream(&stream)?;
    /// stream.synchronize()?;
    /// assert_eq!(data.to_vec(&stream)?, b"hello");
    /// # drop(data); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Stream::launch`].
    pub fn quiet_on_stream(&self, stream: &Stream) -> Result<()> {
        self.inner().on_stream("Context::quiet_on_stream", stream, COLLECTIVE, (), |stream| {
            // SAFETY: the library runs, and the stream is one of its device.
            unsafe { sys::nvshmemx_quiet_on_stream(stream) };
        })
    }

    /// Wraps `nvshmemx_flush`: waits until the sources of what the host has put may be used again. Before NVSHMEM 3.7 it is
    /// [`quiet`](Self::quiet), which waits for more.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (data, mut source) = (ctx.alloc::<u8>(5)?, DeviceBuffer::from_slice(&stream, b"hello")?);
    /// ctx.put(&data, &source, Pe(0))?;
    /// ctx.flush()?;
    /// source.fill(&stream, 0)?;
    /// ctx.quiet()?;
    /// assert_eq!(data.to_vec(&stream)?, b"hello");
    /// # drop(data); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`quiet`](Self::quiet).
    pub fn flush(&self) -> Result<()> {
        // SAFETY: the library runs.
        self.inner().on_host("Context::flush", || unsafe {
            #[cfg(nvshmem_ge_3_7)]
            sys::nvshmemx_flush();
            #[cfg(not(nvshmem_ge_3_7))]
            sys::nvshmem_quiet();
        })
    }

    /// Wraps `nvshmemx_flush_on_stream`: enqueues a wait until the sources of what `stream` has put may be used again. Before
    /// NVSHMEM 3.7 it is [`quiet_on_stream`](Self::quiet_on_stream), which waits for more.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (data, mut source) = (ctx.alloc::<u8>(5)?, DeviceBuffer::from_slice(&stream, b"hello")?);
    /// ctx.put_on_stream(&data, &source, Pe(0), &stream)?;
    /// ctx.flush_on_stream(&stream)?;
    /// source.fill(&stream, 0)?;
    /// ctx.quiet_on_stream(&stream)?;
    /// assert_eq!(data.to_vec(&stream)?, b"hello");
    /// # drop(data); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Stream::launch`].
    pub fn flush_on_stream(&self, stream: &Stream) -> Result<()> {
        self.inner().on_stream("Context::flush_on_stream", stream, COLLECTIVE, (), |stream| {
            // SAFETY: the library runs, and the stream is one of its device.
            unsafe {
                #[cfg(nvshmem_ge_3_7)]
                sys::nvshmemx_flush_on_stream(stream);
                #[cfg(not(nvshmem_ge_3_7))]
                sys::nvshmemx_quiet_on_stream(stream);
            };
        })
    }
}
