//! Starts to which not all ranks come, or through which they do not get.

use super::communicator::Communicator;
use super::words::{has, is, later, ranks};

/// Who gives up so many nanoseconds after the others has come later, perhaps.
const LATE: u64 = 1_000_000_000;

impl Communicator {
    /// Who has not come to the start, or is not through with it.
    pub fn unstarted(&self) -> Option<String> {
        let (waiting, through): (Vec<_>, Vec<_>) = self.dumps().partition(|dump| dump.starts());
        let first = waiting.iter().min_by_key(|dump| dump.time)?;
        let last = waiting.iter().max_by_key(|dump| dump.time)?;
        let names = |all: &[&super::dump::Dump]| all.iter().map(|dump| dump.rank).collect::<Vec<_>>();
        let (absent, waiting, through) = (self.absent(), names(&waiting), names(&through));
        if !absent.is_empty() {
            let (who, others) = (ranks(absent), ranks(&waiting));
            return Some(format!("{who} {} not started, for which {others} {} waited.", has(absent), has(&waiting)));
        }
        if !through.is_empty() {
            let (who, others) = (ranks(&waiting), ranks(&through));
            return Some(format!(
                "{who} {} not through with the start, to which all have come; {others} {}.",
                is(&waiting),
                is(&through)
            ));
        }
        let mut told = format!("all {} have come to the start, and none is through with it", self.size());
        if last.time - first.time >= LATE {
            let later = later(first.time, last.time);
            told.push_str(&format!("; rank {} has given up {later} after rank {}", last.rank, first.rank));
        }
        Some(format!("{told}."))
    }
}
