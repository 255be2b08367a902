//! What lies in a control segment: a head, a part for each rank, and one for each pair of ranks.
//!
//! Everything in it is atomic and zero means "nothing yet", so a fresh segment needs no initialisation and a hostile or dead
//! peer can make values wrong but no access invalid.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use super::futex::{Bell, Gate};
use super::process;
use super::stranded::Stranded;

/// The most ranks that a communicator can have.
pub(crate) const MAX_RANKS: usize = 256;

/// What a rank tells the others about an operation.
pub(crate) const WORDS: usize = 24;

/// What the two ends of a message tell each other.
pub(crate) const PAIR_WORDS: usize = 9;

/// What a rank tells the others about a group of operations.
pub(crate) const GROUP_WORDS: usize = 18;

/// The head of the segment.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Head {
    pub(super) nonce: AtomicU64,
    /// Ranks of the communicator; 0 until the first one has come.
    pub(crate) size: AtomicU32,
    /// Ranks that have come.
    pub(crate) joined: AtomicU32,
    /// 0, or the code with which init fails for every rank.
    pub(crate) refused: AtomicU32,
    /// The ranks or sizes that the refusal is about.
    pub(crate) refused_about: [AtomicI32; 2],
    /// Rings when somebody joins, refuses, comes to a meeting, or is known to be dead.
    pub(crate) news: Bell,
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
}

/// What a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Absent,
    Joined,
    Destroyed,
    Aborted,
    Dead,
}

/// One rank's part of the segment.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Rank {
    /// Process id; claims the place.
    pub(crate) pid: AtomicU32,
    life: AtomicU32,
    pub(crate) born: AtomicU64,
    pub(crate) device: AtomicI32,
    /// Collective operations that this rank has come to.
    pub(crate) arrived: AtomicU64,
    /// Collective operations that this rank has done its share of.
    pub(crate) departed: AtomicU64,
    /// First meetings inside calls of collectives that this rank has come to.
    pub(crate) connected: AtomicU64,
    /// What it is doing, for reports.
    pub(crate) activity: [AtomicU64; 4],
    /// Rings when a message to or from this rank has made progress.
    pub(crate) bell: Bell,
    /// The collective operation it has come to.
    pub(crate) words: [AtomicU64; WORDS],
    /// What the group holds that it is at.
    pub(crate) group: [AtomicU64; GROUP_WORDS],
    /// What it shows in a meeting. See [`super::meeting`].
    pub(crate) board: [AtomicU64; WORDS],
}

impl Rank {
    pub(crate) fn life(&self) -> Life {
        match self.life.load(Ordering::Acquire) {
            0 => Life::Absent,
            1 => Life::Joined,
            2 => Life::Destroyed,
            3 => Life::Aborted,
            _ => Life::Dead,
        }
    }

    pub(crate) fn set_life(&self, life: Life) {
        let life = match life {
            Life::Absent => 0,
            Life::Joined => 1,
            Life::Destroyed => 2,
            Life::Aborted => 3,
            Life::Dead => 4,
        };
        self.life.store(life, Ordering::Release);
    }

    /// Whether the rank will never do anything again, because its process has ended or a fault stopped it.
    pub(crate) fn dead(&self) -> bool {
        match self.life() {
            Life::Dead => true,
            Life::Absent => false,
            _ => {
                let (pid, born) = (self.pid.load(Ordering::Acquire), self.born.load(Ordering::Acquire));
                if process::alive(pid, born) {
                    return false;
                }
                self.set_life(Life::Dead);
                true
            }
        }
    }
}

/// One message at a time between an ordered pair of ranks.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Pair {
    /// How far the message is. What the values mean is the matter of those who send messages.
    pub(crate) state: AtomicU32,
    /// How far the sender and the receiver are with their first meeting.
    pub(crate) met: [AtomicU32; 2],
    _pad: AtomicU32,
    /// Messages that were sent and received.
    pub(crate) done: AtomicU64,
    pub(crate) sender: [AtomicU64; PAIR_WORDS],
    pub(crate) receiver: [AtomicU64; PAIR_WORDS],
    /// How often the first has come to meetings with the second. See [`super::meeting`].
    pub(crate) told: AtomicU64,
}
