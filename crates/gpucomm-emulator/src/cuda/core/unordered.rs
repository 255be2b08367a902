//! Pieces of a graph that have no order, and use the same memory.

use super::plan::Plan;
use super::precedence::Precedence;
use super::work::Step;
use crate::races::touches::Touching;
use crate::report;
use crate::settings::settings;

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
