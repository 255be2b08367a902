//! The hazard tracker on a model of lanes that knows what happens before what.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::{Access, Lane, NOWHERE, Uses};
use crate::cuda::order::ranged::{RangedUses, Span};
use crate::cuda::order::tracker::Tracker;
use crate::error::{Error, Result};

const LANES: usize = 12;

/// As many as random accesses use, so that they often meet.
const BUSY: usize = 4;

/// How much of the work of each lane is known to be done.
type Clock = [u64; LANES];

fn join(a: &mut Clock, b: &Clock) {
    for (a, b) in a.iter_mut().zip(b) {
        *a = (*a).max(*b);
    }
}

/// What all lanes share.
struct World {
    /// For each lane, what comes before the next thing that is enqueued on it.
    before: RefCell<[Clock; LANES]>,
    /// What the host has seen to be done.
    done: RefCell<Clock>,
    random: RefCell<fastrand::Rng>,
    /// How many marks were recorded, and how often a lane was made to wait.
    marks: Cell<usize>,
    waits: Cell<usize>,
    failing: Cell<bool>,
}

impl World {
    fn new(seed: u64) -> Rc<Self> {
        Rc::new(Self {
            before: RefCell::new([[0; LANES]; LANES]),
            done: RefCell::new([0; LANES]),
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
            marks: Cell::new(0),
            waits: Cell::new(0),
            failing: Cell::new(false),
        })
    }

    fn lanes(self: &Rc<Self>) -> Vec<ModelLane> {
        (0..LANES).map(|id| ModelLane { id, world: Rc::clone(self) }).collect()
    }

    fn below(&self, bound: usize) -> usize {
        self.random.borrow_mut().usize(..bound)
    }
}

#[derive(Clone)]
struct ModelLane {
    id: usize,
    world: Rc<World>,
}

#[derive(Clone)]
struct ModelMark {
    clock: Clock,
    world: Rc<World>,
}

impl ModelLane {
    /// Whether it says where it stands.
    fn is_precise(&self) -> bool {
        self.id % 2 == 1
    }

    /// The host sees that all of it is done.
    fn finish(&self) {
        let clock = self.world.before.borrow()[self.id];
        join(&mut self.world.done.borrow_mut(), &clock);
    }

    /// Enqueues one piece of work; says what comes before it, and its number.
    fn enqueue(&self) -> (Clock, u64) {
        let mut all = self.world.before.borrow_mut();
        let mine = &mut all[self.id];
        let mut before = *mine;
        join(&mut before, &self.world.done.borrow());
        mine[self.id] += 1;
        (before, mine[self.id])
    }

    fn may_fail(&self) -> Result<()> {
        if self.world.failing.get() && self.world.below(8) == 0 {
            return Err(Error::InvalidUsage { operation: "model", reason: String::from("injected") });
        }
        Ok(())
    }
}

impl Lane for ModelLane {
    type Mark = ModelMark;

    fn id(&self) -> usize {
        self.id + 1
    }

    fn mark(&self) -> Result<ModelMark> {
        self.may_fail()?;
        self.world.marks.set(self.world.marks.get() + 1);
        Ok(ModelMark { clock: self.world.before.borrow()[self.id], world: Rc::clone(&self.world) })
    }

    fn follow(&self, mark: &ModelMark) -> Result<()> {
        self.may_fail()?;
        self.world.waits.set(self.world.waits.get() + 1);
        let mine = &mut self.world.before.borrow_mut()[self.id];
        join(mine, &mark.clock);
        // A wait is work too.
        mine[self.id] += 1;
        Ok(())
    }

    fn reached(mark: &ModelMark) -> Result<bool> {
        let done = mark.world.below(2) == 0;
        if done {
            join(&mut mark.world.done.borrow_mut(), &mark.clock);
        }
        Ok(done)
    }

    fn stamp(&self) -> u64 {
        if self.is_precise() { self.world.before.borrow()[self.id][self.id] } else { NOWHERE }
    }

