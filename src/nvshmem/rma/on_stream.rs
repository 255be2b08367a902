//! Transfers on a stream that do not wait for each other, in a scope that ends with quiet.

use super::put_signal::SignalPut;
use super::transfer::Transfer;
use crate::cuda::{Lend, LentUses};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
#[cfg(doc)]
use crate::nvshmem::life::context::Context;
use crate::nvshmem::life::on_stream::OnStream;
use crate::nvshmem::memory::local::{AsLocal, AsLocalMut};
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::call::{COLLECTIVE, TRANSFER};
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::order::OrderUse;
use crate::nvshmem::sync::signal::{Signal, SignalOp};
use crate::sys;

const SCOPE: &str = "OnStream::nonblocking";

/// So many transfers go before one quiet.
const AT_ONCE: usize = 32;

/// What [`OnStream::nonblocking`] gives to its closure: puts and gets that go on side by side.
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SignalOp, ContextUniqueId};
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # let stream = Stream::new(device)?;
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let (target, signals) = (ctx.alloc::<u32>(4)?, ctx.alloc_signals(1)?);
/// let source = DeviceBuffer::from_slice(&stream, &[1u32, 2])?;
/// let (mut got, others) = (DeviceBuffer::<u32>::zeroed(&stream, 2)?, ctx.alloc::<u32>(2)?);
/// ctx.on(&stream).nonblocking(|scope| {
///     for pe in 0..scope.n_pes() {
///         scope.put(target.symmetric(..2), &source, Pe(pe))?;
///         scope.put_signal(target.symmetric(2..), &source, signals.at(0), SignalOp::Add(1), Pe(pe))?;
///     }
///     scope.get(&mut got, &others, Pe(0))
/// })?;
/// assert_eq!(target.to_vec(&stream)?, [1, 2, 1, 2]);
/// # drop((target, signals, others));
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
pub struct StreamScope<'s, 'm> {
    inner: &'s Inner,
    all: Vec<One<'m>>,
}

/// One transfer.
enum One<'m> {
    Transfer(Transfer<'m>),
    PutSignal(SignalPut<'m>),
}

impl OnStream<'_> {
    /// Wraps `nvshmemx_putmem_nbi_on_stream`, `nvshmemx_getmem_nbi_on_stream`, `nvshmemx_putmem_signal_nbi_on_stream` and `nvshmemx_quiet_on_stream`: enqueues
    /// the transfers that `f` asks for, which begin when the stream has come to them and go on side by side, and behind them what waits for all of them.
    ///
    /// They are enqueued when `f` has returned, and none where it fails. Later work of the stream finds all of them done: what was put is at the other PEs, what
    /// was got is here. The library has streams of its own for them, so they are no part of a graph. It waits for the transfers of all scopes: one that
    /// is held up on its stream holds up later ones on other streams.
    ///
    /// # Errors
    /// What `f` returns; [`Error::InvalidUsage`] for a stream that is lent to a capture; as [`Stream::launch`](crate::Stream::launch).
    #[doc(alias = "nvshmemx_quiet_on_stream")]
    #[doc(alias(
        "nvshmemx_putmem_nbi_on_stream",
        "nvshmemx_getmem_nbi_on_stream",
        "nvshmemx_putmem_signal_nbi_on_stream"
    ))]
    pub fn nonblocking<'m, R>(&self, f: impl FnOnce(&mut StreamScope<'_, 'm>) -> Result<R>) -> Result<R> {
        let (inner, stream) = (self.inner(), self.stream());
        inner.ready(SCOPE)?;
        inner.check_stream(SCOPE, stream)?;
        // The library's own streams would become part of the graph, and of no use for anything else until its end.
        stream.no_part_of_capture(SCOPE)?;
        let mut scope = StreamScope { inner, all: Vec::new() };
        let result = f(&mut scope)?;
        for some in scope.all.chunks(AT_ONCE) {
            let memory = (Chunk(some), OrderUse::shared(&*inner.beside));
            inner.on_stream(SCOPE, stream, TRANSFER * some.len() + COLLECTIVE, memory, |stream| {
                some.iter().for_each(|one| one.enqueue(stream));
                // SAFETY: the library runs.
                unsafe { sys::nvshmemx_quiet_on_stream(stream) };
            })?;
        }
        Ok(result)
    }
}

