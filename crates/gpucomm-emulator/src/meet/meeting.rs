//! Meetings: some ranks of a segment show each other a few words.
//!
//! Each rank tells each other one how often it has come to meetings with that one. So the members of a meeting need not agree
//! about anybody else, who may be dead, or busy elsewhere; and who leaves a meeting spoils nothing for the next one. After a
//! stop that all members have heard of they count anew, in a later epoch: who is in an earlier one waits for nobody in vain, and
//! takes nobody's words for those of an earlier meeting.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::futex::{SLICE, spin};
use super::layout::WORDS;
use super::segment::Segment;

/// How often a rank has met each other one, in which epoch.
#[derive(Debug, Default)]
pub(crate) struct Past {
    epoch: u32,
    steps: HashMap<usize, u32>,
}

/// How far a member is with a meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It shows its words.
    Shows,
    /// It has read those of all members.
    HasRead,
}

/// One meeting, as one of its members sees it.
#[derive(Debug)]
pub(crate) struct Meeting<'a> {
    segment: &'a Segment,
    me: usize,
    epoch: u32,
    /// The other members, and what this rank tells each at the end.
    others: Vec<(usize, u32)>,
}

impl<'a> Meeting<'a> {
    /// The next meeting of rank `me` with `members`.
    pub(crate) fn new(segment: &'a Segment, me: usize, members: &[usize], epoch: u32, past: &mut Past) -> Self {
        if past.epoch != epoch {
            *past = Past { epoch, steps: HashMap::new() };
        }
        let next = |peer: usize| {
            let steps = past.steps.entry(peer).or_default();
            *steps += 2;
            (peer, *steps)
        };
        Self { segment, me, epoch, others: members.iter().copied().filter(|&peer| peer != me).map(next).collect() }
    }

    /// What is told at `step`, where `last` is told at the end.
    fn word(&self, last: u32, step: Step) -> u64 {
        let steps = if step == Step::Shows { last - 1 } else { last };
        u64::from(self.epoch) << 32 | u64::from(steps)
    }

    /// Shows `words` to the others.
    pub(crate) fn show(&self, words: &[u64]) {
        for (slot, word) in self.segment.rank(self.me).board.iter().zip(words) {
            slot.store(*word, Ordering::Relaxed);
        }
        self.come(Step::Shows);
    }

    /// Tells the others that this rank has come to `step`.
    pub(crate) fn come(&self, step: Step) {
        for &(peer, last) in &self.others {
            self.segment.pair(self.me, peer).told.store(self.word(last, step), Ordering::Release);
        }
        self.segment.head().news.ring();
    }

    /// Whether `peer` is a member and has not come to `step`.
    pub(crate) fn missing(&self, peer: usize, step: Step) -> bool {
        self.others.iter().any(|&(other, last)| other == peer && self.is_behind(other, last, step))
    }

    fn is_behind(&self, peer: usize, last: u32, step: Step) -> bool {
        let told = self.segment.pair(peer, self.me).told.load(Ordering::Acquire);
        told >> 32 != u64::from(self.epoch) || told < self.word(last, step)
    }

    /// Waits until all members have come to `step`. Between two naps asks `look`, and ends with what it says.
    pub(crate) fn wait<S>(&self, step: Step, mut look: impl FnMut() -> Option<S>) -> Result<(), S> {
        let news = &self.segment.head().news;
        let all_here = || !self.others.iter().any(|&(peer, last)| self.is_behind(peer, last, step));
        if spin(self.others.len() as u32, all_here) {
            return Ok(());
        }
        loop {
            let heard = news.read();
            if all_here() {
                return Ok(());
            }
            if let Some(stop) = look() {
                return Err(stop);
            }
            news.sleep(heard, SLICE);
        }
    }

    /// What `rank` shows, after all have come to that.
    pub(crate) fn shown(&self, rank: usize) -> [u64; WORDS] {
        self.segment.rank(rank).board.each_ref().map(|word| word.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::bare::Bare;
    use super::super::register;
    use super::*;
    use std::sync::Arc;

    fn segment() -> Arc<Segment> {
        register::open::<Bare>(register::create::<Bare>().unwrap()).unwrap()
    }

    /// One rank's whole meeting: the first word that each member shows.
    fn meet(segment: &Segment, me: usize, members: &[usize], epoch: u32, past: &mut Past, word: u64) -> Vec<u64> {
        let meeting = Meeting::new(segment, me, members, epoch, past);
        meeting.show(&[word]);
        meeting.wait(Step::Shows, || None::<()>).unwrap();
        let shown = members.iter().map(|&rank| meeting.shown(rank)[0]).collect();
        meeting.come(Step::HasRead);
        meeting.wait(Step::HasRead, || None::<()>).unwrap();
        shown
    }

    #[test]
    fn some_meet_while_others_are_gone_or_meet_elsewhere() {
        let segment = segment();
        let sets: [&[usize]; 4] = [&[0, 1, 2], &[0, 2], &[1, 2], &[0, 1, 2]];
        std::thread::scope(|scope| {
            for me in 0..3 {
                let segment = &segment;
                scope.spawn(move || {
                    let mut past = Past::default();
                    for round in 0..500 {
                        let members = sets[round % sets.len()];
                        if !members.contains(&me) {
                            continue;
                        }
                        let word = |rank: usize| (round * 10 + rank) as u64;
                        let shown = meet(segment, me, members, 0, &mut past, word(me));
                        assert_eq!(shown, members.iter().map(|&rank| word(rank)).collect::<Vec<_>>());
                    }
                });
            }
        });
    }

    #[test]
    fn a_meeting_that_was_left_spoils_none_of_a_later_epoch() {
        let segment = segment();
        let mut pasts = [Past::default(), Past::default()];
        // Rank 0 comes twice and leaves, rank 1 not at all.
        for _ in 0..2 {
            let left = Meeting::new(&segment, 0, &[0, 1], 0, &mut pasts[0]);
            left.show(&[1]);
            assert_eq!(left.wait(Step::Shows, || Some("stopped")), Err("stopped"));
        }
        let [first, second] = &mut pasts;
        std::thread::scope(|scope| {
            let segment = &segment;
            let other = scope.spawn(move || meet(segment, 0, &[0, 1], 1, first, 7));
            assert_eq!(meet(segment, 1, &[0, 1], 1, second, 8), [7, 8]);
            assert_eq!(other.join().unwrap(), [7, 8]);
        });
        // Who is still in the earlier epoch finds nobody.
        let mut late = Past::default();
        let meeting = Meeting::new(&segment, 1, &[0, 1], 0, &mut late);
        assert!(meeting.missing(0, Step::Shows));
    }
}
