//! A call as C calls: one, but for what NCCL gets wrong.

use std::ffi::c_void;
use std::ptr;

use super::{detour, one_rank};
use crate::nccl::calls::call::Call;
use crate::nccl::calls::kind::Kind;
use crate::sys;

impl Call<'_> {
    /// How many operations of NCCL it consists of.
    pub(crate) fn operations(&self) -> usize {
        if self.comm.size == 1 {
            if self.is_in_pieces() { one_rank::pieces(self.count, self.element.size()).count() } else { 1 }
        } else if self.kind == Kind::AllGather && detour::hits(self) {
            self.comm.size
        } else {
            1
        }
    }

    /// Whether it is a reduction of one rank that NCCL does not do as a whole.
    #[inline]
    fn is_in_pieces(&self) -> bool {
        self.kind.redop().is_some_and(|op| op.0 >= sys::ncclRedOp_t::ncclNumOps.0) && one_rank::hits()
    }

    /// Makes the C call.
    ///
    /// # Safety
    ///
    /// `handle` is the live communicator of `self.comm`, whose lock the caller holds. The regions are ordered before this
    /// call on the stream, and the other ranks issue the matching operation.
    #[inline]
    pub(crate) unsafe fn make(&self, handle: sys::ncclComm_t) -> sys::ncclResult_t {
        let recv_base = self.recv.as_ref().map_or(ptr::null_mut(), |region| region.ptr());
        let recv = recv_base.wrapping_byte_add(self.recv_offset);
        let send = match (&self.send, self.send_in_recv) {
            (Some(region), _) => region.ptr().cast_const(),
            (None, Some(offset)) => recv_base.wrapping_byte_add(offset).cast_const(),
            (None, None) => recv.cast_const(),
        };
        if self.comm.size == 1 {
            if self.is_in_pieces() {
                // SAFETY: the caller upholds the contract.
                return unsafe { self.make_in_pieces(send, recv, handle) };
            }
        } else if detour::hits(self) {
            // SAFETY: the caller upholds the contract; the pointers are those that C would get.
            return unsafe { detour::make(self, send, recv, handle) };
        }
        // SAFETY: the caller upholds the contract: pointers to `count` elements as the kind counts them.
        unsafe { self.make_as(self.kind, send, recv, self.count, handle) }
    }

    /// # Safety
    ///
    /// As [`Call::make`], for a reduction of one rank.
    #[cold]
    unsafe fn make_in_pieces(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        handle: sys::ncclComm_t,
    ) -> sys::ncclResult_t {
        for (offset, count) in one_rank::pieces(self.count, self.element.size()) {
            let bytes = offset * self.element.size();
            let (send, recv) = (send.wrapping_byte_add(bytes), recv.wrapping_byte_add(bytes));
            // SAFETY: the caller upholds the contract; this is a part of the elements.
            let code = unsafe { self.make_as(self.kind, send, recv, count, handle) };
            if code != sys::ncclResult_t::ncclSuccess {
                return code;
            }
        }
        sys::ncclResult_t::ncclSuccess
    }
}
