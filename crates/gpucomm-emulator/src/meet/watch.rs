//! Watches waits: reports possible deadlocks, and ends waits for dead or aborted ranks.
//!
//! Each rank writes its current call to its part of the control segment. A rank that has waited for
//! `GPUCOMM_EMULATOR_DEADLOCK` seconds (10 by default, fractions are allowed, 0 turns it off) reads
//! the last calls of the ranks it waits for, and reports them once on stderr. It continues to wait, as
//! a GPU would. The report is not a violation, because the program may have its own deadline.

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::lock::Mutex;
use crate::meet::segment::{Life, Rank, Segment};
use crate::report;
use crate::settings::{DeadPeer, settings};

/// The interval at which a waiter checks whether other processes are alive.
const LOOK: Duration = Duration::from_millis(100);

/// The time after which a dead peer is reported, if [`DeadPeer::Told`] is set.
const TELLS: Duration = Duration::from_secs(1);

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting = 1,
    Done,
    Stopped,
}

/// A call of a rank, which it publishes in shared memory for the reports of other ranks.
pub(crate) trait Deed: Copy + Debug {
    /// Encodes the call as a code that is not 0, a peer, and two more numbers.
    fn numbers(&self) -> (u8, u32, [u64; 2]);

    /// Decodes a call. Returns `None` if no call has these numbers.
    fn from_numbers(code: u8, peer: u32, more: [u64; 2]) -> Option<Self>;

    /// The call in words.
    fn describe(&self) -> String;

    /// Says in words why a rank in this state makes no call. Returns `None` if it may make one.
    fn idle(life: Life) -> Option<&'static str>;

    /// Publishes the current call of a rank.
    fn publish(&self, rank: &Rank, phase: Phase) {
        let (code, peer, more) = self.numbers();
        let head = u64::from(code) | (phase as u64) << 8 | u64::from(peer) << 32;
        for (slot, word) in rank.activity.iter().zip([head, more[0], more[1]]) {
            slot.store(word, Ordering::Relaxed);
        }
    }
}

/// A rank of a segment.
pub(crate) trait Party {
    /// The calls of the rank.
    type Deed: Deed;

    /// The name of the group of ranks, for reports.
    const NAME: &'static str;

    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// How often all work of the rank was stopped and resumed.
    fn epoch(&self) -> u32;

    /// Whether work that began in `epoch` is stopped.
    fn is_stopped(&self, epoch: u32) -> bool;

    /// The time after which a wait is reported. `None` means never.
    fn patience(&self) -> Option<Duration>;

    /// The waits of the rank.
    fn waits(&self) -> &Waits;

    /// Reports that a peer that `deed` waits for has died.
    fn tell_of_death(&self, peer: usize, deed: &Self::Deed);
}

/// The last call of `rank`, in words.
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

/// Why a wait has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The work of this rank was stopped.
    Aborted,
    /// The device of the stream has failed.
    Cancelled,
    /// This rank is dead.
    Dead(usize),
}

/// Watches one wait of a rank.
pub(crate) struct Watch<'a, P: Party> {
    party: &'a P,
    segment: &'a Segment,
    deed: P::Deed,
    cancelled: Option<&'a dyn Fn() -> bool>,
    /// The ranks whose death ends the wait. `None` means all.
    members: Option<&'a [usize]>,
    /// The epoch in which the wait began. A later stop ends it.
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
    /// Watches a wait for all ranks in a call of the host. A dead rank ends it immediately.
    pub(crate) fn of_host(party: &'a P, segment: &'a Segment, deed: P::Deed) -> Self {
        Self { dead_peer: DeadPeer::Ends, ..Self::new(party, segment, deed, None) }
    }

    /// Ignores the death of ranks that are not `members`.
    pub(crate) fn among(self, members: &'a [usize]) -> Self {
        Self { members: Some(members), ..self }
    }

    /// Makes the wait part of work that began in this epoch.
    pub(crate) fn since(self, epoch: u32) -> Self {
        Self { epoch, ..self }
    }

    /// Watches a wait of an operation, or of the call that issues it. `GPUCOMM_EMULATOR_DEAD_PEER` sets
    /// the effect of a dead peer.
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

    /// Checks, between two sleeps, whether the wait must end. `missing` says whether the wait is for a
    /// rank.
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
                || look
                    && (life == Life::Joined || missing(peer) && life != Life::Absent)
                    && rank.dead()
                    // One that left may have come just before that.
                    && (rank.life() == Life::Dead || missing(peer));
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

    /// The call that waits, and the ranks it waits for, in words.
    fn describe(&self, missing: &impl Fn(usize) -> bool) -> String {
        let (me, mut text) = (self.party.rank(), self.deed.describe());
        for peer in (0..self.party.size()).filter(|&peer| peer != me && missing(peer)) {
            let _ = write!(text, "; for rank {peer}, which {}", last_deed::<P::Deed>(self.segment.rank(peer)));
        }
        text
    }
}

