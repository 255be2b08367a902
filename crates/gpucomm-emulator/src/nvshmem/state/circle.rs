//! Circles: the members of a team meet, as often as they do something together.
//!
//! Each member tells in its slot of the team how often it has come and gone. It shows its words before it tells that it has come,
//! and shows others only after all have told that they have gone, so that nobody reads words of another meeting.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::boot::{Boot, tell_of_death};
use super::deed::Activity;
use super::inject;
use super::plan::{WORDS, own};
use crate::lock::lock;
use crate::meet::futex::{SLICE, spin};
use crate::meet::watch::{Deed as _, Phase, Stop, Watch};
use crate::nvshmem::basics::entry::{Failed, wrong};
use crate::nvshmem::basics::kind::Kind;
use crate::report;
use crate::sys::NVSHMEMX_ERROR_INTERNAL;

/// Who meets, and where.
#[derive(Debug)]
pub(crate) struct Circle {
    /// The number of the team.
    pub(crate) slot: usize,
    /// Tells it from earlier teams of that number.
    tag: u32,
    /// Of this PE in the team.
    pub(crate) me: usize,
    /// By their numbers in the world.
    pub(crate) members: Vec<usize>,
    /// How often they have met.
    met: Mutex<u32>,
}

/// What a member shows.
pub(crate) type Shown = [u64; WORDS];

/// A meeting, as long as its members are at it.
pub(crate) struct Turn<'a> {
    circle: &'a Circle,
    boot: &'a Boot,
    activity: Activity,
    number: u32,
    cancelled: Option<&'a dyn Fn() -> bool>,
    /// What the members show, in their order.
    pub(crate) shown: Vec<Shown>,
    _met: MutexGuard<'a, u32>,
}

impl Circle {
    pub(crate) fn new(slot: usize, tag: u32, me: usize, members: Vec<usize>) -> Self {
        Self { slot, tag, me, members, met: Mutex::new(0) }
    }

    /// What is told at a step.
    fn word(&self, step: u32) -> u64 {
        u64::from(self.tag) << 32 | u64::from(step)
    }

    /// Whether `pe` has not come to a step. Who has come to a meeting, and is in another team of this number now, has gone from it.
    fn is_behind(&self, boot: &Boot, pe: usize, step: u32) -> bool {
        let told = own(&boot.segment, pe).slots[self.slot].told.load(Ordering::Acquire);
        let comes = step % 2 == 1;
        if told >> 32 == u64::from(self.tag) { told < self.word(step) } else { comes }
    }

    fn tell(&self, boot: &Boot, step: u32) {
        let slot = &own(&boot.segment, boot.me).slots[self.slot];
        slot.told.store(self.word(step), Ordering::Release);
        boot.segment.head().news.ring();
    }

    fn wait(
        &self,
        boot: &Boot,
        step: u32,
        activity: Activity,
        cancelled: Option<&dyn Fn() -> bool>,
    ) -> Result<(), Stop> {
        let all_here = || !self.members.iter().any(|&pe| pe != boot.me && self.is_behind(boot, pe, step));
        if spin(self.members.len() as u32 - 1, all_here) {
            return Ok(());
        }
        let news = &boot.segment.head().news;
        let mut watch = Watch::new(boot, &boot.segment, activity, cancelled).among(&self.members);
        loop {
            let heard = news.read();
            if all_here() {
                return Ok(());
            }
            let missing = |pe: usize| self.members.contains(&pe) && self.is_behind(boot, pe, step);
            if let Some(stop) = watch.check(missing) {
                return Err(stop);
            }
            for &pe in self.members.iter().filter(|&&pe| pe != boot.me && missing(pe)) {
                if boot.segment.rank(pe).dead() {
                    tell_of_death(boot, pe, &activity);
                }
            }
            news.sleep(heard, SLICE);
        }
    }