    fn has_passed(&self, stamp: u64) -> bool {
        self.world.done.borrow()[self.id] >= stamp
    }
}

/// The units of memory of which accesses have ranges.
const UNITS: usize = 8;

/// One access: to which units, how, where, and what was done of it.
#[derive(Clone, Copy, Debug)]
struct Op {
    begin: usize,
    end: usize,
    access: Access,
    lane: usize,
    number: u64,
    step: u8,
}

impl Op {
    /// All of it has two names.
    fn span(&self) -> Span {
        match self.number.is_multiple_of(2) && self.end - self.begin == UNITS {
            true => Span::ALL,
            false => Span::of(self.begin * 100, (self.end - self.begin) * 100),
        }
    }

    fn conflicts(&self, other: &Self) -> bool {
        let meet = self.begin < other.end && other.begin < self.end;
        meet && (self.access == Access::Write || other.access == Access::Write)
    }
}

fn check_after(before: &Clock, op: &Op, earlier: &[Op], seed: u64) {
    for e in earlier.iter().filter(|e| e.conflicts(op) && e.lane != op.lane) {
        assert!(before[e.lane] >= e.number, "seed {seed}: {op:?} may run before {e:?} is done; it knows {before:?}");
    }
}

/// Random accesses, up to three at a time as threads would interleave them.
fn run(seed: u64, failing: bool) {
    let world = World::new(seed);
    let lanes = world.lanes();
    let uses = Tracker::<ModelLane>::new();
    let mut enqueued: Vec<Op> = Vec::new();
    let mut flying: Vec<Op> = Vec::new();
    world.failing.set(failing);
    for _ in 0..100 {
        let start = flying.len() < 3 && world.below(2) == 0;
        if start {
            // Few ranges that meet often, or any.
            let (begin, end) = match world.below(3) {
                0 => (0, UNITS),
                1 => [(0, UNITS / 2), (UNITS / 2, UNITS)][world.below(2)],
                _ => {
                    let begin = world.below(UNITS);
                    (begin, begin + 1 + world.below(UNITS - begin))
                }
            };
            let op = Op {
                begin,
                end,
                access: if world.below(2) == 0 { Access::Read } else { Access::Write },
                lane: world.below(BUSY),
                number: world.below(2) as u64,
                step: 0,
            };
            // What the borrow checker refuses.
            if !flying.iter().any(|f| f.conflicts(&op)) {
                flying.push(op);
            }
        } else if !flying.is_empty() {
            let at = world.below(flying.len());
            let op = &mut flying[at];
            let lane = &lanes[op.lane];
            op.step += 1;
            match op.step {
                1 => {
                    if uses.order(op.span(), op.access, lane).is_err() {
                        flying.swap_remove(at);
                    }
                }
                2 => {
                    let (before, number) = lane.enqueue();
                    check_after(&before, op, &enqueued, seed);
                    op.number = number;
                    enqueued.push(*op);
                }
                _ => {
                    uses.note(op.span(), op.access, lane);
                    flying.swap_remove(at);
                }
            }
        } else if world.below(8) == 0 {
            if world.below(2) == 0 {
                let _ = uses.written();
            } else if world.below(2) == 0 {
                lanes[world.below(BUSY)].finish();
            } else if let Ok(true) = uses.idle() {
                let done = *world.done.borrow();
                assert!(enqueued.iter().all(|e| done[e.lane] >= e.number), "seed {seed}: idle, but not all is done");
            }
        }
    }
    for op in flying.iter().filter(|op| op.step == 2) {
        uses.note(op.span(), op.access, &lanes[op.lane]);
    }
    // The free.
    world.failing.set(false);
    let home = world.below(BUSY);
    let free = Op { begin: 0, end: UNITS, access: Access::Write, lane: home, number: 0, step: 0 };
    uses.order(Span::ALL, Access::Write, &lanes[home]).unwrap();
    check_after(&lanes[home].enqueue().0, &free, &enqueued, seed);
}

