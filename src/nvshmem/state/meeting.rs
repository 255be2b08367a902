//! Where all PEs come together: they say what they are about to do, compare it, and free what all of them have dropped.

use std::sync::atomic::Ordering;

use super::board::{WORDS, Words};
use super::inner::Inner;
use super::say::TIMEOUT;
use super::teams::{AT_ONCE as TEAMS, TeamState};
use super::watchdog::Awaited;
use crate::cuda::{Busy, Quiet};
use crate::error::{Error, Result};
use crate::sys;

/// Words of what a PE is about to do: which operation, and up to six numbers that all have to have in common.
const PLAN: usize = 8;

/// Where it says whether it can do that.
const ABLE: usize = PLAN;

/// Behind that, a bit for each block: whether it can be freed.
const BITS: usize = PLAN + 1;

/// And behind these the teams that can be destroyed, by their keys.
const KEYS: usize = TIMEOUT - TEAMS;

/// What PEs can say beside, before them.
#[cfg(nvshmem_ge_3_3)]
pub(crate) const EXTRA: usize = 4;

/// Blocks that are looked at in one meeting.
const AT_ONCE: usize = (KEYS - BITS) * 64;

/// What PEs do together, in numbers that all must have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) operation: &'static str,
    /// A number of its own for each kind of meeting.
    pub(crate) kind: Kind,
    /// What it is about, in words of [`Plan::explain`].
    pub(crate) numbers: [u64; 6],
    /// How to say them.
    pub(crate) explain: fn(&[u64; 6]) -> String,
    /// Whether this PE can do it.
    pub(crate) able: bool,
}

/// What a meeting is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
#[cfg_attr(not(nvshmem_ge_3_8), allow(dead_code))]
pub(crate) enum Kind {
    Alloc = 1,
    Settle,
    Reclaim,
    Finalize,
    Split,
    TeamInit,
    Blocks,
    QueuePairs,
}

impl Kind {
    fn name(number: u64) -> &'static str {
        const NAMES: [&str; 8] = [
            "an allocation",
            "the end of an allocation",
            "a reclaim",
            "a finalize",
            "a split of a team",
            "a start of a team",
            "a division",
            "queue pairs",
        ];
        usize::try_from(number)
            .ok()
            .and_then(|at| at.checked_sub(1))
            .and_then(|at| NAMES.get(at))
            .unwrap_or(&"something else")
    }
}

impl Plan {
    pub(crate) fn new(operation: &'static str, kind: Kind) -> Self {
        Self { operation, kind, numbers: [0; 6], explain: |_| String::new(), able: true }
    }

    fn words(&self) -> Words {
        let mut words = [0; WORDS];
        words[0] = self.kind as u64;
        words[1..7].copy_from_slice(&self.numbers);
        words[ABLE] = u64::from(self.able);
        words
    }

    fn said(&self, words: &Words) -> String {
        let name = Kind::name(words[0]);
        if words[0] != self.kind as u64 {
            return name.to_owned();
        }
        let numbers = words[1..7].try_into().expect("there are six");
        let what = (self.explain)(&numbers);
        if what.is_empty() { name.to_owned() } else { format!("{name} of {what}") }
    }

    /// Of `pes`, who have `said` that, the first one that says something else than most.
    fn compare(&self, said: &[Words], pes: &[usize]) -> Result<()> {
        let plan = |words: &Words| -> [u64; PLAN] { words[..PLAN].try_into().expect("it is shorter") };
        let votes = |at: &usize| said.iter().filter(|other| plan(other) == plan(&said[*at])).count();
        // Of several with as many, that of the lowest PE, which comes last here.
        let peer = (0..said.len()).rev().max_by_key(votes).unwrap_or(0);
        match said.iter().position(|words| plan(words) != plan(&said[peer])) {
            None => Ok(()),
            Some(rank) => Err(Error::Disagreement {
                operation: self.operation,
                rank: pes[rank],
                peer: pes[peer],
                expected: self.said_beside(&said[peer], &said[rank]),
                got: self.said_beside(&said[rank], &said[peer]),
                departed: false,
                in_part: false,
            }),
        }
    }

    /// What one has said, with all numbers where the words do not tell it from what an `other` has.
    fn said_beside(&self, words: &Words, other: &Words) -> String {
        let what = self.said(words);
        if what == self.said(other) { format!("{what} with the numbers {:?}", &words[1..7]) } else { what }
    }
}

impl Inner {
    /// Comes together with all other PEs, for `plan`: compares it, and frees what all have dropped. The PEs that are not able to do it.
    ///
    /// # Errors
    /// [`Error::Disagreement`] where they are there for different things: all are told, and nothing was done. Any other is the end of the context.
    pub(crate) fn meet(&self, plan: &Plan) -> Result<Vec<usize>> {
        let said = self.meet_for(plan, &[])?;
        Ok(unable(&said, &(0..self.n_pes).collect::<Vec<_>>()))
    }

