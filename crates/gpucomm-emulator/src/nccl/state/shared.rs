//! What the ranks of a communicator keep in their segment: of their operations, first meetings and windows.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use super::neighbours::NEIGHBOURS;
use super::stranded::Stranded;
use crate::meet::futex::Gate;
use crate::meet::plan::Plan;
use crate::meet::segment::Segment;

/// What a rank tells the others about an operation.
const WORDS: usize = 24;

/// What the two ends of a message tell each other.
const PAIR_WORDS: usize = 9;

/// What a rank tells the others about a group of operations.
pub(crate) const GROUP_WORDS: usize = 18;

/// Of so many collectives a rank shows where they stand among those of other communicators.
pub(crate) const ORDERS: usize = 64;

/// The plan of the segments of communicators.
#[derive(Debug)]
pub(crate) struct Nccl;

// SAFETY: all parts are atomics, of which every value is valid. The name is used here only.
unsafe impl Plan for Nccl {
    const NAME: [u8; 8] = *b"gpucomm1";
    type Common = Common;
    type Own = Own;
    type Between = Between;
}

/// What all ranks share.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Common {
    /// All ranks have come to the next collective operation.
    pub(crate) arrival: Gate,
    /// All ranks have done their share of it.
    pub(crate) departure: Gate,
    /// Set by a rank that could not do its share.
    pub(crate) broken: AtomicU32,
    /// First meetings inside calls of collectives.
    pub(crate) connect: Gate,
    /// A bit for each window that a rank took with it when it ended.
    pub(crate) stranded: Stranded,
    /// To the first rank and the last one, of who wants the communicator to grow.
    pub(crate) letters: [Letter; 2],
}

/// A way to others, until it is read.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) is_there: AtomicU32,
    /// Which child of the communicator it is for, and the id.
    pub(crate) words: [AtomicU64; 5],
}

/// What a rank shows.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Own {
    /// Its device, as the machine numbers them.
    pub(crate) device: AtomicI32,
    /// Of the first rank of a process: how many ranks of that process have ended.
    pub(crate) ended_here: AtomicU32,
    /// Collective operations that it has come to.
    pub(crate) arrived: AtomicU64,
    /// Collective operations that it has done its share of.
    pub(crate) departed: AtomicU64,
    /// First meetings inside calls of collectives that it has come to.
    pub(crate) connected: AtomicU64,
    /// It is connected to nobody any more.
    pub(crate) let_go: AtomicU32,
    /// What it has captured, and graphs still have.
    pub(crate) graphs: AtomicU32,
    /// The collective operation it has come to.
    pub(crate) words: [AtomicU64; WORDS],
    /// What the group holds that it is at.
    pub(crate) group: [AtomicU64; GROUP_WORDS],
    /// Of those that share their resources with others: the number of a collective, and after how many of the others it comes.
    pub(crate) orders: [AtomicU64; ORDERS],
    /// Of others on its device: the number of a collective, and after how many of theirs it comes; what their ranks know them by.
    pub(crate) neighbours: [[[AtomicU64; 2]; NEIGHBOURS]; ORDERS],
}

/// One message at a time between an ordered pair of ranks.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Between {
    /// How far the message is. What the values mean is the matter of those who send messages.
    pub(crate) state: AtomicU32,
    /// How far the sender and the receiver are with their first meeting.
    pub(crate) met: [AtomicU32; 2],
    /// Messages that were sent and received.
    pub(crate) done: AtomicU64,
    /// One-sided signals that the first has given the second.
    pub(crate) signals: AtomicU64,
    /// How far the first is with one that a graph gives, of which one is on its way at a time.
    pub(crate) graph_signal: AtomicU32,
    pub(crate) sender: [AtomicU64; PAIR_WORDS],
    pub(crate) receiver: [AtomicU64; PAIR_WORDS],
}

/// These parts of a segment.
pub(crate) trait Shared {
    fn common(&self) -> &Common;
    fn own(&self, rank: usize) -> &Own;
    fn between(&self, from: usize, to: usize) -> &Between;
}

impl Shared for Segment {
    fn common(&self) -> &Common {
        self.common_of::<Nccl>()
    }

    fn own(&self, rank: usize) -> &Own {
        self.own_of::<Nccl>(rank)
    }

    fn between(&self, from: usize, to: usize) -> &Between {
        self.between_of::<Nccl>(from, to)
    }
}
