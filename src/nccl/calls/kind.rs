//! What NCCL can be asked for.

use crate::element::ElementKind;
use crate::nccl::validate::element_type::Type;
use crate::nccl::validate::history::Exchange;
use crate::nccl::validate::operation;
use crate::nccl::validate::pair::End;
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
    /// See [`operation::head`].
    #[inline]
    pub(crate) fn head(self, element: Type) -> u64 {
        let other = self.root().or(self.message().map(|(_, peer)| peer));
        operation::head(self.code(), element, self.redop(), other)
    }

    /// A number for the signatures.
    #[inline]
    const fn code(self) -> u8 {
        match self {
            Self::AllReduce { .. } => operation::ALL_REDUCE,
            Self::Reduce { .. } => operation::REDUCE,
            Self::ReduceScatter { .. } => operation::REDUCE_SCATTER,
            Self::Broadcast { .. } => operation::BROADCAST,
            Self::AllGather => operation::ALL_GATHER,
            #[cfg(nccl_ge_2_28)]
            Self::AllToAll => operation::ALL_TO_ALL,
            #[cfg(nccl_ge_2_28)]
            Self::Gather { .. } => operation::GATHER,
            #[cfg(nccl_ge_2_28)]
            Self::Scatter { .. } => operation::SCATTER,
            Self::Send { .. } => operation::SEND,
            Self::Recv { .. } => operation::RECV,
        }
    }

    /// The C function.
    #[inline]
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

    /// The C function that takes a configuration; messages have none.
    #[cfg(nccl_ge_2_31)]
    #[cold]
    pub(crate) const fn configured_function(self) -> &'static str {
        match self {
            Self::AllReduce { .. } => "ncclAllReduceConfig",
            Self::Reduce { .. } => "ncclReduceConfig",
            Self::ReduceScatter { .. } => "ncclReduceScatterConfig",
            Self::Broadcast { .. } => "ncclBroadcastConfig",
            Self::AllGather => "ncclAllGatherConfig",
            Self::AllToAll => "ncclAlltoAllConfig",
            Self::Gather { .. } => "ncclGatherConfig",
            Self::Scatter { .. } => "ncclScatterConfig",
            Self::Send { .. } | Self::Recv { .. } => self.function(),
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

    /// Of a collective that NCCL makes messages of, one after another with those of [`Kind::Send`] and [`Kind::Recv`] between the same
    /// ranks: which one.
    #[inline]
    pub(crate) const fn exchange(self) -> Option<Exchange> {
        match self {
            #[cfg(nccl_ge_2_28)]
            Self::AllToAll => Some(Exchange::AllToAll),
            #[cfg(nccl_ge_2_28)]
            Self::Gather { root } => Some(Exchange::Gather { root }),
            #[cfg(nccl_ge_2_28)]
            Self::Scatter { root } => Some(Exchange::Scatter { root }),
            _ => None,
        }
    }

    /// Whether it is such a collective.
    #[inline]
    pub(crate) const fn is_exchange(self) -> bool {
        self.exchange().is_some()
    }

    /// Whether NCCL takes kernels of their own, or copy engines, for this collective between windows: ranks compare which windows they
    /// pass to it, and where in them. Of other collectives they compare whether they pass windows.
    #[inline]
    pub(crate) const fn symmetric(self) -> bool {
        #[cfg(nccl_ge_2_28)]
        if matches!(self, Self::AllToAll) {
            return true;
        }
        matches!(self, Self::AllReduce { .. } | Self::AllGather | Self::ReduceScatter { .. })
    }

    #[inline]
    pub(crate) const fn redop(self) -> Option<sys::ncclRedOp_t> {
        match self {
            Self::AllReduce { op } | Self::Reduce { op, .. } | Self::ReduceScatter { op } => Some(op),
            _ => None,
        }
    }

    /// What C is told that elements are. NCCL before 2.28.3 wants devices that add floats of eight bits even where those are only moved, so they
    /// go as bytes there.
    #[inline]
    pub(crate) const fn carrier(self, element: ElementKind) -> ElementKind {
        if element.is_float8() && self.redop().is_none() { ElementKind::U8 } else { element }
    }

    #[inline]
    pub(crate) const fn root(self) -> Option<usize> {
        match self {
            Self::Reduce { root, .. } | Self::Broadcast { root } => Some(root),
            #[cfg(nccl_ge_2_28)]
            Self::Gather { root } | Self::Scatter { root } => Some(root),
            _ => None,
        }
    }
}
