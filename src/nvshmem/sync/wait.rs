//! Waits of a stream for values in symmetric memory.

use std::ffi::c_int;
use std::ptr;

use super::comparison::Comparison;
use super::waited::Waited;
use crate::cuda::{Access, AsSlice, Lend, Slice};
use crate::element::Element;
use crate::error::{Error, Result};
#[cfg(doc)]
use crate::nvshmem::life::context::Context;
use crate::nvshmem::life::on_stream::OnStream;
use crate::nvshmem::memory::slice::{AsSymmetric, SymmetricSlice};
use crate::nvshmem::memory::there::one_element;
use crate::nvshmem::state::call::TRANSFER;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::order::OrderUse;
use crate::sys;

/// # Waiting for values
///
/// Other PEs write them: by [`put_value`](Self::put_value), by puts, or from kernels. A wait orders for later work of its stream what a
/// [wait for a signal](Self::signal_wait_until) does, `arrives` is the same, and so is what is said there of this PE's other streams. Where the value comes by
/// a put, what was put before has come before only if the sender had a [`fence`](Context::fence) or a [`quiet`](Self::quiet) in between: a signal needs none.
impl OnStream<'_> {
    /// Enqueues a wait until `element`, one of this PE, compares so with `value`. Wraps `nvshmemx_int32_wait_until_on_stream`, and those of `int64`,
    /// `uint32` and `uint64`.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Comparison, Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let steps = ctx.alloc::<i32>(2)?;
    /// ctx.put_value(steps.symmetric(..1), 5, Pe(0))?;
    /// ctx.on(&stream).wait_until(steps.symmetric(..1), Comparison::Gt, 4, ())?;
    /// stream.synchronize()?;
    /// # drop(steps); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// See [`OnStream`]; [`Error::InvalidArgument`] for more or less than one element, and memory of another context; [`Error::Unsupported`] where
    /// several PEs share a device without MPS.
    #[doc(alias(
        "nvshmemx_int32_wait_until_on_stream",
        "nvshmemx_int64_wait_until_on_stream",
        "nvshmemx_uint32_wait_until_on_stream",
        "nvshmemx_uint64_wait_until_on_stream"
    ))]
    pub fn wait_until<'a, T: Waited>(
        &self,
        element: impl AsSymmetric<'a, T>,
        comparison: Comparison,
        value: T,
        arrives: impl Lend,
    ) -> Result<()> {
        const OPERATION: &str = "OnStream::wait_until";
        let local = self.awaited(OPERATION, ("element", element.into()))?;
        one_element(OPERATION, "element", local.len())?;
        let place = local.region().ptr().cast();
        self.wait_for(OPERATION, (local, arrives), |stream| {
            // SAFETY: one element of symmetric memory of this PE, and a stream of its device.
            unsafe { (T::CALLS.one)(place, comparison.raw(), value, stream) };
        })
    }

    /// Enqueues a wait until all `elements` of this PE compare so with `value`; those whose number in `left_out`, memory of the device with as many, is
    /// not 0 need not. Wraps `nvshmemx_int32_wait_until_all_on_stream`, and those of `int64`, `uint32` and `uint64`.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Comparison, Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let flags = ctx.alloc::<u64>(3)?;
    /// for at in [0, 2] {
    ///     ctx.put_value(flags.symmetric(at..=at), 1, Pe(0))?;
    /// }
    /// let left_out = DeviceBuffer::from_slice(&stream, &[0, 1, 0])?;
    /// ctx.on(&stream).wait_until_all(&flags, Some(left_out.as_slice()), Comparison::Eq, 1, ())?;
    /// stream.synchronize()?;
    /// # drop(flags); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`wait_until`](Self::wait_until); [`Error::InvalidArgument`] for memory of another device, and `left_out` of another length.
    #[doc(alias(
        "nvshmemx_int32_wait_until_all_on_stream",
        "nvshmemx_int64_wait_until_all_on_stream",
        "nvshmemx_uint32_wait_until_all_on_stream",
        "nvshmemx_uint64_wait_until_all_on_stream"
    ))]
    pub fn wait_until_all<'a, T: Waited>(
        &self,
        elements: impl AsSymmetric<'a, T>,
        left_out: Option<Slice<'_, i32>>,
        comparison: Comparison,
        value: T,
        arrives: impl Lend,
    ) -> Result<()> {
        let each = |place, len, status, stream| {
            // SAFETY: so many elements of symmetric memory of this PE, as many numbers or none, and a stream of its device.
            unsafe { (T::CALLS.all)(place, len, status, comparison.raw(), value, stream) };
        };
        self.wait_for_each("OnStream::wait_until_all", elements.into(), left_out, None, arrives, each)
    }

    /// Enqueues a wait until each of `elements` of this PE compares so with its own one of `values`, memory of the device with as many; see
    /// [`wait_until_all`](Self::wait_until_all) for `left_out`. Wraps `nvshmemx_int32_wait_until_all_vector_on_stream`, and those of `int64`, `uint32`
    /// and `uint64`.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Comparison, Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let rounds = ctx.alloc::<u32>(2)?;
    /// ctx.put_value(rounds.symmetric(..1), 3, Pe(0))?;
    /// ctx.put_value(rounds.symmetric(1..), 8, Pe(0))?;
    /// let values = DeviceBuffer::from_slice(&stream, &[3u32, 7])?;
    /// ctx.on(&stream).wait_until_all_vector(&rounds, None, Comparison::Ge, &values, ())?;
    /// stream.synchronize()?;
    /// # drop(rounds); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`wait_until_all`](Self::wait_until_all), and for `values` of another length.
    #[doc(alias(
        "nvshmemx_int32_wait_until_all_vector_on_stream",
        "nvshmemx_int64_wait_until_all_vector_on_stream",
        "nvshmemx_uint32_wait_until_all_vector_on_stream",
        "nvshmemx_uint64_wait_until_all_vector_on_stream"
    ))]
    pub fn wait_until_all_vector<'a, 'v, T: Waited>(
        &self,
        elements: impl AsSymmetric<'a, T>,
        left_out: Option<Slice<'_, i32>>,
        comparison: Comparison,
        values: impl AsSlice<'v, T>,
        arrives: impl Lend,
    ) -> Result<()> {
        let values = values.into();
        let expected = values.region().ptr().cast();
        let each = |place, len, status, stream| {
            // SAFETY: so many elements of symmetric memory of this PE, as many values, which are read, as many numbers or none, and a stream of its device.
            unsafe { (T::CALLS.vector)(place, len, status, comparison.raw(), expected, stream) };
        };
        self.wait_for_each("OnStream::wait_until_all_vector", elements.into(), left_out, Some(values), arrives, each)
    }

    /// Enqueues a wait for `elements`, if there are any, by `f`, which gets their place, how many they are, the place of `left_out`, and the stream.
    fn wait_for_each<T: Waited>(
        &self,
        operation: &'static str,
        elements: SymmetricSlice<'_, T>,
        left_out: Option<Slice<'_, i32>>,
        values: Option<Slice<'_, T>>,
        arrives: impl Lend,
        f: impl FnOnce(*mut T, usize, *const c_int, sys::cudaStream_t),
    ) -> Result<()> {
        let inner = self.inner();
        let local = self.awaited(operation, ("elements", elements))?;
        let len = local.len();
        let left_out = beside(inner, operation, ("left_out", left_out), len)?;
        let values = beside(inner, operation, ("values", values), len)?;
        if len == 0 {
            inner.ready(operation)?;
            return inner.check_stream(operation, self.stream());
        }
        let place = local.region().ptr().cast();
        let status = left_out.as_ref().map_or(ptr::null(), |left_out| left_out.as_raw().cast());
        self.wait_for(operation, (local, left_out, values, arrives), |stream| f(place, len, status, stream))
    }

    /// The elements of this PE, if the library can wait for them.
    pub(super) fn awaited<'a, T: Element>(
        &self,
        operation: &'static str,
        (what, elements): (&'static str, SymmetricSlice<'a, T>),
    ) -> Result<Slice<'a, T>> {
        elements.check(operation, what, self.inner())?;
        self.inner().check_whole(operation)?;
        Ok(elements.local())
    }

    /// Enqueues a wait for what other PEs do, by `f`.
    pub(super) fn wait_for(
        &self,
        operation: &'static str,
        memory: impl Lend,
        f: impl FnOnce(sys::cudaStream_t),
    ) -> Result<()> {
        let waits = OrderUse::shared(&*self.inner().waits);
        self.inner().on_stream(operation, self.stream(), TRANSFER, (memory, waits), f)
    }
}

/// What the device reads beside so many elements: as many.
fn beside<'a, T: Element>(
    inner: &Inner,
    operation: &'static str,
    (what, slice): (&'static str, Option<Slice<'a, T>>),
    len: usize,
) -> Result<Option<Slice<'a, T>>> {
    let Some(slice) = slice else { return Ok(None) };
    if slice.len() != len {
        let expected = format!("{len} elements, as many as are waited for");
        return Err(Error::argument(operation, what, expected, slice.len()));
    }
    let alloc = slice.region().alloc;
    if !alloc.serves(inner.device, Access::Read) {
        let expected = format!("memory of {}, the device of this PE", inner.device);
        return Err(Error::argument(operation, what, expected, alloc.who()));
    }
    Ok(Some(slice))
}
