//! What the program asks of one communicator, beside what holds for all.

use std::time::Duration;

use crate::fault::{self, Fault, Plan};
use crate::lock::RwLock;
use crate::settings::{self, settings};

/// The wishes for one rank.
#[derive(Debug, Default)]
pub(crate) struct Wishes(RwLock<Own>);

#[derive(Debug, Default)]
struct Own {
    faults: Plan,
    /// How long a wait lasts before it is reported: `Some(None)` is for ever.
    deadlock: Option<Option<Duration>>,
}

impl Wishes {
    /// Takes `faults` and a time of `deadlock`, in the words of the variables; what is not named stays. The error says what is wrong.
    pub(crate) fn take(&self, faults: Option<&str>, deadlock: Option<&str>) -> Result<(), String> {
        let faults = faults.map(Plan::of_ranks).transpose()?;
        let wrong = |text: &str| format!("{text}: expected {}", settings::PATIENCE);
        let deadlock = deadlock.map(|text| settings::patience(text).ok_or_else(|| wrong(text))).transpose()?;
        let mut own = self.0.write();
        faults.into_iter().for_each(|faults| own.faults = faults);
        own.deadlock = deadlock.or(own.deadlock);
        Ok(())
    }

    /// Whether anything may happen to a rank.
    pub(crate) fn has_faults(&self) -> bool {
        fault::is_asked_for() || !self.0.read().faults.is_empty()
    }

    /// What happens to `rank` in front of its operation `number`.
    pub(crate) fn fault(&self, rank: usize, number: u64) -> Option<Fault> {
        let own = self.0.read();
        own.faults.fault(rank as u64, number).or_else(|| fault::at(rank, number))
    }

    /// How long a wait lasts before it is reported.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let own = self.0.read();
        own.deadlock.unwrap_or_else(|| settings().deadlock)
    }
}
