//! What a context does with signals.

use super::comparison::Comparison;
use super::signal::{Signal, SignalAt, SignalOp};
#[cfg(doc)]
use crate::cuda::Stream;
use crate::cuda::{Access, Busy, Lend};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::life::on_stream::OnStream;
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::call::TRANSFER;
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
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SignalOp, ContextUniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let signals = ctx.alloc_signals(2)?;
    /// ctx.signal_op(signals.at(1), SignalOp::Set(9), Pe(0))?;
    /// assert_eq!(ctx.signal_fetch(signals.at(1))?, 9);
    /// # drop(signals);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a PE that there is none, and a signal of another context; [`Error::Timeout`] where streams of this PE write to its own signal for
    /// longer than the timeout.
    #[doc(alias("nvshmemx_signal_op", "nvshmemx_signal_op_on_stream"))]
    pub fn signal_op(&self, signal: Signal<'_>, op: SignalOp, pe: Pe) -> Result<()> {
        self.on_host().signal_op(signal, op, pe)
    }

    /// Wraps `nvshmem_signal_fetch`: `signal` of this PE, as it is now. First waits for what streams of this PE have written there, zeros for example.
    ///
    /// The library reads it on the legacy default stream of the device. So this waits first for the streams that take turns with that one
    /// ([`StreamOptions::with_non_blocking`](crate::cuda::StreamOptions::with_non_blocking)), within the timeout; streams of [`Stream::from_raw`] it does not see. It
    /// orders nothing: what came before the signal can be read where a stream has [waited](OnStream::signal_wait_until) for it.
    ///
    /// See [`SymmetricSignals`](crate::nvshmem::SymmetricSignals) for an example.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SignalOp, ContextUniqueId};
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let signals = ctx.alloc_signals(1)?;
    /// assert_eq!(ctx.signal_fetch(signals.at(0))?, 0);
    /// # drop(signals);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a signal of another context; [`Error::Timeout`] where streams write to it, or hold up the legacy default
    /// stream, for longer than the timeout; [`Error::InvalidUsage`] while one of the latter is being captured.
    #[doc(alias = "nvshmem_signal_fetch")]
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
}

impl OnStream<'_> {
    /// Enqueues [`Context::signal_op`]. Wraps `nvshmemx_signal_op_on_stream`.
    ///
    /// It comes after what the stream has put to that PE before by puts that block: they are delivered in order. It is not ordered with puts of other streams, nor
    /// with those of a [scope](Self::nonblocking) that is not closed. At this PE itself, it comes after what other streams have written to the signal, but not
    /// after their waits for it.
    ///
    /// See [`SymmetricSignals`](crate::nvshmem::SymmetricSignals) for an example.
    ///
    /// # Errors
    /// See [`OnStream`]; [`Error::Unsupported`] where a graph cannot have it with this driver.
    #[doc(alias = "nvshmemx_signal_op_on_stream")]
    pub fn signal_op(&self, signal: Signal<'_>, op: SignalOp, pe: Pe) -> Result<()> {
        let (inner, place) = self.at("Context::signal_op", "OnStream::signal_op");
        let signal = SignalAt::new(inner, place.operation, signal, op, pe)?;
        signal.check_part(place)?;
        let idle = || signal.wait_idle(inner, place.operation);
        inner.on_some_stream(place, TRANSFER, &signal, idle, |stream| signal.enqueue(stream))
    }

    /// Enqueues a wait until `signal` of this PE compares so with `value`: `signal >= value` with [`Comparison::Ge`]. Wraps
    /// `nvshmemx_signal_wait_until_on_stream`.
    ///
    /// What a PE has put before it sent the signal, by [`put_signal`](Self::put_signal), or by blocking puts on the same stream, is here for
    /// later work of the stream. Other streams know nothing of that, unless they are told: `arrives` is the memory that comes with the signal, such as `&mut buffer`, a
    /// slice, a tuple of such, or `()`. It counts as written by the wait: what this PE's other streams did with it before comes first, what they do with it
    /// later comes after.
    ///
    /// The wait comes after what streams of this PE have written to the signal, such as zeros, and such writes that are enqueued later come after the wait. The same
    /// is true of a put of this PE to itself that writes to the memory of the signal: on another stream, it waits for the wait. A signal does not.
    ///
    /// It waits for as long as it takes; who waits for the stream does so with a deadline. See [`put_signal`](Self::put_signal) for an example.
    ///
    /// # Errors
    /// See [`OnStream`]; [`Error::InvalidArgument`] for a signal of another context; [`Error::Unsupported`] where several PEs share a device without MPS.
    #[doc(alias = "nvshmemx_signal_wait_until_on_stream")]
    pub fn signal_wait_until(
        &self,
        signal: Signal<'_>,
        comparison: Comparison,
        value: u64,
        arrives: impl Lend,
    ) -> Result<()> {
        const OPERATION: &str = "OnStream::signal_wait_until";
        let local = self.awaited(OPERATION, ("signal", signal.as_symmetric()))?;
        let place = local.region().ptr();
        self.wait_for(OPERATION, (local, arrives), |stream| {
            // SAFETY: a word of symmetric memory of this PE, and a stream of its device.
            unsafe { sys::nvshmemx_signal_wait_until_on_stream(place.cast(), comparison.raw(), value, stream) };
        })
    }
}
