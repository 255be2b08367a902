//! The default stream of a thread.
//!
//! Its handle means another stream on another thread, and marks of a stream are recorded by whoever needs them. So work of this crate is
//! not enqueued there, but on a stream of its own, between two points: that comes after what the thread has enqueued on its default
//! stream before, and what it enqueues there later comes after that.

use std::fmt;
use std::marker::PhantomData;

use super::capture;
use super::in_flight::ENTRY;
use super::mark::Mark;
use super::queue::Queue;
use super::stream::Stream;
use crate::cuda::devices::check::check_on;
use crate::cuda::devices::device::Device;
use crate::deadline::default_timeout;
use crate::error::Result;
use crate::sys;

/// `cudaStreamPerThread`: the default stream that each thread has on each device, which other libraries use where they were compiled for
/// that. It stays on its thread.
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::cuda::ThreadStream;
/// use gpucomm::{Device, DeviceBuffer};
///
/// # if Device::count().is_err() { return Ok(()) }
/// let stream = ThreadStream::new(Device::new(0)?)?;
/// let x = stream.enter(|stream| DeviceBuffer::from_slice(stream, &[1f32; 100]))??;
/// // What another library enqueues on the default stream of this thread now comes after the copy.
/// assert_eq!(stream.enter(|stream| x.to_vec(stream))??, [1.0; 100]);
/// # Ok(())
/// # }
/// ```
pub struct ThreadStream {
    /// What means the default stream on this thread.
    queue: Queue,
    /// Where the work goes.
    stream: Stream,
    _thread: PhantomData<*const ()>,
}

impl ThreadStream {
    /// The default stream of this thread on `device`.
    ///
    /// # Errors
    /// What CUDA says.
    pub fn new(device: Device) -> Result<Self> {
        let stream = Stream::new(device)?;
        let raw = std::ptr::without_provenance_mut(2);
        // Marks on it are of the serial number of the stream that follows them: they are waited for by that alone.
        let queue = Queue { raw, device, serial: stream.serial() };
        Ok(Self { queue, stream, _thread: PhantomData })
    }

    /// Its device.
    pub fn device(&self) -> Device {
        self.queue.device
    }

    /// `cudaStreamPerThread`, which means this stream where its device is current, on this thread. What is enqueued there is not known to
    /// this crate; see [`Stream::as_raw`].
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::ThreadStream;
    /// # use gpucomm::sys;
    /// # fn main() -> gpucomm::Result<()> {
    /// let stream = ThreadStream::new(Device::new(0)?)?;
    /// let _current = stream.device().set_current()?;
    /// // SAFETY: asks how far the default stream of this thread is.
    /// let code = unsafe { sys::cudaStreamQuery(stream.as_raw()) };
    /// assert_eq!(code, sys::cudaError::cudaSuccess);
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_raw(&self) -> sys::cudaStream_t {
        self.queue.raw
    }

    /// Wraps `cudaEventRecord` and `cudaStreamWaitEvent`: runs `f` with a stream for its work. That comes after all that was enqueued on the
    /// default stream of this thread before, and what is enqueued there afterwards comes after it.
    ///
    /// The stream is one like any other, the same each time. What is enqueued there otherwise than within `f` has no place in the order
    /// of the default stream until the next call. What `f` returns is handed on. Where it panics, the order is kept.
    ///
    /// # Errors
    /// [`Timeout`](crate::Error::Timeout) where too much is on its way; [`InvalidUsage`](crate::Error::InvalidUsage) within a host function,
    /// and while the default stream is being captured; what CUDA says.
    #[doc(alias("cudaEventRecord", "cudaStreamWaitEvent"))]
    pub fn enter<R>(&self, f: impl FnOnce(&Stream) -> R) -> Result<R> {
        const OPERATION: &str = "ThreadStream::enter";
        let _current = self.device().make_current(OPERATION)?;
        // Two that are waited for, and two recorded.
        self.stream.make_room(4 * ENTRY, OPERATION, default_timeout, || None)?;
        capture::refuse(OPERATION, self.queue)?;
        let before = Mark::record(self.queue, None)?;
        self.stream.in_flight().hold(self.stream.queue(), &before)?;
        let leave = Leave(self);
        let result = f(&self.stream);
        std::mem::forget(leave);
        self.leave().map(|()| result)
    }

    /// What is enqueued on the default stream from now on comes after the work of this crate.
    fn leave(&self) -> Result<()> {
        let _current = self.device().make_current("cudaStreamWaitEvent")?;
        // A new one, behind what others have enqueued here as well: nobody has counted that.
        let after = self.stream.in_flight().mark_anew(self.stream.queue())?;
        // SAFETY: both handles are alive, and of one device, which is current.
        let code = unsafe { sys::cudaStreamWaitEvent(self.queue.raw, after.raw(), 0) };
        check_on(self.device().ordinal(), "cudaStreamWaitEvent", code)
    }
}

/// Leaves where `f` has panicked.
struct Leave<'s>(&'s ThreadStream);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let _ = self.0.leave();
    }
}

impl fmt::Debug for ThreadStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadStream").field("device", &self.device()).finish_non_exhaustive()
    }
}
