//! What holds ranks up: who waits itself for another one, in this communicator or another, is not the one that keeps the others waiting.

use std::collections::{BTreeMap, BTreeSet};

use super::communicator::{Awaited, Communicator};
use super::dump::Dump;
use super::words::ranks;

/// What a rank did last is of one moment, by clocks that tick every few milliseconds.
const MOMENT: u64 = 20_000_000;

/// A communicator and a rank there, by their numbers.
type At = (usize, usize);

/// A wait, and in which communicator that is.
struct Hold {
    there: usize,
    awaited: Awaited,
}

/// Who waits for whom. Who is driven by one process on one device is one, in whichever communicators: the first of these stands for it.
pub struct Holds<'c> {
    all: &'c [Communicator],
    names: BTreeMap<At, At>,
    holds: BTreeMap<At, Hold>,
    held: BTreeSet<At>,
}

impl<'c> Holds<'c> {
    pub fn of(all: &'c [Communicator]) -> Self {
        let mut places: BTreeMap<_, Vec<(usize, &Dump)>> = BTreeMap::new();
        for (at, one) in all.iter().enumerate() {
            one.dumps().for_each(|dump| places.entry(&dump.place).or_default().push((at, dump)));
        }
        let name = |here: &[(usize, &Dump)]| (here[0].0, here[0].1.rank);
        let names = places.values().flat_map(|here| here.iter().map(|(at, dump)| ((*at, dump.rank), name(here))));
        let holds = places.values().filter_map(|here| Some((name(here), hold(all, here)?)));
        let mut holds = Self { all, names: names.collect(), holds: holds.collect(), held: BTreeSet::new() };
        // Who waits for nobody that is to blame in what others have come to does not wait.
        let held = holds.of_roots();
        holds.holds.retain(|one, hold| !hold.awaited.has_met || held.contains(one));
        holds.held = holds.of_roots();
        let of_circles = holds.of_circles();
        holds.held.extend(of_circles);
        holds
    }

    fn name(&self, at: At) -> At {
        self.names.get(&at).copied().unwrap_or(at)
    }

    /// For whom one waits.
    fn others(&self, one: At) -> impl Iterator<Item = At> {
        let hold = self.holds.get(&one);
        hold.into_iter().flat_map(|hold| hold.awaited.others.iter().map(|other| self.name((hold.there, *other))))
    }

    /// Who waits at last for one that waits for nobody.
    fn of_roots(&self) -> BTreeSet<At> {
        let mut behind: BTreeMap<At, Vec<At>> = BTreeMap::new();
        for &one in self.holds.keys() {
            self.others(one).for_each(|other| behind.entry(other).or_default().push(one));
        }
        let mut open: Vec<_> = behind.keys().filter(|one| !self.holds.contains_key(one)).copied().collect();
        let mut held = BTreeSet::new();
        while let Some(one) = open.pop() {
            open.extend(behind.get(&one).into_iter().flatten().filter(|one| held.insert(**one)));
        }
        held
    }

    /// Of the others, who all come to circles, those who wait for one that they are not in.
    fn of_circles(&self) -> Vec<At> {
        let left = self.holds.keys().filter(|one| !self.held.contains(one));
        let reached: BTreeMap<_, _> = left.map(|one| (*one, self.reached(*one))).collect();
        let leads_into = |(one, all): &(&At, &BTreeSet<At>)| {
            all.iter().any(|other| reached.get(other).is_some_and(|back| !back.contains(one)))
        };
        reached.iter().filter(leads_into).map(|(one, _)| *one).collect()
    }

    /// All for whom one waits, directly or by way of others.
    fn reached(&self, one: At) -> BTreeSet<At> {
        let (mut open, mut all) = (vec![one], BTreeSet::new());
        while let Some(one) = open.pop() {
            open.extend(self.others(one).filter(|other| all.insert(*other)));
        }
        all
    }
}

/// What one waits in that has these dumps, if that is what it did last.
fn hold(all: &[Communicator], here: &[(usize, &Dump)]) -> Option<Hold> {
    let last = here.iter().map(|(_, dump)| last_of(dump)).max()?;
    let mut recent: Vec<_> = here.iter().filter(|(_, dump)| last_of(dump).saturating_add(MOMENT) >= last).collect();
    recent.sort_by_key(|(_, dump)| u64::MAX - last_of(dump));
    recent.into_iter().find_map(|&(there, dump)| Some(Hold { there, awaited: all[there].awaited(dump)? }))
}

/// When a rank did something last.
fn last_of(dump: &Dump) -> u64 {
    let last = dump.entries.last().map_or(0, |entry| entry.time);
    // It waits at the time of its dump.
    if dump.compares.is_some() { dump.time } else { last }
}

/// One communicator among all.
#[derive(Clone, Copy)]
pub struct View<'c> {
    holds: &'c Holds<'c>,
    at: usize,
}

impl<'c> View<'c> {
    pub fn of(holds: &'c Holds<'c>, at: usize) -> Self {
        Self { holds, at }
    }

    /// Whether `rank` waits for others, who wait at last for one that does not wait for it, or has left no dump.
    pub fn is_held(&self, rank: usize) -> bool {
        self.holds.held.contains(&self.holds.name((self.at, rank)))
    }

    fn hold(&self, rank: usize) -> Option<&'c Hold> {
        self.holds.holds.get(&self.holds.name((self.at, rank)))
    }

    /// What `rank` waits in itself, in words.
    pub fn reason(&self, rank: usize) -> Option<String> {
        let Hold { there, awaited } = self.hold(rank)?;
        let (what, others) = (&awaited.what, ranks(&awaited.others));
        if *there == self.at {
            return Some(format!("rank {rank} waits for {others} itself, in {what}"));
        }
        let (all, there) = (self.holds.all, &self.holds.all[*there]);
        let own = there.dump_at(&all[self.at].dump(rank)?.place)?.rank;
        Some(format!("rank {rank} is rank {own} of {} and waits for {others} there, in {what}", there.name()))
    }

    /// Ranks of this communicator that wait for each other's messages in a circle in which `rank` is, from that on.
    pub fn circle(&self, rank: usize) -> Option<Vec<usize>> {
        let mut circle = vec![rank];
        loop {
            let hold = self.hold(*circle.last()?).filter(|hold| hold.awaited.in_message && hold.there == self.at)?;
            let next = *hold.awaited.others.first()?;
            if next == rank {
                return Some(circle);
            }
            if circle.contains(&next) {
                return None;
            }
            circle.push(next);
        }
    }
}