#[test]
fn conflicting_accesses_are_ordered() {
    for seed in 0..20_000 {
        run(seed, false);
    }
}

#[test]
fn a_failed_wait_loses_no_use() {
    for seed in 0..10_000 {
        run(seed, true);
    }
}

#[test]
fn one_lane_needs_no_marks() {
    let world = World::new(1);
    let lane = &world.lanes()[0];
    let mut uses = Uses::new();
    for at in 0..100 {
        let access = if at % 3 == 0 { Access::Write } else { Access::Read };
        uses.order(access, lane).unwrap();
        lane.enqueue();
        uses.note(access, lane);
    }
    assert_eq!((world.marks.get(), world.waits.get()), (0, 0));
    assert_eq!(uses.reads.iter().count(), 0, "reads are folded into the write of their lane");
}

#[test]
fn a_lane_waits_once_for_a_write() {
    let world = World::new(1);
    let lanes = world.lanes();
    let mut uses = Uses::new();
    uses.order(Access::Write, &lanes[0]).unwrap();
    uses.note(Access::Write, &lanes[0]);
    for _ in 0..10 {
        uses.order(Access::Read, &lanes[1]).unwrap();
        uses.note(Access::Read, &lanes[1]);
    }
    assert_eq!((world.marks.get(), world.waits.get()), (1, 1));
}

/// Who reads waits for the write, not for those who have read it.
#[test]
fn a_read_leaves_the_mark_of_a_write() {
    let world = World::new(1);
    let lanes = world.lanes();
    let mut uses = Uses::new();
    for (access, lane) in [(Access::Write, 0), (Access::Read, 2), (Access::Read, 0), (Access::Read, 4)] {
        uses.order(access, &lanes[lane]).unwrap();
        lanes[lane].enqueue();
        uses.note(access, &lanes[lane]);
    }
    assert_eq!((world.marks.get(), world.waits.get()), (1, 2));
}

/// Who waits for a use has no part in what its lane is given later.
#[test]
fn what_the_host_has_seen_needs_no_mark() {
    let world = World::new(1);
    let lanes = world.lanes();
    let (precise, other) = (&lanes[1], &lanes[0]);
    for access in [Access::Read, Access::Write] {
        let uses = Tracker::<ModelLane>::new();
        for access in [Access::Write, Access::Read] {
            uses.order(Span::ALL, access, precise).unwrap();
            precise.enqueue();
            uses.note(Span::ALL, access, precise);
        }
        precise.finish();
        precise.enqueue();
        let before = (world.marks.get(), world.waits.get());
        uses.order(Span::ALL, access, other).unwrap();
        assert_eq!((world.marks.get(), world.waits.get()), before);
        uses.note(Span::ALL, access, other);
        // What comes now is waited for.
        uses.order(Span::ALL, Access::Write, precise).unwrap();
        precise.enqueue();
        uses.note(Span::ALL, Access::Write, precise);
        uses.order(Span::ALL, Access::Read, other).unwrap();
        assert_ne!((world.marks.get(), world.waits.get()), before);
    }
}

#[test]
fn reads_do_not_wait_for_reads() {
    let world = World::new(1);
    let lanes = world.lanes();
    let mut uses = Uses::new();
    for lane in &lanes[..BUSY] {
        uses.order(Access::Read, lane).unwrap();
        lane.enqueue();
        uses.note(Access::Read, lane);
    }
    assert_eq!(world.waits.get(), 0);
    uses.order(Access::Write, &lanes[0]).unwrap();
    assert_eq!(world.waits.get(), BUSY - 1);
}

