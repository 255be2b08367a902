//! Pieces of a graph that have no order, and use the same memory.

use super::plan::Plan;
use super::work::Step;
use crate::emulator::races::touches::Touching;
use crate::emulator::report;
use crate::emulator::settings::settings;

/// Which nodes of a plan come before which.
struct Order(Vec<Box<[u64]>>);

impl Order {
    fn of(plan: &Plan) -> Self {
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

    fn has(&self, one: usize, other: usize) -> bool {
        let (first, second) = (one.min(other), one.max(other));
        first == second || self.0[second][first / 64] >> (first % 64) & 1 != 0
    }
}

/// Reports the first two pieces of `plan`, of which `steps` are a run in this order, that have no order and of which one writes
/// what the other uses.
pub(crate) fn report(plan: &Plan, order: &[usize], steps: &[Step]) {
    if !settings().races {
        return;
    }
    let mut all: Vec<(usize, Touching<'_>)> = Vec::new();
    for (&node, step) in order.iter().zip(steps) {
        step.run.tell(&mut |touching| all.push((node, touching)));
    }
    let before = Order::of(plan);
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
