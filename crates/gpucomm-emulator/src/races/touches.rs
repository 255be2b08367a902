//! The last accesses to a piece of memory.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

use super::course::{Moment, Point};
use crate::lock::lock;
use crate::report;

/// So many accesses are remembered of one piece of memory. Then the oldest are forgotten: that may hide a race, and invents none.
const MOST: usize = 1024;

/// Who does something with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Actor {
    /// The C function.
    pub name: &'static str,
    /// For NCCL.
    pub rank: Option<usize>,
    /// Which operation of one step it is. What one operation does with its own buffers is its own matter.
    pub part: usize,
}

impl Actor {
    /// Who does one thing at a step.
    pub(crate) fn alone(name: &'static str) -> Self {
        Self { name, rank: None, part: 0 }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            None => write!(f, "{}", self.name),
            Some(rank) => write!(f, "{} of rank {rank}", self.name),
        }
    }
}

/// What work does with memory: as it is told before the work is enqueued.
#[derive(Debug)]
pub(crate) struct Touching<'a> {
    pub memory: &'a Touches,
    /// The first address of the mapping by which it reaches that; 0 for what is not mapped.
    pub by: usize,
    /// Which bytes of that.
    pub range: Range<u64>,
    pub writes: bool,
    pub actor: Actor,
}

impl Touching<'_> {
    /// Whether both use some byte.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        std::ptr::eq(self.memory, other.memory) && overlap(&self.range, &other.range)
    }

    /// Whether, without an order, one would change what the other uses.
    pub(crate) fn collides(&self, other: &Self) -> bool {
        self.meets(other) && (self.writes || other.writes)
    }

    /// Does so at `point`, and reports what that collides with.
    pub(crate) fn at(self, point: &Point) {
        let Some(Touch { actor, moment, writes, .. }) = self.memory.add(self.touch(point)) else { return };
        let (what, did, bytes) = (&self, past(writes), format!("bytes {} to {}", self.range.start, self.range.end));
        report::violation(if moment.is(point.moment()) {
            format!(
                "in one group, {what} what {actor} {did} ({bytes}): expected memory of their own, for they have no order"
            )
        } else {
            format!(
                "on {}, {what} ({bytes}) what {actor} {did} on {moment}, and nothing puts them in order: expected a wait for an event, \
                 or of the host, between them",
                point.moment()
            )
        });
    }

    fn touch<'p>(&self, point: &'p Point) -> (Touch, &'p Point) {
        let (range, moment) = (self.range.clone(), point.moment().clone());
        (Touch { by: self.by, range, moment, writes: self.writes, actor: self.actor }, point)
    }
}

impl fmt::Display for Touching<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.actor, if self.writes { "writes" } else { "reads" })
    }
}

fn past(writes: bool) -> &'static str {
    if writes { "wrote" } else { "read" }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// An access that was.
#[derive(Debug, Clone)]
struct Touch {
    by: usize,
    range: Range<u64>,
    moment: Moment,
    writes: bool,
    actor: Actor,
}

/// The accesses to a piece of memory that something may still have to come after.
#[derive(Debug, Default)]
pub(crate) struct Touches(Mutex<Vec<Touch>>);

impl Touches {
    /// Adds an access that comes after a point. One that it has no order with and collides with, if there is one.
    fn add(&self, (new, point): (Touch, &Point)) -> Option<Touch> {
        let mut found = None;
        let mut all = lock(&self.0);
        all.retain(|touch| {
            if touch.moment.is_seen() {
                return false;
            }
            let same_step = touch.moment.is(&new.moment);
            if same_step || !point.follows(&touch.moment) {
                let collides = (new.writes || touch.writes) && overlap(&touch.range, &new.range);
                let of_its_own = same_step && touch.actor.part == new.actor.part;
                if collides && !of_its_own && found.is_none() {
                    found = Some(touch.clone());
                }
                return true;
            }
            // Who comes after this access, and collides with that one, must come after this one anyway.
            let covered = new.range.start <= touch.range.start && touch.range.end <= new.range.end;
            !(covered && (new.writes || !touch.writes))
        });
        if all.len() >= MOST {
            all.drain(..MOST / 2);
        }
        all.push(new);
        found
    }

