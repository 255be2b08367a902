//! Waits of a stream for values in symmetric memory.

use std::ptr;

use super::comparison::Comparison;
use super::waited::Waited;
use crate::cuda::{AsSlice, Lend, Slice, Stream};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::nvshmem::life::context::Context;
use crate::nvshmem::memory::slice::{AsSymmetric, SymmetricSlice};
use crate::nvshmem::memory::there::one_element;
use crate::nvshmem::state::call::TRANSFER;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::order::OrderUse;

/// # Waiting for values
///
/// Other PEs write them: by [`put_value`](Self::put_value), by puts, or from kernels. A wait orders for later work of its stream what a
/// [wait for a signal](Self::signal_wait_until_on_stream) does, `arrives` is the same, and so is what is said there of this PE's other streams. Where the value comes by
/// a put, what was put before has come before only if the sender had a [`fence`](Self::fence) or a [`quiet`](Self::quiet) in between: a signal needs none.
impl Context {
    /// Wraps `nvshmemx_int32_wait_until_on_stream`, and those of `int64`, `uint32` and `uint64`: enqueues a wait until `element`, one of this PE, compares so with `value`. It can
    /// be part of a graph.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Comparison, Context, UniqueId, Pe}; use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let steps = ctx.alloc::<i32>(2)?;
    /// ctx.put_value(steps.symmetric(..1), 5, Pe(0))?;
    /// ctx.wait_until_on_stream(steps.symmetric(..1), Comparison::Gt, 4, (), &stream)?;
    /// stream.synchronize()?;
    /// # drop(steps); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for more or less than one element, and memory of another context; [`Error::Unsupported`] where several PEs share a device
    /// without MPS; as [`Stream::launch`].
    pub fn wait_until_on_stream<'a, T: Waited>(
        &self,
        element: impl AsSymmetric<'a, T>,
        comparison: Comparison,
        value: T,
        arrives: impl Lend,
        stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "Context::wait_until_on_stream";
        let (inner, element) = (self.inner(), element.into());
        let local = of_this_pe(inner, OPERATION, ("element", element))?;
        one_element(OPERATION, "element", local.len())?;
        let place = local.region().ptr().cast();
        let waits = OrderUse::shared(&*inner.waits);
        inner.on_stream(OPERATION, stream, TRANSFER, (local, arrives, waits), |stream| {
            // SAFETY: one element of symmetric memory of this PE, and a stream of its device.
            unsafe { (T::CALLS.one)(place, comparison.raw(), value, stream) };
        })
    }

    /// Wraps `nvshmemx_int32_wait_until_all_on_stream`, and those of `int64`, `uint32` and `uint64`: enqueues a wait until all `elements` of this PE compare so with `value`; those
    /// whose number in `left_out`, memory of the device with as many, is not 0 need not.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Comparison, Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let flags = ctx.alloc::<u64>(3)?;
    /// for at in [0, 2] {
    ///     ctx.put_value(flags.symmetric(at..=at), 1, Pe(0))?;
    /// }
    /// let left_out = DeviceBuffer::from_slice(&stream, &[0, 1, 0])?;
    /// ctx.wait_until_all_on_stream(&flags, Some(left_out.as_slice()), Comparison::Eq, 1, (), &stream)?;
    /// stream.synchronize()?;
    /// # drop(flags); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for memory of another context or device, and `left_out` of another length; as [`wait_until_on_stream`](Self::wait_until_on_stream).
    pub fn wait_until_all_on_stream<'a, T: Waited>(
        &self,
        elements: impl AsSymmetric<'a, T>,
        left_out: Option<Slice<'_, i32>>,
        comparison: Comparison,
        value: T,
        arrives: impl Lend,
        stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "Context::wait_until_all_on_stream";
        let (inner, elements) = (self.inner(), elements.into());
        let local = of_this_pe(inner, OPERATION, ("elements", elements))?;
        let left_out = beside(inner, OPERATION, ("left_out", left_out), local.len())?;
        if local.is_empty() {
            inner.ready(OPERATION)?;
            return inner.check_stream(OPERATION, stream);
        }
        let (place, len, status) = (local.region().ptr().cast(), local.len(), place_of(left_out.first()));
        let waits = OrderUse::shared(&*inner.waits);
        inner.on_stream(OPERATION, stream, TRANSFER, (local, left_out, arrives, waits), |stream| {
            // SAFETY: so many elements of symmetric memory of this PE, as many numbers or none, and a stream of its device.
            unsafe { (T::CALLS.all)(place, len, status.cast(), comparison.raw(), value, stream) };
        })
    }

    /// Wraps `nvshmemx_int32_wait_until_all_vector_on_stream`, and those of `int64`, `uint32` and `uint64`: enqueues a wait until each of `elements` of this PE compares so with
    /// its own one of `values`, memory of the device with as many; see [`wait_until_all_on_stream`](Self::wait_until_all_on_stream) for `left_out`.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Comparison, Context, UniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = UniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::builder().device(device).unique_id(&id, 0, 1).init()? };
    /// let rounds = ctx.alloc::<u32>(2)?;
    /// ctx.put_value(rounds.symmetric(..1), 3, Pe(0))?;
    /// ctx.put_value(rounds.symmetric(1..), 8, Pe(0))?;
    /// let values = DeviceBuffer::from_slice(&stream, &[3u32, 7])?;
    /// ctx.wait_until_all_vector_on_stream(&rounds, None, Comparison::Ge, &values, (), &stream)?;
    /// stream.synchronize()?;
    /// # drop(rounds); ctx.finalize()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`wait_until_all_on_stream`](Self::wait_until_all_on_stream), and for `values` of another length.
    pub fn wait_until_all_vector_on_stream<'a, 'v, T: Waited>(
        &self,
        elements: impl AsSymmetric<'a, T>,
        left_out: Option<Slice<'_, i32>>,
        comparison: Comparison,
        values: impl AsSlice<'v, T>,
        arrives: impl Lend,
        stream: &Stream,
    ) -> Result<()> {
        const OPERATION: &str = "Context::wait_until_all_vector_on_stream";
        let (inner, elements, values) = (self.inner(), elements.into(), values.into());
        let local = of_this_pe(inner, OPERATION, ("elements", elements))?;
        let left_out = beside(inner, OPERATION, ("left_out", left_out), local.len())?;
        beside(inner, OPERATION, ("values", Some(values)), local.len())?;
        if local.is_empty() {
            inner.ready(OPERATION)?;
            return inner.check_stream(OPERATION, stream);
        }
        let (place, len, status) = (local.region().ptr().cast(), local.len(), place_of(left_out.first()));
        let expected = values.region().ptr().cast();
        let waits = OrderUse::shared(&*inner.waits);
        inner.on_stream(OPERATION, stream, TRANSFER, (local, left_out, values, arrives, waits), |stream| {
            // SAFETY: so many elements of symmetric memory of this PE, as many values, which are read, as many numbers or none, and a stream of its device.
            unsafe { (T::CALLS.vector)(place, len, status.cast(), comparison.raw(), expected, stream) };
        })
    }
}

