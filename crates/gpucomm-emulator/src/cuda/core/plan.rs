//! Plans: the work of a CUDA graph, its dependencies, and the threads that run it.
//!
//! A capture records a [`Plan`], whose nodes are pieces of work. [`Lanes`] assigns the nodes to
//! threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cuda::core::crew::Hand;
use crate::cuda::core::device::Device;
use crate::cuda::core::work::{Run, Step, Work};
use crate::lock::{Condvar, Mutex};
use crate::races::Touching;
use crate::report;
use crate::settings::settings;
use crate::sys::cudaError;

/// A piece of work of any kind.
pub(crate) trait AnyWork: Send + Sync {
    /// See [`Work::name`].
    fn name(&self) -> &'static str;
    /// See [`Work::fixed`].
    fn fixed(&self) -> String;
    /// See [`Work::local_memory`].
    fn local_memory(&self) -> usize;
    /// See [`Work::start`].
    fn start(&self) -> Result<Box<dyn Run>, cudaError>;
}

impl<W: Work> AnyWork for W {
    fn name(&self) -> &'static str {
        Work::name(self)
    }

    fn fixed(&self) -> String {
        Work::fixed(self)
    }

    fn local_memory(&self) -> usize {
        Work::local_memory(self)
    }

    fn start(&self) -> Result<Box<dyn Run>, cudaError> {
        Ok(Box::new(Work::start(self)?))
    }
}

/// The numbers of nodes of a plan, in ascending order. A node that comes after a front runs when all
/// nodes of the front are done.
pub(crate) type Front = Vec<usize>;

/// Adds the nodes of `other` to `front`.
pub(crate) fn join(front: &mut Front, other: &[usize]) {
    front.extend(other);
    front.sort_unstable();
    front.dedup();
}

struct Node {
    work: Arc<dyn AnyWork>,
    /// The value of [`Work::fixed`] when the node was recorded. Its memory may be freed and replaced
    /// later.
    fixed: String,
    device: &'static Device,
    /// The nodes that it depends on. Their numbers are lower than its own.
    after: Front,
    /// The owner of the work. All work of one owner runs in the order of the plan.
    owner: Option<Owner>,
}

/// The communicator that a piece of work belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The address of the communicator, which identifies it.
    pub at: usize,
    /// Whether the communicator orders its own work. If not, the program must.
    pub orders: bool,
}

/// A difference between two plans that an update of an executable graph cannot apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The number of nodes, or their dependencies.
    Topology,
    /// The kind of a node.
    Kind,
    /// The device or the parameters of a node.
    Parameters,
}

/// Pieces of work with their dependencies.
#[derive(Default)]
pub(crate) struct Plan {
    nodes: Vec<Node>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.nodes.iter().map(|node| (node.work.name(), &node.after))).finish()
    }
}

impl Plan {
    /// Adds work that depends on `front`, and on the last node of the same owner. Returns its number.
    pub fn add(
        &mut self,
        work: Arc<dyn AnyWork>,
        device: &'static Device,
        front: &[usize],
        owner: Option<Owner>,
    ) -> usize {
        let mut after = front.to_vec();
        let same = |node: &Node| owner.is_some_and(|owner| node.owner.is_some_and(|other| other.at == owner.at));
        if let Some(before) = self.nodes.iter().rposition(same) {
            if owner.is_some_and(|owner| !owner.orders) && !self.reached(front)[before] {
                report::violation(format!(
                    "in a capture, {} and {} of one communicator have no order, and graphStreamOrdering is 0: expected a wait for an event \
                     between them",
                    self.nodes[before].work.name(),
                    work.name()
                ));
            }
            join(&mut after, &[before]);
        }
        let fixed = work.fixed();
        self.nodes.push(Node { work, fixed, device, after, owner });
        self.nodes.len() - 1
    }

