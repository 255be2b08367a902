//! The C functions.

use std::ffi::{c_int, c_void};

use crate::nccl::calls::call::Call;
use crate::nccl::calls::kind::Kind;
use crate::nccl::raw::data_type;
use crate::sys;

impl Call<'_> {
    /// Makes the C call of `kind` in place of its own.
    ///
    /// # Safety
    ///
    /// As [`Call::make`], with buffers of `count` elements, as `kind` counts them, and the same `kind` on all ranks.
    #[inline]
    pub(crate) unsafe fn make_as(
        &self,
        kind: Kind,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        handle: sys::ncclComm_t,
    ) -> sys::ncclResult_t {
        #[cfg(nccl_ge_2_31)]
        if let Some(config) = self.config {
            // SAFETY: the caller upholds the contract.
            return unsafe { self.make_configured(kind, (send, recv), count, handle, config) };
        }
        let (element, stream) = (data_type::raw(self.element), self.stream.raw());
        // SAFETY: the caller upholds the contract of all of them: pointers to `count` elements as the kind counts them,
        // checked when this call was made from borrowed slices, a live communicator and a live stream.
        unsafe {
            match kind {
                Kind::AllReduce { op } => sys::ncclAllReduce(send, recv, count, element, op, handle, stream),
                Kind::Reduce { op, root } => sys::ncclReduce(send, recv, count, element, op, int(root), handle, stream),
                Kind::ReduceScatter { op } => sys::ncclReduceScatter(send, recv, count, element, op, handle, stream),
                Kind::Broadcast { root } => sys::ncclBroadcast(send, recv, count, element, int(root), handle, stream),
                Kind::AllGather => sys::ncclAllGather(send, recv, count, element, handle, stream),
                #[cfg(nccl_ge_2_28)]
                Kind::AllToAll => sys::ncclAlltoAll(send, recv, count, element, handle, stream),
                #[cfg(nccl_ge_2_28)]
                Kind::Gather { root } => sys::ncclGather(send, recv, count, element, int(root), handle, stream),
                #[cfg(nccl_ge_2_28)]
                Kind::Scatter { root } => sys::ncclScatter(send, recv, count, element, int(root), handle, stream),
                Kind::Send { peer } => sys::ncclSend(send, count, element, int(peer), handle, stream),
                Kind::Recv { peer } => sys::ncclRecv(recv, count, element, int(peer), handle, stream),
            }
        }
    }
}

/// A rank as C has it. Ranks are below the size of a communicator, which fitted into an `int` when it was made.
#[inline]
pub(super) fn int(rank: usize) -> c_int {
    rank as c_int
}
