//! Races: accesses to one piece of memory that nothing puts in order.
//!
//! Work that is enqueued says which memory it reads and writes. Each piece of memory remembers its last accesses, until one comes
//! that is ordered after them, or the host has seen them done. The order follows from the calls alone, not from the time at which
//! work happens to run: so a missing wait is found although the emulator's work is nearly always done at once.
//!
//! The accesses of this process's streams are known. Those of the host to pinned memory, and those of other processes, are not.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::Mutex;
use crate::report;
use crate::settings::settings;

// What comes before what.
//
// The work of a stream is a course, whose steps are counted. A point is a place in a course, with all that comes before it in others:
// what an event stands for. A stream that waits for a point joins it. What the host has seen done comes before all that is enqueued from then
// on, by whichever thread: threads tell each other in ways that nobody sees here. That is kept with the courses, so that points
// need to know of little.

/// Courses are numbered, so that lists of them have an order.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The steps of one stream.
#[derive(Debug)]
struct Course {
    number: u64,
    /// The ordinal of the device.
    device: i32,
    /// So many of its steps the host has seen done.
    seen: AtomicU64,
}

/// A step of a course.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    course: Arc<Course>,
    step: u64,
}

impl Moment {
    /// Whether the host has seen it done, and with it all that comes before it.
    pub(crate) fn is_seen(&self) -> bool {
        self.step <= self.course.seen.load(Ordering::Acquire)
    }

    /// Whether both are one step.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.step == other.step && Arc::ptr_eq(&self.course, &other.course)
    }

    fn see(&self) {
        self.course.seen.fetch_max(self.step, Ordering::AcqRel);
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream {} of device {}", self.course.number, self.course.device)
    }
}

/// A place in a course.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    moment: Moment,
    /// The last moments of other courses that come before it, by the numbers of those; not all that the host has seen.
    before: Arc<[Moment]>,
}

impl Point {
    /// Its own step.
    pub(crate) fn moment(&self) -> &Moment {
        &self.moment
    }

    /// Whether `moment` comes before this, or is its own.
    pub(crate) fn follows(&self, moment: &Moment) -> bool {
        moment.is_seen() || self.has(moment)
    }

    fn has(&self, moment: &Moment) -> bool {
        if Arc::ptr_eq(&self.moment.course, &moment.course) {
            return moment.step <= self.moment.step;
        }
        let found = self.before.binary_search_by_key(&moment.course.number, |known| known.course.number);
        found.is_ok_and(|at| moment.step <= self.before[at].step)
    }

    /// The host has seen that all up to here is done.
    pub(crate) fn see(&self) {
        self.moment.see();
        self.before.iter().for_each(Moment::see);
    }

    /// The host has seen that all in front of this step is done.
    pub(crate) fn see_before(&self) {
        Moment { course: self.moment.course.clone(), step: self.moment.step - 1 }.see();
        self.before.iter().for_each(Moment::see);
    }

    /// Puts `other` before the next step, which is one of its own: of two points at one step, both come after the same.
    fn join(&mut self, other: &Self) {
        // Who knows of a step knows of all before it.
        if self.follows(&other.moment) {
            return;
        }
        let mut all: Vec<Moment> = Vec::with_capacity(self.before.len() + other.before.len() + 1);
        all.extend(self.before.iter().chain(other.before.iter()).chain([&other.moment]).cloned());
        all.retain(|moment| !moment.is_seen() && moment.course.number != self.moment.course.number);
        all.sort_unstable_by_key(|moment| (moment.course.number, std::cmp::Reverse(moment.step)));
        all.dedup_by_key(|moment| moment.course.number);
        self.before = all.into();
        self.moment.step += 1;
    }
}

/// How far a stream was given work.
#[derive(Debug)]
pub(crate) struct Track(Mutex<Point>);

impl Track {
    /// Of a new stream of a device, where races are looked for.
    pub(crate) fn new(device: i32) -> Option<Self> {
        settings().races.then(|| {
            let course = Course { number: NEXT.fetch_add(1, Ordering::Relaxed), device, seen: AtomicU64::new(0) };
            Self(Mutex::new(Point { moment: Moment { course: Arc::new(course), step: 0 }, before: Arc::new([]) }))
        })
    }

    /// Behind all that was enqueued.
    pub(crate) fn point(&self) -> Point {
        self.0.lock().clone()
    }

    /// What is enqueued from now on comes after `point`.
    pub(crate) fn join(&self, point: &Point) {
        self.0.lock().join(point);
    }

    /// One more step.
    pub(crate) fn step(&self) -> Point {
        let mut point = self.0.lock();
        point.moment.step += 1;
        point.clone()
    }
}

/// Steps on whatever streams that come one after the other, because somebody else sees to that.
#[derive(Debug, Default)]
pub(crate) struct Chain(Mutex<Option<Point>>);

impl Chain {
    /// The next step of `track`, which is the next one here too.
    pub(crate) fn step(&self, track: &Track) -> Point {
        let mut last = self.0.lock();
        if let Some(last) = &*last {
            track.join(last);
        }
        last.insert(track.step()).clone()
    }
}

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
        let mut all = self.0.lock();
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
        let all = self.0.lock();
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
mod course_tests {
    use super::*;

    fn tracks<const N: usize>() -> [Track; N] {
        std::array::from_fn(|device| Track::new(device as i32).expect("the tests run in strict mode"))
    }

    #[test]
    fn who_joins_a_point_comes_after_all_that_it_comes_after() {
        let [a, b, c] = tracks();
        let (first, second) = (a.step(), a.step());
        assert!(second.follows(first.moment()) && !first.follows(second.moment()));
        assert!(!b.step().follows(first.moment()));
        b.join(&first);
        let behind = b.step();
        assert!(behind.follows(first.moment()) && !behind.follows(second.moment()));
        c.join(&behind);
        assert!(c.step().follows(first.moment()) && !c.step().follows(second.moment()));
        // A later point takes the place of an earlier one, and not the other way round.
        c.join(&second);
        c.join(&first);
        assert!(c.step().follows(second.moment()));
        assert_eq!(c.point().before.len(), 2);
        // What comes after itself by way of others.
        a.join(&c.point());
        assert!(a.point().before.len() == 2 && a.step().follows(behind.moment()));
    }

    #[test]
    fn what_the_host_has_seen_comes_before_everything() {
        let [a, b, c] = tracks();
        let first = a.step();
        b.join(&first);
        let (second, third) = (b.step(), b.step());
        second.see();
        assert!(first.moment().is_seen() && second.moment().is_seen() && !third.moment().is_seen());
        assert!(c.step().follows(first.moment()) && !c.step().follows(third.moment()));
        c.join(&third);
        assert_eq!(c.point().before.len(), 1, "what was seen is not kept");
        c.point().see_before();
        assert!(third.moment().is_seen());
    }

    #[test]
    fn a_chain_leads_from_stream_to_stream() {
        let [a, b] = tracks();
        let chain = Chain::default();
        let first = chain.step(&a);
        let beside = a.step();
        let second = chain.step(&b);
        assert!(second.follows(first.moment()) && !second.follows(beside.moment()));
    }
}

#[cfg(test)]
mod touches_tests {
    use super::*;
    use crate::races::Track;
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
        assert_eq!(memory.0.lock().len(), 2);
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
        assert!(memory.0.lock().len() <= MOST);
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
