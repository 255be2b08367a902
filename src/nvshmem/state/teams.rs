//! The teams of a context: what all handles of one share, and which were dropped and wait for their members to destroy them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::block_teams::given_back;
use super::lateness::Last;
use super::order::Order;
use super::wait_state::Awaited;
use crate::error::Result;
use crate::lock::{Mutex, MutexGuard};
use crate::sys;

/// Teams that can be destroyed in one meeting of all PEs.
pub(crate) const AT_ONCE: usize = 8;

/// One team, for all of its handles on this PE.
pub(crate) struct TeamState {
    pub(crate) raw: sys::nvshmem_team_t,
    /// The same on all members, and another one for each team that there is at a time. Not 0.
    pub(crate) key: u64,
    /// This PE's place in it.
    pub(crate) pe: usize,
    /// Its members, by their places.
    pub(crate) members: Arc<[usize]>,
    /// It does one thing at a time, on whatever streams.
    pub(crate) order: Arc<Order>,
    /// Whether it shares what it works with: for what all PEs do, the library uses the team of the node and that of the same PEs of all nodes as well.
    pub(crate) beside_world: bool,
    /// Whether switches add up and spread data for it (NVLS).
    pub(crate) multicast: bool,
    /// Whether it was made by an id, and not by a split.
    pub(crate) by_id: bool,
    /// How many teams the library has made for it, where switches work.
    pub(crate) slots: usize,
    /// Into how many blocks the library divides what is large, where switches work, since it has done so first.
    pub(crate) blocks: AtomicUsize,
    /// How many teams were made of it.
    pub(crate) children: AtomicU64,
    /// How often its members have met, and when this PE came there last.
    pub(crate) meetings: AtomicU64,
    pub(crate) met: Last,
}

impl TeamState {
    pub(crate) fn new(raw: sys::nvshmem_team_t, key: u64, pe: usize, members: Arc<[usize]>, order: Arc<Order>) -> Self {
        Self {
            raw,
            key,
            pe,
            members,
            order,
            beside_world: false,
            multicast: false,
            by_id: false,
            slots: 1,
            blocks: AtomicUsize::new(1),
            children: AtomicU64::new(0),
            meetings: AtomicU64::new(0),
            met: Last::default(),
        }
    }

    /// Returns the number of the next team that is made of it, the same on all members.
    pub(crate) fn next_child(&self) -> u64 {
        self.children.load(Ordering::Relaxed)
    }

