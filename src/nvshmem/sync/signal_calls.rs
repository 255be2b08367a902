//! What a context does with signals.

use super::comparison::Comparison;
use super::signal::{Signal, SignalAt, SignalOp};
use crate::cuda::{Access, Busy, Lend, Stream};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::call::TRANSFER;
use crate::nvshmem::state::order::OrderUse;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

impl Context {
    /// Wraps `nvshmemx_signal_op_on_stream`, on a stream of the context, and waits for it: does `op` to `signal` at `pe`. The library itself has it for streams and
    /// kernels only.
    ///
    /// It comes after what this PE has put there before by [`put`](Self::put) where the PE [is near](Self::is_near), and otherwise after a [`quiet`](Self::quiet)
    /// between the two: streams have connections of their own, which a fence does not order.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, Pe, SignalOp, UniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, UniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let signals = ctx.alloc_signals(2)?;
    /// ctx.signal_op(signals.at(1), SignalOp::Set(9), Pe(0))?;
    /// assert_eq!(ctx.signal_fetch(signals.at(1))?, 9);
    /// # drop(signals);
    /// # ctx.finalize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a PE that there is none, and a signal of another context; [`Error::Timeout`] where streams of this PE write to its own signal for
    /// longer than the timeout.
    pub fn signal_op(&self, signal: Signal<'_>, op: SignalOp, pe: Pe) -> Result<()> {
        const OPERATION: &str = "Context::signal_op";
        let inner = self.inner();
        let signal = SignalAt::new(inner, OPERATION, signal, op, pe)?;
        inner.ready(OPERATION)?;
        let _waits = SharedDeadline::begin();
        // The stream is ordered after what comes meanwhile.
        drop(signal.wait_idle(inner, OPERATION)?);
        inner.on_own_stream(OPERATION, TRANSFER, &signal, |stream| signal.enqueue(stream))
    }

    /// Wraps `nvshmemx_signal_op_on_stream`: enqueues `op` on `signal` at `pe`. It can be part of a graph.
    ///
    /// It comes after what `stream` has put to that PE before by puts that block: they are delivered in order. It is not ordered with puts of other streams, nor
    /// with those of a [scope](Self::nonblocking_on_stream) that is not closed. At this PE itself, it comes after what other streams have written to the signal, but not
    /// after their waits for it.
    ///
    /// See [`SymmetricSignals`](crate::nvshmem::SymmetricSignals) for an example.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, Pe, SignalOp, UniqueId};
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, UniqueId::new()?);
    /// # let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let signals = ctx.alloc_signals(1)?;
    /// ctx.signal_op_on_stream(signals.at(0), SignalOp::Add(2), Pe(0), &stream)?;
    /// stream.synchronize()?;
    /// assert_eq!(ctx.signal_fetch(signals.at(0))?, 2);
    /// # drop(signals);
    /// # ctx.finalize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a PE that there is none, and a signal of another context; [`Error::Unsupported`] where a graph cannot have it with this
    /// driver; as [`Stream::launch`].
    pub fn signal_op_on_stream(&self, signal: Signal<'_>, op: SignalOp, pe: Pe, stream: &Stream) -> Result<()> {
        const OPERATION: &str = "Context::signal_op_on_stream";
        let inner = self.inner();
        let signal = SignalAt::new(inner, OPERATION, signal, op, pe)?;
        signal.check_part(OPERATION, stream)?;
        inner.on_stream(OPERATION, stream, TRANSFER, &signal, |stream| signal.enqueue(stream))
    }

    /// Wraps `nvshmem_signal_fetch`: `signal` of this PE, as it is now. First waits for what streams of this PE have written there, zeros for example.
    ///
    /// The library reads it on the legacy default stream of the device. So this waits first for the streams that take turns with that one
    /// ([`StreamOptions::non_blocking`](crate::cuda::StreamOptions::non_blocking)), within the timeout; streams of [`Stream::from_raw`] it does not see. It
    /// orders nothing: what came before the signal can be read where a stream has [waited](Self::signal_wait_until_on_stream) for it.
    ///
    /// See [`SymmetricSignals`](crate::nvshmem::SymmetricSignals) for an example.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, Pe, SignalOp, UniqueId};
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, UniqueId::new()?);
    /// # let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let signals = ctx.alloc_signals(1)?;
    /// assert_eq!(ctx.signal_fetch(signals.at(0))?, 0);
    /// # drop(signals);
    /// # ctx.finalize()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a signal of another context; [`Error::Timeout`] where streams write to it, or hold up the legacy default
    /// stream, for longer than the timeout; [`Error::InvalidUsage`] while one of the latter is being captured.
    pub fn signal_fetch(&self, signal: Signal<'_>) -> Result<u64> {
        const OPERATION: &str = "Context::signal_fetch";
        let (inner, word) = (self.inner(), signal.as_symmetric());
        word.check(OPERATION, "signal", inner)?;
        inner.ready(OPERATION)?;
        Busy::check_legacy_order(OPERATION, inner.device)?;
        let region = word.local().region();
        let _waits = SharedDeadline::begin();
        let _idle = inner.wait_idle(OPERATION, [(region.alloc, Access::Read)])?;
        inner.idle_in_legacy_order(OPERATION)?;
        // A capture may have begun meanwhile.
        Busy::check_legacy_order(OPERATION, inner.device)?;
        // SAFETY: a word of symmetric memory of this PE.
        inner.on_host(OPERATION, || unsafe { sys::nvshmem_signal_fetch(region.ptr().cast()) })
    }

    /// Wraps `nvshmemx_signal_wait_until_on_stream`: enqueues a wait until `signal` of this PE compares so with `value`: `signal >= value` with
    /// [`Comparison::Ge`]. It can be part of a graph.
    ///
    /// What a PE has put before it sent the signal, by [`put_signal_on_stream`](Self::put_signal_on_stream), or by blocking puts on the same stream, is here for
    /// later work of `stream`. Other streams know nothing of that, unless they are told: `arrives` is the memory that comes with the signal, such as `&mut buffer`, a
    /// slice, a tuple of such, or `()`. It counts as written by the wait: what this PE's other streams did with it before comes first, what they do with it
    /// later comes after.
    ///
    /// The wait comes after what streams of this PE have written to the signal, such as zeros, and such writes that are enqueued later come after the wait. The same
    /// is true of a put of this PE to itself that writes to the memory of the signal: on another stream, it waits for the wait. A signal does not.
    ///
    /// It waits for as long as it takes; who waits for the stream does so with a deadline. See [`put_signal_on_stream`](Self::put_signal_on_stream) for an example.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a signal of another context; [`Error::Unsupported`] where several PEs share a device without MPS; as [`Stream::launch`].
    pub fn signal_wait_until_on_stream(
        &self,
        signal: Signal<'_>,
        comparison: Comparison,
        value: u64,
        arrives: impl Lend,
        stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "Context::signal_wait_until_on_stream";
        let (inner, word) = (self.inner(), signal.as_symmetric());
        word.check(OPERATION, "signal", inner)?;
        inner.check_whole(OPERATION)?;
        let local = word.local();
        let place = local.region().ptr();
        let waits = OrderUse::shared(&*inner.waits);
        inner.on_stream(OPERATION, stream, TRANSFER, (local, arrives, waits), |stream| {
            // SAFETY: a word of symmetric memory of this PE, and a stream of its device.
            unsafe { sys::nvshmemx_signal_wait_until_on_stream(place.cast(), comparison.raw(), value, stream) };
        })
    }
}