    /// The local memory that its kernels need, in bytes, and where.
    pub fn local_memory(&self) -> impl Iterator<Item = (&'static Device, usize)> {
        self.nodes.iter().map(|node| (node.device, node.work.local_memory()))
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes that a node depends on. Their numbers are lower than its own.
    pub fn after(&self, node: usize) -> &[usize] {
        &self.nodes[node].after
    }

    /// The address of the owner of a node, if it has one.
    pub fn owner(&self, node: usize) -> Option<usize> {
        self.nodes[node].owner.map(|owner| owner.at)
    }

    /// The ordinal of the device of a node.
    pub fn device(&self, node: usize) -> i32 {
        self.nodes[node].device.ordinal
    }

    /// Returns the first difference that keeps an executable graph of this plan from being updated to
    /// `other`.
    pub fn differs(&self, other: &Self) -> Option<Change> {
        if self.nodes.len() != other.nodes.len() {
            return Some(Change::Topology);
        }
        let pairs = || self.nodes.iter().zip(&other.nodes);
        if pairs().any(|(one, other)| one.after != other.after) {
            return Some(Change::Topology);
        }
        pairs().find_map(|(one, other)| {
            if one.work.name() != other.work.name() {
                return Some(Change::Kind);
            }
            let same = one.device.ordinal == other.device.ordinal && one.fixed == other.fixed;
            (!same).then_some(Change::Parameters)
        })
    }

    /// Whether all nodes are done when `front` is done.
    pub fn ends_with(&self, front: &[usize]) -> bool {
        self.reached(front).iter().all(|&reached| reached)
    }

    /// For each node, whether it is done when `front` is done.
    fn reached(&self, front: &[usize]) -> Vec<bool> {
        let mut reached = vec![false; self.nodes.len()];
        let mut open = front.to_vec();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut reached[node], true) {
                open.extend(&self.nodes[node].after);
            }
        }
        reached
    }

    /// Returns an order in which the nodes can run. It differs from the order of the capture as much as
    /// the dependencies allow, so that a missing wait for an event becomes visible. Nodes with owners
    /// keep the order of the capture, because other ranks run theirs in the same order.
    pub fn order(&self) -> Vec<usize> {
        let mut followers = vec![Vec::new(); self.nodes.len()];
        let mut before = vec![0; self.nodes.len()];
        let mut owned = None;
        for (number, node) in self.nodes.iter().enumerate() {
            let chain = node.owner.and_then(|_| owned.replace(number));
            for &earlier in node.after.iter().chain(&chain) {
                followers[earlier].push(number);
                before[number] += 1;
            }
        }
        let mut ready: Vec<usize> = (0..self.nodes.len()).filter(|&number| before[number] == 0).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(next) = ready.iter().copied().max() {
            ready.retain(|&number| number != next);
            order.push(next);
            for &follower in &followers[next] {
                before[follower] -= 1;
                if before[follower] == 0 {
                    ready.push(follower);
                }
            }
        }
        order
    }

    /// Starts all nodes.
    pub fn start(&self, order: &[usize]) -> Result<Vec<Step>, cudaError> {
        let mut runs = Vec::with_capacity(order.len());
        // A communicator numbers its operations as they start, which is also the order in which they run.
        for &number in order {
            let Node { work, device, .. } = &self.nodes[number];
            runs.push(Step::new(device, work.name(), work.start()?));
        }
        Ok(runs)
    }
}

/// For each node of a plan, the set of all nodes that it depends on, directly or not.
pub(crate) struct Precedence(Vec<Box<[u64]>>);

impl Precedence {
    /// Computes the sets of all nodes of `plan`.
    pub(crate) fn of(plan: &Plan) -> Self {
        let words = plan.len().div_ceil(64);
        let mut all: Vec<Box<[u64]>> = Vec::with_capacity(plan.len());
        for node in 0..plan.len() {
            let mut before = vec![0; words].into_boxed_slice();
            for &earlier in plan.after(node) {
                before[earlier / 64] |= 1 << (earlier % 64);
                before.iter_mut().zip(&all[earlier]).for_each(|(word, more)| *word |= more);
            }
            all.push(before);
        }
        Self(all)
    }

    /// Whether `other` depends on `one`.
    pub(crate) fn precedes(&self, one: usize, other: usize) -> bool {
        self.0[other][one / 64] >> (one % 64) & 1 != 0
    }

    /// Whether one of both depends on the other, or both are the same.
    pub(crate) fn has(&self, one: usize, other: usize) -> bool {
        one == other || self.precedes(one.min(other), one.max(other))
    }
}

