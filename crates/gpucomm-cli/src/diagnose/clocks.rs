//! Clocks of hosts that do not agree.

use std::collections::{BTreeMap, BTreeSet};

use super::dump::Dump;
use super::words::later;

/// By less than so many nanoseconds clocks may differ, and ranks be late.
const NOTICED: i64 = 1_000_000_000;

/// In fewer operations who is late to all of them may be late by chance.
const FEWEST: usize = 3;

/// When the ranks of each host have come to one collective.
type Arrivals<'d> = BTreeMap<&'d str, Vec<u64>>;

/// Takes off the times of `dumps` by how much the clock of each host is ahead, by the collectives that its ranks have in common with others;
/// what is to be said of that. A clock is ahead where its ranks come late to all of them: one that is late comes late to the last ones.
pub fn align(dumps: &mut [Dump]) -> Vec<String> {
    let mut common: BTreeMap<(&str, u64), Arrivals<'_>> = BTreeMap::new();
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    for dump in dumps.iter() {
        let host = dump.place.0.as_str();
        *hosts.entry(host).or_default() += 1;
        for (number, entry) in dump.collectives() {
            common.entry((&dump.key, number)).or_default().entry(host).or_default().push(entry.time);
        }
    }
    let Some((&first, _)) = hosts.iter().max_by_key(|(host, count)| (**count, std::cmp::Reverse(**host))) else {
        return Vec::new();
    };
    let mut left: BTreeSet<&str> = hosts.into_keys().filter(|host| *host != first).collect();
    let (mut known, mut open) = (BTreeMap::from([(first.to_owned(), 0)]), vec![(first, 0)]);
    let mut told = Vec::new();
    while let Some((host, ahead)) = open.pop() {
        for other in left.clone() {
            let Some(more) = difference(&common, host, other) else { continue };
            left.remove(other);
            known.insert(other.to_owned(), ahead + more);
            open.push((other, ahead + more));
            if more != 0 {
                let (how, time) = (if more > 0 { "ahead of" } else { "behind" }, later(0, more.unsigned_abs()));
                told.push(format!(
                    "The clock of host {other} is {time} {how} that of host {host}, by the collectives that their ranks have in common, or these \
                     come to all of them so much apart; that is taken off the times here."
                ));
            }
        }
    }
    for dump in dumps {
        if let Some(ahead) = known.get(&dump.place.0).copied().filter(|ahead| *ahead != 0) {
            dump.set_back(ahead);
        }
    }
    told
}

/// By how much the clock of `other` is ahead of that of `host`; 0 where that is little, and `None` where it cannot be told.
fn difference(common: &BTreeMap<(&str, u64), Arrivals<'_>>, host: &str, other: &str) -> Option<i64> {
    let both =
        common.values().filter_map(|arrivals| Some((median(arrivals.get(host)?)?, median(arrivals.get(other)?)?)));
    let apart = |(one, two): (u64, u64)| i64::try_from(i128::from(two) - i128::from(one)).unwrap_or(0);
    let mut all: Vec<_> = both.map(apart).map(|apart| apart.clamp(i64::MIN / 4, i64::MAX / 4)).collect();
    all.sort_unstable();
    let (&least, &most) = all.first().zip(all.last()).filter(|_| all.len() >= FEWEST)?;
    let is_apart = least > NOTICED || most < -NOTICED;
    Some(if is_apart { all[all.len() / 2] } else { 0 })
}

fn median(times: &[u64]) -> Option<u64> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}
