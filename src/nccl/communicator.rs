//! One rank of a communicator.

use std::sync::Arc;
use std::time::Duration;

use super::aborter::Aborter;
use super::comm_buffer::CommBuffer;
use super::life::abort::{AbortOutcome, GRACE, abort, start_abort};
use super::life::closing;
use super::life::init;
use super::memory::allocate;
use super::pre_mul_sum::PreMulSum;
use super::raw::check;
use super::raw::outside::outside_of_host_functions;
use super::setup::config::InitOptions;
use super::setup::unique_id::UniqueId;
use super::state::inner::Inner;
use crate::cuda::{Device, Slice, Stream};
use crate::deadline::Deadline;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::sys;

/// Wraps `ncclComm_t`: one rank, on one device.
///
/// It may be moved between threads and shared by them; one call is made at a time. Its collectives are in
/// [`operations`](super#operations). Dropping it does what [`Communicator::close`] does, within ten seconds or its timeout,
/// whichever is less. While panicking, or where that fails, it is aborted as [`Aborter::abort`] does it, within ten seconds more, the
/// other ranks of this process included, so that dropping all of them waits once: twenty seconds at most.
#[derive(Debug)]
pub struct Communicator {
    inner: Arc<Inner>,
}

impl Communicator {
    pub(crate) fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Wraps `ncclCommInitRankConfig`: rank `rank` of `size`, with default options.
    ///
    /// All ranks call it with the same id and size. It returns when all have come, or after the default timeout.
    ///
    /// # Errors
    /// [`Error::Timeout`] where a rank does not come; [`Error::InvalidArgument`] where `rank` is not below `size`, or where the
    /// environment or a file of NCCL's sets `NCCL_COMM_BLOCKING` to 0, which would make a communicator whose operations fail, or
    /// `NCCL_CTA_POLICY` to the copy engines (2, or `ZERO`), for which ranks agree on too little.
    ///
    /// # Safety
    /// No rank can see what another one passes, and a peer that passes something else makes NCCL write beyond the buffers of this rank,
    /// or into others. All later calls are safe because of this promise: the ranks, in all processes, behave as one program. That is,
    /// on this communicator
    ///
    /// - all issue the same collectives, in the same order, with the same counts, element types, reductions and roots; the layouts of the
    ///   forms with `_v` belong together. Only the factors of a [`PreMulSum`] may differ. Each send meets a receive of the same count and
    ///   type, in the order in which the two ranks issue them;
    /// - collectives that are in one [`group`](super::group) on one rank are in one group on all, the same ones in the same order. Messages may
    ///   be grouped in any way that [`group`](super::group) allows;
    /// - a collective that is in place on one rank is in place on all, as far as its form allows that;
    /// - a buffer of a collective is a window ([`CommBuffer::is_window`]) on all ranks or on none. If it is one, it is the same window
    ///   on all, the one that they allocated together, the data begins at the same element, and has the same length. Both ends of a message
    ///   are windows, or neither is;
    /// - all call [`Communicator::alloc`] and its like, in the same order and with the same lengths, among their collectives;
    /// - windows are dropped alike: between two allocations, or calls of [`Communicator::reclaim`], which all make in the same order too,
    ///   each rank drops the same ones;
    /// - what is captured into a CUDA graph on one rank is captured on all;
    /// - all run the same version of NCCL, with the same settings of it.
    ///
    /// The ranks of one process need no such promise, because they compare: see [`Clique`](super::Clique).
    ///
    /// One thing more is not seen across processes, though it makes nothing undefined: when a process aborts its rank, operations of
    /// the others that wait for it may complete, without an error, on data that was never sent. See [`Aborter::abort`]. Ranks of one
    /// process are aborted together, also where each was made by this function.
    pub unsafe fn init_rank(device: Device, size: usize, id: &UniqueId, rank: usize) -> Result<Self> {
        init::one_rank("Communicator::init_rank", device, size, id, rank, &InitOptions::default())
    }

    /// Wraps `ncclCommInitRankConfig`: like [`Communicator::init_rank`], with options.
    ///
    /// # Errors
    /// As [`Communicator::init_rank`].
    ///
    /// # Safety
    /// As [`Communicator::init_rank`].
    pub unsafe fn init_rank_with(
        device: Device,
        size: usize,
        id: &UniqueId,
        rank: usize,
        options: &InitOptions,
    ) -> Result<Self> {
        init::one_rank("Communicator::init_rank_with", device, size, id, rank, options)
    }