    /// Counts a team of which all members have agreed that they make it. A split that fails before counts on no member.
    pub(crate) fn has_child(&self) {
        self.children.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of the meeting of its members that comes next, the same on all of them.
    pub(crate) fn next_meeting(&self) -> u64 {
        self.meetings.fetch_add(1, Ordering::Relaxed)
    }

    /// Its members, as those that have to come to a call.
    pub(crate) fn awaited(&self) -> Awaited {
        Awaited::Members(Arc::clone(&self.members))
    }

    /// How far its members are apart, where that is the same everywhere and they go up: how the library thinks of teams that it can split.
    pub(crate) fn stride(&self) -> Option<usize> {
        let mut gaps = self.members.windows(2).map(|two| two[1].checked_sub(two[0]).filter(|gap| *gap > 0));
        let Some(first) = gaps.next() else { return Some(1) };
        first.filter(|gap| gaps.all(|other| other == Some(*gap)))
    }
}

/// What of several numbers is a key: spread over all of 64 bits, and not 0.
pub(crate) fn key(parts: &[u64]) -> u64 {
    let mix = |key: u64, part: &u64| {
        // The finisher of splitmix64, a bijection.
        let mut z = (key ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    parts.iter().fold(parts.len() as u64, mix).max(1)
}

/// All teams that this PE is in.
#[derive(Default)]
pub(crate) struct Teams {
    all: Mutex<All>,
    /// The least key that the next meeting looks at, the same on all PEs.
    next: AtomicU64,
}

#[derive(Default)]
struct All {
    /// Those of the library, by their numbers.
    kept: BTreeMap<sys::nvshmem_team_t, Arc<TeamState>>,
    /// Those that were made, by their keys.
    made: BTreeMap<u64, Made>,
    /// The ids of which teams were made, on this PE or on others: all PEs know the same ones.
    #[cfg_attr(not(nvshmem_ge_3_3), allow(dead_code))]
    ids: BTreeSet<u64>,
    /// Those that the library has made for blocks, which it ends with the context.
    blocks: usize,
    /// Those that it does not end with the team that it has made them for.
    left: usize,
}

struct Made {
    raw: sys::nvshmem_team_t,
    members: Arc<[usize]>,
    #[cfg_attr(not(nvshmem_ge_3_3), allow(dead_code))]
    by_id: bool,
    order: Arc<Order>,
    slots: usize,
    dropped: bool,
}

impl Made {
    /// Whether nothing uses it any more: neither a handle, nor work, nor a graph.
    fn is_free(&self) -> Result<bool> {
        Ok(self.dropped && Arc::strong_count(&self.order) == 1 && self.order.is_done()?)
    }
}

impl Teams {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock()
    }

    /// One that the library keeps, which `make` looks at the first time.
    pub(crate) fn kept(
        &self,
        raw: sys::nvshmem_team_t,
        make: impl FnOnce() -> Result<TeamState>,
    ) -> Result<Arc<TeamState>> {
        if let Some(team) = self.all().kept.get(&raw) {
            return Ok(Arc::clone(team));
        }
        let team = Arc::new(make()?);
        self.all().kept.insert(raw, Arc::clone(&team));
        Ok(team)
    }

    /// One that was made.
    pub(crate) fn add(&self, team: &TeamState) {
        let (raw, by_id, order) = (team.raw, team.by_id, Arc::clone(&team.order));
        let made = Made { raw, members: team.members.clone(), by_id, order, slots: team.slots, dropped: false };
        self.all().made.insert(team.key, made);
    }

    /// Its handle is gone.
    pub(crate) fn put(&self, key: u64) {
        if let Some(team) = self.all().made.get_mut(&key) {
            team.dropped = true;
        }
    }

    /// Returns the keys of the teams that can be destroyed as far as this PE is concerned.
    pub(crate) fn free(&self) -> Result<Vec<u64>> {
        let mut keys = Vec::new();
        for (key, team) in &self.all().made {
            if team.is_free()? {
                keys.push(*key);
            }
        }
        Ok(keys)
    }

    /// Returns the keys of up to [`AT_ONCE`] teams that can be destroyed as far as this PE is concerned, in their order. Each meeting
    /// goes on where the one before has ended, so that every key which all PEs have comes within one round.
    pub(crate) fn to_destroy(&self) -> Result<Vec<u64>> {
        let next = self.next.load(Ordering::Relaxed);
        let mut keys: Vec<u64> = self.free()?.into_iter().filter(|key| *key >= next).collect();
        keys.sort_unstable();
        keys.truncate(AT_ONCE);
        Ok(keys)
    }

    /// Records which keys each PE has said in a meeting, zeros where it has no more. The next one goes on behind the key up to which
    /// all of them have said theirs.
    pub(crate) fn have_said<'k>(&self, said: impl Iterator<Item = &'k [u64]>) {
        let up_to =
            |keys: &[u64]| if keys.contains(&0) { u64::MAX } else { keys.iter().copied().max().unwrap_or(u64::MAX) };
        let up_to = said.map(up_to).min().unwrap_or(u64::MAX);
        self.next.store(up_to.wrapping_add(1), Ordering::Relaxed);
    }

    /// Takes a team that is to be destroyed, where that is so for as many PEs as it has members.
    pub(crate) fn take(&self, key: u64, count: usize) -> Option<sys::nvshmem_team_t> {
        let mut all = self.all();
        let all_members = all.made.get(&key).is_some_and(|team| team.members.len() == count);
        let team = if all_members { all.made.remove(&key)? } else { return None };
        if !given_back() {
            all.left += team.slots - 1;
        }
        Some(team.raw)
    }

    /// Returns how many of those that were made are not destroyed.
    pub(crate) fn held(&self) -> usize {
        self.all().made.len()
    }

    /// How many that were made and have not been dropped.
    pub(crate) fn live(&self) -> usize {
        self.all().made.values().filter(|team| !team.dropped).count()
    }

    /// The library has made so many teams for itself.
    pub(crate) fn grow(&self, count: usize) {
        self.all().blocks += count;
    }

    /// The most teams that the library may have, beside those that it keeps: it makes up to two of its own for each.
    pub(crate) fn most(&self) -> usize {
        let all = self.all();
        let made: usize = all.made.values().map(|team| team.slots.max(3)).sum();
        made + 3 * all.blocks + all.left
    }

    /// Whether all work of all teams is done.
    pub(crate) fn are_done(&self) -> Result<bool> {
        let all = self.all();
        let orders = all.kept.values().map(|team| &team.order).chain(all.made.values().map(|team| &team.order));
        let mut done = true;
        for order in orders {
            done &= order.is_done()?;
        }
        Ok(done)
    }

    /// Whether a team was made with this id.
    #[cfg(nvshmem_ge_3_3)]
    pub(crate) fn has_used(&self, id: u64) -> bool {
        self.all().ids.contains(&id)
    }

    /// Teams are made with these ids.
    #[cfg(nvshmem_ge_3_3)]
    pub(crate) fn uses(&self, ids: impl IntoIterator<Item = u64>) {
        self.all().ids.extend(ids);
    }

    /// Whether there is another team made by an id that differs from one with these members in where it lies only: the library takes the two for one then.
    #[cfg(nvshmem_ge_3_3)]
    pub(crate) fn has_twin(&self, members: &[usize]) -> bool {
        let gap = |pes: &[usize]| pes.get(1).and_then(|second| second.checked_sub(pes[0]));
        self.all().made.values().any(|team| {
            let alike = team.members.len() == members.len() && gap(&team.members) == gap(members);
            team.by_id && alike && *team.members != *members
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team(members: &[usize]) -> TeamState {
        TeamState::new(7, key(&[members.len() as u64, members[0] as u64]), 0, members.into(), Order::new())
    }

    #[test]
    fn only_members_at_equal_distances_that_go_up_have_a_stride() {
        let strides: Vec<_> = [&[3][..], &[0, 1, 2], &[1, 4, 7], &[0, 1, 3], &[2, 1, 0], &[4, 4]]
            .map(|members| team(members).stride())
            .into();
        assert_eq!(strides, [Some(1), Some(1), Some(3), None, None, None]);
    }

    #[test]
    fn a_team_goes_where_all_of_its_members_have_dropped_it() {
        let teams = Teams::default();
        let made = team(&[0, 2]);
        let (key, raw) = (made.key, made.raw);
        teams.add(&made);
        assert_eq!((teams.live(), teams.to_destroy().unwrap()), (1, vec![]));
        teams.put(key);
        // What is left of it might still begin something.
        assert_eq!(teams.to_destroy().unwrap(), []);
        drop(made);
        assert_eq!((teams.live(), teams.to_destroy().unwrap()), (0, vec![key]));
        assert_eq!(teams.take(key, 1), None);
        assert_eq!(teams.take(key, 2), Some(raw));
        assert_eq!(teams.take(key, 2), None);
    }

    #[test]
    fn of_many_teams_all_come_by_turns() {
        let teams = Teams::default();
        let made: Vec<_> = (0..40).map(|first| team(&[first, first + 1])).collect();
        for one in &made {
            teams.add(one);
            teams.put(one.key);
        }
        let made_keys: Vec<u64> = made.iter().map(|one| one.key).collect();
        drop(made);
        // Another PE has some more, of which none is free here.
        let mut others: Vec<u64> = (100..130).map(|other| key(&[other])).chain(made_keys.iter().copied()).collect();
        others.sort_unstable();
        let (mut seen, mut next) = (std::collections::BTreeSet::new(), 0);
        for _ in 0..2 * (others.len() / AT_ONCE + 1) {
            let said = |mut keys: Vec<u64>| {
                keys.resize(AT_ONCE, 0);
                keys
            };
            let own = said(teams.to_destroy().unwrap());
            let other = said(others.iter().copied().filter(|key| *key >= next).take(AT_ONCE).collect());
            seen.extend(own.iter().copied().filter(|key| *key != 0 && other.contains(key)));
            teams.have_said([&own[..], &other].into_iter());
            next = teams.next.load(Ordering::Relaxed);
        }
        assert_eq!(seen.len(), 40);
    }
}