    /// The same, where each PE has something to say that is not compared: what each of them has said.
    #[cfg(nvshmem_ge_3_3)]
    pub(crate) fn meet_with(&self, plan: &Plan, extra: &[u64; EXTRA]) -> Result<Vec<[u64; EXTRA]>> {
        let said = self.meet_for(plan, extra)?;
        Ok(said.iter().map(|words| words[KEYS - EXTRA..KEYS].try_into().expect("there are as many")).collect())
    }

    fn meet_for(&self, plan: &Plan, extra: &[u64]) -> Result<Vec<Words>> {
        let operation = plan.operation;
        // What all have dropped is freed here, which waits for the whole device.
        Quiet::check(operation, &[self.device])?;
        // What is said besides takes the place of bits.
        let most = if extra.is_empty() { AT_ONCE } else { 0 };
        let (list, from) = self.dropped_window(most)?;
        let mut words = plan.words();
        for (at, (_, free)) in list.iter().enumerate() {
            words[BITS + at / 64] |= u64::from(*free) << (at % 64);
        }
        words[KEYS - extra.len()..KEYS].copy_from_slice(extra);
        let mut keys = self.teams.to_destroy(self.board.rounds())?;
        // The library waits for the whole device where it destroys a team: that is left to another meeting while the device is busy.
        if !keys.is_empty() && !Busy::with(&[self.device]).is_over() {
            keys.clear();
        }
        words[KEYS..KEYS + keys.len()].copy_from_slice(&keys);
        let said = self.say(operation, &words)?;
        plan.compare(&said, &(0..self.n_pes).collect::<Vec<_>>())?;
        self.destroy_dropped(operation, &said)?;
        let mut freed = 0;
        for (at, (number, _)) in list.iter().enumerate() {
            let all = said.iter().all(|words| words[BITS + at / 64] >> (at % 64) & 1 == 1);
            if all {
                self.free(operation, *number)?;
                freed += 1;
            }
        }
        self.left.end(self, operation);
        let (blocks, _) = self.dropped.held();
        let next = from + list.len() - freed;
        self.cursor.0.store(if next >= blocks { 0 } else { next }, Ordering::Relaxed);
        Ok(said)
    }

    /// The same among the members of a team. Where these are all PEs, what all have dropped is freed.
    pub(crate) fn meet_in(&self, plan: &Plan, team: &TeamState) -> Result<Vec<usize>> {
        if team.members.len() == self.n_pes {
            return self.meet(plan);
        }
        let said = self.say_in(plan.operation, &plan.words(), team)?;
        plan.compare(&said, &team.members)?;
        Ok(unable(&said, &team.members))
    }

    /// Wraps `nvshmem_team_destroy`: ends the teams that all of their members have dropped, in the order of their keys.
    fn destroy_dropped(&self, operation: &'static str, said: &[Words]) -> Result<()> {
        let mut keys: Vec<u64> = said[self.pe][KEYS..TIMEOUT].iter().copied().filter(|key| *key != 0).collect();
        keys.sort_unstable();
        for key in keys {
            let members = said.iter().filter(|words| words[KEYS..TIMEOUT].contains(&key)).count();
            let Some(team) = self.teams.take(key, members) else { continue };
            let destroyed = self.on_quiet_device(operation, &Awaited::All, || {
                // SAFETY: the team is there, and none of those that the library keeps. All members have dropped it, with their work done, and destroy
                // it now.
                unsafe { sys::nvshmem_team_destroy(team) };
            });
            // The others have done it.
            destroyed.inspect_err(|error| self.lose(error))?;
            self.watchdog.forget(key);
        }
        Ok(())
    }

    /// The blocks that this meeting looks at, at `most` so many.
    fn dropped_window(&self, most: usize) -> Result<(Vec<(u64, bool)>, usize)> {
        let list = self.dropped.list()?;
        let from = self.cursor.0.load(Ordering::Relaxed);
        Ok((list.into_iter().skip(from).take(most).collect(), from))
    }

    /// Wraps `nvshmem_free`: all PEs free this block now, and nobody uses it.
    fn free(&self, operation: &'static str, number: u64) -> Result<()> {
        let Some(address) = self.dropped.take(number) else { return Ok(()) };
        if address.ptr().is_null() {
            return Ok(());
        }
        let freed = self.on_quiet_device(operation, &Awaited::All, || {
            // SAFETY: from the library's allocation; all PEs have dropped it, their uses are done, and all free it now, in one order.
            unsafe { sys::nvshmem_free(address.ptr()) };
        });
        // The others have done it.
        freed.inspect_err(|error| self.lose(error))
    }
}

/// Those of `pes` that cannot do what they have `said`.
fn unable(said: &[Words], pes: &[usize]) -> Vec<usize> {
    pes.iter().zip(said).filter(|(_, words)| words[ABLE] == 0).map(|(pe, _)| *pe).collect()
}