/// Where there are many, entries of lanes that are done go, and the others stay.
#[test]
fn of_many_lanes_none_is_lost() {
    for seed in 0..200 {
        let world = World::new(seed);
        let lanes = world.lanes();
        let mut uses = Uses::new();
        let mut numbers = Vec::new();
        for lane in &lanes {
            uses.order(Access::Read, lane).unwrap();
            numbers.push(lane.enqueue().1);
            uses.note(Access::Read, lane);
        }
        uses.order(Access::Write, &lanes[0]).unwrap();
        let (before, _) = lanes[0].enqueue();
        assert!(before.iter().zip(&numbers).all(|(before, number)| before >= number), "seed {seed}: {before:?}");
    }
}

#[test]
fn ordering_by_turns_allocates_no_entries() {
    let world = World::new(1);
    let lanes = world.lanes();
    let mut uses = Uses::new();
    for at in 0..50 {
        let (write, read) = (&lanes[at % 2], &lanes[(at + 1) % 2]);
        uses.order(Access::Write, write).unwrap();
        uses.note(Access::Write, write);
        uses.order(Access::Read, read).unwrap();
        uses.note(Access::Read, read);
        assert_eq!(uses.writes.more.capacity() + uses.reads.more.capacity(), 0);
    }
}

/// Does one access of `lane`, and returns what comes before it.
fn access(uses: &mut RangedUses<ModelLane>, span: Span, access: Access, lane: &ModelLane) -> Clock {
    uses.order(span, access, lane).unwrap();
    let (before, _) = lane.enqueue();
    uses.note(span, access, lane);
    before
}

/// As gradients are reduced bucket by bucket on one lane while another one writes those that follow.
#[test]
fn disjoint_ranges_do_not_wait_for_each_other() {
    let world = World::new(1);
    let lanes = world.lanes();
    let (kernels, reductions) = (&lanes[0], &lanes[2]);
    let mut uses = RangedUses::new();
    access(&mut uses, Span::ALL, Access::Write, kernels);
    for round in 0..3 {
        for bucket in 0..10 {
            let span = Span::of(bucket * 100, 100);
            let before = access(&mut uses, span, Access::Write, kernels);
            // Only the reduction of the same bucket, one round ago.
            let known = if round == 0 { 0 } else { (round - 1) * 10 + bucket as u64 + 1 };
            assert!(before[2] <= known + 2 * (round * 10 + bucket as u64), "{round} {bucket}: {before:?}");
            access(&mut uses, span, Access::Write, reductions);
        }
        assert_eq!(world.waits.get() as u64, 10 * (2 * round + 1), "each bucket is waited for once on either side");
    }
    assert_eq!(uses.parts(), 11, "ten buckets, and what follows them");
    access(&mut uses, Span::ALL, Access::Write, kernels);
    assert_eq!(uses.parts(), 1);
}

/// One lane alone cuts nothing, whatever ranges it uses.
#[test]
fn one_lane_has_one_part() {
    let world = World::new(1);
    let lane = &world.lanes()[0];
    let mut uses = RangedUses::new();
    for at in 0..50 {
        access(&mut uses, Span::of(at * 7 % 100, 5), if at % 3 == 0 { Access::Read } else { Access::Write }, lane);
    }
    assert_eq!((uses.parts(), world.marks.get(), world.waits.get()), (1, 0, 0));
}

/// Where there are too many parts, they become one, and no use is lost.
#[test]
fn many_parts_are_united() {
    for seed in 0..200 {
        let world = World::new(seed);
        let lanes = world.lanes();
        let mut uses = RangedUses::new();
        let mut numbers = [0; LANES];
        for at in 0..300 {
            let lane = &lanes[world.below(LANES)];
            uses.order(Span::of(at * 10, 10), Access::Write, lane).unwrap();
            numbers[lane.id] = lane.enqueue().1;
            uses.note(Span::of(at * 10, 10), Access::Write, lane);
            assert!(uses.parts() <= 70, "{}", uses.parts());
        }
        let before = access(&mut uses, Span::ALL, Access::Read, &lanes[0]);
        let known = before.iter().zip(&numbers).enumerate();
        known.for_each(|(lane, (before, number))| assert!(before >= number, "seed {seed}: lane {lane}: {before:?}"));
    }
}
