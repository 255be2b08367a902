//! What the members of a run do together: exchange numbers, start together, fail together.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::failure::{Failure, Result};

/// The members of a run, as one of them sees it. A member is a thread, or a process, that drives one rank or more.
pub trait Team {
    /// This member's place; member 0 prints.
    fn member(&self) -> usize;
    /// Gives `value` and gets everybody's, in order.
    fn gather(&self, value: f64) -> Result<Vec<f64>>;
    /// Returns when all members are ready for the timed loop.
    fn start(&self) -> Result<()>;
    /// Shows a line of the table. Only member 0 calls this and the next two.
    fn line(&self, text: &str) -> Result<()>;
    /// Shows, or with an empty text removes, what is going on just now.
    fn progress(&self, text: &str) -> Result<()>;
    /// Hands over the report for `--json`.
    fn report(&self, report: Value) -> Result<()>;
}

/// The members of a run of which each is a process, and drives one rank.
pub trait Peers: Team {
    /// Gives `value` and gets every rank's.
    fn exchange(&self, value: Value) -> Result<Vec<Value>>;
}

/// How often a member looks for the others, at the start of a timed loop, before it lets other threads run.
const SPINS: u32 = 10_000;

/// What threads of one process share.
#[derive(Debug)]
pub struct Meeting {
    members: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// How many came to `start`, in all rounds.
    started: AtomicUsize,
    broken: AtomicBool,
}

#[derive(Debug)]
struct State {
    round: usize,
    arrived: usize,
    values: Vec<f64>,
    result: Vec<f64>,
}

impl Meeting {
    pub fn new(members: usize) -> Self {
        Self {
            members,
            state: Mutex::new(State { round: 0, arrived: 0, values: vec![0.0; members], result: Vec::new() }),
            changed: Condvar::new(),
            started: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Says that a member will not come any more, so that nobody waits for it.
    pub fn give_up(&self) {
        self.broken.store(true, Ordering::Release);
        drop(self.lock());
        self.changed.notify_all();
    }

    pub fn gather(&self, member: usize, value: f64) -> Result<Vec<f64>> {
        let mut state = self.lock();
        state.values[member] = value;
        state.arrived += 1;
        if state.arrived == self.members {
            state.arrived = 0;
            state.round += 1;
            state.result = state.values.clone();
            self.changed.notify_all();
        } else {
            let round = state.round;
            while state.round == round {
                self.check()?;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Ok(state.result.clone())
    }

    /// Returns when everybody is here. Spins for a moment: a thread that sleeps starts when it has woken up, tens of
    /// microseconds after the last to come, which then waits for it within the timed loop.
    pub fn start(&self) -> Result<()> {
        let place = self.started.fetch_add(1, Ordering::AcqRel);
        let everybody = place - place % self.members + self.members;
        let mut round = 0u32;
        while self.started.load(Ordering::Acquire) < everybody {
            self.check()?;
            round = round.saturating_add(1);
            if round < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.broken.load(Ordering::Acquire) { Err(Failure::Elsewhere) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_gets_everything_in_order() {
        let meeting = Meeting::new(4);
        std::thread::scope(|scope| {
            for member in 0..4 {
                let meeting = &meeting;
                scope.spawn(move || {
                    for round in 0..200 {
                        let got = meeting.gather(member, (round * 10 + member) as f64).unwrap();
                        let want: Vec<_> = (0..4).map(|m| (round * 10 + m) as f64).collect();
                        assert_eq!(got, want);
                        meeting.start().unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn nobody_starts_before_everybody_is_there() {
        let (meeting, there) = (Meeting::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=500 {
                        there.fetch_add(1, Ordering::AcqRel);
                        meeting.start().unwrap();
                        assert!(there.load(Ordering::Acquire) >= 3 * round);
                    }
                });
            }
        });
        assert_eq!(there.into_inner(), 1500);
    }

    #[test]
    fn nobody_waits_for_one_that_gave_up() {
        let meeting = Meeting::new(3);
        std::thread::scope(|scope| {
            let waiting = [scope.spawn(|| meeting.gather(0, 0.0).map(drop)), scope.spawn(|| meeting.start())];
            std::thread::sleep(std::time::Duration::from_millis(20));
            meeting.give_up();
            for thread in waiting {
                assert!(matches!(thread.join().unwrap(), Err(Failure::Elsewhere)));
            }
        });
    }
}
