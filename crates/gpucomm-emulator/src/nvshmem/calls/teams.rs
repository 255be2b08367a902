//! Teams: made, asked about, destroyed.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::meet::futex::SLICE;
use crate::meet::watch::{Deed as _, Phase, Watch};
use crate::nvshmem::basics::Kind;
use crate::nvshmem::basics::{Failed, Outcome, refused, wrong};
use crate::nvshmem::state::boot::Activity;
use crate::nvshmem::state::boot::own_part;
use crate::nvshmem::state::life;
use crate::nvshmem::state::pe::{Pe, config as initial};
use crate::nvshmem::state::team::Group;
use crate::nvshmem::state::team::{PREDEFINED, Team, lowest};
use crate::sys::*;

/// A number that no two teams have at once.
fn random() -> u64 {
    // The standard library seeds each of these from the system's randomness.
    RandomState::new().build_hasher().finish() | 1
}

/// Part of it that tells groups apart.
fn tag(number: u64) -> u32 {
    (number >> 32) as u32 | 0x100
}

/// `nvshmem_team_my_pe`: of no team, -1.
pub(crate) fn my_pe(team: i32) -> Outcome<i32> {
    if team == NVSHMEM_TEAM_INVALID { Ok(-1) } else { Ok(life::pe()?.teams.get(team)?.group.me as i32) }
}

/// `nvshmem_team_n_pes`: of no team, -1.
pub(crate) fn n_pes(team: i32) -> Outcome<i32> {
    if team == NVSHMEM_TEAM_INVALID { Ok(-1) } else { Ok(life::pe()?.teams.get(team)?.size() as i32) }
}

/// `nvshmem_team_get_config`.
pub(crate) fn config(team: i32) -> Outcome<nvshmem_team_config_t> {
    Ok(life::pe()?.teams.get(team)?.config)
}

/// `nvshmem_team_translate_pe`: -1 where that PE is not in the other team.
pub(crate) fn translate(from: i32, pe: i32, to: i32) -> Outcome<i32> {
    if from == NVSHMEM_TEAM_INVALID || to == NVSHMEM_TEAM_INVALID {
        return Ok(-1);
    }
    let this = life::pe()?;
    let (from, to) = (this.teams.get(from)?, this.teams.get(to)?);
    let found = usize::try_from(pe).ok().and_then(|pe| from.group.members.get(pe)).ok_or_else(|| {
        wrong(format!(
            "PE {pe} of team {}, which has {}: NVSHMEM reads beyond the end of a table",
            from.number(),
            from.size()
        ))
    })?;
    Ok(to.group.members.iter().position(|other| other == found).map_or(-1, |at| at as i32))
}

/// What a config asks for, or the team that it is split off where there is none.
fn config_of(config: Option<&nvshmem_team_config_t>, parent: &Team) -> nvshmem_team_config_t {
    config.copied().unwrap_or(nvshmem_team_config_t { uniqueid: parent.config.uniqueid, ..initial() })
}

/// `nvshmem_team_split_strided`: all members of `parent` call it; the team, for those that are in it.
pub(crate) fn split(
    parent: i32,
    (start, stride, size): (i32, i32, i32),
    config: Option<&nvshmem_team_config_t>,
) -> Outcome<i32> {
    let pe = life::pe()?;
    pe.refuse_limited()?;
    if parent == NVSHMEM_TEAM_INVALID {
        return Err(Failed(1));
    }
    let parent = pe.teams.get(parent)?;
    split_off(&pe, &parent, (start, stride, size), config)
}

