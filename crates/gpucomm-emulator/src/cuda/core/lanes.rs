//! Lanes: which pieces of a graph one thread does, and which of others each waits for.
//!
//! What has no order is done side by side, as a GPU does it: a piece may wait for another one of its own graph, as the ranks of one
//! communicator wait for each other. Each lane is a chain of the plan, so that no piece waits for one that it does not come after. Yet the
//! order of the plan is kept as far as that takes no time: an event that nobody waits for shows.

use super::crew::Hand;
use super::plan::Plan;
use super::precedence::Precedence;
use super::work::Step;
use crate::lock::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For so long the pieces of a launch keep an order that nothing demands.
const CUSTOM: Duration = Duration::from_millis(20);

/// A plan, and how it is done. Its pieces have the numbers of their places in the order.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(crate) plan: Arc<Plan>,
    /// The pieces by their numbers in the plan.
    pub(crate) order: Vec<usize>,
    /// Which lane has each.
    lane: Vec<usize>,
    count: usize,
    /// What each comes after in other lanes.
    after: Vec<Vec<usize>>,
    /// Which of them have owners.
    owned: Vec<bool>,
    /// All that have owners have the same.
    alone: bool,
}

impl Lanes {
    /// Of a plan.
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

    /// Does the pieces of a launch, which are in the order of the plan, and comes back when all are done.
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

/// A launch whose pieces are done by several threads.
struct Launch {
    lanes: Arc<Lanes>,
    /// Until when the order is kept that nothing demands.
    custom: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    done: Vec<bool>,
    /// The first piece that is not done, and the first of those that have no owner.
    first: usize,
    first_free: usize,
}

impl Launch {
    fn new(lanes: Arc<Lanes>, custom: Duration) -> Self {
        let first_free = lanes.owned.iter().take_while(|&&owned| owned).count();
        let state = Mutex::new(State { done: vec![false; lanes.order.len()], first: 0, first_free });
        Self { lanes, custom: Instant::now() + custom, state, changed: Condvar::new() }
    }

    /// Does a part of it.
    fn perform(&self, part: Vec<(usize, Step)>) {
        for (at, step) in part {
            self.wait(at);
            step.perform();
            self.finish(at);
        }
    }

    /// Waits until what a piece comes after is done; and, for a while, what else is in front of it. What has an owner may be waiting for
    /// that of another one: for such a piece waits only what has none itself, where all that do have the same.
    fn wait(&self, at: usize) {
        let Lanes { after, owned, alone, .. } = &*self.lanes;
        let mut state = lock(&self.state);
        loop {
            let may = after[at].iter().all(|&earlier| state.done[earlier]);
            let front = if owned[at] || !alone { state.first_free } else { state.first };
            let left = if front < at { self.custom.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
            state = match (may, left) {
                (true, Duration::ZERO) => return,
                (true, left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                (false, _) => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn finish(&self, at: usize) {
        let owned = &self.lanes.owned;
        let mut state = lock(&self.state);
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
        let mut state = lock(&self.state);
        while state.first < state.done.len() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::core::device::device;
    use crate::cuda::core::plan::Owner;
    use crate::cuda::core::work::{Running, Work};
    use crate::sys::cudaError;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Does something with its number.
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
                    // Of owners of their own, as the ranks of a communicator are.
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
                // Each one finds all of the layers before it done as often as it comes to be.
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
        // The second one has no order with the first one, and comes first.
        for owners in [[None, None], [None, Some(1)]] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let of = seen.clone();
            let nodes = owners.map(|owner| (Vec::new(), owner));
            let act = move |number| {
                std::thread::sleep(Duration::from_micros(300) * number as u32);
                lock(&of).push(number);
            };
            perform(plan(&nodes, act), 1, Duration::from_secs(20));
            assert_eq!(*lock(&seen), [1, 0]);
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
