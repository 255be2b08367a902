//! Transfers on the host that do not block, in a scope that waits for them.

use std::marker::PhantomData;

use super::put_signal::SignalPut;
use super::transfer::Transfer;
use crate::cuda::{Lends, undisturbing};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::life::context::Context;
use crate::nvshmem::memory::local::{AsLocal, AsLocalMut};
use crate::nvshmem::memory::slice::AsSymmetric;
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::call::TRANSFER;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::wait_idle::IdleGuard;
use crate::nvshmem::state::wait_state::Awaited;
use crate::nvshmem::sync::signal::{Signal, SignalOp};
use crate::shared_deadline::SharedDeadline;
use crate::sys;

const SCOPE: &str = "Context::nonblocking";

/// What [`Context::nonblocking`] gives to its closure: puts and gets that are under way when they return, and done when the scope is.
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SignalOp, ContextUniqueId};
/// # use gpucomm::{Device, DeviceBuffer, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # let stream = Stream::new(device)?;
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let (target, others, came) = (ctx.alloc::<u32>(2)?, ctx.alloc::<u32>(2)?, ctx.alloc_signals(1)?);
/// let source = DeviceBuffer::from_slice(&stream, &[1u32, 2])?;
/// let mut got = DeviceBuffer::<u32>::zeroed(&stream, 2)?;
/// ctx.nonblocking(|scope| {
///     for pe in 0..scope.n_pes() {
///         scope.put(&target, &source, Pe(pe))?;
///     }
///     // What is put from here on comes after that, on each PE.
///     scope.fence()?;
///     scope.put_signal(target.symmetric(..1), source.slice(1..), came.at(0), SignalOp::Add(1), Pe(0))?;
///     scope.get(&mut got, &others, Pe(0))
/// })?;
/// assert_eq!((target.to_vec(&stream)?, ctx.signal_fetch(came.at(0))?), (vec![2, 2], 1));
/// # drop((target, others, came));
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
pub struct NonblockingScope<'s, 'm> {
    pub(super) inner: &'s Inner,
    /// Whether [`batched`](Self::batched) runs.
    pub(super) batched: bool,
    /// Whether something was given to the context's own stream.
    signalled: bool,
    /// No graph begins anything on the streams of the library.
    _beside: IdleGuard<'s>,
    /// The memory is used until the end.
    held: Vec<(IdleGuard<'m>, Lends)>,
    /// What is lent is so on one thread.
    _memory: PhantomData<(&'m mut (), *const ())>,
}

impl Context {
    /// Wraps `nvshmem_putmem_nbi`, `nvshmem_getmem_nbi`, `nvshmemx_putmem_signal_nbi_on_stream` and `nvshmem_quiet`: runs `f`, whose transfers go on side by side, and waits for all of them.
    ///
    /// When this returns, all transfers are done: what was put is at the other PEs, what was got is here. This is so as well where `f` fails or panics. The
    /// operands are borrowed until then. Within `f`, other calls of the context are errors, and so is the launch of a graph that uses what was lent before.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let (target, mut got) = (ctx.alloc::<u32>(4)?, DeviceBuffer::<u32>::zeroed(&stream, 2)?);
    /// let source = DeviceBuffer::from_slice(&stream, &[1u32, 2])?;
    /// let others = ctx.alloc::<u32>(2)?;
    /// ctx.nonblocking(|scope| {
    ///     for pe in 0..scope.n_pes() {
    ///         scope.put(target.symmetric(..2), &source, Pe(pe))?;
    ///     }
    ///     // The host has time for other things.
    ///     scope.get(&mut got, &others, Pe(0))
    /// })?;
    /// ctx.barrier_all()?;
    /// assert_eq!((target.to_vec(&stream)?, got.to_vec(&stream)?), (vec![1, 2, 0, 0], vec![0, 0]));
    /// # drop((target, others)); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// What is lent outlives the scope:
    ///
    /// ```compile_fail,E0597
    /// # use gpucomm::nvshmem::{Context, Pe, SymmetricBuffer}; use gpucomm::{DeviceBuffer, Result, Stream};
    /// fn too_short(ctx: &Context, target: &SymmetricBuffer<'_, u32>, stream: &Stream) -> Result<()> {
    ///     ctx.nonblocking(|scope| {
    ///         let source = DeviceBuffer::from_slice(stream, &[1u32, 2])?;
    ///         scope.put(target, &source, Pe(0))
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// What `f` returns; [`Error::InvalidUsage`] within another such scope; [`Error::Timeout`] where streams use what was lent to scopes on streams for longer
    /// than the timeout.
    #[doc(alias("nvshmemx_putmem_signal_nbi_on_stream", "nvshmem_quiet"))]
    #[doc(alias("nvshmem_putmem_nbi", "nvshmem_getmem_nbi"))]
    pub fn nonblocking<'m, R>(&self, f: impl FnOnce(&mut NonblockingScope<'_, 'm>) -> Result<R>) -> Result<R> {
        let inner = self.inner();
        inner.ready(SCOPE)?;
        let beside = inner.wait_idle_beside(SCOPE)?;
        inner.set_scoped(true);
        let mut scope = NonblockingScope {
            inner,
            batched: false,
            signalled: false,
            _beside: beside,
            held: Vec::new(),
            _memory: PhantomData,
        };
        f(&mut scope)
    }
}

impl<'m> NonblockingScope<'_, 'm> {
    /// How many PEs there are.
    pub fn n_pes(&self) -> usize {
        self.inner.n_pes
    }