fn split_off(
    pe: &Arc<Pe>,
    parent: &Team,
    (start, stride, size): (i32, i32, i32),
    config: Option<&nvshmem_team_config_t>,
) -> Outcome<i32> {
    let all = parent.size() as i32;
    let last = i64::from(start) + i64::from(stride) * (i64::from(size) - 1);
    let fits = (0..all).contains(&start) && stride >= 1 && (1..=all).contains(&size) && last < i64::from(all);
    pe.quiesce();
    // As the library, which waits for the whole device.
    pe.device.synchronize();
    let free = pe.teams.free();
    let words = [start, stride, size].map(|word| u64::from(word.cast_unsigned()));
    let words = [words[0], words[1], words[2], free[0], free[1], random()];
    let activity = Activity { kind: Kind::Split, team: 0, number: 0, bytes: 0 };
    let turn = parent.group.meet(&pe.boot, activity, &words, None)?;
    for (at, what) in [(1, "start"), (2, "stride"), (3, "size")] {
        turn.same(at, what)?;
    }
    if !fits {
        turn.end()?;
        let text = format!("PEs from {start} on, {stride} apart, {size} of them: team {} has {all}", parent.number());
        return Err(refused(NVSHMEMX_ERROR_INVALID_VALUE, text));
    }
    let chosen: Vec<usize> = (0..size as usize).map(|at| start as usize + at * stride as usize).collect();
    let slot = lowest(chosen.iter().map(|&at| [turn.shown[at][4], turn.shown[at][5]]));
    let tag = tag(turn.shown[chosen[0]][6]);
    turn.end()?;
    let Some(slot) = slot else { return Err(exhausted()) };
    let Some(mine) = chosen.iter().position(|&at| at == parent.group.me) else { return Ok(NVSHMEM_TEAM_INVALID) };
    let members: Vec<usize> = chosen.iter().map(|&at| parent.group.members[at]).collect();
    multiply(pe, slot, &members)?;
    let group = Group::new(slot, tag, mine, members);
    pe.teams.put(Team { group, config: config_of(config, parent) });
    Ok(slot as i32)
}

/// Makes the teams that go with one for which switches work.
fn multiply(pe: &Pe, slot: usize, members: &[usize]) -> Outcome {
    if pe.switches(members) && !pe.teams.multiply(slot) {
        return Err(wrong(
            "there is no room for a team for each block of its collectives by switches, and NVSHMEM ends the process: NVSHMEM_MAX_TEAMS allows more",
        ));
    }
    Ok(())
}

fn exhausted() -> Failed {
    refused(NVSHMEMX_ERROR_INTERNAL, "there are as many teams as NVSHMEM_MAX_TEAMS allows")
}

/// `nvshmem_team_split_2d`: the teams along both axes that this PE is in.
pub(crate) fn split_2d(parent: i32, xrange: i32, configs: [Option<&nvshmem_team_config_t>; 2]) -> Outcome<[i32; 2]> {
    let pe = life::pe()?;
    pe.refuse_limited()?;
    if parent == NVSHMEM_TEAM_INVALID {
        return Err(Failed(1));
    }
    let parent = pe.teams.get(parent)?;
    let size = parent.size() as i32;
    if xrange < 1 {
        return Err(wrong(format!("the x axis has {xrange} PEs, by which NVSHMEM divides: expected 1 or more")));
    }
    let xrange = xrange.min(size);
    let mut made = [NVSHMEM_TEAM_INVALID; 2];
    let (rows, rest) = (size.div_euclid(xrange) + i32::from(size % xrange != 0), size % xrange);
    for row in 0..rows {
        let length = if row == rows - 1 && rest != 0 { rest } else { xrange };
        let team = split_off(&pe, &parent, (row * xrange, 1, length), configs[0]);
        made[0] = made[0].max(team.unwrap_or(NVSHMEM_TEAM_INVALID));
    }
    for column in 0..xrange {
        let length = size / xrange + i32::from(column < rest);
        let team = split_off(&pe, &parent, (column, xrange, length), configs[1]);
        made[1] = made[1].max(team.unwrap_or(NVSHMEM_TEAM_INVALID));
    }
    // As the library: whatever has failed, the status says nothing.
    Ok(made)
}

/// `nvshmem_team_destroy`.
pub(crate) fn destroy(team: i32) -> Outcome {
    let pe = life::pe()?;
    if team == NVSHMEM_TEAM_INVALID {
        return Ok(());
    }
    let team = pe.teams.get(team)?;
    if team.number() < PREDEFINED {
        return Err(wrong(format!("team {} is there from the start, and NVSHMEM ends the process", team.number())));
    }
    pe.teams.remove(team.number());
    // Beside the handle here.
    if Arc::strong_count(&team) > 1 {
        return Err(wrong(format!(
            "team {} is destroyed while work that is queued or in a graph uses it",
            team.number()
        )));
    }
    // As the library, which waits for the whole device.
    pe.device.synchronize();
    Ok(())
}

