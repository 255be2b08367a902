//! What a capture writes down, and a graph starts: pieces of work, and what each of them comes after.

use super::device::Device;
use super::work::{Run, Step, Work};
use crate::report;
use crate::sys::cudaError;
use std::sync::Arc;

/// A piece of work of whatever kind.
pub(crate) trait AnyWork: Send + Sync {
    /// See [`Work::name`].
    fn name(&self) -> &'static str;
    /// See [`Work::fixed`].
    fn fixed(&self) -> String;
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

    fn start(&self) -> Result<Box<dyn Run>, cudaError> {
        Ok(Box::new(Work::start(self)?))
    }
}

/// Nodes of a plan by their numbers, in order: what is not done before all of them are.
pub(crate) type Front = Vec<usize>;

/// What comes after both.
pub(crate) fn join(front: &mut Front, other: &[usize]) {
    front.extend(other);
    front.sort_unstable();
    front.dedup();
}

struct Node {
    work: Arc<dyn AnyWork>,
    /// When it was written down: memory may be gone, and others in its place.
    fixed: String,
    device: &'static Device,
    /// Numbers lower than its own.
    after: Front,
    /// Who it belongs to, whose work is done in the order of the plan.
    owner: Option<Owner>,
}

/// Who a piece of work belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Its address, by which it is known.
    pub at: usize,
    /// It puts its own work in order. Else the program has to.
    pub orders: bool,
}

/// What no update can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// How many pieces there are, or what they come after.
    Topology,
    /// What a piece is.
    Kind,
    /// Something of a piece.
    Parameters,
}

/// Pieces of work with an order.
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
    /// Adds work that comes after `front`, and after what its owner, if it has one, has in here: its number.
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

    /// How many pieces it has.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// What a piece comes after: numbers lower than its own.
    pub fn after(&self, node: usize) -> &[usize] {
        &self.nodes[node].after
    }

    /// Who a piece belongs to, if to anybody.
    pub fn owner(&self, node: usize) -> Option<usize> {
        self.nodes[node].owner.map(|owner| owner.at)
    }

    /// The ordinal of the device of a piece.
    pub fn device(&self, node: usize) -> i32 {
        self.nodes[node].device.ordinal
    }

    /// What keeps an executable graph of this plan from doing what `other` says.
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

    /// Whether all of it is done once `front` is.
    pub fn ends_with(&self, front: &[usize]) -> bool {
        self.reached(front).iter().all(|&reached| reached)
    }

    /// Which pieces are done once `front` is.
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

    /// An order in which it can be done. It is as far from the order of the capture as it may be, so that an event that nobody waits
    /// for shows; but what has owners keeps that order, in which other ranks do the same.
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

    /// Starts all of it.
    pub fn start(&self, order: &[usize]) -> Result<Vec<Step>, cudaError> {
        let mut runs = Vec::with_capacity(order.len());
        // Those that have owners get their numbers in this order, which is that in which each owner's are done.
        for &number in order {
            let Node { work, device, .. } = &self.nodes[number];
            runs.push(Step::new(device, work.name(), work.start()?));
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
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
        // What one owner has comes one after the other.
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
        // By way of another piece.
        let second = add(&mut plan, &[between], own(1));
        let loose = || add(&mut plan, &[between], own(1));
        let third = reported("graphStreamOrdering is 0", loose);
        assert_eq!(plan.after(third), [between, second]);
    }

    #[test]
    fn the_order_is_another_one_where_it_may_be() {
        assert_eq!(plan(&[(&[], None), (&[], None), (&[0], None)]).order(), [1, 0, 2]);
        assert_eq!(plan(&[(&[], None), (&[0], None), (&[1], None)]).order(), [0, 1, 2]);
        // Owned by one, and by two: on another rank the second may depend on nothing.
        assert_eq!(plan(&[(&[], Some(1)), (&[], Some(1))]).order(), [0, 1]);
        assert_eq!(plan(&[(&[], None), (&[0], Some(1)), (&[], Some(2))]).order(), [0, 1, 2]);
    }
}