    /// Comes, with words for the others, and waits for all of them. Whatever they meet for, they must agree about `activity.kind`.
    pub(crate) fn meet<'a>(
        &'a self,
        boot: &'a Boot,
        activity: Activity,
        words: &[u64],
        cancelled: Option<&'a dyn Fn() -> bool>,
    ) -> Result<Turn<'a>, Failed> {
        if !matches!(activity.kind, Kind::Init | Kind::Finalize) {
            let number = boot.operations.fetch_add(1, Ordering::Relaxed) + 1;
            inject::suffer(boot, number, &activity, cancelled);
        }
        let mut met = match self.met.try_lock() {
            Ok(met) => met,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                report::violation(format!(
                    "PE {}: {} while another call of team {} is under way, expected one after the other",
                    boot.me,
                    activity.kind.name(),
                    self.slot
                ));
                lock(&self.met)
            }
        };
        *met += 1;
        let number = *met;
        let activity = Activity { team: self.slot as u32, number: u64::from(number), ..activity };
        let stopped = |stop| stopped(boot, stop, &activity);
        // The first meeting has none before it: slots may tell of a team that is no more.
        if number > 1 {
            self.wait(boot, 2 * (number - 1), activity, cancelled).map_err(stopped)?;
        }
        let slot = &own(&boot.segment, boot.me).slots[self.slot];
        let all = std::iter::once(activity.kind as u64).chain(words.iter().copied()).chain(std::iter::repeat(0));
        slot.words.iter().zip(all).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        self.tell(boot, 2 * number - 1);
        self.wait(boot, 2 * number - 1, activity, cancelled).map_err(stopped)?;
        let read = |&pe: &usize| {
            own(&boot.segment, pe).slots[self.slot].words.each_ref().map(|word| word.load(Ordering::Relaxed))
        };
        let shown: Vec<Shown> = self.members.iter().map(read).collect();
        let turn = Turn { circle: self, boot, activity, number, cancelled, shown, _met: met };
        turn.agree()?;
        Ok(turn)
    }
}

impl Turn<'_> {
    /// Whether all have called the same.
    fn agree(&self) -> Result<(), Failed> {
        let mine = self.activity.kind;
        let other = self.shown.iter().position(|words| words[0] != mine as u64);
        other.map_or(Ok(()), |other| {
            let theirs = Kind::from_code(self.shown[other][0]).map_or("nothing", Kind::name);
            Err(wrong(format!(
                "PE {} calls {}, and PE {} {theirs}, as call #{} of team {}: expected the same on all",
                self.boot.me,
                mine.name(),
                self.circle.members[other],
                self.number,
                self.circle.slot
            )))
        })
    }

    /// Whether all show the same as word number `at`, which is the `what` of the call.
    pub(crate) fn same(&self, at: usize, what: &str) -> Result<(), Failed> {
        let mine = self.shown[self.circle.me][at];
        let other = self.shown.iter().position(|words| words[at] != mine);
        other.map_or(Ok(()), |other| {
            Err(wrong(format!(
                "{}: the {what} is {mine} on PE {}, and {} on PE {}: expected the same on all",
                self.activity.kind.name(),
                self.boot.me,
                self.shown[other][at],
                self.circle.members[other]
            )))
        })
    }

    /// Waits until all members have done what they met for.
    pub(crate) fn end(self) -> Result<(), Failed> {
        let Self { circle, boot, activity, number, cancelled, .. } = &self;
        circle.tell(boot, 2 * number);
        circle.wait(boot, 2 * number, *activity, *cancelled).map_err(|stop| stopped(boot, stop, activity))
    }
}

impl Drop for Turn<'_> {
    /// Nobody waits for who has left.
    fn drop(&mut self) {
        self.circle.tell(self.boot, 2 * self.number);
        self.activity.publish(self.boot.segment.rank(self.boot.me), Phase::Done);
    }
}

fn stopped(boot: &Boot, stop: Stop, activity: &Activity) -> Failed {
    match stop {
        Stop::Dead(peer) => {
            wrong(format!("PE {peer} has ended, and PE {} waits for it in {}", boot.me, activity.describe()))
        }
        // The device is lost: what waits on its streams ends with it.
        Stop::Aborted | Stop::Cancelled => Failed(NVSHMEMX_ERROR_INTERNAL),
    }
}
