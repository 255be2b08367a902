//! Meetings: the members of a group in shared memory show each other a few words.
//!
//! Each member writes its words, and then says that it shows them; it reads those of the others when all have said so, and
//! then says that it has read. So nobody reads words of another meeting, and a member that leaves spoils nothing for the next
//! one. A [`Board`] says where the words and these steps lie. NCCL's ranks have one board a communicator, on which each rank
//! counts its meetings with each other rank: members need not agree about anybody else, who may be dead, or busy elsewhere.
//! NVSHMEM's PEs have one board a team.
//!
//! Steps carry a tag. NCCL's ranks count anew, with the next tag, after a stop that all members have heard of: a member with an
//! earlier tag waits for nobody in vain, and takes nobody's words for those of an earlier meeting. NVSHMEM's teams have
//! different tags, as a later team may use the board of an earlier one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::futex::{Bell, SLICE, spin};
use super::segment::Segment;

/// Where the members of a group write their words and their steps.
pub(crate) trait Board {
    /// Whether a member that shows another tag has left the group, and so has read what it came for.
    const REUSED: bool;

    /// What a member shows.
    fn words(&self, member: usize) -> &[AtomicU64];

    /// How far `from` has come, for `to` to read.
    fn told(&self, from: usize, to: usize) -> &AtomicU64;

    /// Rings when a member has come further.
    fn news(&self) -> &Bell;
}

/// The board of the ranks of a communicator.
#[derive(Debug)]
pub(crate) struct Ranks<'a>(pub(crate) &'a Segment);

impl Board for Ranks<'_> {
    const REUSED: bool = false;

    fn words(&self, member: usize) -> &[AtomicU64] {
        &self.0.rank(member).board
    }

    fn told(&self, from: usize, to: usize) -> &AtomicU64 {
        &self.0.pair(from, to).told
    }

    fn news(&self) -> &Bell {
        &self.0.head().news
    }
}

/// How often a rank has met each other one, in which epoch.
#[derive(Debug, Default)]
pub(crate) struct Past {
    epoch: u32,
    steps: HashMap<usize, u32>,
}

/// How far a member is with a meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It has read the words of the meeting before.
    Before,
    /// It shows its words.
    Shows,
    /// It has read those of all members.
    HasRead,
}

/// One meeting, as one of its members sees it.
#[derive(Debug)]
pub(crate) struct Meeting<B> {
    board: B,
    me: usize,
    tag: u32,
    /// The other members, and the last step that this one says to each.
    others: Vec<(usize, u32)>,
}

impl<'a> Meeting<Ranks<'a>> {
    /// The next meeting of rank `me` with `members`.
    pub(crate) fn of_ranks(segment: &'a Segment, me: usize, members: &[usize], epoch: u32, past: &mut Past) -> Self {
        if past.epoch != epoch {
            *past = Past { epoch, steps: HashMap::new() };
        }
        let next = |peer: usize| {
            let steps = past.steps.entry(peer).or_default();
            *steps += 2;
            (peer, *steps)
        };
        let others = members.iter().copied().filter(|&peer| peer != me).map(next).collect();
        Self { board: Ranks(segment), me, tag: epoch, others }
    }
}

impl<B: Board> Meeting<B> {
    /// Meeting `number`, from 1, of a group whose members have met as often with each other.
    pub(crate) fn of_group(board: B, me: usize, members: &[usize], tag: u32, number: u32) -> Self {
        let others = members.iter().filter(|&&peer| peer != me).map(|&peer| (peer, 2 * number)).collect();
        Self { board, me, tag, others }
    }

    fn word(&self, last: u32, step: Step) -> u64 {
        let steps = match step {
            Step::Before => last - 2,
            Step::Shows => last - 1,
            Step::HasRead => last,
        };
        u64::from(self.tag) << 32 | u64::from(steps)
    }

    /// Shows `words` to the others.
    pub(crate) fn show(&self, words: impl IntoIterator<Item = u64>) {
        for (slot, word) in self.board.words(self.me).iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.come(Step::Shows);
    }

    /// Tells the others that this member has come to `step`.
    pub(crate) fn come(&self, step: Step) {
        for &(peer, last) in &self.others {
            self.board.told(self.me, peer).store(self.word(last, step), Ordering::Release);
        }
        self.board.news().ring();
    }

    /// Whether `peer` is a member and has not come to `step`.
    pub(crate) fn missing(&self, peer: usize, step: Step) -> bool {
        self.others.iter().any(|&(other, last)| other == peer && self.is_behind(other, last, step))
    }

    fn is_behind(&self, peer: usize, last: u32, step: Step) -> bool {
        let told = self.board.told(peer, self.me).load(Ordering::Acquire);
        let has_tag = told >> 32 == u64::from(self.tag);
        if has_tag { told < self.word(last, step) } else { step == Step::Shows || !B::REUSED }
    }

    /// Waits until all members have come to `step`. Between two naps asks `look`, and ends with what it says.
    pub(crate) fn wait<S>(&self, step: Step, mut look: impl FnMut() -> Option<S>) -> Result<(), S> {
        let news = self.board.news();
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

    /// The words of a member, after all have come to show theirs.
    pub(crate) fn shown<const N: usize>(&self, member: usize) -> [u64; N] {
        let words = self.board.words(member);
        std::array::from_fn(|at| words[at].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::register;
    use super::*;
    use crate::meet::segment::bare::Bare;
    use std::sync::Arc;

    fn segment() -> Arc<Segment> {
        register::open::<Bare>(register::create::<Bare>().unwrap()).unwrap()
    }

    /// One rank's whole meeting: the first word that each member shows.
    fn meet(segment: &Segment, me: usize, members: &[usize], epoch: u32, past: &mut Past, word: u64) -> Vec<u64> {
        let meeting = Meeting::of_ranks(segment, me, members, epoch, past);
        meeting.show([word]);
        meeting.wait(Step::Shows, || None::<()>).unwrap();
        let shown = members.iter().map(|&rank| meeting.shown::<1>(rank)[0]).collect();
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
            let left = Meeting::of_ranks(&segment, 0, &[0, 1], 0, &mut pasts[0]);
            left.show([1]);
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
        let meeting = Meeting::of_ranks(&segment, 1, &[0, 1], 0, &mut late);
        assert!(meeting.missing(0, Step::Shows));
    }
}
