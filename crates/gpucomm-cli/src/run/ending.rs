//! How all ranks end, with all that they have started.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use libc::{SIGCONT, SIGKILL, SIGTERM};

use super::descendants;
use super::rank::Rank;
use super::signals::send;

/// How long a process may take to go that was killed: the driver takes seconds to free the memory of a GPU.
const DYING: Duration = Duration::from_secs(60);

/// How long the other ranks have to end by themselves after one has failed. The rank that fails
/// first is seldom the cause: the cause may still be printing its error.
const MOMENT: Duration = Duration::from_millis(500);

/// An end that has begun.
pub struct Ending {
    /// When the ranks are asked to end. `None` if they have been asked.
    asks: Option<Instant>,
    /// When what lives still is killed.
    until: Instant,
    /// Who has been asked to end.
    asked: BTreeSet<i32>,
    killed: bool,
}

impl Ending {
    /// Asks the ranks to end after a moment, unless somebody has asked them: twice would be taken
    /// for impatience.
    pub fn begin(grace: Duration, asked: bool) -> Self {
        let asks = Instant::now() + if asked { Duration::ZERO } else { MOMENT.min(grace) };
        Self { asks: (!asked).then_some(asks), until: asks + grace, asked: BTreeSet::new(), killed: false }
    }

    /// No more patience.
    pub fn hurry(&mut self) {
        self.until = self.until.min(Instant::now());
    }

    /// Whether nothing is left but who is spared. To be called again and again, until then, or until it names what was killed, and does not go.
    pub fn step(&mut self, ranks: &[Rank], spared: &BTreeSet<i32>) -> Result<bool, Vec<i32>> {
        let own = descendants::own();
        let left = descendants::all(spared);
        let living: Vec<_> = ranks.iter().filter(|rank| rank.lives()).map(|rank| rank.pid).collect();
        if left.is_empty() && living.is_empty() {
            return Ok(true);
        }
        let late = Instant::now().saturating_duration_since(self.until);
        if late > DYING {
            return Err(left.iter().map(|process| process.pid).collect());
        }
        if late > Duration::ZERO || self.killed {
            // A group first: nothing is born in it while the others are killed one by one.
            self.killed = true;
            living.iter().for_each(|rank| send(-rank, SIGKILL));
            left.iter().for_each(|process| send(process.pid, SIGKILL));
        } else if self.asks.is_none_or(|at| at <= Instant::now()) {
            if self.asks.take().is_some() {
                living.iter().for_each(|rank| ask(-rank));
            }
            // What has lost its parent has become a child of this process.
            for orphan in left.iter().filter(|process| process.parent == own && !living.contains(&process.pid)) {
                if self.asked.insert(orphan.pid) {
                    ask(orphan.pid);
                }
            }
        }
        Ok(false)
    }
}

fn ask(process: i32) {
    send(process, SIGTERM);
    // Who is stopped does not hear that.
    send(process, SIGCONT);
}
