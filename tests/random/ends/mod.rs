//! Cliques that end while work is under way that nobody has waited for: with values that are forgotten, or go in odd places, and beside work
//! of others that is stuck. Every call returns in time, every result is right or an error, and nothing lands in new memory.

mod beside;
mod guard;
mod left;
mod pace;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use fastrand::Rng;
use gpucomm::nccl::AbortOutcome;
use gpucomm::{Clique, Communicator, Device, Error, Result, Stream};

use self::guard::Guard;
use self::left::{Item, Kept, Left, Origin, With};
use self::pace::within;
use crate::cliques::{self, PATIENT};
use crate::farewell::{Farewell, at_the_end_of_a_thread};
use crate::gate::Gate;
use crate::meet::Meet;
use crate::program::Program;
use crate::settings::{Batch, Run, rng, slower};
use crate::watch::say;

/// What calls may take once the ranks have made all they need.
const TIMEOUT: Duration = Duration::from_secs(3);

/// What an abort may take, and the end of a communicator that cannot be closed, beside its timeout.
const GRACE: Duration = Duration::from_secs(10);

/// How one rank ends.
#[derive(Debug, Clone, Copy)]
enum Way {
    Drop,
    Close,
    Abort,
}

/// How a clique ends.
#[derive(Debug)]
enum End {
    Whole(Way),
    /// Its ranks in this order, each on a thread of its own or all on one.
    Ranks(Vec<(usize, Way)>, bool),
    /// Its ranks with the last memory of each, where that goes; aborted before, or not.
    Shared(Vec<Farewell>, bool),
}

#[derive(Debug)]
struct Scene {
    items: Vec<Item>,
    /// The order in which each rank lets go of them.
    orders: Vec<Vec<usize>>,
    /// The ranks beside whose work something is stuck.
    stuck: Vec<bool>,
    /// Whether the ranks' own work is held up: until the end where something is stuck, and otherwise for so long.
    holds: Option<Duration>,
    end: End,
}

impl Scene {
    fn draw(rng: &mut Rng, ranks: usize) -> Self {
        let shared = rng.u32(..4) == 0;
        let aborts = rng.bool();
        // What has a share of a communicator and is forgotten keeps it until somebody aborts it.
        let forget = !shared || aborts;
        let items: Vec<_> = (0..rng.usize(1..7)).map(|_| item(rng, ranks, forget)).collect();
        let orders = (0..ranks).map(|_| shuffled(rng, items.len())).collect();
        let is_stuck = rng.bool();
        let stuck = (0..ranks).map(|_| is_stuck && rng.bool()).collect();
        let holds = (rng.u32(..3) > 0).then(|| Duration::from_micros(rng.u64(..200_000)));
        let way = |rng: &mut Rng| [Way::Drop, Way::Close, Way::Abort][rng.usize(..3)];
        let end = match rng.u32(..3) {
            _ if shared => End::Shared((0..ranks).map(|_| Farewell::ENDS[rng.usize(..5)]).collect(), aborts),
            0 => End::Ranks(shuffled(rng, ranks).into_iter().map(|rank| (rank, way(rng))).collect(), rng.bool()),
            _ => End::Whole(way(rng)),
        };
        Self { items, orders, stuck, holds, end }
    }

    fn is_stuck(&self) -> bool {
        self.stuck.contains(&true)
    }

    /// Whether results may be missing: not where everything was waited for in order.
    fn may_fail(&self) -> bool {
        let closes = |way: &Way| matches!(way, Way::Close | Way::Drop);
        let ends = match &self.end {
            End::Whole(way) => closes(way),
            End::Ranks(ranks, _) => ranks.iter().all(|(_, way)| closes(way)),
            End::Shared(..) => false,
        };
        !ends || self.is_stuck() || self.items.iter().any(|item| item.with == With::Graph)
    }
}

fn shuffled(rng: &mut Rng, count: usize) -> Vec<usize> {
    let mut all: Vec<_> = (0..count).collect();
    rng.shuffle(&mut all);
    all
}