    /// This rank, below [`Communicator::size`].
    #[inline]
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// How many ranks there are.
    #[inline]
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// The device of this rank.
    #[inline]
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// How long calls of this communicator wait: for room in the launch queue, for another thread's call, inside NCCL.
    pub fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    /// Sets how long calls of this communicator wait. At first it is the timeout that the start was given.
    pub fn set_timeout(&self, timeout: Duration) {
        self.inner.set_timeout(timeout);
    }

    /// Whether calls are still possible: neither aborted nor failed.
    pub fn is_active(&self) -> bool {
        self.inner.is_active()
    }

    /// Wraps `ncclCommGetAsyncError`: what has gone wrong in operations that were enqueued before.
    ///
    /// There is no need to call it: every wait for work of the communicator asks, a thread of this crate does now and then, and
    /// either aborts the communicator on an error.
    ///
    /// # Errors
    /// What NCCL reports, or why the communicator has ended; [`Error::InvalidUsage`] within a host function of a stream.
    pub fn async_error(&self) -> Result<()> {
        outside_of_host_functions("async_error")?;
        self.inner.async_error().unwrap_or_else(|| Err(self.inner.dead("async_error")))
    }

    /// Wraps `ncclGetLastError`: a copy of the last message of NCCL in this process, which may be about another call.
    pub fn last_error(&self) -> Option<String> {
        check::last_error()
    }

    /// The `ncclComm_t`; `None` once the communicator has ended.
    ///
    /// What is done with it is not tracked: not which memory is in use, and not whether the ranks agree. It must not be
    /// destroyed.
    pub fn as_raw(&self) -> Option<sys::ncclComm_t> {
        let (_guard, handle) = self.inner.enter("as_raw").ok()?;
        Some(handle)
    }

    /// A handle by which any thread can abort this communicator.
    pub fn aborter(&self) -> Aborter {
        Aborter::new(&self.inner)
    }

    /// Wraps `ncclCommAbort`: see [`Aborter::abort`].
    pub fn abort(self, reason: &str) -> AbortOutcome {
        self.aborter().abort(reason)
    }

    /// Wraps `ncclCommFinalize` and `ncclCommDestroy`: waits for all work of this rank, then for the other ranks to do the
    /// same.
    ///
    /// # Errors
    /// [`Error::Timeout`] where that takes longer than `timeout`; what NCCL says. The communicator is gone in any case.
    pub fn close(self, timeout: Duration) -> Result<()> {
        close_members(&[self], timeout)
    }