impl<'m> StreamScope<'_, 'm> {
    /// How many PEs there are.
    pub fn n_pes(&self) -> usize {
        self.inner.n_pes
    }

    /// Wraps `nvshmemx_putmem_nbi_on_stream`: copies `source` to `dest` on `pe`. See [`Context::put`] for the operands.
    ///
    /// # Errors
    /// As [`Context::put`], at once.
    #[doc(alias = "nvshmemx_putmem_nbi_on_stream")]
    pub fn put<T: Element>(
        &mut self,
        dest: impl AsSymmetric<'m, T>,
        source: impl AsLocal<'m, T>,
        pe: Pe,
    ) -> Result<()> {
        let transfer = Transfer::put(self.inner, "StreamScope::put", dest.into(), source.local_operand(), pe)?;
        self.all.extend((!transfer.is_empty()).then_some(One::Transfer(transfer)));
        Ok(())
    }

    /// Wraps `nvshmemx_getmem_nbi_on_stream`: copies `source` on `pe` to `dest`. See [`Context::get`] for the operands.
    ///
    /// # Errors
    /// As [`Context::put`], at once.
    #[doc(alias = "nvshmemx_getmem_nbi_on_stream")]
    pub fn get<T: Element>(
        &mut self,
        dest: impl AsLocalMut<'m, T>,
        source: impl AsSymmetric<'m, T>,
        pe: Pe,
    ) -> Result<()> {
        let transfer = Transfer::get(self.inner, "StreamScope::get", dest.local_operand(), source.into(), pe)?;
        self.all.extend((!transfer.is_empty()).then_some(One::Transfer(transfer)));
        Ok(())
    }

    /// Wraps `nvshmemx_putmem_signal_nbi_on_stream`: copies `source` to `dest` on `pe`, and then does `op` to `signal` there. See
    /// [`Context::put_signal`].
    ///
    /// # Errors
    /// As [`Context::put`], at once.
    #[doc(alias = "nvshmemx_putmem_signal_nbi_on_stream")]
    pub fn put_signal<T: Element>(
        &mut self,
        dest: impl AsSymmetric<'m, T>,
        source: impl AsLocal<'m, T>,
        signal: Signal<'m>,
        op: SignalOp,
        pe: Pe,
    ) -> Result<()> {
        let operands = (dest.into(), source.local_operand());
        let put = SignalPut::new(self.inner, "StreamScope::put_signal", operands, signal, op, pe)?;
        self.all.push(One::PutSignal(put));
        Ok(())
    }
}

impl One<'_> {
    fn enqueue(&self, stream: sys::cudaStream_t) {
        match self {
            Self::Transfer(transfer) => transfer.enqueue_nbi(stream),
            Self::PutSignal(put) => put.enqueue_nbi(stream),
        }
    }

    fn add_to<'s>(&'s self, uses: &mut LentUses<'s>) {
        match self {
            Self::Transfer(transfer) => transfer.add_to(uses),
            Self::PutSignal(put) => put.add_to(uses),
        }
    }
}

/// Those of one bracket.
struct Chunk<'c, 'm>(&'c [One<'m>]);

impl Lend for Chunk<'_, '_> {
    type Lent<'l> = ();

    fn uses<'s>(&'s self, uses: &mut LentUses<'s>) {
        self.0.iter().for_each(|one| one.add_to(uses));
    }

    fn lent<'l>(&self) -> Self::Lent<'l> {}
}

impl std::fmt::Debug for StreamScope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamScope").field("pe", &self.inner.pe).field("transfers", &self.all.len()).finish()
    }
}
