//! The operations of a context on a stream.

use std::sync::Arc;

use super::context::Context;
use crate::cuda::Stream;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::place::Place;

/// The operations of a [`Context`] on a stream, made by [`Context::on`]. Each method enqueues what the method of the context with the same name
/// does, and returns at once.
///
/// Later work of the stream may use the operands. All but [`put_value`](Self::put_value) and [`nonblocking`](Self::nonblocking) can be part of a
/// [graph](Stream::capture).
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe, SignalOp, Strides}; use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let (data, mut source) = (ctx.alloc::<u8>(5)?, DeviceBuffer::from_slice(&stream, b"hello")?);
/// let mut copy = DeviceBuffer::<u8>::zeroed(&stream, 5)?;
/// let on_stream = ctx.on(&stream);
/// on_stream.put(&data, &source, Pe(0))?;
/// // The source may be written again.
/// on_stream.flush()?;
/// source.fill(&stream, 0)?;
/// on_stream.put_value(data.symmetric(..1), b'j', Pe(0))?;
/// // All that was put is there.
/// on_stream.barrier_all()?;
/// on_stream.get(&mut copy, &data, Pe(0))?;
/// assert_eq!(copy.to_vec(&stream)?, b"jello");
/// // Every second one there and back, a signal, and transfers side by side.
/// let (signals, each_second) = (ctx.alloc_signals(1)?, Strides { dest: 2, source: 2 });
/// on_stream.iput(&data, &copy, each_second, 3, Pe(0))?;
/// on_stream.iget(&mut copy, &data, each_second, 3, Pe(0))?;
/// on_stream.quiet()?;
/// on_stream.signal_op(signals.at(0), SignalOp::Set(1), Pe(0))?;
/// on_stream.sync_all()?;
/// on_stream.nonblocking(|scope| scope.get(&mut copy, &data, Pe(0)))?;
/// assert_eq!(copy.to_vec(&stream)?, b"jello");
/// # drop((data, signals)); ctx.close()?; Ok(()) }
/// ```
///
/// # Errors
/// Each method returns what the method of the context returns, but does not wait for other work. All return
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a stream of another device, and what [`Stream::launch`] returns.
#[derive(Debug, Clone, Copy)]
#[must_use = "it enqueues nothing until one of its methods is called"]
pub struct OnStream<'c> {
    ctx: &'c Context,
    stream: &'c Stream,
    /// These are the methods of the context itself, on the host.
    on_host: bool,
}

impl Context {
    /// The operations of this context that enqueue on `stream`: `ctx.put(…)` waits, `ctx.on(&stream).put(…)` enqueues.
    #[inline]
    pub fn on<'c>(&'c self, stream: &'c Stream) -> OnStream<'c> {
        OnStream { ctx: self, stream, on_host: false }
    }

    /// The same operations on the host, which wait.
    #[inline]
    pub(crate) fn on_host(&self) -> OnStream<'_> {
        OnStream { ctx: self, stream: &self.inner().stream, on_host: true }
    }
}

impl<'c> OnStream<'c> {
    #[inline]
    pub(crate) fn inner(self) -> &'c Arc<Inner> {
        self.ctx.inner()
    }

    #[inline]
    pub(crate) fn stream(self) -> &'c Stream {
        self.stream
    }

    /// The context, and where an operation is done that has these names.
    #[inline]
    pub(crate) fn at(self, host: &'static str, enqueued: &'static str) -> (&'c Arc<Inner>, Place<'c>) {
        (self.inner(), Place::new((!self.on_host).then_some(self.stream), host, enqueued))
    }
}
