//! The C functions that take a configuration of the call.

use std::ffi::c_void;

use super::function::int;
use crate::nccl::calls::call::Call;
use crate::nccl::calls::call_config::CallConfig;
use crate::nccl::calls::kind::Kind;
use crate::nccl::raw::data_type;
use crate::sys;

impl Call<'_> {
    /// Makes the C call of `kind`, with a configuration.
    ///
    /// # Safety
    ///
    /// As [`Call::make_as`]. Messages have no configuration.
    #[cold]
    pub(super) unsafe fn make_configured(
        &self,
        kind: Kind,
        (send, recv): (*const c_void, *mut c_void),
        count: usize,
        handle: sys::ncclComm_t,
        config: &CallConfig,
    ) -> sys::ncclResult_t {
        let (element, stream, raw) = (data_type::raw(self.element), self.stream.raw(), config.to_raw());
        let raw = &raw;
        // SAFETY: the caller upholds the contract of all of them, as of those without a configuration; that was initialised, and what it
        // points to lives as long as `config`.
        unsafe {
            match kind {
                Kind::AllReduce { op } => sys::ncclAllReduceConfig(send, recv, count, element, op, handle, stream, raw),
                Kind::Reduce { op, root } => {
                    sys::ncclReduceConfig(send, recv, count, element, op, int(root), handle, stream, raw)
                }
                Kind::ReduceScatter { op } => {
                    sys::ncclReduceScatterConfig(send, recv, count, element, op, handle, stream, raw)
                }
                Kind::Broadcast { root } => {
                    sys::ncclBroadcastConfig(send, recv, count, element, int(root), handle, stream, raw)
                }
                Kind::AllGather => sys::ncclAllGatherConfig(send, recv, count, element, handle, stream, raw),
                Kind::AllToAll => sys::ncclAlltoAllConfig(send, recv, count, element, handle, stream, raw),
                Kind::Gather { root } => {
                    sys::ncclGatherConfig(send, recv, count, element, int(root), handle, stream, raw)
                }
                Kind::Scatter { root } => {
                    sys::ncclScatterConfig(send, recv, count, element, int(root), handle, stream, raw)
                }
                Kind::Send { .. } | Kind::Recv { .. } => sys::ncclResult_t::ncclInvalidUsage,
            }
        }
    }
}
