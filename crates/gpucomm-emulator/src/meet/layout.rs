//! What lies in a control segment whoever meets there: a head, a part for each rank, and one for each pair of ranks.
//!
//! Everything in it is atomic and zero means "nothing yet", so a fresh segment needs no initialisation and a hostile or dead
//! peer can make values wrong but no access invalid.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use super::futex::Bell;
use super::process;

/// The most ranks that can meet in one.
pub(crate) const MAX_RANKS: usize = 256;

/// What a rank shows in a meeting.
pub(crate) const WORDS: usize = 24;

/// The head of the segment.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Head {
    pub(super) nonce: AtomicU64,
    /// How many ranks there are; 0 until the first one has come.
    pub(crate) size: AtomicU32,
    /// Ranks that have come.
    pub(crate) joined: AtomicU32,
    /// 0, or the code with which the start fails for every rank.
    pub(crate) refused: AtomicU32,
    /// The ranks or sizes that the refusal is about.
    pub(crate) refused_about: [AtomicI32; 2],
    /// Rings when somebody joins, refuses, comes to a meeting, or is known to be dead.
    pub(crate) news: Bell,
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
    /// What it is doing, for reports.
    pub(crate) activity: [AtomicU64; 4],
    /// Rings when something between this rank and another has made progress.
    pub(crate) bell: Bell,
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

/// An ordered pair of ranks.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Pair {
    /// How often the first has come to meetings with the second. See [`super::meeting`].
    pub(crate) told: AtomicU64,
}
