//! Teams: which there are, and who is in them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::circle::Circle;
use super::plan::MAX_TEAMS;
use crate::lock::lock;
use crate::nvshmem::basics::entry::{Outcome, wrong};
use crate::nvshmem::basics::environment::number;
use crate::settings::settings;
use crate::sys::{NVSHMEM_TEAM_INVALID, nvshmem_team_config_t};

/// Those that are there from the start: the world, those who share memory, a node, those of the same number on their nodes, two that
/// the library needs for itself, and those who share multicast memory.
pub(crate) const PREDEFINED: usize = 7;
/// The two that are no program's.
const INTERNAL: [usize; 2] = [4, 5];

/// A team.
#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) circle: Circle,
    pub(crate) config: nvshmem_team_config_t,
}

impl Team {
    pub(crate) fn size(&self) -> usize {
        self.circle.members.len()
    }

    pub(crate) fn number(&self) -> usize {
        self.circle.slot
    }
}

/// All teams that this PE is in.
#[derive(Debug)]
pub(crate) struct Teams {
    all: Mutex<Vec<Option<Arc<Team>>>>,
    /// How many the library has made of each, where switches work; under a number that no team has, those that it has not ended.
    copies: Mutex<BTreeMap<usize, usize>>,
}

impl Teams {
    /// At most so many at once.
    pub(crate) fn new(most: usize) -> Self {
        Self { all: Mutex::new(vec![None; most.clamp(PREDEFINED, MAX_TEAMS)]), copies: Mutex::default() }
    }

    /// The team behind a handle.
    pub(crate) fn get(&self, handle: i32) -> Outcome<Arc<Team>> {
        let all = lock(&self.all);
        let team = usize::try_from(handle).ok().filter(|number| !INTERNAL.contains(number));
        team.and_then(|number| all.get(number).cloned().flatten()).ok_or_else(|| {
            wrong(if handle == NVSHMEM_TEAM_INVALID {
                "the team is NVSHMEM_TEAM_INVALID, expected one that this PE is in".to_owned()
            } else {
                format!("{handle} is no team of this PE: it was destroyed, or this PE was never in it")
            })
        })
    }

    /// Puts a team in its place.
    pub(crate) fn put(&self, team: Team) -> Arc<Team> {
        let team = Arc::new(team);
        lock(&self.all)[team.number()] = Some(team.clone());
        team
    }

    /// Makes the teams that go with one for which switches work: one for each block. Whether there is room for them.
    pub(crate) fn multiply(&self, slot: usize) -> bool {
        if settings().nvshmem < 3_05_00 {
            return true;
        }
        let all = lock(&self.all);
        let mut copies = lock(&self.copies);
        let more = number("NVSHMEM_MAX_CTAS").unwrap_or(16).max(1) - 1;
        copies.insert(slot, more);
        all.iter().flatten().count() + copies.values().sum::<usize>() < all.len()
    }

    /// Takes a team away.
    pub(crate) fn remove(&self, number: usize) -> Option<Arc<Team>> {
        let mut all = lock(&self.all);
        let mut copies = lock(&self.copies);
        if let Some(left) = copies.remove(&number).filter(|_| settings().nvshmem < 3_08_00) {
            *copies.entry(MAX_TEAMS).or_default() += left;
        }
        all.get_mut(number)?.take()
    }

    /// A bit for each number that no team of this PE has.
    pub(crate) fn free(&self) -> [u64; 2] {
        let all = lock(&self.all);
        let mut bits = [0; 2];
        if all.iter().flatten().count() + lock(&self.copies).values().sum::<usize>() >= all.len() {
            return bits;
        }
        let free = all.iter().enumerate().filter(|(number, team)| *number >= PREDEFINED && team.is_none());
        free.for_each(|(number, _)| bits[number / 64] |= 1 << (number % 64));
        bits
    }
}

/// The lowest number in all of these.
pub(crate) fn lowest(bits: impl IntoIterator<Item = [u64; 2]>) -> Option<usize> {
    let common = bits.into_iter().fold([u64::MAX; 2], |[a, b], [c, d]| [a & c, b & d]);
    let at = |word: usize| (common[word] != 0).then(|| 64 * word + common[word].trailing_zeros() as usize);
    at(0).or_else(|| at(1))
}
