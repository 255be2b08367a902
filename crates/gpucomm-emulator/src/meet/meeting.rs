//! Meetings: the members of a group exchange a few words through shared memory.
//!
//! A meeting has two steps. In the first, each member writes its words and announces them. When all
//! members have announced theirs, each reads the words of the others. In the second step, each
//! announces that it has read. So no member reads words of another meeting, and a member that leaves
//! does not disturb the next meeting.
//!
//! A [`Board`] is the memory for the words and the steps. The ranks of an NCCL communicator share one
//! board. Each rank counts its meetings with each other rank, so the members of a meeting need not
//! agree about other ranks, which may be dead or in another meeting. The PEs of an NVSHMEM team share
//! one board.
//!
//! Each step carries a tag, so that members do not take steps of different epochs or teams for one
//! meeting. The ranks of a communicator increment the tag and count from 0 again after a stop that
//! all members know of. Each NVSHMEM team has its own tag, because a later team may reuse the board of
//! an earlier one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::futex::{Bell, SLICE, spin};
use super::segment::Segment;

/// The memory to which the members of a group write their words and their steps.
pub(crate) trait Board {
    /// Whether another group may reuse the board. A member with another tag has then left this group,
    /// and has read all words.
    const REUSED: bool;

    /// The words of a member.
    fn words(&self, member: usize) -> &[AtomicU64];

    /// The last step of `from` that `to` may rely on.
    fn told(&self, from: usize, to: usize) -> &AtomicU64;

    /// Rings when a member reaches a step.
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

/// The current epoch, and the number of steps that a rank has made with each other rank in it.
#[derive(Debug, Default)]
pub(crate) struct Past {
    epoch: u32,
    steps: HashMap<usize, u32>,
}

/// A step of a meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The member has read the words of the previous meeting.
    Before,
    /// The member has written its words.
    Shows,
    /// The member has read the words of all members.
    HasRead,
}

/// One meeting, as one of its members sees it.
#[derive(Debug)]
pub(crate) struct Meeting<B> {
    board: B,
    me: usize,
    tag: u32,
    /// The other members, each with the number of the last step of this meeting.
    others: Vec<(usize, u32)>,
}

impl<'a> Meeting<Ranks<'a>> {
    /// Begins the next meeting of rank `me` with `members`.
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
    /// Begins meeting `number`, counted from 1, of a group whose members take part in every meeting.
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

    /// Writes `words`, and announces them to the other members.
    pub(crate) fn show(&self, words: impl IntoIterator<Item = u64>) {
        for (slot, word) in self.board.words(self.me).iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.come(Step::Shows);
    }

    /// Announces that this member has reached `step`.
    pub(crate) fn come(&self, step: Step) {
        for &(peer, last) in &self.others {
            self.board.told(self.me, peer).store(self.word(last, step), Ordering::Release);
        }
        self.board.news().ring();
    }

    /// Whether `peer` is a member that has not reached `step`.
    pub(crate) fn missing(&self, peer: usize, step: Step) -> bool {
        self.others.iter().any(|&(other, last)| other == peer && self.is_behind(other, last, step))
    }

    fn is_behind(&self, peer: usize, last: u32, step: Step) -> bool {
        let told = self.board.told(peer, self.me).load(Ordering::Acquire);
        let has_tag = told >> 32 == u64::from(self.tag);
        if has_tag { told < self.word(last, step) } else { step == Step::Shows || !B::REUSED }
    }

    /// Waits until all members have reached `step`. Calls `look` between two sleeps, and returns what it
    /// returns if that is not `None`.
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

    /// The words of a member. Call it after all members have reached [`Step::Shows`].
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

    /// Runs a whole meeting for one rank. Returns the first word of each member.
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
        // Rank 0 begins two meetings and leaves both. Rank 1 begins none.
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
        // A rank that is still in the earlier epoch does not see rank 0 as present.
        let mut late = Past::default();
        let meeting = Meeting::of_ranks(&segment, 1, &[0, 1], 0, &mut late);
        assert!(meeting.missing(0, Step::Shows));
    }
}
