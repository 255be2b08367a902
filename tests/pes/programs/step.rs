//! What a program is made of.

use std::ops::Range;

use gpucomm::ReduceOp;

/// Buffers that a program may have at a time.
pub const SLOTS: usize = 7;

/// The type of a buffer's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    U8,
    U32,
    U64,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::U8, Self::U32, Self::U64];

    /// The bits of an element.
    pub fn mask(self) -> u64 {
        match self {
            Self::U8 => u8::MAX.into(),
            Self::U32 => u32::MAX.into(),
            Self::U64 => u64::MAX,
        }
    }
}

/// How a transfer is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Host,
    Stream,
    Scope,
    StreamScope,
    View,
    /// Among others that may go together.
    Batch,
    /// Elements that do not lie side by side, by the host or on a stream.
    Strided,
    StridedOnStream,
    /// One element; on a stream, where it is put.
    Value,
    ValueOnStream,
    /// The end on this PE is pinned memory of the host, or memory that is registered for it.
    Pinned,
    Registered,
}

/// One transfer: `count` elements of `source` to `target`, places in the buffers that the step names.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// Who makes it.
    pub by: usize,
    pub other: usize,
    /// To the other; otherwise from there.
    pub puts: bool,
    pub way: Way,
    pub stream: usize,
    pub target: Range<usize>,
    pub source: usize,
    pub count: usize,
    /// From one element to the next, in the target and in the source.
    pub strides: (usize, usize),
}

impl Transfer {
    /// Whose memory is written.
    pub fn to(&self) -> usize {
        if self.puts { self.other } else { self.by }
    }

    /// Whose memory is read.
    pub fn from(&self) -> usize {
        if self.puts { self.by } else { self.other }
    }

    /// From the first element that is read to behind the last.
    pub fn read(&self) -> Range<usize> {
        self.source..self.source + extent(self.count, self.strides.1)
    }

    /// The same of what is written.
    pub fn written(&self) -> Range<usize> {
        self.target.start..self.target.start + extent(self.count, self.strides.0)
    }
}

/// So many elements at this distance, as so many that lie side by side.
pub fn extent(count: usize, stride: usize) -> usize {
    count.checked_sub(1).map_or(0, |before| before * stride + 1)
}

/// What NVSHMEM has for integers.
pub const OPS: [ReduceOp; 7] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::And, ReduceOp::Or, ReduceOp::Xor];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// From the member with this number, or as far behind the last as that is.
    Broadcast {
        root: usize,
    },
    Fcollect,
    Alltoall,
    Reduce(ReduceOp),
    Scatter(ReduceOp),
}

impl Family {
    /// Elements of dest and source, of `count` for `n` members.
    pub fn lens(self, count: usize, n: usize) -> (usize, usize) {
        match self {
            Self::Fcollect => (count * n, count),
            Self::Alltoall => (count * n, count * n),
            Self::Scatter(_) => (count, count * n),
            _ => (count, count),
        }
    }
}

/// How all PEs come together.
#[derive(Debug, Clone, Copy)]
pub enum Meet {
    Barrier,
    BarrierOnStream,
    QuietSync,
    Exchange,
}

/// How elements go round, and what tells that they have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Send {
    Stream,
    StreamScope,
    Host,
    HostScope,
    /// A put by the host, and behind it a signal.
    PutThenSignal,
    /// The same, and a value in symmetric memory.
    Value,
}

/// How a team comes together.
#[derive(Debug, Clone, Copy)]
pub enum Gather {
    Barrier,
    Sync,
    BarrierOnStream,
    SyncOnStream,
}

#[derive(Debug, Clone)]
pub enum Step {
    Alloc {
        slot: usize,
        kind: Kind,
        len: usize,
        zeroed: bool,
    },
    /// Each PE in an order and in ways of its own.
    Drop {
        slots: Vec<usize>,
        reclaim: bool,
    },
    /// More than any device has: an error on all PEs.
    Shortage {
        zeroed: bool,
        reclaim: bool,
    },
    /// Each PE its own memory, with this and its number.
    Fill {
        slot: usize,
        part: Range<usize>,
        value: u64,
        stream: usize,
    },
    Transfers {
        target: usize,
        source: usize,
        all: Vec<Transfer>,
        meet: Meet,
    },
    /// The same as a graph, launched so often.
    Graph {
        target: usize,
        source: usize,
        all: Vec<Transfer>,
        launches: u32,
    },
    /// To the next but `by`, which waits for it; `len` elements at these places.
    Ring {
        target: usize,
        source: usize,
        len: usize,
        at: (usize, usize),
        by: usize,
        send: Send,
        add: bool,
        stream: usize,
    },
    Split {
        start: usize,
        stride: usize,
        size: usize,
    },
    Plane {
        wide: usize,
    },
    /// A team by an id, of these PEs in this order.
    ById {
        order: Vec<usize>,
    },
    Forget {
        teams: usize,
    },
    /// What the teams of a kind do, each by itself.
    Collective {
        teams: usize,
        family: Family,
        target: (usize, usize),
        source: (usize, usize),
        count: usize,
        stream: Option<usize>,
    },
    Gather {
        teams: usize,
        how: Gather,
        stream: usize,
    },
    Reclaim,
}
