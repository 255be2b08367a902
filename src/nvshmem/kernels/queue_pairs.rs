//! Queue pairs of the network, which kernels name in their puts and gets.

use std::ffi::c_int;
use std::ptr;

use crate::error::{Error, Result};
use crate::nvshmem::life::context::Context;
use crate::nvshmem::state::code::check;
use crate::nvshmem::state::meeting::{Kind, Plan};
use crate::nvshmem::state::wait_state::Awaited;
use crate::sys;

/// A queue pair, as kernels take it (`nvshmemx_qp_handle_t`). What goes by one of them is not held up by what goes by others. Made by
/// [`Context::create_queue_pairs`].
///
/// ```
/// # use gpucomm::nvshmem::{Context, ContextOptions, QueuePair, ContextUniqueId}; use gpucomm::Device;
/// # fn main() -> gpucomm::Result<()> {
/// # let device = Device::new(0)?; let id = ContextUniqueId::new()?;
/// # // SAFETY: the only PE.
/// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
/// let pairs = ctx.create_queue_pairs(4)?;
/// // What a kernel is given.
/// let handles: Vec<_> = pairs.into_iter().map(QueuePair::as_raw).collect();
/// assert_eq!(handles.len(), 4);
/// # ctx.close()?; Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueuePair(sys::nvshmemx_qp_handle_t);

impl QueuePair {
    /// The handle, to be given to a kernel.
    pub fn as_raw(self) -> sys::nvshmemx_qp_handle_t {
        self.0
    }
}

impl Context {
    /// Wraps `nvshmemx_qp_create`: makes `count` queue pairs to all other PEs. Collective, with the same number everywhere. They stay until the
    /// context ends.
    ///
    /// Where the transport has none of its own, all of them are the one that there is anyway.
    ///
    /// ```
    /// # use gpucomm::nvshmem::{Context, ContextOptions, ContextUniqueId}; use gpucomm::Device;
    /// # fn main() -> gpucomm::Result<()> {
    /// # let device = Device::new(0)?; let id = ContextUniqueId::new()?;
    /// # // SAFETY: the only PE.
    /// # let ctx = unsafe { Context::init(&ContextOptions::new().with_device(device).with_unique_id(&id, 0, 1))? };
    /// let pairs = ctx.create_queue_pairs(2)?;
    /// assert_eq!(pairs.len(), 2);
    /// # ctx.close()?; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for none; [`Error::Disagreement`] where PEs want different numbers; [`Error::Nvshmem`] where the transport fails.
    #[doc(alias = "nvshmemx_qp_create")]
    pub fn create_queue_pairs(&self, count: usize) -> Result<Vec<QueuePair>> {
        const OPERATION: &str = "Context::create_queue_pairs";
        let inner = self.inner();
        let number = match c_int::try_from(count) {
            Ok(number @ 1..) => number,
            _ => return Err(Error::argument(OPERATION, "count", format!("1 to {} queue pairs", c_int::MAX), count)),
        };
        let plan = Plan {
            numbers: [count as u64, 0, 0, 0, 0, 0],
            explain: |[count, ..]| count.to_string(),
            ..Plan::new(OPERATION, Kind::QueuePairs)
        };
        inner.meet_beside_no_capture(|| plan, &inner.deadline())?;
        let mut made = ptr::null_mut();
        // SAFETY: the library runs, all PEs do this, and there is a place for a pointer.
        let call = || unsafe { sys::nvshmemx_qp_create(number, &mut made) };
        let code = inner.on_quiet_device(OPERATION, &Awaited::All, call);
        // Where it fails, the others have made them, or wait for this one; and nobody says what the pointer is then.
        code.and_then(|code| check("nvshmemx_qp_create", code)).inspect_err(|error| inner.lose(error))?;
        Ok(match made.is_null() {
            true => Vec::new(),
            // SAFETY: as many handles, which the library has allocated for the caller.
            false => unsafe {
                let pairs = std::slice::from_raw_parts(made, count).iter().copied().map(QueuePair).collect();
                libc::free(made.cast());
                pairs
            },
        })
    }
}
