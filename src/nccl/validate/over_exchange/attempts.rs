//! Counts how often the same ranks have tried to make another communicator of some of them.

use crate::lock::Mutex;
use crate::nccl::validate::regroup::Plan;

/// The attempts of one rank of a checked communicator.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// The next attempt of each plan, whatever its configuration.
    attempts: Mutex<Vec<(Plan, u64)>>,
    /// The plan on which the ranks agreed last.
    last: Mutex<String>,
}

impl Attempts {
    pub(super) fn attempt(&self, plan: &Plan) -> u64 {
        let plan = plan.sequence();
        self.attempts.lock().iter().find(|(known, _)| *known == plan).map_or(0, |(_, next)| *next)
    }

    pub(super) fn set(&self, plan: &Plan, next: u64) {
        let (plan, mut all) = (plan.sequence(), self.attempts.lock());
        match all.iter_mut().find(|(known, _)| *known == plan) {
            Some((_, known)) => *known = next,
            None => all.push((plan, next)),
        }
    }

    /// The plan on which the ranks agreed last.
    pub(super) fn last(&self) -> String {
        self.last.lock().clone()
    }

    pub(super) fn agree(&self, what: String) {
        *self.last.lock() = what;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::validate::notes::decision_key;
    use crate::nccl::validate::split::Terms;

    #[test]
    fn attempts_are_counted_whatever_the_configuration() {
        let attempts = Attempts::default();
        let terms = Terms::default();
        attempts.set(&Plan::Without([1].into(), None), 3);
        let plans = [Plan::Without([1].into(), Some(terms.into())), Plan::Without([2].into(), None), Plan::Split];
        assert_eq!(plans.each_ref().map(|plan| attempts.attempt(plan)), [3, 0, 0]);
        assert_eq!(decision_key(&plans[0], 3), decision_key(&Plan::Without([1].into(), None), 3));
        assert_ne!(decision_key(&plans[0], 3), decision_key(&plans[1], 3));
    }
}
