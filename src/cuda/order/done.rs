//! The end of a stream's work, or what is before an event, as a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::stream::Stream;
use super::wait::{Ask, Wait};
use super::watch::Watched;
use crate::deadline::{Deadline, default_timeout};
use crate::error::Result;

/// What [`Stream::done`] and [`Event::done`](crate::Event::done) return: a future that is ready when the work is done, or has failed, or
/// its deadline has passed. It borrows nothing, keeps a handle of the stream or the event, works with any executor, and may be dropped at
/// any time.
#[derive(Debug)]
#[must_use = "a future tells nothing before it is awaited"]
pub struct Done {
    watched: Arc<Watched>,
}

impl Done {
    /// Of a wait, or why it could not begin.
    pub(crate) fn of(wait: Result<impl Ask + 'static>) -> Self {
        Self { watched: Watched::new(wait) }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        self.watched.give_up();
    }
}

impl Future for Done {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.watched.poll(context.waker())
    }
}

impl Stream {
    /// Wraps `cudaEventQuery`: a future of the moment when the work is done that is on the stream now; as [`Stream::synchronize`], without
    /// blocking a thread.
    ///
    /// The default timeout begins with this call. A thread of this crate looks how far the stream is: at first every few microseconds, in a
    /// long wait each half a millisecond.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Result, Stream};
    /// async fn squares(stream: &Stream, buffer: &DeviceBuffer<f32>) -> Result<Vec<f32>> {
    ///     stream.done().await?;
    ///     // This does not wait any more.
    ///     buffer.to_vec(stream)
    /// }
    /// # fn main() -> Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # let buffer = DeviceBuffer::from_slice(&stream, &[4.0, 9.0])?;
    /// # use std::task::{Context, Poll, Waker};
    /// # let mut future = std::pin::pin!(squares(&stream, &buffer));
    /// # let values = loop {
    /// #     if let Poll::Ready(values) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
    /// #         break values?;
    /// #     }
    /// # };
    /// # assert_eq!(values, [4.0, 9.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The future ends with those of [`Stream::synchronize_timeout`]. A rank of [`Clique::spmd`](crate::Clique::spmd) that has left is told at the deadline
    /// only where the future is not polled meanwhile by the thread that runs the program.
    #[doc(alias = "cudaEventQuery")]
    pub fn done(&self) -> Done {
        self.done_for("Stream::done", default_timeout())
    }

    /// Wraps `cudaEventQuery`: as [`Stream::done`], with a timeout that begins with this call.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// # use std::task::{Context, Poll, Waker};
    /// let mut x = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    /// x.fill(&stream, 1.0)?;
    /// let done = stream.done_timeout(Duration::from_secs(10));
    /// // Awaited by any executor: `done.await?`.
    /// # let mut done = std::pin::pin!(done);
    /// # let waker = Waker::noop();
    /// # while let Poll::Pending = done.as_mut().poll(&mut Context::from_waker(waker)) {}
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaEventQuery")]
    pub fn done_timeout(&self, timeout: Duration) -> Done {
        self.done_for("Stream::done_timeout", timeout)
    }

    fn done_for(&self, operation: &'static str, timeout: Duration) -> Done {
        Done::of(Wait::begin(operation, self, Deadline::after(timeout)))
    }
}