/// Reports the first race of `plan`: two nodes, neither of which depends on the other, one of which
/// writes memory that the other uses. `steps` are the started nodes in `order`.
pub(crate) fn report_unordered(plan: &Plan, order: &[usize], steps: &[Step]) {
    if !settings().races {
        return;
    }
    let mut all: Vec<(usize, Touching<'_>)> = Vec::new();
    for (&node, step) in order.iter().zip(steps) {
        step.run.tell(&mut |touching| all.push((node, touching)));
    }
    let before = Precedence::of(plan);
    all.sort_unstable_by_key(|(_, touching)| (std::ptr::from_ref(touching.memory).addr(), touching.range.start));
    for (at, (one, first)) in all.iter().enumerate() {
        let mut near = all[at + 1..].iter().take_while(|(_, second)| first.meets(second));
        let found = near.find(|(other, second)| first.collides(second) && !before.has(*one, *other));
        if let Some((other, second)) = found {
            let (first, second) = if one < other { (first, second) } else { (second, first) };
            return report::violation(format!(
                "in a graph, {second} what {first}, and nothing puts them in order: expected a wait for an event between them when \
                 they were captured"
            ));
        }
    }
}

/// For this time, the nodes of a launch keep the order of the plan even where no dependency demands it.
const CUSTOM: Duration = Duration::from_millis(20);

/// A plan, and the lanes that run it. Each lane is run by one thread.
///
/// Nodes that do not depend on each other run in parallel, as on a GPU. They must: a node may wait for
/// another node of the same graph, as the ranks of one communicator wait for each other. In a lane,
/// each node depends on the one before, so no node waits for one that it does not depend on.
///
/// For a short time, a launch still follows the order of the plan, so that a missing wait for an event
/// becomes visible.
///
/// The vectors are indexed by the position of a node in `order`.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(crate) plan: Arc<Plan>,
    /// The numbers of the nodes in the plan.
    pub(crate) order: Vec<usize>,
    /// The lane of each node.
    lane: Vec<usize>,
    count: usize,
    /// The positions of the nodes of other lanes that each node depends on.
    after: Vec<Vec<usize>>,
    /// Whether each node has an owner.
    owned: Vec<bool>,
    /// Whether there is at most one owner.
    alone: bool,
}

impl Lanes {
    /// Assigns the nodes of a plan to lanes.
    pub(crate) fn of(plan: Arc<Plan>) -> Self {
        let order = plan.order();
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, &node)| place[node] = at);
        let precedence = Precedence::of(&plan);
        let (mut lane, mut ends, mut after) = (Vec::with_capacity(order.len()), Vec::<usize>::new(), Vec::new());
        for &node in &order {
            let directly = plan.after(node);
            let fits = |end: usize| {
                let same = plan.device(end) == plan.device(node);
                precedence.precedes(end, node).then_some((directly.contains(&end), same))
            };
            let best = (0..ends.len()).filter_map(|lane| Some((fits(ends[lane])?, lane))).max();
            let mine = best.map_or(ends.len(), |(_, lane)| lane);
            if mine == ends.len() {
                ends.push(node);
            }
            ends[mine] = node;
            lane.push(mine);
            let others = directly.iter().map(|&earlier| place[earlier]).filter(|&at| lane[at] != mine);
            after.push(others.collect());
        }
        let owners: Vec<Option<usize>> = order.iter().map(|&node| plan.owner(node)).collect();
        let mut all: Vec<usize> = owners.iter().copied().flatten().collect();
        all.sort_unstable();
        all.dedup();
        let owned = owners.iter().map(Option::is_some).collect();
        Self { lane, count: ends.len(), after, owned, alone: all.len() <= 1, order, plan }
    }

    /// Runs the nodes of a launch, which are in the order of the plan. Returns when all are done.
    pub(super) fn perform(self: Arc<Self>, steps: Vec<Step>) {
        self.perform_by_custom(steps, CUSTOM);
    }

    fn perform_by_custom(self: Arc<Self>, steps: Vec<Step>, custom: Duration) {
        let hands = if self.count > 1 { Hand::several(self.count - 1) } else { None };
        let Some(hands) = hands else { return steps.into_iter().for_each(Step::perform) };
        let mut parts: Vec<Vec<(usize, Step)>> = (0..self.count).map(|_| Vec::new()).collect();
        steps.into_iter().enumerate().for_each(|(at, step)| parts[self.lane[at]].push((at, step)));
        let launch = Arc::new(Launch::new(self, custom));
        let mine = parts.swap_remove(0);
        for (hand, part) in hands.into_iter().zip(parts) {
            let launch = launch.clone();
            hand.give(Box::new(move || launch.perform(part)));
        }
        launch.perform(mine);
        launch.wait_for_all();
    }
}

/// A launch that several threads run.
struct Launch {
    lanes: Arc<Lanes>,
    /// The end of the time in which the nodes keep the order of the plan.
    custom: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    done: Vec<bool>,
    /// The position of the first node that is not done.
    first: usize,
    /// The position of the first node without an owner that is not done.
    first_free: usize,
}

