//! Waiting with open eyes: who waits for whom, since when, and whether it can still end.
//!
//! Each rank writes what it does into its part of the control segment. A rank that waits longer than
//! `GPUCOMM_EMULATOR_DEADLOCK` seconds (10 by default, a fraction is allowed, 0 turns it off) reads what the ranks it
//! waits for did last, and says so once on stderr. It goes on waiting, as a GPU would; no violation is counted, because
//! the program may have a deadline of its own.

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::lock::Mutex;
use crate::meet::segment::{Life, Rank, Segment};
use crate::report;
use crate::settings::{DeadPeer, settings};

/// How often a waiter looks whether other processes still live.
const LOOK: Duration = Duration::from_millis(100);

/// After how long a dead peer is told, where it is.
const TELLS: Duration = Duration::from_secs(1);

/// How far a rank has come with what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting = 1,
    Done,
    Stopped,
}

/// What a rank does, in numbers that lie in shared memory, for the reports of others. They mean something to those that meet.
pub(crate) trait Deed: Copy + Debug {
    /// A code that is not 0, a peer, and two more numbers.
    fn numbers(&self) -> (u8, u32, [u64; 2]);

    /// What has these numbers, if anything has.
    fn from_numbers(code: u8, peer: u32, more: [u64; 2]) -> Option<Self>;

    /// The deed in words.
    fn describe(&self) -> String;

    /// Why a rank of such a life does nothing, in words; `None`: it may do something.
    fn idle(life: Life) -> Option<&'static str>;

    /// Tells what this rank does now.
    fn publish(&self, rank: &Rank, phase: Phase) {
        let (code, peer, more) = self.numbers();
        let head = u64::from(code) | (phase as u64) << 8 | u64::from(peer) << 32;
        for (slot, word) in rank.activity.iter().zip([head, more[0], more[1]]) {
            slot.store(word, Ordering::Relaxed);
        }
    }
}

/// One rank of those that meet in a segment.
pub(crate) trait Party {
    /// What it does.
    type Deed: Deed;

    /// What those that meet are together.
    const NAME: &'static str;

    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// How often everything it does was stopped, and went on.
    fn epoch(&self) -> u32;

    /// Whether what began in `epoch` is stopped.
    fn is_stopped(&self, epoch: u32) -> bool;

    /// How long a wait lasts before it is reported; `None`: for ever.
    fn patience(&self) -> Option<Duration>;

    /// What it waits for.
    fn waits(&self) -> &Waits;

    /// A peer that `deed` waits for has died, and is to be told.
    fn tell_of_death(&self, peer: usize, deed: &Self::Deed);
}

/// What `rank` did last, in words.
fn last_deed<D: Deed>(rank: &Rank) -> String {
    if let Some(idle) = D::idle(rank.life()) {
        return idle.to_owned();
    }
    let [head, first, second, _] = rank.activity.each_ref().map(|word| word.load(Ordering::Relaxed));
    let Some(deed) = D::from_numbers(head as u8, (head >> 32) as u32, [first, second]) else {
        return "has called nothing yet".to_owned();
    };
    let deed = deed.describe();
    match (head >> 8) & 0xff {
        1 => format!("waits in {deed}"),
        2 => format!("last finished {deed} and has started nothing since"),
        _ => format!("was stopped in {deed}"),
    }
}

/// Why a wait ends without what it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// What this rank does was stopped.
    Aborted,
    /// The stream's device has failed.
    Cancelled,
    /// That rank will never come.
    Dead(usize),
}

/// One wait of one rank.
pub(crate) struct Watch<'a, P: Party> {
    party: &'a P,
    segment: &'a Segment,
    deed: P::Deed,
    cancelled: Option<&'a dyn Fn() -> bool>,
    /// Whose death matters; `None`: everybody's.
    members: Option<&'a [usize]>,
    /// The epoch in which the wait began: a stop since then ends it.
    epoch: u32,
    dead_peer: DeadPeer,
    /// When a peer was first seen dead.
    died: Option<Instant>,
    since: Instant,
    looked: Instant,
    reported: bool,
    told: Wait<'a>,
}

impl<'a, P: Party> Watch<'a, P> {
    /// A wait for all ranks in a call of the host, which a dead one ends at once.
    pub(crate) fn of_host(party: &'a P, segment: &'a Segment, deed: P::Deed) -> Self {
        Self { dead_peer: DeadPeer::Ends, ..Self::new(party, segment, deed, None) }
    }

    /// The death of others than these does not matter.
    pub(crate) fn among(self, members: &'a [usize]) -> Self {
        Self { members: Some(members), ..self }
    }