/// The elements of this PE, where the library can wait for them.
fn of_this_pe<'a, T: Element>(
    inner: &Inner,
    operation: &'static str,
    (what, elements): (&'static str, SymmetricSlice<'a, T>),
) -> Result<Slice<'a, T>> {
    elements.check(operation, what, inner)?;
    inner.check_whole(operation)?;
    Ok(elements.local())
}

/// What the device reads beside so many elements: as many. As a bracket is lent it.
fn beside<'a, T: Element>(
    inner: &Inner,
    operation: &'static str,
    (what, slice): (&'static str, Option<Slice<'a, T>>),
    len: usize,
) -> Result<Vec<Slice<'a, T>>> {
    let Some(slice) = slice else { return Ok(Vec::new()) };
    if slice.len() != len {
        let expected = format!("{len} elements, as many as are waited for");
        return Err(Error::argument(operation, what, expected, slice.len()));
    }
    let alloc = slice.region().alloc;
    if !alloc.serves(inner.device, crate::cuda::Access::Read) {
        let expected = format!("memory of {}, the device of this PE", inner.device);
        return Err(Error::argument(operation, what, expected, alloc.who()));
    }
    Ok(vec![slice])
}

fn place_of<T: Element>(slice: Option<&Slice<'_, T>>) -> *const T {
    slice.map_or(ptr::null(), |slice| slice.as_raw().cast())
}
