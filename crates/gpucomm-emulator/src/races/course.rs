//! What comes before what.
//!
//! The work of a stream is a course, whose steps are counted. A point is a place in a course, with all that comes before it in others:
//! what an event stands for. A stream that waits for a point joins it. What the host has seen done comes before all that is enqueued from then
//! on, by whichever thread: threads tell each other in ways that nobody sees here. That is kept with the courses, so that points
//! need to know of little.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::settings::settings;

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
        lock(&self.0).clone()
    }

    /// What is enqueued from now on comes after `point`.
    pub(crate) fn join(&self, point: &Point) {
        lock(&self.0).join(point);
    }

    /// One more step.
    pub(crate) fn step(&self) -> Point {
        let mut point = lock(&self.0);
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
        let mut last = lock(&self.0);
        if let Some(last) = &*last {
            track.join(last);
        }
        last.insert(track.step()).clone()
    }
}

#[cfg(test)]
mod tests {
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