    /// The wait is part of what began in that epoch.
    pub(crate) fn since(self, epoch: u32) -> Self {
        Self { epoch, ..self }
    }

    /// A wait of an operation, or of the call that issues it: GPUCOMM_EMULATOR_DEAD_PEER says what a dead peer does to it.
    pub(crate) fn new(
        party: &'a P,
        segment: &'a Segment,
        deed: P::Deed,
        cancelled: Option<&'a dyn Fn() -> bool>,
    ) -> Self {
        let now = Instant::now();
        deed.publish(segment.rank(party.rank()), Phase::Waiting);
        Self {
            party,
            segment,
            deed,
            cancelled,
            members: None,
            epoch: party.epoch(),
            dead_peer: settings().dead_peer,
            died: None,
            since: now,
            looked: now,
            reported: false,
            told: Wait::new(party.waits()),
        }
    }

    /// Looks around between two naps. `missing` says whether this wait is for that rank.
    pub(crate) fn check(&mut self, missing: impl Fn(usize) -> bool) -> Option<Stop> {
        if self.party.is_stopped(self.epoch) {
            return Some(Stop::Aborted);
        }
        if self.cancelled.is_some_and(|cancelled| cancelled()) {
            return Some(Stop::Cancelled);
        }
        let now = Instant::now();
        let look = now.duration_since(self.looked) >= LOOK;
        for peer in 0..self.party.size() {
            if self.members.is_some_and(|members| !members.contains(&peer)) {
                continue;
            }
            let rank = self.segment.rank(peer);
            let life = rank.life();
            let ended = life == Life::Dead
                || look && (life == Life::Joined || missing(peer) && life != Life::Absent) && rank.dead();
            if !ended || peer == self.party.rank() {
                continue;
            }
            let since = *self.died.get_or_insert(now);
            match self.dead_peer {
                DeadPeer::Silent => {}
                DeadPeer::Told if now.duration_since(since) < TELLS => {}
                DeadPeer::Told => self.party.tell_of_death(peer, &self.deed),
                DeadPeer::Ends => return Some(Stop::Dead(peer)),
            }
        }
        if look {
            self.looked = now;
            let text = format!("rank {} waits in {}", self.party.rank(), self.describe(&missing));
            self.told.say(text);
        }
        if !self.reported && self.party.patience().is_some_and(|patience| now.duration_since(self.since) >= patience) {
            self.reported = true;
            report::line(format!(
                "deadlock? {} {:04x}, {} ranks: rank {} has waited {:.1} s in {}",
                P::NAME,
                self.segment.nonce() & 0xffff,
                self.party.size(),
                self.party.rank(),
                self.since.elapsed().as_secs_f64(),
                self.describe(&missing),
            ));
        }
        None
    }

    /// What is waited in, and for whom.
    fn describe(&self, missing: &impl Fn(usize) -> bool) -> String {
        let (me, mut text) = (self.party.rank(), self.deed.describe());
        for peer in (0..self.party.size()).filter(|&peer| peer != me && missing(peer)) {
            let _ = write!(text, "; for rank {peer}, which {}", last_deed::<P::Deed>(self.segment.rank(peer)));
        }
        text
    }
}

/// The waits of one party that have lasted for a while.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<Vec<(u64, String)>>);

impl Waits {
    /// All of them.
    pub(crate) fn text(&self) -> Option<String> {
        let waits = self.0.lock();
        let texts: Vec<_> = waits.iter().map(|(_, text)| text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// One wait, as long as this lives.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    waits: &'a Waits,
    /// Among the waits, once it has been described.
    number: Option<u64>,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(waits: &'a Waits) -> Self {
        Self { waits, number: None }
    }

    /// Says what is waited for, in place of what was said before.
    pub(crate) fn say(&mut self, text: String) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = *self.number.get_or_insert_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
        let mut waits = self.waits.0.lock();
        match waits.iter_mut().find(|(other, _)| *other == number) {
            Some((_, said)) => *said = text,
            None => waits.push((number, text)),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.waits.0.lock().retain(|(other, _)| *other != number);
        }
    }
}

#[cfg(test)]
mod waits_tests {
    use super::*;

    #[test]
    fn waits_are_told_while_they_last() {
        let waits = Waits::default();
        let (mut one, mut two) = (Wait::new(&waits), Wait::new(&waits));
        assert_eq!(waits.text(), None);
        one.say("one".to_owned());
        two.say("two".to_owned());
        one.say("three".to_owned());
        assert_eq!(waits.text().as_deref(), Some("three; two"));
        drop(one);
        assert_eq!(waits.text().as_deref(), Some("two"));
        drop(two);
        assert_eq!(waits.text(), None);
    }
}
