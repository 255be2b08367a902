//! Where the ranks of a program that are threads wait for each other on the host, beside the library that is tested.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::settings::slower;

/// Long for what has to come, short for a person who waits for the test.
const PATIENCE: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub struct Meet {
    ranks: usize,
    arrivals: Mutex<usize>,
    changed: Condvar,
}

impl Meet {
    pub fn new(ranks: usize) -> Self {
        Self { ranks, arrivals: Mutex::new(0), changed: Condvar::new() }
    }

    /// Waits until all ranks have come here as often as this one.
    pub fn wait(&self) {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        *arrivals += 1;
        self.changed.notify_all();
        let round = arrivals.div_ceil(self.ranks) * self.ranks;
        let waits = |arrivals: &mut usize| *arrivals < round;
        let (arrivals, _) =
            self.changed.wait_timeout_while(arrivals, slower(PATIENCE), waits).unwrap_or_else(PoisonError::into_inner);
        assert!(*arrivals >= round, "ranks are waited for: {} of {round} came", *arrivals);
    }
}
