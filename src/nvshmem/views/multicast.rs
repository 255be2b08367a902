//! Memory of all members of a team at one address.

use super::lend::lends;
use crate::cuda::multicast::{McPtr, Of};
use crate::cuda::{Access, Address, LentUses};
use crate::element::{self, Element};
use crate::error::{Error, Result};
use crate::nvshmem::memory::buffer::SymmetricBuffer;
use crate::nvshmem::memory::slice::SymmetricSlice;
use crate::nvshmem::teams::team::Team;
use crate::sys;

/// Symmetric memory of all members of a team at one address, by NVLink's switches: what a kernel stores there comes to all, and what it loads is
/// reduced over all.
///
/// It is for the instructions `multimem` of kernels only, by [`Stream::launch`](crate::Stream::launch): other instructions, copies, puts and gets must
/// not be given its address. What it is for comes in the order of its team.
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
/// # use gpucomm::Device;
/// # fn main() -> gpucomm::Result<()> {
/// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
/// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let (buffer, team) = (ctx.alloc::<f32>(1024)?, ctx.world()?);
/// match buffer.multicast(&team)? {
///     Some(view) => println!("{} elements at {:p}", view.len(), view.as_raw()),
///     None => println!("there are no switches, or they are not used"),
/// }
/// # assert!(buffer.symmetric(..5).multicast(&team)?.is_none_or(|view| !view.is_empty()));
/// # drop((buffer, team));
/// # ctx.close()?;
/// # Ok(())
/// # }
/// ```
pub struct MulticastView<'a, T: Element> {
    slice: SymmetricSlice<'a, T>,
    team: &'a Team<'a>,
    address: Address,
}

impl<T: Element> SymmetricBuffer<'_, T> {
    /// Wraps `nvshmemx_mc_ptr`: all elements on all members of `team` at once; `None` where the devices or the library cannot do that.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a team of another context; where the context is lost.
    #[doc(alias = "nvshmemx_mc_ptr")]
    pub fn multicast<'t>(&'t self, team: &'t Team<'_>) -> Result<Option<MulticastView<'t, T>>> {
        MulticastView::of("SymmetricBuffer::multicast", self.as_symmetric(), team)
    }
}

impl<T: Element> SymmetricSlice<'_, T> {
    /// Wraps `nvshmemx_mc_ptr`: these elements on all members of `team` at once; `None` where the devices or the library cannot do that.
    ///
    /// # Errors
    /// As [`SymmetricBuffer::multicast`].
    #[doc(alias = "nvshmemx_mc_ptr")]
    pub fn multicast<'t>(&'t self, team: &'t Team<'_>) -> Result<Option<MulticastView<'t, T>>> {
        MulticastView::of("SymmetricSlice::multicast", *self, team)
    }
}

impl<'a, T: Element> MulticastView<'a, T> {
    fn of(operation: &'static str, slice: SymmetricSlice<'a, T>, team: &'a Team<'_>) -> Result<Option<Self>> {
        slice.block().inner.ready(operation)?;
        if slice.block().inner.id != team.inner.id {
            return Err(Error::argument(operation, "team", "a team of the context of the buffer", "one of another"));
        }
        if slice.address().ptr().is_null() {
            return Ok(None);
        }
        // SAFETY: the library runs, the team is there, and the address lies in symmetric memory; it is not looked at.
        let all = unsafe { sys::nvshmemx_mc_ptr(team.state.raw, slice.address().ptr()) };
        Ok((!all.is_null()).then(|| Self { slice, team, address: Address::new(all) }))
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.slice.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }

    /// The same as what [multicast](crate::cuda::multicast) gives. Of a launch that it is lent to, nothing is known by it: the view is lent beside
    /// it, or in its place.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId};
    /// # use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// # let (device, id) = (Device::new(0)?, ContextUniqueId::new()?);
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// # let (buffer, team) = (ctx.alloc::<f32>(1024)?, ctx.world()?);
    /// if let Some(view) = buffer.multicast(&team)? {
    ///     assert_eq!((view.ptr().len(), view.ptr().as_raw()), (view.len(), view.as_raw()));
    /// }
    /// # drop((buffer, team));
    /// # ctx.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ptr(&self) -> McPtr<'_, T> {
        McPtr::of(self.as_raw(), self.len(), Of::Others)
    }

    /// Where it begins, for `multimem` instructions. What is done with it is not tracked.
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.address.ptr()
    }

    /// This PE's own part is part of it, and the team is there until it is done.
    fn note<'s>(&'s self, uses: &mut LentUses<'s>, access: Access) {
        uses.add_used(&**self.slice.block(), Access::Read);
        uses.add_used(&*self.team.state.order, Access::Write);
        uses.add(self.slice.local(), access);
    }
}

lends! { MulticastView }

impl<T: Element> std::fmt::Debug for MulticastView<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MulticastView<{}>({} elements of {} PEs)", element::name::<T>(), self.len(), self.team.n_pes())
    }
}
