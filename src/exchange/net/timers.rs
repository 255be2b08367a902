//! When connections are to be looked at.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// Connections by their numbers: one time for each at most. One that needs it no more is looked at in vain.
#[derive(Debug, Default)]
pub(in crate::exchange) struct Timers {
    order: BTreeSet<(Instant, u64)>,
    of: HashMap<u64, Instant>,
}

impl Timers {
    /// Has a connection looked at by `when`. One that is looked at before has its next time then.
    pub(in crate::exchange) fn look(&mut self, token: u64, when: Instant) {
        match self.of.get(&token) {
            Some(due) if *due <= when => return,
            Some(due) => _ = self.order.remove(&(*due, token)),
            None => {}
        }
        self.of.insert(token, when);
        self.order.insert((when, token));
    }

    pub(in crate::exchange) fn forget(&mut self, token: u64) {
        if let Some(due) = self.of.remove(&token) {
            self.order.remove(&(due, token));
        }
    }

    /// The first of all times.
    pub(in crate::exchange) fn first(&self) -> Option<Instant> {
        self.order.first().map(|(when, _)| *when)
    }

    /// One whose time is over, and has none any more.
    pub(in crate::exchange) fn over(&mut self, now: Instant) -> Option<u64> {
        let (when, token) = self.order.first().copied()?;
        if when > now {
            return None;
        }
        self.forget(token);
        Some(token)
    }

    /// Whether both sides say the same, of those who are there.
    #[cfg(any(test, fuzzing))]
    pub(in crate::exchange) fn adds_up(&self, is_there: impl Fn(&u64) -> bool) -> bool {
        self.order.len() == self.of.len()
            && self.order.iter().all(|(when, token)| is_there(token) && self.of.get(token) == Some(when))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_has_the_first_of_its_times() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timers = Timers::default();
        timers.look(1, at(5));
        timers.look(2, at(3));
        timers.look(1, at(4));
        timers.look(2, at(9));
        timers.look(3, at(1));
        timers.forget(3);
        assert!(timers.adds_up(|token| *token < 3));
        assert_eq!((timers.first(), timers.over(at(2))), (Some(at(3)), None));
        assert_eq!([timers.over(at(4)), timers.over(at(4)), timers.over(at(4))], [Some(2), Some(1), None]);
        assert_eq!(timers.first(), None);
    }
}
