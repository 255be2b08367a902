//! The context: NVSHMEM as this process has it.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::once;
use crate::cuda::{Busy, Device};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::nvshmem::pe::Pe;
use crate::nvshmem::state::inner::Inner;
use crate::nvshmem::state::meeting::{Kind, Plan};
use crate::nvshmem::state::status::Status;
use crate::nvshmem::state::wait_state::Awaited;
use crate::shared_deadline::SharedDeadline;
use crate::sys;

/// How long an end waits for graphs that are gone.
const GRACE: Duration = Duration::from_secs(5);

/// NVSHMEM, started in this process as one PE. There is one a process, and it can go from thread to thread, but not be shared by several: the
/// library does one call at a time.
///
/// Memory and teams borrow it. Dropped without [`close`](Self::close), it leaves the library as it is, and nobody can start it again.
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SymmetricBuffer, ContextUniqueId};
/// # use gpucomm::{Device, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # // SAFETY: there is no other PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// println!("PE {} of {} on {}, {:?}, waits for {:?}", ctx.pe(), ctx.n_pes(), ctx.device(), ctx.status(), ctx.timeout());
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Context {
    inner: Arc<Inner>,
    /// Somebody else has started the library, and ends it.
    attached: bool,
    _one_thread_at_a_time: PhantomData<Cell<()>>,
}

/// What was never given back.
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SymmetricBuffer, ContextUniqueId};
/// # use gpucomm::{Device, Stream};
/// # fn main() -> gpucomm::Result<()> {
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # // SAFETY: there is no other PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let leaks = ctx.close()?;
/// assert!(leaks.is_empty(), "{leaks:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Leaks {
    /// Buffers that were forgotten, or dropped in a host function while a stream of others might still use them. If the context is
    /// [attached](crate::nvshmem::ContextOptions::with_attached), also buffers that another PE has not dropped.
    pub buffers: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Teams that were forgotten. If the context is attached, also teams that another member has not dropped.
    pub teams: usize,
}

