//! Who was late, where all have come in the end.

use std::collections::BTreeMap;

use super::dump::Dump;
use super::words::{has, later, ranks};

/// Less than this many nanoseconds is no reason for anything; clocks of hosts differ by less.
const LATE: u64 = 1_000_000_000;

/// A collective with the ranks and the times at which they have come, the first one first.
struct Arrivals<'d> {
    number: u64,
    what: &'d str,
    ranks: Vec<(u64, usize)>,
}

impl Arrivals<'_> {
    /// How many ranks came before the longest time in which nobody did, and that time.
    fn gap(&self) -> (usize, u64) {
        let gaps = self.ranks.windows(2).enumerate().map(|(at, pair)| (at + 1, pair[1].0 - pair[0].0));
        gaps.max_by_key(|(_, gap)| *gap).unwrap_or((0, 0))
    }
}

/// Which of `size` ranks have come late to a collective, by these dumps: to the first of those to which some came latest.
pub fn find<'d>(dumps: impl Iterator<Item = &'d Dump> + Clone, size: usize) -> Option<String> {
    let mut all: BTreeMap<u64, Arrivals<'_>> = BTreeMap::new();
    for dump in dumps.clone() {
        for (number, entry) in dump.collectives() {
            let arrivals = all.entry(number).or_insert(Arrivals { number, what: &entry.what, ranks: Vec::new() });
            arrivals.ranks.push((entry.time, dump.rank));
        }
    }
    let mut all: Vec<_> = all.into_values().filter(|arrivals| arrivals.ranks.len() == size).collect();
    all.iter_mut().for_each(|arrivals| arrivals.ranks.sort_unstable());
    let most = all.iter().map(|arrivals| arrivals.gap().1).max().filter(|gap| *gap >= LATE)?;
    // Who is late once is late to what follows.
    let first = all.iter().find(|arrivals| arrivals.gap().1 >= most / 2)?;
    let (before, gap) = first.gap();
    let names = |all: &[(u64, usize)]| {
        let mut ranks: Vec<_> = all.iter().map(|(_, rank)| *rank).collect();
        ranks.sort_unstable();
        ranks
    };
    let (early, late) = first.ranks.split_at(before);
    let (early, late, time) = (names(early), names(late), later(0, gap));
    let Arrivals { number, what, .. } = first;
    Some(format!("{} {} come to collective {number}, {what}, {time} after {}", ranks(&late), has(&late), ranks(&early)))
}
