//! What the ranks of a communicator keep in their segment: operations, first meetings, windows, signals and neighbours.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::lock::Mutex;
use crate::meet::futex::Gate;
use crate::meet::segment::{Plan, Segment};
use crate::nccl::basics::kind::Kind;
use crate::races::Touches;

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

/// Windows of a communicator that are told apart, in words: more than any program registers.
const STRANDED_WORDS: usize = 256;

/// A bit for each window, in shared memory.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Stranded([AtomicU64; STRANDED_WORDS]);

impl Stranded {
    fn bit(&self, window: u64) -> (&AtomicU64, u64) {
        (&self.0[(window / 64) as usize % STRANDED_WORDS], 1 << (window % 64))
    }

    /// A rank ends while it still has this window.
    pub(crate) fn add(&self, window: u64) {
        let (word, bit) = self.bit(window);
        word.fetch_or(bit, Ordering::Release);
    }

    /// Whether a rank has ended while it still had this window.
    pub(crate) fn contains(&self, window: u64) -> bool {
        let (word, bit) = self.bit(window);
        word.load(Ordering::Acquire) & bit != 0
    }
}

/// What is connected once and for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// All ranks, for that collective of that class of sizes.
    All(Kind, u8),
    /// Messages to that rank.
    To(usize),
    /// Messages from that rank.
    From(usize),
    /// Messages to that rank, the first of which were in a group that has failed: these are never connected.
    NeverTo(usize),
    /// The same, from that rank.
    NeverFrom(usize),
}

impl Link {
    /// What it is once a group has failed that was to connect it.
    pub(crate) fn never(self) -> Option<Self> {
        match self {
            Self::To(peer) => Some(Self::NeverTo(peer)),
            Self::From(peer) => Some(Self::NeverFrom(peer)),
            Self::All(..) | Self::NeverTo(_) | Self::NeverFrom(_) => None,
        }
    }
}

/// What a communicator has connected so far.
pub(crate) type Links = HashSet<Link>;

/// What a rank keeps for one-sided operations.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// It has come to its first one.
    started: AtomicBool,
    /// How many signals of each rank it has waited for, or will have.
    awaited: Mutex<Vec<u64>>,
    /// Where NCCL keeps the numbers of signals until they are copied: one place for all streams, so puts and signals must be in order.
    pub(crate) staged: Touches,
}

impl Signals {
    /// Whether this is the first one-sided operation.
    pub(crate) fn start(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    /// It was not: the ranks have not met.
    pub(crate) fn forget(&self) {
        self.started.store(false, Ordering::Release);
    }

    /// So many more signals of `peer` are waited for: which one is the last of them.
    pub(crate) fn expect(&self, peer: usize, more: u64) -> u64 {
        let mut awaited = self.awaited.lock();
        if awaited.len() <= peer {
            awaited.resize(peer + 1, 0);
        }
        awaited[peer] += more;
        awaited[peer]
    }
}

/// Of so many others a rank shows how far they are.
pub(crate) const NEIGHBOURS: usize = 3;

/// A communicator of this process.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) handle: usize,
    pub(super) device: i32,
    /// What its ranks know it by.
    pub(super) nonce: u64,
    /// How many collectives it has launched.
    pub(super) collectives: Arc<AtomicU64>,
    /// What it shares with others, by an address.
    pub(super) family: usize,
}

static ALL: Mutex<Vec<Neighbour>> = Mutex::new(Vec::new());
/// How many there are: where it is one, it has no neighbour.
static LEN: AtomicUsize = AtomicUsize::new(0);

fn change(work: impl FnOnce(&mut Vec<Neighbour>)) {
    let mut all = ALL.lock();
    work(&mut all);
    LEN.store(all.len(), Ordering::Release);
}

/// The ranks of a communicator have met.
pub(super) fn add_neighbour(neighbour: Neighbour) {
    change(|all| all.push(neighbour));
}

/// It has ended.
pub(super) fn remove_neighbour(handle: usize) {
    change(|all| all.retain(|one| one.handle != handle));
}

/// Those on a device that are not of that family: what their ranks know them by, and how many collectives they have launched. The ones
/// that were made last, where there are many.
pub(super) fn neighbours_of(device: i32, family: usize) -> [Option<(u64, u64)>; NEIGHBOURS] {
    let mut found = [None; NEIGHBOURS];
    if LEN.load(Ordering::Acquire) > 1 {
        let all = ALL.lock();
        let others = all.iter().rev().filter(|one| one.device == device && one.family != family);
        for (place, other) in found.iter_mut().zip(others) {
            *place = Some((other.nonce, other.collectives.load(Ordering::Relaxed)));
        }
    }
    found
}