impl Launch {
    fn new(lanes: Arc<Lanes>, custom: Duration) -> Self {
        let first_free = lanes.owned.iter().take_while(|&&owned| owned).count();
        let state = Mutex::new(State { done: vec![false; lanes.order.len()], first: 0, first_free });
        Self { lanes, custom: Instant::now() + custom, state, changed: Condvar::new() }
    }

    /// Runs the nodes of one lane.
    fn perform(&self, part: Vec<(usize, Step)>) {
        for (at, step) in part {
            self.wait(at);
            step.perform();
            self.finish(at);
        }
    }

    /// Waits until all nodes that this one depends on are done and, until `custom`, for earlier nodes of
    /// the order too. A node with an owner may itself wait for a node of another owner. So it counts
    /// as an earlier node only if there is one owner, and only for nodes without an owner.
    fn wait(&self, at: usize) {
        let Lanes { after, owned, alone, .. } = &*self.lanes;
        let mut state = self.state.lock();
        loop {
            let may = after[at].iter().all(|&earlier| state.done[earlier]);
            let front = if owned[at] || !alone { state.first_free } else { state.first };
            let left = if front < at { self.custom.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
            state = match (may, left) {
                (true, Duration::ZERO) => return,
                (true, left) => self.changed.wait_timeout(state, left),
                (false, _) => self.changed.wait(state),
            };
        }
    }

    fn finish(&self, at: usize) {
        let owned = &self.lanes.owned;
        let mut state = self.state.lock();
        state.done[at] = true;
        let State { done, first, first_free } = &mut *state;
        while *first < done.len() && done[*first] {
            *first += 1;
        }
        while *first_free < done.len() && (done[*first_free] || owned[*first_free]) {
            *first_free += 1;
        }
        drop(state);
        self.changed.notify_all();
    }

    fn wait_for_all(&self) {
        let mut state = self.state.lock();
        while state.first < state.done.len() {
            state = self.changed.wait(state);
        }
    }
}

#[cfg(test)]
mod plan_tests {
    use super::*;
    use crate::cuda::core::device::device;
    use crate::cuda::core::work::Running;
    use crate::report::expected::reported;

    #[derive(Debug)]
    struct Nothing;

    impl Work for Nothing {
        type Run = fn(&Running);

        fn name(&self) -> &'static str {
            "nothing"
        }

        fn start(&self) -> Result<Self::Run, cudaError> {
            Ok(|_| ())
        }
    }

    fn plan(nodes: &[(&[usize], Option<usize>)]) -> Plan {
        let mut plan = Plan::default();
        for (after, owner) in nodes {
            let owner = owner.map(|at| Owner { at, orders: true });
            plan.add(Arc::new(Nothing), device(0).unwrap(), after, owner);
        }
        plan
    }

    #[test]
    fn everything_must_lead_to_the_end() {
        let forked = plan(&[(&[], None), (&[0], None), (&[0], None)]);
        assert!(!forked.ends_with(&[1]) && !forked.ends_with(&[2]) && forked.ends_with(&[1, 2]));
        assert!(plan(&[]).ends_with(&[]));
        // The nodes of one owner run one after the other.
        assert!(plan(&[(&[], Some(1)), (&[], Some(1))]).ends_with(&[1]));
        assert!(!plan(&[(&[], Some(1)), (&[], Some(2))]).ends_with(&[1]));
    }

    #[test]
    fn what_its_owner_leaves_to_the_program_has_an_order() {
        let own = |at| Some(Owner { at, orders: false });
        let add =
            |plan: &mut Plan, after: &[usize], owner| plan.add(Arc::new(Nothing), device(0).unwrap(), after, owner);
        let mut plan = Plan::default();
        let first = add(&mut plan, &[], own(1));
        let between = add(&mut plan, &[first], None);
        add(&mut plan, &[], own(2));
        // It depends on `first` through another node.
        let second = add(&mut plan, &[between], own(1));
        let loose = || add(&mut plan, &[between], own(1));
        let third = reported("graphStreamOrdering is 0", loose);
        assert_eq!(plan.after(third), [between, second]);
    }

    #[test]
    fn the_order_is_another_one_where_it_may_be() {
        assert_eq!(plan(&[(&[], None), (&[], None), (&[0], None)]).order(), [1, 0, 2]);
        assert_eq!(plan(&[(&[], None), (&[0], None), (&[1], None)]).order(), [0, 1, 2]);
        // Nodes with owners keep the order, also those of two owners: on another rank, the second may have
        // no dependency.
        assert_eq!(plan(&[(&[], Some(1)), (&[], Some(1))]).order(), [0, 1]);
        assert_eq!(plan(&[(&[], None), (&[0], Some(1)), (&[], Some(2))]).order(), [0, 1, 2]);
    }
}

