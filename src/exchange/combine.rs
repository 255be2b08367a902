//! Combines what all ranks set in a round into one value, so that no rank reads the values of many
//! others.
//!
//! Ranks form groups of [`GROUP`]. Each rank sets its value, and then adds 1 to the counter of its
//! group. The rank that completes a group reads the values of the group and sets them as one value.
//! It then counts for its group among [`GROUP`] groups, and so on. The rank that completes the last
//! group sets the values of all ranks under the key that the others wait for. So each rank makes the
//! same number of requests to the store, whatever the number of ranks is.
//!
//! If a value is missing or of another operation, or if all of them are too long for one value, the
//! rank that finds this sets a note instead: then each rank reads the values of the others itself.

use std::time::Duration;

use super::combined::{APART, join_groups, join_values};
use super::store::{MAX_KEYS, MAX_VALUE};
use super::view::{View, patiently};
use crate::deadline::Deadline;
use crate::error::Result;

/// The ranks, or the groups of ranks, whose values one rank reads.
const GROUP: usize = MAX_KEYS;

/// What each member of a group adds to its counter, beside the length of its value.
const ONE: i64 = 1 << 40;

/// How long a rank tries to combine values. After that each rank reads them itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// Up to this number of ranks, each reads the values of all by itself.
const FEW: usize = 16;

impl View {
    /// The key of the values of all ranks in a round, if they are combined.
    pub(super) fn combined_key(&self, round: u64) -> Option<String> {
        (self.size() > FEW).then(|| format!("{}c/{round}/all", self.path))
    }

    /// Counts this rank, which has set its value of this `kind` and length in a round. Combines the values
    /// of each group that it completes.
    pub(super) fn combine(&self, round: u64, (kind, len): (u8, usize), deadline: &Deadline) {
        if let Some(all) = self.combined_key(round) {
            // If this fails, the ranks read the values themselves, and see what is wrong with the store.
            let time = Deadline::after(deadline.remaining().min(PATIENCE));
            let _ = self.combine_as(round, (kind, len), &all, &time);
        }
    }

    fn combine_as(&self, round: u64, (kind, mut len): (u8, usize), all: &str, deadline: &Deadline) -> Result<()> {
        let place = |level: u32, at: usize| match level {
            0 => self.round_key(round, at),
            _ => format!("{}c/{round}/{level}.{at}", self.path),
        };
        let (mut level, mut at, mut count) = (0, self.rank, self.size());
        loop {
            let group = at / GROUP;
            let members = group * GROUP..count.min((group + 1) * GROUP);
            let counter = format!("{}c/{round}/{level}.{group}/n", self.path);
            let counted = self.store.add(&counter, ONE + i64::try_from(len).unwrap_or(0), deadline.remaining())?;
            if usize::try_from(counted / ONE) != Ok(members.len()) {
                return Ok(());
            }
            self.progress().own.push((round, counter));
            let keys: Vec<String> = members.map(|at| place(level, at)).collect();
            let names: Vec<&str> = keys.iter().map(String::as_str).collect();
            let is_short = usize::try_from(counted % ONE).is_ok_and(|len| len < MAX_VALUE);
            let values =
                if is_short { patiently(deadline, || self.store.get(&names, Duration::ZERO))? } else { vec![None] };
            let combined = match values.into_iter().collect::<Option<Vec<_>>>() {
                Some(values) if level == 0 => join_values(&values, kind),
                Some(groups) => join_groups(&groups),
                None => APART.to_vec(),
            };
            let is_last = count <= GROUP || combined == APART;
            let key = if is_last { all.to_owned() } else { place(level + 1, group) };
            self.store.set(&key, &combined, deadline.remaining())?;
            self.progress().own.push((round, key));
            if is_last {
                return Ok(());
            }
            (level, at, count, len) = (level + 1, group, count.div_ceil(GROUP), combined.len());
        }
    }
}