    /// Wraps `ncclMemAlloc` and, since NCCL 2.27, `ncclCommWindowRegister`: `len` zeroed elements that belong to this
    /// communicator.
    ///
    /// It is a window ([`CommBuffer::is_window`]) where ranks reach each other's memory and NCCL is 2.29.7 or newer; before, windows have
    /// bugs that nothing goes around, see [`Config::force_windows`](super::Config::force_windows).
    ///
    /// All ranks call it, with the same `len`. The first use by `stream` costs nothing, other streams wait for it. Windows that all ranks have
    /// dropped before go here, once the device has done with them; see [`Communicator::reclaim`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Disagreement`] where the ranks of a clique ask for different sizes;
    /// [`Error::Timeout`] where one does not come, or what uses memory that was dropped goes on.
    pub fn alloc<T: Element>(&self, stream: &Stream, len: usize) -> Result<CommBuffer<'_, T>> {
        allocate::one("alloc", &self.inner, stream, len)
    }

    /// Like [`Communicator::alloc`], with the elements of `source`.
    ///
    /// # Errors
    /// As [`Communicator::alloc`].
    pub fn alloc_from<T: Element>(&self, stream: &Stream, source: &[T]) -> Result<CommBuffer<'_, T>> {
        const OPERATION: &str = "alloc_from";
        let mut buffer = allocate::one(OPERATION, &self.inner, stream, source.len())?;
        buffer.as_slice_mut().copy_from_slice_for(OPERATION, stream, source)?;
        Ok(buffer)
    }

    /// Like [`Communicator::alloc`], but the buffer keeps the communicator alive instead of borrowing it.
    ///
    /// # Errors
    /// As [`Communicator::alloc`].
    pub fn alloc_shared<T: Element>(self: &Arc<Self>, stream: &Stream, len: usize) -> Result<CommBuffer<'static, T>> {
        Ok(allocate::one("alloc_shared", &self.inner, stream, len)?.shared(Arc::clone(self)))
    }

    /// Wraps `ncclMemAlloc` alone: like [`Communicator::alloc`], but no window, so that a rank allocates by itself.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Aborted`]; [`Error::InvalidArgument`] where `stream` is of another device, or the bytes
    /// of `len` elements cannot be counted.
    pub fn alloc_local<T: Element>(&self, stream: &Stream, len: usize) -> Result<CommBuffer<'_, T>> {
        allocate::local(&self.inner, stream, len)
    }

    /// Wraps `ncclCommWindowDeregister` and `ncclMemFree`: frees the memory of windows that were dropped. All ranks call it, among their
    /// collectives.
    ///
    /// Dropping a [`CommBuffer`] that is a window does not take the window away, and keeps its memory: ranks that do so at different
    /// moments come to different views of where windows lie. All ranks do it together at the next allocation, here, or when the
    /// communicator is closed. In a clique those windows go that all ranks have dropped before; across processes those that this
    /// rank has, which is why ranks must drop alike, see [`Communicator::init_rank`]. Memory of [`Communicator::alloc_local`] is freed
    /// as soon as the device has done with it.
    ///
    /// # Errors
    /// [`Error::Timeout`] where a rank does not come, or what uses the memory goes on; [`Error::Disagreement`] where the ranks of a clique do
    /// something else.
    pub fn reclaim(&self) -> Result<()> {
        allocate::reclaim("reclaim", &[&self.inner])
    }

    /// Wraps `ncclRedOpCreatePreMulSum` with `ncclScalarHostImmediate`: a sum of what each rank has multiplied by its
    /// `factor`.
    ///
    /// # Errors
    /// What NCCL says.
    pub fn pre_mul_sum<T: Element>(&self, factor: T) -> Result<PreMulSum<'_, T>> {
        PreMulSum::with_host_factor(&self.inner, factor)
    }

    /// Wraps `ncclRedOpCreatePreMulSum` with `ncclScalarDevice`: like [`Communicator::pre_mul_sum`], with a factor of one
    /// element in device memory that is read when an operation runs.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where `factor` is not one element, or lies on another device.
    pub fn pre_mul_sum_device<'a, T: Element>(&'a self, factor: impl Into<Slice<'a, T>>) -> Result<PreMulSum<'a, T>> {
        PreMulSum::with_device_factor(&self.inner, factor.into())
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        drop_members(std::slice::from_ref(self));
    }
}

/// The cause of an end that a failure elsewhere brings.
pub(crate) fn aborted(reason: String) -> Error {
    Error::Aborted { operation: "abort", reason }
}

fn inners<'a>(members: impl IntoIterator<Item = &'a Communicator>) -> Vec<Arc<Inner>> {
    members.into_iter().map(|member| Arc::clone(&member.inner)).collect()
}

/// Closes the communicators of `members`. Where that fails, they are aborted, and all ranks of this process with them; that
/// is not waited for.
pub(crate) fn close_members<'a>(members: impl IntoIterator<Item = &'a Communicator>, timeout: Duration) -> Result<()> {
    let members = inners(members);
    let closed = closing::close(&members, &Deadline::after(timeout));
    if let Err(error) = &closed {
        let relatives: Vec<_> = members.iter().flat_map(|inner| inner.relatives()).collect();
        start_abort(&relatives, error);
    }
    closed
}

/// What dropping `members` does.
pub(crate) fn drop_members<'a>(members: impl IntoIterator<Item = &'a Communicator>) {
    closing::drop_all(&inners(members));
}

/// Ends the communicators of `members` and `others`, because of `reason`.
pub(crate) fn abort_members(members: &[Communicator], others: Vec<Arc<Inner>>, reason: String) -> AbortOutcome {
    let mut all = inners(members);
    all.extend(others);
    abort(&all, &aborted(reason), &Deadline::after(GRACE))
}