fn item(rng: &mut Rng, ranks: usize, forget: bool) -> Item {
    let origins = [Origin::Device, Origin::Nccl, Origin::Mapped, Origin::Local, Origin::Alloc, Origin::Symmetric];
    let (origin, sums) = (origins[rng.usize(..origins.len())], rng.bool());
    let with = match rng.u32(..8) {
        0 if !matches!(origin, Origin::Alloc | Origin::Symmetric) => With::Registration,
        1 if !matches!(origin, Origin::Alloc | Origin::Symmetric | Origin::Device) => With::Window,
        2 => With::Graph,
        3 => With::Pinned,
        _ => With::Nothing,
    };
    // Whole pages, which NCCL registers, or not.
    let len = if rng.bool() { 1024 * rng.usize(1..65) } else { rng.usize(1..50_000) };
    let farewell = |rng: &mut Rng| if forget && rng.bool() { Farewell::Forget } else { Farewell::draw(rng, false) };
    let farewells = (0..ranks).map(|_| [(); 3].map(|()| farewell(rng))).collect();
    Item { origin, with, len, value: rng.u32(..1 << 20), sums, farewells }
}

pub fn run() {
    let mut run = Run::begin("ends", 12, 2, PATIENT);
    let (mut stuck, mut errors) = (0, 0);
    while let Some(batch) = run.batch(1) {
        let mut rng = rng(batch.first, "ends");
        if rng.u32(..5) == 0 {
            beside::world(&batch, &mut rng);
            cliques::still_works(&batch, batch.first);
            continue;
        }
        let scene = Scene::draw(&mut rng, batch.ranks);
        stuck += usize::from(scene.is_stuck());
        errors += play(&batch, &scene);
        cliques::still_works(&batch, batch.first);
    }
    say(&format!("ends: {stuck} cliques ended beside work that was stuck; {errors} results were errors"));
}

/// How many results were errors.
fn play(batch: &Batch, scene: &Scene) -> usize {
    let repeat = batch.repeat(batch.first);
    if crate::settings::traces() {
        say(&format!("{scene:#?}"));
    }
    let clique = cliques::start_to_end(batch, PATIENT);
    cliques::right(&clique, batch, Program::draw(batch, batch.first, false));
    let devices: Vec<Device> = clique.ranks().iter().map(Communicator::device).collect();
    let others: Vec<Stream> = devices.iter().map(|device| Stream::new(*device).expect("a stream")).collect();
    let (own, foreign) = (Gate::default(), Gate::default());
    let hold = Hold { scene, others: &others, own: &own, foreign: &foreign, meet: Meet::new(batch.ranks) };
    let kept = std::thread::scope(|scope| {
        // Opens while the communicator ends.
        let (ends, ended) = mpsc::channel::<()>();
        if let (Some(delay), false) = (scene.holds, scene.is_stuck()) {
            let own = &own;
            scope.spawn(move || {
                let _ = ended.recv();
                std::thread::sleep(delay);
                own.open();
            });
        }
        let kept = end(clique, &hold, &repeat, || drop(ends));
        for device in &devices {
            within(&repeat, "a look at a device", slower(TIMEOUT), || beside::looks(*device))
                .expect("a device that works");
        }
        kept
    });
    let lens: Vec<_> = scene.items.iter().map(|item| item.len).collect();
    let guard = |device: &Device| within(&repeat, "new memory", slower(TIMEOUT), || Guard::new(*device, &lens));
    let guards: Vec<_> = devices.iter().map(|device| guard(device).expect("new memory")).collect();
    if scene.is_stuck() {
        beside::calls(&repeat, &devices, &mut rng(batch.first, "beside"));
    }
    drop((own, foreign));
    let mut errors = 0;
    for one in kept.iter().flatten() {
        match one.stream().synchronize_timeout(slower(PATIENT)).and_then(|()| one.check()) {
            Ok(()) => {}
            Err(error) => {
                let aborted =
                    matches!(error, Error::Aborted { .. } | Error::Timeout { operation: "close" | "drop", .. });
                assert!(aborted && scene.may_fail(), "{error:?}: {repeat}");
                errors += 1;
            }
        }
    }
    others
        .iter()
        .for_each(|stream| stream.synchronize_timeout(slower(PATIENT)).expect("work that is no communicator's"));
    guards.iter().for_each(|guard| guard.check().expect("new memory"));
    errors
}

/// What the ranks have in common.
struct Hold<'a> {
    scene: &'a Scene,
    others: &'a [Stream],
    own: &'a Gate,
    foreign: &'a Gate,
    meet: Meet,
}

impl Hold<'_> {
    /// Makes what a rank leaves, and gives it work.
    fn make<'c>(&self, comm: &'c Communicator) -> Result<Left<'c>> {
        let mut left = Left::make(comm, &self.scene.items)?;
        self.meet.wait();
        comm.set_timeout(slower(TIMEOUT));
        if self.scene.stuck[comm.rank()] {
            self.foreign.hold(&self.others[comm.rank()])?;
        }
        if self.scene.holds.is_some() {
            left.streams().try_for_each(|stream| self.own.hold(stream))?;
        }
        self.meet.wait();
        left.work(&self.scene.items)?;
        self.meet.wait();
        Ok(left)
    }
}

