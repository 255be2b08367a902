//! Kernels of users, and whatever else others enqueue: between two brackets, so that it is ordered, bounded and remembered.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::bracket::{Lend, LentUses};
use crate::cuda::devices::check::{check_left, clear};
use crate::cuda::devices::device::Device;
use crate::cuda::order::gate;
use crate::cuda::order::in_flight::{CHUNK, ENTRY};
use crate::cuda::order::stream::Stream;
use crate::cuda::order::turns::Turns;
use crate::cuda::works::work::Origins;
use crate::deadline::default_timeout;
use crate::error::{Error, Result};
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// What one bracket may enqueue.
const MOST: u64 = CHUNK / ENTRY;

/// The stream that [`Stream::launch`] is called on, for as long as its closure runs.
///
/// ```
/// # use gpucomm::{Device, Stream};
/// # use gpucomm::sys;
/// # fn main() -> gpucomm::Result<()> {
/// # let stream = Stream::new(Device::new(0)?)?;
/// extern "C" fn count(counter: *mut std::ffi::c_void) {
///     // SAFETY: it points to the counter below, which lives for ever.
///     let counter = unsafe { &*counter.cast::<std::sync::atomic::AtomicU32>() };
///     counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
/// }
///
/// static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
/// stream.launch((), |stream, ()| {
///     println!("on {}", stream.device());
///     let counter: *const _ = &COUNTER;
///     // SAFETY: one launch on this stream, of a function that uses the counter only.
///     unsafe { sys::cudaLaunchHostFunc(stream.as_raw(), Some(count), counter.cast_mut().cast()) }
/// })?;
/// stream.synchronize()?;
/// assert_eq!(COUNTER.load(std::sync::atomic::Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct LentStream<'l> {
    raw: sys::cudaStream_t,
    device: Device,
    _bracket: PhantomData<&'l ()>,
}

impl LentStream<'_> {
    /// The `cudaStream_t`, which is the `CUstream` of the driver as well. Good within the closure only.
    pub fn as_raw(&self) -> sys::cudaStream_t {
        self.raw
    }

    /// Its device, which is the current one.
    pub fn device(&self) -> Device {
        self.device
    }
}

impl fmt::Debug for LentStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentStream({:p} of {})", self.raw, self.device)
    }
}

impl Stream {
    /// Wraps what others call, such as `cuLaunchKernel`: runs `f`, which enqueues *one* kernel, copy or host function of its own on this
    /// stream, that uses `memory`.
    ///
    /// The stream is ordered and the uses are remembered as those of a copy are: what is lent by `&` is read, by `&mut` read and
    /// written. Work of other streams that conflicts comes before or after it, the memory is not freed before it is done, and the bound on
    /// what is on its way on a stream holds. What comes from an operation of a communicator that has failed
    /// ([failed work](crate::cuda#failed-work)) counts as carried to all that is lent by `&mut`. `f` runs at once, on this thread, with the
    /// device of the stream current; what it returns is handed on. The uses count whatever it returns, and where it panics.
    ///
    /// This is safe; the call of another library within is not. Who makes it promises, beside what that call asks for:
    ///
    /// - it enqueues on this stream alone, no more than was declared, and nothing uses the addresses or the handle after `f`, but what was
    ///   enqueued;
    /// - what is enqueued stays within the lengths, and does not write to what is lent by `&`; memory that is not lent is ordered by the
    ///   caller;
    /// - the stream is not captured, destroyed or waited for.
    ///
    /// Without the bracket, by way of [`Stream::as_raw`], none of this is known: see there.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Device, DeviceBuffer, Stream, sys};
    ///
    /// # if Device::count().is_err() { return Ok(()) }
    /// let stream = Stream::new(Device::new(0)?)?;
    /// let x = DeviceBuffer::from_slice(&stream, &[1.5f32; 1000])?;
    /// let mut y = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    /// let code = stream.launch((&x, &mut y), |stream, (x, mut y)| {
    ///     let (bytes, kind) = (size_of::<f32>() * x.len(), sys::cudaMemcpyKind::cudaMemcpyDeviceToDevice);
    ///     // SAFETY: one launch on this stream, which reads `x.len()` elements of `x`, and writes as many of `y`.
    ///     unsafe { sys::cudaMemcpyAsync(y.as_mut_ptr().cast(), x.as_ptr().cast(), bytes, kind, stream.as_raw()) }
    /// })?;
    /// assert_eq!(code, sys::cudaError::cudaSuccess);
    /// assert_eq!(y.to_vec(&stream)?, [1.5; 1000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for [mapped](crate::cuda::vmm) memory that the device of the stream may not use so (other
    /// memory of another device is not looked for: who has opened it knows); [`Timeout`](Error::Timeout) where too much is on its way;
    /// [`InvalidUsage`](Error::InvalidUsage) within a host function, and while the stream is being captured; what CUDA says. `f` has not run
    /// then. Where `f` leaves an error behind that `cudaGetLastError` tells, it has run, and [`Cuda`](Error::Cuda) has the code: a launch by
    /// `<<<…>>>` returns none itself. Those of the driver are what its functions return.
    #[doc(alias = "cuLaunchKernel")]
    pub fn launch<M: Lend, R>(&self, memory: M, f: impl for<'l> FnOnce(LentStream<'l>, M::Lent<'l>) -> R) -> Result<R> {
        self.launch_for("Stream::launch", default_timeout, 1, memory, f)
    }