#[cfg(test)]
mod lanes_tests {
    use super::*;
    use crate::cuda::core::device::device;
    use crate::cuda::core::plan::Owner;
    use crate::cuda::core::work::{Running, Work};
    use crate::sys::cudaError;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Work that calls a function with the number of its node.
    #[derive(Clone)]
    struct Numbered(usize, Arc<dyn Fn(usize) + Send + Sync>);

    impl Work for Numbered {
        type Run = Box<dyn FnOnce(&Running) + Send>;

        fn name(&self) -> &'static str {
            "numbered"
        }

        fn start(&self) -> Result<Self::Run, cudaError> {
            let Self(number, act) = self.clone();
            Ok(Box::new(move |_| act(number)))
        }
    }

    fn perform(plan: Plan, times: usize, custom: Duration) {
        let lanes = Arc::new(Lanes::of(Arc::new(plan)));
        for _ in 0..times {
            let steps = lanes.plan.start(&lanes.order).unwrap();
            lanes.clone().perform_by_custom(steps, custom);
        }
    }

    fn plan(nodes: &[(Vec<usize>, Option<usize>)], act: impl Fn(usize) + Send + Sync + 'static) -> Plan {
        let (mut plan, act) = (Plan::default(), Arc::new(act));
        for (number, (after, owner)) in nodes.iter().enumerate() {
            let work = Arc::new(Numbered(number, act.clone()));
            let owner = owner.map(|at| Owner { at, orders: true });
            plan.add(work, device((number % 3) as i32).unwrap(), after, owner);
        }
        plan
    }

    #[test]
    fn whole_layers_meet_and_nothing_comes_too_early() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..30 {
            let mut layers: Vec<Vec<usize>> = Vec::new();
            let mut nodes: Vec<(Vec<usize>, Option<usize>)> = Vec::new();
            for _ in 0..random.usize(1..6) {
                let width = random.usize(1..6);
                let here = (nodes.len()..nodes.len() + width).collect();
                for place in 0..width {
                    // Each has an owner of its own, as the ranks of one communicator have.
                    let owner = random.bool().then_some(100 * layers.len() + place);
                    nodes.push((layers.last().cloned().unwrap_or_default(), owner));
                }
                layers.push(here);
            }
            let barriers: Vec<Barrier> = layers.iter().map(|layer| Barrier::new(layer.len())).collect();
            let done: Arc<Vec<AtomicUsize>> = Arc::new(nodes.iter().map(|_| AtomicUsize::new(0)).collect());
            let (told, of) = (done.clone(), layers.clone());
            let act = move |number: usize| {
                let layer = of.iter().position(|layer| layer.contains(&number)).unwrap();
                // All nodes of earlier layers have run once more than this one.
                let times = told[number].load(Ordering::SeqCst) + 1;
                assert!(of[..layer].iter().flatten().all(|&earlier| told[earlier].load(Ordering::SeqCst) == times));
                barriers[layer].wait();
                told[number].store(times, Ordering::SeqCst);
            };
            perform(plan(&nodes, act), 3, CUSTOM);
            assert!(done.iter().all(|times| times.load(Ordering::SeqCst) == 3), "seed {seed}");
        }
    }

    #[test]
    fn a_missing_edge_shows() {
        // The second node does not depend on the first, so it runs first.
        for owners in [[None, None], [None, Some(1)]] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let of = seen.clone();
            let nodes = owners.map(|owner| (Vec::new(), owner));
            let act = move |number| {
                std::thread::sleep(Duration::from_micros(300) * number as u32);
                of.lock().push(number);
            };
            perform(plan(&nodes, act), 1, Duration::from_secs(20));
            assert_eq!(*seen.lock(), [1, 0]);
        }
    }

    #[test]
    fn one_chain_needs_one_thread() {
        let me = std::thread::current().id();
        let nodes = [(vec![], None), (vec![0], Some(1)), (vec![1], None), (vec![1, 2], None)];
        perform(plan(&nodes, move |_| assert_eq!(std::thread::current().id(), me)), 1, CUSTOM);
        let two = [(vec![], None), (vec![0], None), (vec![0], None), (vec![1, 2], None)];
        assert_eq!(Lanes::of(Arc::new(plan(&two, |_| ()))).count, 2);
    }
}