/// Ends a clique with what its ranks leave. Calls `ends` when the ranks have left it.
fn end(clique: Clique, hold: &Hold<'_>, repeat: &str, ends: impl FnOnce()) -> Vec<Vec<Kept>> {
    let (scene, limit) = (hold.scene, slower(TIMEOUT));
    gpucomm::set_default_timeout(slower(PATIENT));
    let leave = |comm: &Communicator| {
        let left = hold.make(comm)?;
        let (me, items) = (comm.rank(), &scene.items);
        gpucomm::set_default_timeout(limit);
        within(repeat, "to let go of everything", limit, || left.leave(items, &scene.orders[me], &hold.others[me]))
    };
    let whole = |clique: &Clique| of_each(clique.ranks().iter(), leave);
    match &scene.end {
        End::Whole(way) => {
            let kept = whole(&clique);
            ends();
            match way {
                Way::Drop => within(repeat, "drop of the clique", limit, || drop(clique)),
                Way::Close => {
                    closed(scene, &within(repeat, "close", limit + GRACE, || clique.close_timeout(limit)), repeat)
                }
                Way::Abort => aborted(scene, within(repeat, "abort", GRACE, || clique.abort("the end")), repeat),
            }
            kept
        }
        End::Ranks(order, threads) => {
            let kept = whole(&clique);
            ends();
            let mut ranks: Vec<_> = clique.into_ranks().into_iter().map(Some).collect();
            let all = order.iter().map(|(rank, way)| (ranks[*rank].take().expect("each of them once"), *way));
            let one = |(comm, way): (Communicator, Way)| match way {
                Way::Drop => within(repeat, "drop of a rank", limit, || drop(comm)),
                // One may have aborted the others, or be waited for in vain.
                Way::Close => drop(within(repeat, "close of a rank", limit + GRACE, || comm.close_timeout(limit))),
                Way::Abort => drop(within(repeat, "abort of a rank", GRACE, || comm.abort("the end"))),
            };
            if *threads {
                std::thread::scope(|scope| all.for_each(|rank| drop(scope.spawn(move || one(rank)))));
            } else {
                all.for_each(one);
            }
            kept
        }
        End::Shared(farewells, aborts) => {
            let ranks: Vec<_> = clique.into_ranks().into_iter().map(Arc::new).collect();
            let leave = |comm: &Arc<Communicator>| {
                let left = hold.make(comm)?;
                let (me, items) = (comm.rank(), &scene.items);
                gpucomm::set_default_timeout(limit);
                if *aborts {
                    aborted(scene, within(repeat, "abort", GRACE, || comm.aborter().abort("the end")), repeat);
                }
                let leave = || left.leave_shared(comm, items, &scene.orders[me], &hold.others[me]);
                within(repeat, "to let go of everything", limit, leave)
            };
            let kept = of_each(ranks.iter(), leave);
            ends();
            for (comm, farewell) in ranks.into_iter().zip(farewells) {
                let (other, device) = (&hold.others[comm.rank()], comm.device());
                let use_another = move || drop(Clique::init_all(&[device]).expect("a clique of one rank"));
                within(repeat, "a rank goes", limit, || match farewell {
                    Farewell::ThreadLocal => at_the_end_of_a_thread(comm, use_another),
                    _ => farewell.to(comm, other).expect("room for a host function"),
                });
            }
            kept
        }
    }
}

/// Runs a body as each rank.
fn of_each<C: Send, R: Send>(ranks: impl Iterator<Item = C>, body: impl Fn(C) -> Result<R> + Sync) -> Vec<R> {
    let body = &body;
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.map(|rank| scope.spawn(move || body(rank))).collect();
        threads.into_iter().map(|rank| rank.join().expect("no panic").expect("a rank that works")).collect()
    })
}

fn closed(scene: &Scene, result: &Result<()>, repeat: &str) {
    let is_right = match result {
        Ok(()) => true,
        Err(Error::Timeout { .. }) => scene.is_stuck() && scene.holds.is_some(),
        Err(Error::InvalidUsage { .. }) => scene.items.iter().any(|item| item.with == With::Graph),
        Err(_) => false,
    };
    assert!(is_right, "{result:?}: {repeat}");
}

fn aborted(scene: &Scene, outcome: AbortOutcome, repeat: &str) {
    let is_held = scene.is_stuck() || scene.holds.is_some();
    assert!(outcome != AbortOutcome::StillRunning || is_held, "an abort has not ended: {repeat}");
}