    /// As [`Stream::launch`], where `f` enqueues up to `launches` kernels, copies, host functions, or events that are recorded or waited for.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::{Device, DeviceBuffer, Stream, sys};
    ///
    /// # if Device::count().is_err() { return Ok(()) }
    /// let stream = Stream::new(Device::new(0)?)?;
    /// let mut x = DeviceBuffer::<u8>::zeroed(&stream, 1000)?;
    /// let (front, back) = x.split_at_mut(500);
    /// stream.launch_many(2, [front, back], |stream, halves| {
    ///     for (mut half, byte) in halves.into_iter().zip([1, 2]) {
    ///         // SAFETY: each of two launches on this stream writes `half.len()` bytes.
    ///         unsafe { sys::cudaMemsetAsync(half.as_mut_ptr().cast(), byte, half.len(), stream.as_raw()) };
    ///     }
    /// })?;
    /// assert_eq!(x.slice(498..502).to_vec(&stream)?, [1, 1, 2, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for no launch, and for more than 96: they go into several brackets. As
    /// [`Stream::launch`].
    pub fn launch_many<M: Lend, R>(
        &self,
        launches: usize,
        memory: M,
        f: impl for<'l> FnOnce(LentStream<'l>, M::Lent<'l>) -> R,
    ) -> Result<R> {
        self.launch_for("Stream::launch_many", default_timeout, launches, memory, f)
    }

    /// The bracket of `operation`, which enqueues so many entries, and waits no longer than `timeout` before.
    pub(crate) fn launch_for<M: Lend, R>(
        &self,
        operation: &'static str,
        timeout: impl Fn() -> Duration,
        launches: usize,
        memory: M,
        f: impl for<'l> FnOnce(LentStream<'l>, M::Lent<'l>) -> R,
    ) -> Result<R> {
        let cost = match u64::try_from(launches) {
            Ok(launches @ 1..=MOST) => launches * ENTRY,
            _ => return Err(Error::argument(operation, "launches", format_args!("1 to {MOST}"), launches)),
        };
        let uses = LentUses::of(&memory);
        uses.check(operation, self)?;
        // Those who call the driver need its context bound to the thread.
        let _current = self.device().bind(operation)?;
        let waits = SharedDeadline::begin();
        self.room_or_part(cost, operation, &timeout, || None)?;
        let turns = uses.turns(operation, &timeout, self)?;
        let mut origins = uses.origins(self);
        if !uses.order(self)? {
            origins.follow_nothing();
        }
        let _lends = turns.lend();
        let _entered = gate::enter(operation, self.device(), timeout())?;
        // `f` may be code of users.
        drop(waits);
        let _noted = Noted { stream: self, cost, uses, origins, _turns: turns };
        // Not taken for one of `f`.
        clear();
        let value = f(LentStream { raw: self.raw(), device: self.device(), _bracket: PhantomData }, memory.lent());
        // Before other calls of this crate, which may forget it.
        check_left(self.device().ordinal(), operation)?;
        Ok(value)
    }
}

/// Notes what a launch uses, also where that panics: some of it may be enqueued.
struct Noted<'s> {
    stream: &'s Stream,
    cost: u64,
    uses: LentUses<'s>,
    origins: Origins,
    /// Given back after that.
    _turns: Turns<'s>,
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.stream.count(self.cost);
        self.stream.in_flight().note_other_work();
        self.uses.note(self.stream, &self.origins);
    }
}
