//! Waiting with open eyes: who waits for whom, since when, and whether it can still end.
//!
//! Each rank writes what it does into its part of the control segment. A rank that waits longer than
//! `GPUCOMM_EMULATOR_DEADLOCK` seconds (10 by default, a fraction is allowed, 0 turns it off) reads what the ranks it
//! waits for did last, and says so once on stderr. It goes on waiting, as a GPU would; no violation is counted, because
//! the program may have a deadline of its own. For the error that it gives then, `ncclGetLastError` says the same all the time.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::emulator::meet::layout::{Life, Rank};
use crate::emulator::meet::segment::Segment;
use crate::emulator::nccl::basics::error::Failure;
use crate::emulator::nccl::basics::kind::Kind;
use crate::emulator::nccl::state::comm::Comm;
use crate::emulator::nccl::state::waits::Wait;
use crate::emulator::report;
use crate::emulator::settings::{DeadPeer, settings};

/// How often a waiter looks whether other processes still live.
const LOOK: Duration = Duration::from_millis(100);

/// How far a rank has come with what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting = 1,
    Done,
    Stopped,
}

/// What a rank does: kept in shared memory, for the reports of others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    pub(crate) kind: Kind,
    /// Which collective or which message, from 1.
    pub(crate) number: u64,
    pub(crate) count: u64,
    /// Root or peer.
    pub(crate) peer: u32,
}

impl Activity {
    pub(crate) fn publish(&self, rank: &Rank, phase: Phase) {
        let head = self.kind as u64 | (phase as u64) << 8 | u64::from(self.peer) << 32;
        for (slot, word) in rank.activity.iter().zip([head, self.number, self.count]) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    fn describe(&self) -> String {
        let Self { kind, number, count, peer } = self;
        match kind {
            Kind::Init => kind.name().to_owned(),
            Kind::Split | Kind::WindowRegister => format!("{} (host call #{number})", kind.name()),
            Kind::Connect => {
                let what = Kind::from_code(*number);
                let peers = match what {
                    Some(Kind::Send | Kind::Recv) => format!("rank {peer}"),
                    _ => "all ranks".to_owned(),
                };
                format!(
                    "the call of its first {} of this kind, inside which it meets {peers}",
                    what.map_or("operation", Kind::name)
                )
            }
            Kind::Send | Kind::Recv if *count == 0 => {
                format!("an empty {} by which it connects with rank {peer} (operation #{number})", kind.name())
            }
            Kind::Send => format!("Send of {count} elements to rank {peer} (operation #{number})"),
            Kind::Recv => format!("Recv of {count} elements from rank {peer} (operation #{number})"),
            _ if kind.rooted() => {
                format!("{} of {count} elements with root {peer} (collective #{number})", kind.name())
            }
            _ => format!("{} of {count} elements (collective #{number})", kind.name()),
        }
    }
}

/// What `rank` did last, in words.
fn last_deed(rank: &Rank) -> String {
    match rank.life() {
        Life::Absent => return "has not come to CommInitRank".to_owned(),
        Life::Destroyed => return "has destroyed its communicator".to_owned(),
        Life::Aborted => return "has aborted its communicator".to_owned(),
        Life::Dead => return "is dead".to_owned(),
        Life::Joined => {}
    }
    let [head, number, count, _] = rank.activity.each_ref().map(|word| word.load(Ordering::Relaxed));
    let Some(kind) = Kind::from_code(head & 0xff) else {
        return "has called nothing yet".to_owned();
    };
    let deed = Activity { kind, number, count, peer: (head >> 32) as u32 }.describe();
    match (head >> 8) & 0xff {
        1 => format!("waits in {deed}"),
        2 => format!("last finished {deed} and has started nothing since"),
        _ => format!("was stopped in {deed}"),
    }
}

/// Why a wait ends without what it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// This rank's communicator was aborted, or one that shares its resources.
    Aborted,
    /// The stream's device has failed.
    Cancelled,
    /// That rank will never come.
    Dead(usize),
}

/// The error of a rank that waits for a dead one.
pub(crate) fn died(comm: &Comm, peer: usize, activity: &Activity) -> Failure {
    Failure::remote(format!("rank {peer} died; rank {} waited for it in {}", comm.rank, activity.kind.name()))
}

/// After how long a dead peer is told, where it is.
const TELLS: Duration = Duration::from_secs(1);

