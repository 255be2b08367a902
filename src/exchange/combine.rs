//! Combines what all ranks set in a round into one value, so that no rank reads the values of many
//! others.
//!
//! Ranks form groups of [`GROUP`]. Each rank sets its value, and then adds 1 to the counter of its
//! group. The rank that completes a group reads the values of the group and sets them as one value.
//! It then counts for its group among [`GROUP`] groups, and so on. The rank that completes the last
//! group sets the values of all ranks under the key that the others wait for. So each rank makes the
//! same number of requests to the store, whatever the number of ranks is.
//!
//! If a value is missing, is of another operation, or if all of them are too long for one value,
//! nobody sets the values of all, or a note that they are apart. Then each rank reads the values of
//! the others itself.

use std::time::Duration;

use super::combined::{join_groups, join_values};
use super::store::MAX_KEYS;
use super::view::View;
use crate::deadline::Deadline;
use crate::error::Result;

/// The ranks, or the groups of ranks, whose values one rank reads.
const GROUP: usize = MAX_KEYS;

/// Up to this number of ranks, each reads the values of all by itself.
const FEW: usize = 16;

impl View {
    /// The key of the values of all ranks in a round, if they are combined.
    pub(super) fn combined_key(&self, round: u64) -> Option<String> {
        (self.size() > FEW).then(|| format!("{}c/{round}/all", self.path))
    }

    /// Counts this rank, which has set its value of this `kind` in a round. Combines the values of each
    /// group that it completes.
    pub(super) fn combine(&self, round: u64, kind: u8, deadline: &Deadline) -> Result<()> {
        let Some(all) = self.combined_key(round) else { return Ok(()) };
        let place = |level: u32, at: usize| match level {
            0 => self.round_key(round, at),
            _ => format!("{}c/{round}/{level}.{at}", self.path),
        };
        let (mut level, mut at, mut count) = (0, self.rank, self.size());
        loop {
            let group = at / GROUP;
            let members = group * GROUP..count.min((group + 1) * GROUP);
            let counter = format!("{}c/{round}/{level}.{group}/n", self.path);
            let arrived = self.store.add(&counter, 1, deadline.remaining())?;
            if usize::try_from(arrived) != Ok(members.len()) {
                return Ok(());
            }
            let keys: Vec<String> = members.map(|at| place(level, at)).collect();
            let names: Vec<&str> = keys.iter().map(String::as_str).collect();
            let values = self.store.get(&names, Duration::ZERO)?;
            self.progress().own.push((round, counter));
            let Some(values) = values.into_iter().collect::<Option<Vec<_>>>() else { return Ok(()) };
            let combined = if level == 0 { join_values(&values, kind) } else { join_groups(&values) };
            let Some(combined) = combined else { return Ok(()) };
            let is_last = count <= GROUP;
            let key = if is_last { all.clone() } else { place(level + 1, group) };
            self.store.set(&key, &combined, deadline.remaining())?;
            self.progress().own.push((round, key));
            if is_last {
                return Ok(());
            }
            (level, at, count) = (level + 1, group, count.div_ceil(GROUP));
        }
    }
}
