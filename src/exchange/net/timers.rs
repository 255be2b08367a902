//! Timers of connections.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// At most one time for each connection. A connection whose time has passed looks whether it still
/// needs it.
#[derive(Debug, Default)]
pub(super) struct Timers {
    order: BTreeSet<(Instant, u64)>,
    of: HashMap<u64, Instant>,
}

impl Timers {
    /// Sets the time of a connection, unless it has an earlier one.
    pub(super) fn set(&mut self, token: u64, when: Instant) {
        match self.of.get(&token) {
            Some(due) if *due <= when => return,
            Some(due) => _ = self.order.remove(&(*due, token)),
            None => {}
        }
        self.of.insert(token, when);
        self.order.insert((when, token));
    }

    pub(super) fn clear(&mut self, token: u64) {
        if let Some(due) = self.of.remove(&token) {
            self.order.remove(&(due, token));
        }
    }

    /// The first of all times.
    pub(super) fn first(&self) -> Option<Instant> {
        self.order.first().map(|(when, _)| *when)
    }

    /// Takes a connection whose time has passed.
    pub(super) fn expired(&mut self, now: Instant) -> Option<u64> {
        let (when, token) = self.order.first().copied()?;
        if when > now {
            return None;
        }
        self.clear(token);
        Some(token)
    }

    /// Whether both sides say the same, of connections that are there.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_consistent(&self, is_there: impl Fn(&u64) -> bool) -> bool {
        self.order.len() == self.of.len()
            && self.order.iter().all(|(when, token)| is_there(token) && self.of.get(token) == Some(when))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_time_of_each_connection_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timers = Timers::default();
        timers.set(1, at(5));
        timers.set(2, at(3));
        timers.set(1, at(4));
        timers.set(2, at(9));
        timers.set(3, at(1));
        timers.clear(3);
        assert!(timers.is_consistent(|token| *token < 3));
        assert_eq!((timers.first(), timers.expired(at(2))), (Some(at(3)), None));
        assert_eq!([timers.expired(at(4)), timers.expired(at(4)), timers.expired(at(4))], [Some(2), Some(1), None]);
        assert_eq!(timers.first(), None);
    }
}
