//! One validated NCCL call, ready to be made.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use super::{detour, one_rank};
use crate::cuda::{Access, Region, Stream};
use crate::element::ElementKind;
use crate::nccl::agree::pair::End;
use crate::nccl::agree::recent::NOWHERE;
use crate::nccl::raw::data_type;
use crate::nccl::state::inner::Inner;
use crate::sys;

/// Which C function, with the arguments that only it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce {
        op: sys::ncclRedOp_t,
    },
    Reduce {
        op: sys::ncclRedOp_t,
        root: usize,
    },
    ReduceScatter {
        op: sys::ncclRedOp_t,
    },
    Broadcast {
        root: usize,
    },
    AllGather,
    #[cfg(nccl_ge_2_28)]
    AllToAll,
    #[cfg(nccl_ge_2_28)]
    Gather {
        root: usize,
    },
    #[cfg(nccl_ge_2_28)]
    Scatter {
        root: usize,
    },
    Send {
        peer: usize,
    },
    Recv {
        peer: usize,
    },
}

impl Kind {
    /// A number for the ledger.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::AllReduce { .. } => 1,
            Self::Reduce { .. } => 2,
            Self::ReduceScatter { .. } => 3,
            Self::Broadcast { .. } => 4,
            Self::AllGather => 5,
            #[cfg(nccl_ge_2_28)]
            Self::AllToAll => 6,
            #[cfg(nccl_ge_2_28)]
            Self::Gather { .. } => 7,
            #[cfg(nccl_ge_2_28)]
            Self::Scatter { .. } => 8,
            Self::Send { .. } => 9,
            Self::Recv { .. } => 10,
        }
    }

    /// The C function.
    pub(crate) const fn function(self) -> &'static str {
        match self {
            Self::AllReduce { .. } => "ncclAllReduce",
            Self::Reduce { .. } => "ncclReduce",
            Self::ReduceScatter { .. } => "ncclReduceScatter",
            Self::Broadcast { .. } => "ncclBroadcast",
            Self::AllGather => "ncclAllGather",
            #[cfg(nccl_ge_2_28)]
            Self::AllToAll => "ncclAlltoAll",
            #[cfg(nccl_ge_2_28)]
            Self::Gather { .. } => "ncclGather",
            #[cfg(nccl_ge_2_28)]
            Self::Scatter { .. } => "ncclScatter",
            Self::Send { .. } => "ncclSend",
            Self::Recv { .. } => "ncclRecv",
        }
    }

    /// Of a message: which end of it this rank is, and who is the other.
    #[inline]
    pub(crate) const fn message(self) -> Option<(End, usize)> {
        match self {
            Self::Send { peer } => Some((End::Sender, peer)),
            Self::Recv { peer } => Some((End::Receiver, peer)),
            _ => None,
        }
    }

    /// Whether NCCL makes messages of this collective, one after another with those of [`Kind::Send`] and [`Kind::Recv`]
    /// between the same ranks.
    #[inline]
    pub(crate) const fn exchange(self) -> bool {
        #[cfg(nccl_ge_2_28)]
        return matches!(self, Self::AllToAll | Self::Gather { .. } | Self::Scatter { .. });
        #[cfg(not(nccl_ge_2_28))]
        false
    }

    /// Whether NCCL takes kernels of their own, or copy engines, for this collective between windows: ranks compare which windows they
    /// pass to it, and where in them.
    #[inline]
    pub(crate) const fn symmetric(self) -> bool {
        #[cfg(nccl_ge_2_28)]
        if matches!(self, Self::AllToAll) {
            return true;
        }
        matches!(self, Self::AllReduce { .. } | Self::AllGather | Self::ReduceScatter { .. })
    }

    pub(crate) const fn redop(self) -> Option<sys::ncclRedOp_t> {
        match self {
            Self::AllReduce { op } | Self::Reduce { op, .. } | Self::ReduceScatter { op } => Some(op),
            _ => None,
        }
    }

    pub(crate) const fn root(self) -> Option<usize> {
        match self {
            Self::Reduce { root, .. } | Self::Broadcast { root } => Some(root),
            #[cfg(nccl_ge_2_28)]
            Self::Gather { root } | Self::Scatter { root } => Some(root),
            _ => None,
        }
    }
}

/// One call: what is passed to C, and the memory that it touches.
///
/// Whoever makes one has checked lengths, ranks, devices and overlap; `operation` is the method that the user called.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    pub(crate) operation: &'static str,
    pub(crate) comm: &'a Inner,
    pub(crate) stream: &'a Stream,
    pub(crate) kind: Kind,
    pub(crate) element: ElementKind,
    /// Elements, as the C function counts them.
    pub(crate) count: usize,
    /// What is read; `None` where this rank reads nothing, or reads what it writes.
    pub(crate) send: Option<Region<'a>>,
    /// What is written; `None` where this rank receives nothing.
    pub(crate) recv: Option<Region<'a>>,
    /// The pointer that C gets as send buffer where it lies within `recv`: in place, at an offset of these bytes.
    pub(crate) send_in_recv: Option<usize>,
    /// The pointer that C gets as receive buffer, in bytes from the start of `recv`.
    pub(crate) recv_offset: usize,
    /// The device scalar of a pre-multiplied sum, which the device reads when the operation runs.
    pub(crate) scalar: Option<Region<'a>>,
    /// Its number in the ledger, once it was agreed on: among the collectives, or the messages of its pair; else [`NOWHERE`].
    pub(crate) agreed: Cell<u64>,
}

impl<'a> Call<'a> {
    #[inline]
    pub(crate) fn new(
        operation: &'static str,
        comm: &'a Inner,
        stream: &'a Stream,
        kind: Kind,
        element: ElementKind,
        count: usize,
    ) -> Self {
        Self {
            operation,
            comm,
            stream,
            kind,
            element,
            count,
            send: None,
            recv: None,
            send_in_recv: None,
            recv_offset: 0,
            scalar: None,
            agreed: Cell::new(NOWHERE),
        }
    }

    /// Visits the memory that it uses, until `visit` fails.
    #[inline]
    pub(crate) fn uses<E>(&self, mut visit: impl FnMut(&Region<'a>, Access) -> Result<(), E>) -> Result<(), E> {
        if let Some(send) = &self.send {
            visit(send, Access::Read)?;
        }
        if let Some(scalar) = &self.scalar {
            visit(scalar, Access::Read)?;
        }
        if let Some(recv) = &self.recv {
            visit(recv, Access::Write)?;
        }
        Ok(())
    }

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
fn int(rank: usize) -> c_int {
    rank as c_int
}
