//! The names of things: operations, element types, reductions.

use crate::sys::{ncclDataType_t, ncclRedOp_t};

/// What a rank can do together with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    AllReduce = 1,
    Reduce,
    Broadcast,
    ReduceScatter,
    AllGather,
    AlltoAll,
    Gather,
    Scatter,
    Send,
    Recv,
    Init,
    Split,
    Shrink,
    WindowRegister,
    Connect,
    PutSignal,
    Signal,
    WaitSignal,
    OneSided,
    Suspend,
    Resume,
    Grow,
}

const KINDS: [(Kind, &str); 22] = [
    (Kind::AllReduce, "AllReduce"),
    (Kind::Reduce, "Reduce"),
    (Kind::Broadcast, "Broadcast"),
    (Kind::ReduceScatter, "ReduceScatter"),
    (Kind::AllGather, "AllGather"),
    (Kind::AlltoAll, "AlltoAll"),
    (Kind::Gather, "Gather"),
    (Kind::Scatter, "Scatter"),
    (Kind::Send, "Send"),
    (Kind::Recv, "Recv"),
    (Kind::Init, "CommInitRank"),
    (Kind::Split, "CommSplit"),
    (Kind::Shrink, "CommShrink"),
    (Kind::WindowRegister, "CommWindowRegister"),
    (Kind::Connect, "a first meeting"),
    (Kind::PutSignal, "PutSignal"),
    (Kind::Signal, "Signal"),
    (Kind::WaitSignal, "WaitSignal"),
    (Kind::OneSided, "the first one-sided call"),
    (Kind::Suspend, "CommSuspend"),
    (Kind::Resume, "CommResume"),
    (Kind::Grow, "CommGrow"),
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        KINDS[self as usize - 1].1
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        KINDS.get(usize::try_from(code).ok()?.checked_sub(1)?).map(|&(kind, _)| kind)
    }

    /// Whether it goes to or comes from one peer.
    pub(crate) fn message(self) -> bool {
        matches!(self, Self::Send | Self::Recv)
    }

    /// Whether NCCL does it by messages, for which not all ranks meet.
    pub(crate) fn by_messages(self) -> bool {
        self.message() || matches!(self, Self::AlltoAll | Self::Gather | Self::Scatter)
    }

    pub(crate) fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce | Self::ReduceScatter)
    }

    pub(crate) fn rooted(self) -> bool {
        matches!(self, Self::Reduce | Self::Broadcast | Self::Gather | Self::Scatter)
    }
}

/// The size of an element in bytes and the name of its type, if there is such a type.
pub(crate) fn element(datatype: ncclDataType_t) -> Option<(usize, &'static str)> {
    Some(match datatype {
        ncclDataType_t::ncclInt8 => (1, "int8"),
        ncclDataType_t::ncclUint8 => (1, "uint8"),
        ncclDataType_t::ncclInt32 => (4, "int32"),
        ncclDataType_t::ncclUint32 => (4, "uint32"),
        ncclDataType_t::ncclInt64 => (8, "int64"),
        ncclDataType_t::ncclUint64 => (8, "uint64"),
        ncclDataType_t::ncclFloat16 => (2, "float16"),
        ncclDataType_t::ncclFloat32 => (4, "float32"),
        ncclDataType_t::ncclFloat64 => (8, "float64"),
        ncclDataType_t::ncclBfloat16 => (2, "bfloat16"),
        ncclDataType_t::ncclFloat8e4m3 => (1, "float8e4m3"),
        ncclDataType_t::ncclFloat8e5m2 => (1, "float8e5m2"),
        _ => return None,
    })
}

/// Whether its elements are floating-point numbers.
pub(crate) fn is_float(datatype: ncclDataType_t) -> bool {
    element(datatype).is_some_and(|(_, name)| name.contains("float"))
}

/// Whether they are such numbers of eight bits.
pub(crate) fn is_float8(datatype: ncclDataType_t) -> bool {
    matches!(datatype, ncclDataType_t::ncclFloat8e4m3 | ncclDataType_t::ncclFloat8e5m2)
}

/// The name of an element type.
pub(crate) fn element_name(datatype: ncclDataType_t) -> &'static str {
    element(datatype).map_or("no type", |(_, name)| name)
}

/// A reduction, as ranks compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Redop {
    Sum = 0,
    Prod,
    Max,
    Min,
    Avg,
    PreMulSum,
}

impl Redop {
    /// The operators that NCCL itself defines.
    pub(crate) fn builtin(op: ncclRedOp_t) -> Option<Self> {
        Some(match op {
            ncclRedOp_t::ncclSum => Self::Sum,
            ncclRedOp_t::ncclProd => Self::Prod,
            ncclRedOp_t::ncclMax => Self::Max,
            ncclRedOp_t::ncclMin => Self::Min,
            ncclRedOp_t::ncclAvg => Self::Avg,
            _ => return None,
        })
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        Some(match code {
            0 => Self::Sum,
            1 => Self::Prod,
            2 => Self::Max,
            3 => Self::Min,
            4 => Self::Avg,
            5 => Self::PreMulSum,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::Avg => "avg",
            Self::PreMulSum => "premulsum",
        }
    }
}
