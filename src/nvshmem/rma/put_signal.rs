//! Puts that tell the other PE when they are there.

use std::ffi::{c_int, c_void};

use super::transfer::{Ends, Transfer};
use crate::cuda::{Lend, LentUses};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nvshmem::life::context::Context;
use crate::nvshmem::life::on_stream::OnStream;
use crate::nvshmem::memory::local::{AsLocal, Local};
use crate::nvshmem::memory::slice::{AsSymmetric, SymmetricSlice};
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::call::TRANSFER;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::wait_idle::IdleGuard;
use crate::nvshmem::sync::signal::{Signal, SignalAt, SignalOp};
use crate::shared_deadline::SharedDeadline;
use crate::sys;

type Call = unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut u64, u64, c_int, c_int, sys::cudaStream_t);

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
        self.enqueue_by(sys::nvshmemx_putmem_signal_on_stream, stream);
    }

    /// Enqueues the non-blocking form. The memory is lent until after the quiet that the caller enqueues.
    pub(crate) fn enqueue_nbi(&self, stream: sys::cudaStream_t) {
        self.enqueue_by(sys::nvshmemx_putmem_signal_nbi_on_stream, stream);
    }

    fn enqueue_by(&self, call: Call, stream: sys::cudaStream_t) {
        if self.transfer.is_empty() {
            return self.signal.enqueue(stream);
        }
        let (Ends { to, from, bytes, pe }, (signal, value, op)) = (self.transfer.raw(), self.signal.raw());
        // SAFETY: symmetric memory of so many bytes, local memory of as many that is ordered and lent for as long as the call wants it, a signal, a PE, and a
        // stream of its device.
        unsafe { call(to, from, bytes, signal, value, op, pe, stream) };
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
    /// there: who sees the signal finds the elements. The library itself has it for streams and kernels only.
    ///
    /// When it returns `source` may be used again; at a PE that is near, the elements and the signal are there. Without elements, it is the signal alone. See
    /// [`put`](Self::put) for the operands.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, SignalOp, ContextUniqueId, Pe}; use gpucomm::{Device, PinnedBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (target, arrived) = (ctx.alloc::<f64>(2)?, ctx.alloc_signals(1)?);
    /// ctx.put_signal(&target, &PinnedBuffer::from_slice(&[0.5f64, 2.0])?, arrived.at(0), SignalOp::Add(1), Pe(0))?;
    /// assert_eq!((ctx.signal_fetch(arrived.at(0))?, target.to_vec(&stream)?), (1, vec![0.5, 2.0]));
    /// # drop((target, arrived)); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::InvalidArgument`] for a signal of another context.
    #[doc(alias("nvshmem_putmem_signal", "nvshmemx_putmem_signal_on_stream"))]
    pub fn put_signal<'a, T: Element>(
        &self,
        dest: impl AsSymmetric<'a, T>,
        source: impl AsLocal<'a, T>,
        signal: Signal<'a>,
        op: SignalOp,
        pe: Pe,
    ) -> Result<()> {
        self.on_host().put_signal(dest, source, signal, op, pe)
    }
}

impl OnStream<'_> {
    /// Enqueues [`Context::put_signal`]. Wraps `nvshmemx_putmem_signal_on_stream`.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Comparison, Context, ContextOptions, SignalOp, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let next = Pe((ctx.pe().0 + 1) % ctx.n_pes());
    /// let (mut target, arrived) = (ctx.alloc::<f64>(2)?, ctx.alloc_signals(1)?);
    /// let source = DeviceBuffer::from_slice(&stream, &[0.5f64, 2.0])?;
    /// ctx.on(&stream).put_signal(&target, &source, arrived.at(0), SignalOp::Set(1), next)?;
    /// ctx.on(&stream).signal_wait_until(arrived.at(0), Comparison::Ge, 1, &mut target)?;
    /// assert_eq!(target.to_vec(&stream)?, [0.5, 2.0]);
    /// # drop((target, arrived)); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// See [`OnStream`] and [`signal_op`](Self::signal_op).
    #[doc(alias = "nvshmemx_putmem_signal_on_stream")]
    pub fn put_signal<'a, T: Element>(
        &self,
        dest: impl AsSymmetric<'a, T>,
        source: impl AsLocal<'a, T>,
        signal: Signal<'a>,
        op: SignalOp,
        pe: Pe,
    ) -> Result<()> {
        let operands = (dest.into(), source.local_operand());
        let (inner, place) = self.at("Context::put_signal", "OnStream::put_signal");
        let put = SignalPut::new(inner, place.operation, operands, signal, op, pe)?;
        put.signal.check_part(place)?;
        let idle = || put.wait_idle(inner, place.operation);
        inner.on_some_stream(place, 2 * TRANSFER, &put, idle, |stream| put.enqueue(stream))
    }
}