impl Leaks {
    /// Whether all was given back.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Context {
    pub(super) fn new(inner: Arc<Inner>, attached: bool) -> Self {
        Self { inner, attached, _one_thread_at_a_time: PhantomData }
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Wraps `nvshmem_my_pe`: this PE.
    #[doc(alias = "nvshmem_my_pe")]
    pub fn pe(&self) -> Pe {
        Pe(self.inner.pe)
    }

    /// Wraps `nvshmem_n_pes`: how many PEs there are.
    #[doc(alias = "nvshmem_n_pes")]
    pub fn n_pes(&self) -> usize {
        self.inner.n_pes
    }

    /// The device of this PE.
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// Wraps `nvshmemx_init_status`: how PEs lie on devices.
    #[doc(alias = "nvshmemx_init_status")]
    pub fn status(&self) -> Status {
        self.inner.status
    }

    /// How long calls wait for other PEs.
    pub fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    /// Wraps `nvshmem_ptr`: whether this PE gets at the memory of `pe` directly, by NVLink or PCIe, and not by the network.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SymmetricBuffer, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: there is no other PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let next = Pe((ctx.pe().0 + 1) % ctx.n_pes());
    /// println!("{next} is {}", if ctx.is_near(next)? { "near" } else { "behind a network" });
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a PE that there is none.
    #[doc(alias = "nvshmem_ptr")]
    pub fn is_near(&self, pe: Pe) -> Result<bool> {
        self.inner.pe_of("Context::is_near", pe)?;
        Ok(self.inner.near[pe.0])
    }

    /// All PEs, by their numbers.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: there is no other PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// assert_eq!(ctx.pes().filter(|pe| *pe != ctx.pe()).count(), ctx.n_pes() - 1);
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn pes(&self) -> impl ExactSizeIterator<Item = Pe> + use<> {
        (0..self.inner.n_pes).map(Pe)
    }

    /// Whether [`close`](Self::close) finds nothing that uses the library and does not borrow the context: it consumes the context also where it fails.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: there is no other PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let kept = ctx.alloc::<f32>(10)?.into_shared();
    /// assert!(ctx.check_close().is_err());
    /// drop(kept);
    /// ctx.check_close()?;
    /// ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] that says what is still there.
    pub fn check_close(&self) -> Result<()> {
        self.inner.check_unused("Context::check_close")
    }

    /// Wraps `nvshmemx_hostlib_finalize`: ends NVSHMEM in this process. Collective. What was not given back is freed all the same, unless the context is
    /// [attached](crate::nvshmem::ContextOptions::with_attached), and reported.
    ///
    /// A context can be started again after it. NVSHMEM 3.4.5 leaves 1 MiB of the device behind each time.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, Pe, SymmetricBuffer, ContextUniqueId};
    /// # use gpucomm::{Device, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: there is no other PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// std::mem::forget(ctx.alloc::<f32>(1000)?);
    /// let leaks = ctx.close()?;
    /// assert_eq!((leaks.buffers, leaks.bytes), (1, 4000));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUsage`] while a graph is there that has operations of NVSHMEM, or a buffer that was [shared](crate::nvshmem::SymmetricBuffer::into_shared), which [`check_close`](Self::check_close) tells before; [`Error::Timeout`] where not all PEs come, or work of this one is not done in time; [`Error::Departed`] soon after the exchange knows that a PE has ended, or where the others had given up
    /// before this one came; [`Error::Disagreement`] where another PE does something else.
    /// The library is left as it is then, and no context can be started in this process any more. Work for which a thread has waited in vain before is not waited
    /// for as long again.
    #[doc(alias("nvshmem_finalize", "nvshmemx_hostlib_finalize"))]
    pub fn close(self) -> Result<Leaks> {
        const OPERATION: &str = "Context::close";
        let inner = Arc::clone(&self.inner);
        inner.ready(OPERATION)?;
        let (_waits, deadline) = (SharedDeadline::begin(), inner.deadline());
        // What a graph has that is gone, CUDA lets go of when its launches are done.
        let grace = Deadline::after(inner.timeout.min(GRACE));
        grace.until(|| Ok(inner.check_unused(OPERATION).ok()))?;
        inner.check_unused(OPERATION)?;
        let attached = self.attached;
        inner.poll_work(OPERATION, &deadline, &Awaited::All, "work that uses symmetric memory", || {
            Ok(inner.dropped.all_are_done()? && inner.world.is_done()? && inner.teams.are_done()?)
        })?;
        let leaked = inner.dropped.leaked();
        if let Some(other) = leaked.borrowed.iter().find(|device| **device != inner.device) {
            let reason = format!(
                "symmetric memory was dropped in a host function, and a stream of others on {other} may still use it: drop such memory elsewhere"
            );
            return Err(Error::InvalidUsage { operation: OPERATION, reason });
        }
        let devices = [&[inner.device][..], &leaked.devices].concat();
        let mut busy = Busy::with(&devices);
        let what = format!("other work on {}, all of which NVSHMEM waits for", busy.device().unwrap_or(inner.device));
        inner.poll_work(OPERATION, &deadline, &Awaited::All, &what, || Ok(busy.is_over()))?;
        let ((buffers, bytes), teams) = if attached {
            // The library goes on, and would keep what was dropped.
            inner.free_all_dropped(OPERATION, &deadline)?;
            (inner.dropped.held(), inner.teams.held())
        } else {
            inner.meet(&Plan::new(OPERATION, Kind::Close))?;
            (inner.dropped.live(), inner.teams.live())
        };
        inner.idle_together(OPERATION, None, &Awaited::All, &devices, &deadline)?;
        if attached {
            // Registered memory that was in use when it was given up. The library goes on, and with what is still used it stays.
            let grace = Deadline::after(inner.timeout.min(GRACE));
            grace.until(|| Ok(inner.left.end(&inner, OPERATION).then_some(())))?;
            inner.on_quiet_device(OPERATION, &Awaited::AllAtEnd, || {
                // SAFETY: from `nvshmem_calloc`; nobody comes together any more, and all PEs free it now.
                unsafe { sys::nvshmem_free(inner.board.address().ptr()) };
            })?;
        } else {
            inner.on_quiet_device(OPERATION, &Awaited::AllAtEnd, || {
                // SAFETY: the library runs, all PEs call it now, and what borrows the context is gone or forgotten.
                unsafe { sys::nvshmemx_hostlib_finalize() };
            })?;
        }
        inner.set_over();
        once::ended();
        inner.watchdog.finalized(&deadline);
        if !attached {
            // What graphs have of it goes with them: the library knows none of it any more.
            inner.left.end(&inner, OPERATION);
        }
        Ok(Leaks { buffers, bytes, teams })
    }
}

impl Drop for Context {
    /// Calls nothing: the end is collective, and other PEs may be anywhere.
    fn drop(&mut self) {
        if self.inner.is_closed() {
            return;
        }
        let reason = "it was dropped without Context::close".into();
        self.inner.lose(&Error::Aborted { operation: "Context", reason });
        once::spoilt();
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}