/// One wait of one rank.
pub(crate) struct Watch<'a> {
    comm: &'a Comm,
    segment: &'a Segment,
    activity: Activity,
    cancelled: Option<&'a dyn Fn() -> bool>,
    /// Whose death matters; `None`: everybody's.
    members: Option<&'a [usize]>,
    /// The epoch of the communicator in which the wait began: a stop since then ends it.
    epoch: u32,
    dead_peer: DeadPeer,
    /// When a peer was first seen dead.
    died: Option<Instant>,
    since: Instant,
    looked: Instant,
    reported: bool,
    told: Wait<'a>,
}

impl<'a> Watch<'a> {
    /// A wait for all ranks in a call of the host, which a dead one ends at once.
    pub(crate) fn of_host(comm: &'a Comm, segment: &'a Segment, activity: Activity) -> Self {
        Self { dead_peer: DeadPeer::Ends, ..Self::new(comm, segment, activity, None) }
    }

    /// The death of others than these does not matter.
    pub(crate) fn among(self, members: &'a [usize]) -> Self {
        Self { members: Some(members), ..self }
    }

    /// The wait is part of what began in that epoch of the communicator.
    pub(crate) fn since(self, epoch: u32) -> Self {
        Self { epoch, ..self }
    }

    /// A wait of an operation, or of the call that issues it: GPUCOMM_EMULATOR_DEAD_PEER says what a dead peer does to it.
    pub(crate) fn new(
        comm: &'a Comm,
        segment: &'a Segment,
        activity: Activity,
        cancelled: Option<&'a dyn Fn() -> bool>,
    ) -> Self {
        let now = Instant::now();
        activity.publish(segment.rank(comm.rank), Phase::Waiting);
        let dead_peer = settings().dead_peer;
        let told = Wait::new(&comm.waits);
        Self {
            comm,
            segment,
            activity,
            cancelled,
            members: None,
            epoch: comm.epoch(),
            dead_peer,
            died: None,
            since: now,
            looked: now,
            reported: false,
            told,
        }
    }

    /// Looks around between two naps. `missing` says whether this wait is for that rank.
    pub(crate) fn check(&mut self, missing: impl Fn(usize) -> bool) -> Option<Stop> {
        if self.comm.is_stopped(self.epoch) {
            return Some(Stop::Aborted);
        }
        if self.cancelled.is_some_and(|cancelled| cancelled()) {
            return Some(Stop::Cancelled);
        }
        let now = Instant::now();
        let look = now.duration_since(self.looked) >= LOOK;
        for peer in 0..self.comm.size {
            if self.members.is_some_and(|members| !members.contains(&peer)) {
                continue;
            }
            let rank = self.segment.rank(peer);
            let life = rank.life();
            let ended = life == Life::Dead
                || look && (life == Life::Joined || missing(peer) && life != Life::Absent) && rank.dead();
            if !ended || peer == self.comm.rank {
                continue;
            }
            let since = *self.died.get_or_insert(now);
            match self.dead_peer {
                DeadPeer::Silent => {}
                DeadPeer::Told if now.duration_since(since) < TELLS => {}
                DeadPeer::Told => self.comm.fail(&died(self.comm, peer, &self.activity)),
                DeadPeer::Ends => return Some(Stop::Dead(peer)),
            }
        }
        if look {
            self.looked = now;
            let text = format!("rank {} waits in {}", self.comm.rank, self.describe(&missing));
            self.told.say(text);
        }
        if !self.reported && settings().deadlock.is_some_and(|patience| now.duration_since(self.since) >= patience) {
            self.reported = true;
            report::line(format!(
                "deadlock? Communicator {:04x}, {} ranks: rank {} has waited {:.1} s in {}",
                self.segment.nonce() & 0xffff,
                self.comm.size,
                self.comm.rank,
                self.since.elapsed().as_secs_f64(),
                self.describe(&missing),
            ));
        }
        None
    }

    /// What is waited in, and for whom.
    fn describe(&self, missing: &impl Fn(usize) -> bool) -> String {
        let (comm, mut text) = (self.comm, self.activity.describe());
        for peer in (0..comm.size).filter(|&peer| peer != comm.rank && missing(peer)) {
            let _ = write!(text, "; for rank {peer}, which {}", last_deed(self.segment.rank(peer)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody has issued them, so nobody finds them in a program.
    #[test]
    fn messages_that_connect_are_not_told_as_messages() {
        let describe = |kind, count| Activity { kind, number: 3, count, peer: 1 }.describe();
        assert_eq!(describe(Kind::Send, 8), "Send of 8 elements to rank 1 (operation #3)");
        assert_eq!(describe(Kind::Send, 0), "an empty Send by which it connects with rank 1 (operation #3)");
        assert_eq!(describe(Kind::Recv, 0), "an empty Recv by which it connects with rank 1 (operation #3)");
    }
}
