//! Taking away from NCCL what it has registered.

use crate::cuda::undisturbing;
use crate::nccl::state::windows::Handle;
use crate::sys;

/// The C function that does so.
#[cfg_attr(not(nccl_ge_2_27), allow(dead_code))]
pub(crate) fn function(handle: Handle) -> &'static str {
    match handle {
        Handle::Window(_) => "ncclCommWindowDeregister",
        Handle::Memory(_) => "ncclCommDeregister",
    }
}

/// Wraps `ncclCommWindowDeregister` and `ncclCommDeregister`. What NCCL says is of no use: it forgets what it was given in any case.
///
/// # Safety
/// `comm` is a live communicator that nobody else uses meanwhile, and `handle` is of it, and given here once. No operation uses what is
/// registered, now or later.
pub(crate) unsafe fn take_away(comm: sys::ncclComm_t, handle: Handle) {
    let _ = undisturbing(|| match handle {
        #[cfg(nccl_ge_2_27)]
        // SAFETY: the caller upholds the contract.
        Handle::Window(window) => Ok(unsafe { sys::ncclCommWindowDeregister(comm, window) }),
        #[cfg(not(nccl_ge_2_27))]
        Handle::Window(_) => Ok(sys::ncclResult_t::ncclSuccess),
        // SAFETY: as above.
        Handle::Memory(memory) => Ok(unsafe { sys::ncclCommDeregister(comm, memory) }),
    });
}
