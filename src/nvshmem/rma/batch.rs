//! Transfers of a scope that the library may send together.

use super::nonblocking::NonblockingScope;
use crate::error::{Error, Result};
#[cfg(nvshmem_ge_3_8)]
use crate::nvshmem::state::code::check;
use crate::nvshmem::state::inner::Inner;
#[cfg(nvshmem_ge_3_8)]
use crate::sys;

const OPERATION: &str = "NonblockingScope::batched";

impl NonblockingScope<'_, '_> {
    /// Wraps `nvshmemx_region_start` and `nvshmemx_region_stop`: runs `f`, whose transfers the library may send to the network in batches: in fewer and
    /// larger messages, which begin later. A hint; before NVSHMEM 3.8 it changes nothing.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId, Pe}; use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?; let stream = Stream::new(device)?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let target = ctx.alloc::<u32>(100)?;
    /// let source = DeviceBuffer::from_slice(&stream, &[7u32; 100])?;
    /// ctx.nonblocking(|scope| {
    ///     scope.batched(|scope| {
    ///         (0..100).try_for_each(|at| scope.put(target.symmetric(at..=at), source.slice(at..=at), Pe(0)))
    ///     })
    /// })?;
    /// assert_eq!(target.to_vec(&stream)?, [7; 100]);
    /// # drop(target); ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What `f` returns; [`Error::InvalidUsage`] within another batch; [`Error::Nvshmem`] where what was put together cannot be sent.
    #[doc(alias("nvshmemx_region_start", "nvshmemx_region_stop"))]
    pub fn batched<R>(&mut self, f: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        if self.batched {
            let reason = "it is called within a batch, and the library has one at a time";
            return Err(Error::InvalidUsage { operation: OPERATION, reason: reason.to_owned() });
        }
        let region = Region::start(self.inner)?;
        let mut batch = Batch { scope: self, region: Some(region) };
        batch.scope.batched = true;
        let done = f(batch.scope)?;
        batch.region.take().map_or(Ok(()), Region::stop)?;
        Ok(done)
    }
}

/// A batch ends also where the closure fails or panics. What is not sent then is sent by the end of the scope.
struct Batch<'b, 's, 'm> {
    scope: &'b mut NonblockingScope<'s, 'm>,
    region: Option<Region<'s>>,
}

impl Drop for Batch<'_, '_, '_> {
    fn drop(&mut self) {
        self.scope.batched = false;
        let _ = self.region.take().map(Region::stop);
    }
}

#[cfg(nvshmem_ge_3_8)]
struct Region<'s> {
    inner: &'s Inner,
    handle: sys::nvshmemx_region_handle_t,
}

#[cfg(nvshmem_ge_3_8)]
impl<'s> Region<'s> {
    fn start(inner: &'s Inner) -> Result<Self> {
        let attrs = sys::nvshmemx_region_attrs_t { hints: sys::NVSHMEMX_REGION_HINT_BATCH_RMA, reserved: [0; 60] };
        let mut handle = 0;
        // SAFETY: the library runs; attributes, and a place for a handle.
        let code = inner.on_host_in_scope(OPERATION, || unsafe { sys::nvshmemx_region_start(&mut handle, &attrs) })?;
        check("nvshmemx_region_start", code)?;
        Ok(Self { inner, handle })
    }

    fn stop(self) -> Result<()> {
        // SAFETY: the library runs, and this is the region that was started.
        let stop = || unsafe { sys::nvshmemx_region_stop(self.handle) };
        check("nvshmemx_region_stop", self.inner.on_host_in_scope(OPERATION, stop)?)
    }
}

/// Older libraries send each transfer by itself.
#[cfg(not(nvshmem_ge_3_8))]
struct Region<'s>(std::marker::PhantomData<&'s Inner>);

#[cfg(not(nvshmem_ge_3_8))]
impl<'s> Region<'s> {
    fn start(inner: &'s Inner) -> Result<Self> {
        inner.ready_in_scope(OPERATION).map(|()| Self(std::marker::PhantomData))
    }

    fn stop(self) -> Result<()> {
        Ok(())
    }
}
