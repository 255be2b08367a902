//! Finds ranks that died before they closed the communicator, and fails the waits that need them.

use std::sync::Arc;
use std::time::Duration;

use super::this_rank::OverExchange;
use crate::error::Error;

impl OverExchange {
    /// Returns the first other rank that the store knows to have died, and how. A rank has died if it
    /// has ended without closing its communicator. Skips the ranks in `known`, and adds to them the
    /// dead rank and all that have closed.
    pub(crate) fn departed(&self, known: &mut Vec<usize>, within: Duration) -> Option<(usize, String)> {
        let has_closed = |rank| Ok(self.has_left("wait", rank)?.is_some());
        let dead = self.exchange("wait").ok()?.departed(known, within, has_closed)?;
        known.push(dead.0);
        Some(dead)
    }

    /// Records that a rank has died. From now on every wait for it fails.
    pub(crate) fn set_dead(&self, (rank, how): (usize, String)) {
        self.dead.lock().push((rank, format!("{how}; {} waits for it", self.in_words())));
    }

    /// Returns the error of a wait that needs a rank that has died. `needs` tells whether the wait
    /// needs a rank.
    pub(crate) fn death(&self, needs: impl Fn(usize) -> bool) -> Option<Error> {
        let dead = self.dead.lock();
        let (rank, how) = dead.iter().find(|(rank, _)| needs(*rank))?;
        Some(Error::Departed { operation: "wait", rank: *rank, how: how.clone() })
    }

    /// Records that NCCL goes on without these ranks from now on.
    pub(crate) fn spare(&self, ranks: Arc<[usize]>) {
        *self.spared.lock() = ranks;
    }

    /// Returns true if NCCL goes on without that rank.
    pub(crate) fn spares(&self, rank: usize) -> bool {
        self.spared.lock().contains(&rank)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::this_rank::LAST;
    use super::*;
    use crate::exchange::{Exchange, Threads};
    use crate::nccl::validate::ballot::RanksOf;

    /// A death is found at once behind any number of ranks that have closed before.
    #[test]
    fn those_that_have_closed_hide_no_death() {
        let place = Threads::new(9);
        let join =
            |rank| Arc::new(OverExchange::new(Exchange::join(place.store(rank).unwrap()).unwrap(), RanksOf::default()));
        let all: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = (0..9).map(|rank| scope.spawn(move || join(rank))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let mut all = all.into_iter();
        let own = all.next().unwrap();
        // The last one has not closed.
        all.for_each(|one| {
            if one.rank() < 8 {
                one.leave(LAST);
            }
        });
        let mut known = Vec::new();
        assert_eq!(own.departed(&mut known, LAST).map(|(rank, _)| rank), Some(8));
        assert_eq!(known, (1..=8).collect::<Vec<_>>());
        assert_eq!(own.departed(&mut known, LAST), None);
    }
}