/// `nvshmemx_team_get_uniqueid`.
pub(crate) fn unique_id() -> Outcome<u64> {
    life::pe()?.refuse_limited()?;
    Ok(random())
}

/// What a PE shows of a team that it makes: the id, how many there are and which it is, which numbers it has free, and that others have seen that.
const ID: usize = 0;
const PLACE: usize = 1;
const FREE: usize = 2;
const SEEN: usize = 4;

/// `nvshmemx_team_init`: those that have the id make a team, of which this PE is number `index`.
pub(crate) fn init(config: &nvshmem_team_config_t, size: i32, index: i32) -> Outcome<i32> {
    let pe = life::pe()?;
    pe.refuse_limited()?;
    let id = config.uniqueid;
    if config.version >> 16 < 2 {
        return Err(refused(NVSHMEMX_ERROR_INVALID_VALUE, "the config is of version 1, expected 2"));
    }
    if id == u64::MAX || id == 0 {
        return Err(refused(NVSHMEMX_ERROR_INVALID_VALUE, "the config has no unique id"));
    }
    let count = usize::try_from(size).ok().filter(|size| (1..=pe.size()).contains(size));
    let (Some(count), true) = (count, index >= 0 && index < size) else {
        return Err(wrong(format!(
            "PE {index} of {size}, expected 0 to one less than that, and at most {} PEs",
            pe.size()
        )));
    };
    pe.quiesce();
    // As the library, which waits for the whole device.
    pe.device.synchronize();
    let segment = &pe.boot.segment;
    let mine = &own_part(segment, pe.me()).join;
    let set = |at: usize, word: u64| mine[at].store(word, Ordering::Release);
    let free = pe.teams.free();
    set(SEEN, 0);
    set(FREE, free[0]);
    set(FREE + 1, free[1]);
    set(PLACE, u64::from(size.cast_unsigned()) << 32 | u64::from(index.cast_unsigned()));
    set(ID, id);
    segment.head().news.ring();
    let load = |pe: usize, at: usize| own_part(segment, pe).join[at].load(Ordering::Acquire);
    let here = || -> Vec<usize> { (0..pe.size()).filter(|&other| load(other, ID) == id).collect() };
    let activity = Activity { kind: Kind::TeamInit, team: 0, number: id, bytes: 0 };
    wait(&pe, activity, || here().len() >= count);
    let all = here();
    let bits = all.iter().map(|&other| [load(other, FREE), load(other, FREE + 1)]);
    let slot = lowest(bits);
    let mut members = vec![None; count];
    let mut fits = all.len() == count;
    for &other in &all {
        let place = load(other, PLACE);
        let at = place as u32 as usize;
        fits &= place >> 32 == count as u64 && members.get(at).is_some_and(Option::is_none);
        if let Some(member) = members.get_mut(at) {
            *member = Some(other);
        }
    }
    set(SEEN, id);
    segment.head().news.ring();
    // Nobody shows another team before all have seen this one.
    wait(&pe, activity, || all.iter().all(|&other| load(other, SEEN) == id || load(other, ID) != id));
    set(ID, 0);
    activity.publish(segment.rank(pe.me()), Phase::Done);
    let members: Option<Vec<usize>> = members.into_iter().collect();
    let Some(members) = members.filter(|_| fits) else {
        return Err(wrong(format!(
            "PEs {all:?} make the team of one id, and disagree about its size, or are there twice"
        )));
    };
    let Some(slot) = slot else { return Err(exhausted()) };
    multiply(&pe, slot, &members)?;
    let group = Group::new(slot, tag(id.rotate_left(32)), index as usize, members);
    let team = pe.teams.put(Team { group, config: *config });
    super::order::meet(&pe, &team, Kind::Sync, None)?;
    Ok(slot as i32)
}

fn wait(pe: &Pe, activity: Activity, done: impl Fn() -> bool) {
    let segment = &pe.boot.segment;
    let news = &segment.head().news;
    let mut watch = None;
    loop {
        let heard = news.read();
        if done() {
            return;
        }
        watch.get_or_insert_with(|| Watch::new(&*pe.boot, segment, activity, None)).check(|_| false);
        news.sleep(heard, SLICE);
    }
}