    /// What the host has not seen done of accesses to `range` by that mapping, as words.
    pub(crate) fn unseen(&self, range: &Range<u64>, by: usize) -> Option<String> {
        self.unseen_by(range, by, true)
    }

    /// The same, of what is in the way of who reads, or writes.
    pub(crate) fn unseen_by(&self, range: &Range<u64>, by: usize, writes: bool) -> Option<String> {
        let all = lock(&self.0);
        let collides = |touch: &&Touch| touch.by == by && (writes || touch.writes) && overlap(&touch.range, range);
        let mut those = all.iter().filter(collides);
        let Touch { actor, moment, writes, .. } = those.find(|touch| !touch.moment.is_seen())?;
        Some(format!(
            "{actor} on {moment} {} it, and nobody has seen that done: expected a wait of the host",
            past(*writes)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::course::Track;
    use super::*;
    use crate::report::expected::expect;

    fn tracks<const N: usize>() -> [Track; N] {
        std::array::from_fn(|device| Track::new(device as i32).expect("the tests run in strict mode"))
    }

    fn collides(memory: &Touches, range: Range<u64>, writes: bool, point: &Point) -> bool {
        let touching = Touching { memory, by: 0, range, writes, actor: Actor::alone("test") };
        memory.add(touching.touch(point)).is_some()
    }

    #[test]
    fn writes_without_an_order_collide_with_everything_that_overlaps() {
        for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
            let [a, b] = tracks();
            let memory = Touches::default();
            assert!(!collides(&memory, 10..20, first, &a.step()));
            for apart in [0..10, 20..30] {
                assert!(!collides(&memory, apart, second, &b.step()));
            }
            for overlapping in [0..11, 19..30, 12..13, 0..30] {
                assert_eq!(collides(&memory, overlapping, second, &b.step()), first || second);
            }
        }
    }

    #[test]
    fn an_order_ends_it() {
        let [a, b, c] = tracks();
        let memory = Touches::default();
        assert!(!collides(&memory, 0..8, true, &a.step()));
        b.join(&a.point());
        assert!(!collides(&memory, 0..8, false, &b.step()));
        c.join(&a.point());
        assert!(!collides(&memory, 0..8, false, &c.step()), "two reads");
        a.join(&b.point());
        assert!(collides(&memory, 0..8, true, &a.step()), "one of the reads has no order with this");
        a.point().see();
        c.point().see();
        assert_eq!(memory.unseen(&(0..8), 0), None);
        let [fresh] = tracks();
        assert!(!collides(&memory, 0..8, true, &fresh.step()), "the host has seen it done");
        let unseen = |range, by| memory.unseen(&range, by);
        assert!(unseen(7..9, 0).is_some_and(|text| text.contains("wrote")));
        assert!(unseen(8..9, 0).is_none() && unseen(7..9, 1).is_none());
    }

    #[test]
    fn what_is_behind_takes_the_place() {
        let [a, b] = tracks();
        let memory = Touches::default();
        for _ in 0..10 {
            assert!(!collides(&memory, 0..8, true, &a.step()));
            assert!(!collides(&memory, 2..4, false, &a.step()));
        }
        assert_eq!(lock(&memory.0).len(), 2);
        // A read does not take the place of a write that it covers: a later read must come after the write, too.
        let other = Touches::default();
        assert!(!collides(&other, 0..8, true, &a.step()));
        assert!(!collides(&other, 0..8, false, &a.step()));
        assert!(collides(&other, 0..8, false, &b.step()));
        // A read does not take that of a write, nor a part that of the whole.
        assert!(collides(&memory, 5..6, false, &b.step()));
        for at in 0..3000 {
            collides(&memory, at..at + 1, false, &a.step());
        }
        assert!(lock(&memory.0).len() <= MOST);
    }

    #[test]
    fn operations_of_one_step_have_no_order() {
        let [a] = tracks();
        let memory = Touches::default();
        let step = a.step();
        let at = |part, writes| {
            let actor = Actor { name: "a test of groups", rank: Some(1), part };
            Touching { memory: &memory, by: 0, range: 0..8, writes, actor }.at(&step);
        };
        let reported = expect("a test of groups");
        at(0, false);
        at(0, true);
        assert_eq!(reported.count(), 0, "one operation in place");
        at(1, false);
        assert_eq!(reported.count(), 1);
    }
}