    /// Wraps `nvshmem_putmem_nbi`: begins to copy `source` to `dest` on `pe`. See [`Context::put`] for the operands. First it waits for what streams do
    /// with `source`.
    ///
    /// # Errors
    /// As [`Context::put`].
    #[doc(alias = "nvshmem_putmem_nbi")]
    pub fn put<T: Element>(
        &mut self,
        dest: impl AsSymmetric<'m, T>,
        source: impl AsLocal<'m, T>,
        pe: Pe,
    ) -> Result<()> {
        const OPERATION: &str = "NonblockingScope::put";
        let transfer = Transfer::put(self.inner, OPERATION, dest.into(), source.local_operand(), pe)?;
        self.begin(OPERATION, &transfer)
    }

    /// Wraps `nvshmem_getmem_nbi`: begins to copy `source` on `pe` to `dest`. See [`Context::get`] for the operands. First it waits for what streams do
    /// with `dest`.
    ///
    /// # Errors
    /// As [`Context::put`].
    #[doc(alias = "nvshmem_getmem_nbi")]
    pub fn get<T: Element>(
        &mut self,
        dest: impl AsLocalMut<'m, T>,
        source: impl AsSymmetric<'m, T>,
        pe: Pe,
    ) -> Result<()> {
        const OPERATION: &str = "NonblockingScope::get";
        let transfer = Transfer::get(self.inner, OPERATION, dest.local_operand(), source.into(), pe)?;
        self.begin(OPERATION, &transfer)
    }

    /// Wraps `nvshmemx_putmem_signal_nbi_on_stream`, on a stream of the context: begins to copy `source` to `dest` on `pe`, and then does `op` to `signal` there. See
    /// [`Context::put_signal`]. The signal comes after what was put there before where a [`fence`](Self::fence) stands between the two
    /// and `pe` [is near](Context::is_near); over a network, only where the scope has ended before.
    ///
    /// # Errors
    /// As [`Context::put_signal`].
    #[doc(alias = "nvshmemx_putmem_signal_nbi_on_stream")]
    pub fn put_signal<T: Element>(
        &mut self,
        dest: impl AsSymmetric<'m, T>,
        source: impl AsLocal<'m, T>,
        signal: Signal<'m>,
        op: SignalOp,
        pe: Pe,
    ) -> Result<()> {
        const OPERATION: &str = "NonblockingScope::put_signal";
        let inner = self.inner;
        let put = SignalPut::new(inner, OPERATION, (dest.into(), source.local_operand()), signal, op, pe)?;
        inner.ready_in_scope(OPERATION)?;
        let _waits = SharedDeadline::begin();
        let (transfer, signal) = put.wait_idle(inner, OPERATION)?;
        self.hold([transfer, signal]);
        self.own_stream(OPERATION)?;
        // The memory is borrowed beyond the wait for that stream, and the quiet, at the end.
        inner.on_stream_in_scope(OPERATION, &inner.stream, 2 * TRANSFER, &put, |stream| put.enqueue_nbi(stream))
    }

    /// Wraps `nvshmem_fence`: what was put to a PE before is there before what is put there later.
    ///
    /// # Errors
    /// What CUDA says.
    #[doc(alias = "nvshmem_fence")]
    pub fn fence(&mut self) -> Result<()> {
        // SAFETY: the library runs.
        self.inner.on_host_in_scope("NonblockingScope::fence", || unsafe { sys::nvshmem_fence() })
    }

    fn begin(&mut self, operation: &'static str, transfer: &Transfer<'m>) -> Result<()> {
        self.inner.ready_in_scope(operation)?;
        if transfer.is_empty() {
            return Ok(());
        }
        let _waits = SharedDeadline::begin();
        let idle = transfer.wait_idle(self.inner, operation)?;
        self.hold([idle]);
        let inner = self.inner;
        if transfer.is_near(inner) {
            return inner.on_host_in_scope(operation, || transfer.begin());
        }
        // A transport may not do for the host what it does for streams; the library ends the process then.
        self.own_stream(operation)?;
        inner.on_stream_in_scope(operation, &inner.stream, TRANSFER, transfer, |stream| transfer.enqueue(stream))
    }

    /// Before anything is given to the context's own stream: behind what has not ended there, as where a PE has not come, the end of the scope would
    /// wait for that.
    fn own_stream(&mut self, operation: &'static str) -> Result<()> {
        if !self.signalled {
            self.inner.wait_for_own_stream(operation)?;
            self.signalled = true;
        }
        Ok(())
    }

    /// Until the end no graph begins anything with that memory.
    fn hold<const N: usize>(&mut self, idle: [IdleGuard<'m>; N]) {
        let held = idle.into_iter().filter(IdleGuard::is_held);
        self.held.extend(held.map(|idle| {
            let lends = idle.lend();
            (idle, lends)
        }));
    }
}

impl Drop for NonblockingScope<'_, '_> {
    /// Also where the closure has panicked: the memory is somebody else's again when this is done.
    fn drop(&mut self) {
        let inner = self.inner;
        inner.watchdog.during(SCOPE, inner.timeout, &Awaited::Nobody, || {
            // A quiet does not wait for what that stream has not come to.
            let passed = || {
                !self.signalled
                    || !matches!(inner.stream.wait_until(SCOPE, &inner.deadline()), Err(Error::Timeout { .. }))
            };
            while !passed() {}
            // SAFETY: the library runs, as it did when the scope began: nobody could end it since. It waits for streams of its own, whatever device is current.
            let quiet = || unsafe { sys::nvshmem_quiet() };
            // Beside captures of other threads.
            let done = undisturbing(|| {
                quiet();
                Ok(())
            });
            if done.is_err() {
                quiet();
            }
        });
        inner.set_scoped(false);
    }
}

impl std::fmt::Debug for NonblockingScope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NonblockingScope").field("pe", &self.inner.pe).finish_non_exhaustive()
    }
}
