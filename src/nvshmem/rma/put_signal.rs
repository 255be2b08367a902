//! Puts that tell the other PE when they are there.

use super::transfer::Transfer;
use crate::cuda::{Lend, LentUses, Stream};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::memory::local::{AsLocal, Local};
use crate::nvshmem::memory::slice::{AsSymmetric, SymmetricSlice};
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::call::TRANSFER;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::wait_idle::IdleGuard;
use crate::nvshmem::sync::signal::{Signal, SignalAt, SignalOp};
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// A put with the signal that follows it.
pub(crate) struct SignalPut<'m> {
    transfer: Transfer<'m>,
    signal: SignalAt<'m>,
}

impl<'m> SignalPut<'m> {
    pub(crate) fn new<T: Element>(
        inner: &Inner,
        operation: &'static str,
        (dest, source): (SymmetricSlice<'m, T>, Local<'m>),
        signal: Signal<'m>,
        op: SignalOp,
        pe: Pe,
    ) -> Result<Self> {
        let transfer = Transfer::put(inner, operation, dest, source, pe)?;
        Ok(Self { transfer, signal: SignalAt::new(inner, operation, signal, op, pe)? })
    }

    /// Adds the memory that the launch uses.
    pub(crate) fn add_to<'s>(&'s self, uses: &mut LentUses<'s>) {
        if !self.transfer.is_empty() {
            self.transfer.add_to(uses);
        }
        self.signal.add_to(uses);
    }

    /// Waits until no stream of this PE does anything with the memory that conflicts.
    pub(crate) fn wait_idle(&self, inner: &Inner, operation: &'static str) -> Result<(IdleGuard<'m>, IdleGuard<'m>)> {
        let _waits = SharedDeadline::begin();
        Ok((self.transfer.wait_idle(inner, operation)?, self.signal.wait_idle(inner, operation)?))
    }

    fn enqueue(&self, stream: sys::cudaStream_t) {
        if self.transfer.is_empty() {
            return self.signal.enqueue(stream);
        }
        let (ends, (signal, value, op)) = (self.transfer.raw(), self.signal.raw());
        // SAFETY: symmetric memory of so many bytes, local memory of as many that is ordered, a signal, a PE, and a stream of its device.
        unsafe {
            sys::nvshmemx_putmem_signal_on_stream(
                ends.remote,
                ends.local,
                ends.bytes,
                signal,
                value,
                op,
                ends.pe,
                stream,
            );
        }
    }

    /// Enqueues the non-blocking form. The caller enqueues the quiet.
    pub(crate) fn enqueue_nbi(&self, stream: sys::cudaStream_t) {
        if self.transfer.is_empty() {
            return self.signal.enqueue(stream);
        }
        let (ends, (signal, value, op)) = (self.transfer.raw(), self.signal.raw());
        // SAFETY: as above, and the memory is lent until after that quiet.
        unsafe {
            sys::nvshmemx_putmem_signal_nbi_on_stream(
                ends.remote,
                ends.local,
                ends.bytes,
                signal,
                value,
                op,
                ends.pe,
                stream,
            );
        }
    }
}

impl Lend for &SignalPut<'_> {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        self.add_to(uses);
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}

impl Context {
    /// Wraps `nvshmemx_putmem_signal_on_stream`, on a stream of the context, and waits for it: copies `source` to `dest` on `pe`, and then does `op` to `signal`
    /// there. The library itself has it for streams and kernels only.
    ///
    /// When it returns `source` may be used again; at a PE that is near, the elements and the signal are there. Without elements, it is the signal alone. See
    /// [`put`](Self::put) for the operands.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, SignalOp, UniqueId, Pe}; use gpucomm::{Device, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let (target, arrived) = (ctx.alloc::<f64>(2)?, ctx.alloc_signals(1)?);
    /// ctx.put_signal(&target, &PinnedBuffer::from_slice(&[0.5f64, 2.0])?, arrived.at(0), SignalOp::Add(1), Pe(0))?;
    /// assert_eq!((ctx.signal_fetch(arrived.at(0))?, target.to_vec(&stream)?), (1, vec![0.5, 2.0]));
    /// # drop((target, arrived)); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::InvalidArgument`] for a signal of another context.
    pub fn put_signal<'a, T: Element>(
        &self,
        dest: impl AsSymmetric<'a, T>,
        source: impl AsLocal<'a, T>,
        signal: Signal<'a>,
        op: SignalOp,
        pe: Pe,
    ) -> Result<()> {
        const OPERATION: &str = "Context::put_signal";
        let inner = self.inner();
        let put = SignalPut::new(inner, OPERATION, (dest.into(), source.local_operand()), signal, op, pe)?;
        inner.ready(OPERATION)?;
        let _waits = SharedDeadline::begin();
        // The stream is ordered after what comes meanwhile.
        drop(put.wait_idle(inner, OPERATION)?);
        inner.on_own_stream(OPERATION, 2 * TRANSFER, &put, |stream| put.enqueue(stream))
    }

    /// Wraps `nvshmemx_putmem_signal_on_stream`: enqueues a copy of `source` to `dest` on `pe`, and behind it `op` on `signal` there: who sees the signal finds the
    /// elements. It can be part of a graph.
    ///
    /// Later work of `stream` may use `source`. Without elements, it is the signal alone. See [`put_on_stream`](Self::put_on_stream) for the operands.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Comparison, Context, SignalOp, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let next = Pe((ctx.pe().0 + 1) % ctx.n_pes());
    /// let (mut target, arrived) = (ctx.alloc::<f64>(2)?, ctx.alloc_signals(1)?);
    /// let source = DeviceBuffer::from_slice(&stream, &[0.5f64, 2.0])?;
    /// ctx.put_signal_on_stream(&target, &source, arrived.at(0), SignalOp::Set(1), next, &stream)?;
    /// ctx.signal_wait_until_on_stream(arrived.at(0), Comparison::Ge, 1, &mut target, &stream)?;
    /// assert_eq!(target.to_vec(&stream)?, [0.5, 2.0]);
    /// # drop((target, arrived)); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put_on_stream`](Self::put_on_stream); as [`signal_op_on_stream`](Self::signal_op_on_stream).
    pub fn put_signal_on_stream<'a, T: Element>(
        &self,
        dest: impl AsSymmetric<'a, T>,
        source: impl AsLocal<'a, T>,
        signal: Signal<'a>,
        op: SignalOp,
        pe: Pe,
        stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "Context::put_signal_on_stream";
        let inner = self.inner();
        let put = SignalPut::new(inner, OPERATION, (dest.into(), source.local_operand()), signal, op, pe)?;
        put.signal.check_part(OPERATION, stream)?;
        inner.on_stream(OPERATION, stream, 2 * TRANSFER, &put, |stream| put.enqueue(stream))
    }
}