/// The waits of a rank that have lasted for some time.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<Vec<(u64, String)>>);

impl Waits {
    /// The waits in words, or `None` if there are none.
    pub(crate) fn text(&self) -> Option<String> {
        let waits = self.0.lock();
        let texts: Vec<_> = waits.iter().map(|(_, text)| text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// An entry of [`Waits`]. Dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    waits: &'a Waits,
    /// The number of the entry, after the first [`say`](Self::say).
    number: Option<u64>,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(waits: &'a Waits) -> Self {
        Self { waits, number: None }
    }

    /// Sets the description of the wait.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meet::register;
    use crate::meet::segment::bare::Bare;
    use std::cell::Cell;

    #[derive(Debug, Clone, Copy)]
    struct Nothing;

    impl Deed for Nothing {
        fn numbers(&self) -> (u8, u32, [u64; 2]) {
            (1, 0, [0; 2])
        }

        fn from_numbers(_: u8, _: u32, _: [u64; 2]) -> Option<Self> {
            Some(Self)
        }

        fn describe(&self) -> String {
            "nothing".to_owned()
        }

        fn idle(_: Life) -> Option<&'static str> {
            None
        }
    }

    /// Rank 0 of two.
    #[derive(Debug, Default)]
    struct First(Waits);

    impl Party for First {
        type Deed = Nothing;
        const NAME: &'static str = "two";

        fn rank(&self) -> usize {
            0
        }

        fn size(&self) -> usize {
            2
        }

        fn epoch(&self) -> u32 {
            0
        }

        fn is_stopped(&self, _: u32) -> bool {
            false
        }

        fn patience(&self) -> Option<Duration> {
            None
        }

        fn waits(&self) -> &Waits {
            &self.0
        }

        fn tell_of_death(&self, _: usize, _: &Nothing) {
            unreachable!("deaths end the wait");
        }
    }

    /// Rank 1 has reached `life`, and its process has ended. Rank 0 checks its wait once; the first `looks` times that the check
    /// asks whether rank 1 is missing, the answer is yes.
    fn found(life: Life, looks: u32) -> Option<Stop> {
        let segment = register::open::<Bare>(register::create::<Bare>().unwrap()).unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        segment.rank(1).pid.store(ended.id(), Ordering::Release);
        segment.rank(1).set_life(life);
        let party = First::default();
        let mut watch = Watch { dead_peer: DeadPeer::Ends, ..Watch::new(&party, &segment, Nothing, None) };
        watch.looked = watch.looked.checked_sub(LOOK).unwrap();
        let asked = Cell::new(0);
        watch.check(|peer| {
            asked.set(asked.get() + u32::from(peer == 1));
            peer == 1 && asked.get() <= looks
        })
    }

    #[test]
    fn who_came_left_and_ended_between_two_looks_is_not_missed() {
        assert!(matches!(found(Life::Joined, u32::MAX), Some(Stop::Dead(1))));
        assert!(matches!(found(Life::Destroyed, u32::MAX), Some(Stop::Dead(1))));
        assert!(found(Life::Destroyed, 1).is_none());
        assert!(found(Life::Destroyed, 0).is_none());
        assert!(found(Life::Absent, u32::MAX).is_none());
    }
}
