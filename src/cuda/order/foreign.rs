//! Streams of others, and handles for them.

use super::queue::LEGACY;
use super::stream::{Life, Stream};
use crate::cuda::devices::device::Device;
use crate::cuda::devices::owners;
use crate::error::{Error, Result};
use crate::sys;

impl Stream {
    /// `cudaStreamLegacy`: the null stream of `device`, which other libraries use where they are given no stream.
    ///
    /// It takes turns with all streams of the device, of whatever library, that were not made to run beside it
    /// ([`StreamOptions::with_non_blocking`](crate::cuda::StreamOptions::with_non_blocking)): what is enqueued on either comes after all that was enqueued on the other before. As others enqueue
    /// there too, fewer operations of this crate may be on their way than on a stream of its own. CUDA takes its handle for that of the
    /// current device: so what is enqueued here makes `device` the current one of the thread, and may leave it so.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Device, DeviceBuffer, Stream};
    ///
    /// # if Device::count().is_err() { return Ok(()) }
    /// let stream = Stream::null(Device::new(0)?);
    /// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 100)?;
    /// x.fill(&stream, 1.0)?;
    /// assert_eq!(x.to_vec(&stream)?, [1.0; 100]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn null(device: Device) -> Self {
        Self::known(device, std::ptr::without_provenance_mut(LEGACY), Life::Endless)
    }

    /// A stream that somebody else made and destroys. Null, and `cudaStreamLegacy`, are [`Stream::null`].
    ///
    /// Streams made of one handle are handles of one queue. As others may enqueue there too, fewer operations of this crate
    /// may be on their way than on a stream of its own.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # use gpucomm::sys;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// fn fill(device: Device, theirs: sys::cudaStream_t) -> gpucomm::Result<DeviceBuffer<f32>> {
    ///     // SAFETY: a stream of this device that is never destroyed.
    ///     let stream = unsafe { Stream::from_raw(device, theirs) };
    ///     DeviceBuffer::from_slice(&stream, &[1.0; 100])
    /// }
    /// # drop(fill(stream.device(), stream.as_raw())?);
    /// # std::mem::forget(stream);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// `raw` is a stream of `device`, and not `cudaStreamPerThread`, for which there is [`ThreadStream`](crate::cuda::ThreadStream). It
    /// stays alive as long as the returned value, its clones, all memory that was used on it, and every communicator that has worked on
    /// it; where memory was dropped while the stream was being captured, until work of this crate has gone on after that.
    pub unsafe fn from_raw(device: Device, raw: sys::cudaStream_t) -> Self {
        if raw.addr() <= LEGACY { Self::null(device) } else { Self::known(device, raw, Life::Theirs) }
    }

    /// As [`Stream::from_raw`], for a stream that `owner` keeps alive: that is dropped, by a thread of this crate, when the returned value
    /// is gone, its clones, and all that needs the stream. A panic of it ends there.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Device, DeviceBuffer, Stream, sys};
    ///
    /// /// A stream as another library has it, which destroys it when it goes.
    /// struct Theirs(sys::cudaStream_t);
    /// # // SAFETY: CUDA takes streams from any thread.
    /// # unsafe impl Send for Theirs {}
    /// # impl Theirs {
    /// #     fn new(device: Device) -> gpucomm::Result<Self> {
    /// #         let _current = device.set_current()?;
    /// #         let mut raw = std::ptr::null_mut();
    /// #         let code = unsafe { sys::cudaStreamCreateWithPriority(&mut raw, sys::cudaStreamNonBlocking, 0) };
    /// #         assert_eq!(code, sys::cudaError::cudaSuccess);
    /// #         Ok(Self(raw))
    /// #     }
    /// # }
    /// # impl Drop for Theirs {
    /// #     fn drop(&mut self) {
    /// #         assert_eq!(unsafe { sys::cudaStreamDestroy(self.0) }, sys::cudaError::cudaSuccess);
    /// #     }
    /// # }
    ///
    /// # if Device::count().is_err() { return Ok(()) }
    /// let device = Device::new(0)?;
    /// let theirs = Theirs::new(device)?;
    /// // SAFETY: the stream is of this device, and lives until its owner is dropped.
    /// let stream = unsafe { Stream::from_raw_with(device, theirs.0, theirs)? };
    /// let x = DeviceBuffer::from_slice(&stream, &[1u8, 2, 3])?;
    /// assert_eq!(x.to_vec(&stream)?, [1, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](crate::Error::InvalidUsage) where no thread can be started. The owner is dropped then.
    ///
    /// # Safety
    /// `raw` is a stream of `device`, and not `cudaStreamPerThread`. It stays alive until `owner` is dropped, and for ever if it is not.
    pub unsafe fn from_raw_with(device: Device, raw: sys::cudaStream_t, owner: impl Send + 'static) -> Result<Self> {
        owners::start("Stream::from_raw_with")?;
        // SAFETY: as the caller promises; the owner is kept for as long as it takes.
        let stream = unsafe { Self::from_raw(device, raw) };
        stream.keep(Box::new(owner));
        Ok(stream)
    }

    /// As [`Stream::from_raw_with`], for an owner of which one is enough, however often the stream comes.
    ///
    /// # Safety
    /// `raw` is a stream of `device`, and not `cudaStreamPerThread`. It stays alive until what `owner` makes is dropped.
    #[cfg(feature = "cudarc")]
    pub(crate) unsafe fn from_raw_kept(
        operation: &'static str,
        device: Device,
        raw: sys::cudaStream_t,
        owner: impl FnOnce() -> Box<dyn Send>,
    ) -> Result<Self> {
        owners::start(operation)?;
        // SAFETY: as the caller promises; the owner is kept for as long as it takes.
        let stream = unsafe { Self::from_raw(device, raw) };
        stream.keep_once(owner);
        Ok(stream)
    }

    /// The `cudaStream_t`. It lives as long as this value.
    ///
    /// [`Stream::launch`] is the way to enqueue a kernel or a copy of one's own. What others enqueue by way of this handle is not known to
    /// this crate: nobody orders it against the uses of buffers, the memory is not kept for it, and *the bound on what is on its way
    /// ends there*: behind work that hangs, who enqueues too much waits inside the driver, for ever perhaps, and an abort with it. From
    /// now on fewer operations of this crate may be on their way there, because the others take places in its queue as well.
    /// While others capture it into a graph, whatever this crate would enqueue there or ask of it is an
    /// [`Error::InvalidUsage`](crate::Error::InvalidUsage).
    ///
    /// ```
    /// # use gpucomm::{Device, Stream};
    /// # use gpucomm::sys;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let mut flags = 0;
    /// // SAFETY: asks for a number; nothing is enqueued.
    /// let code = unsafe { sys::cudaStreamGetFlags(stream.as_raw(), &mut flags) };
    /// assert_eq!((code, flags), (sys::cudaError::cudaSuccess, stream.flags()?));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn as_raw(&self) -> sys::cudaStream_t {
        self.in_flight().expose();
        self.raw()
    }

    /// The `cudaStream_t`, which belongs to the caller from now on, who destroys it (`cudaStreamDestroy`). [`Stream::from_raw`] and
    /// [`Stream::from_raw_with`] are the other way round, [`Stream::as_raw`] lends it.
    ///
    /// What is enqueued there is still done, and nothing is waited for. Why work there has failed is told by waits for this crate's streams
    /// only: [`Stream::synchronize`] before.
    ///
    /// ```
    /// # use gpucomm::{Device, Stream, sys};
    /// # fn main() -> gpucomm::Result<()> {
    /// let stream = Stream::new(Device::new(0)?)?;
    /// let raw: sys::cudaStream_t = stream.into_raw()?;
    /// // Another library has it, and destroys it when it needs it no more.
    /// // SAFETY: nobody else has it.
    /// assert_eq!(unsafe { sys::cudaStreamDestroy(raw) }, sys::cudaError::cudaSuccess);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](Error::InvalidUsage) where something else of this crate needs it, a clone, memory that was used there, or a
    /// communicator that has worked there; where an [owner](Stream::from_raw_with) keeps it; and for the null stream, which nobody can
    /// destroy. This handle is gone then, like one that is dropped.
    pub fn into_raw(self) -> Result<sys::cudaStream_t> {
        let refused = |got: &str| Error::InvalidUsage {
            operation: "Stream::into_raw",
            reason: format!("expected a stream that nothing else has, got {got}"),
        };
        let Some(mut inner) = self.last() else {
            return Err(refused("one of which there is a clone, or that memory or a communicator needs"));
        };
        if inner.life == Life::Endless {
            return Err(refused("the null stream"));
        }
        if !inner.owners.get_mut().is_empty() {
            return Err(refused("one that its owner keeps"));
        }
        inner.life = Life::Theirs;
        Ok(inner.queue.raw)
    }
}
