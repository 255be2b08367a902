//! Meetings of all PEs: each says what it is about to do, they compare that, and free what all of them have dropped.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::board::{WORDS, Words};
use super::inner::Inner;
use super::teams::{AT_ONCE as TEAMS, TeamState};
use super::wait_state::Awaited;
use super::word_exchange::TIMEOUT;
use crate::cuda::{Busy, Quiet};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::sys;

/// Words of a plan: the operation, and up to six numbers that must be equal on all PEs.
const PLAN: usize = 8;

/// The word that says whether the PE is able to do it.
const ABLE: usize = PLAN;

/// Behind that, a bit for each block that this PE can free.
const BITS: usize = PLAN + 1;

/// Behind these, the keys of teams that can be destroyed.
const KEYS: usize = TIMEOUT - TEAMS;

/// Words for other use, before the keys.
#[cfg(nvshmem_ge_3_3)]
pub(crate) const EXTRA: usize = 4;

/// How many blocks one meeting looks at.
const AT_ONCE: usize = (KEYS - BITS) * 64;

/// The next step of all PEs, as numbers that must be equal on all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) operation: &'static str,
    /// The kind of meeting.
    pub(crate) kind: Kind,
    /// The numbers, which [`Plan::explain`] turns into text.
    pub(crate) numbers: [u64; 6],
    /// Turns the numbers into text.
    pub(crate) explain: fn(&[u64; 6]) -> String,
    /// Whether this PE is able to do it.
    pub(crate) able: bool,
    /// Whether its device is not ready yet.
    pub(crate) busy: bool,
    /// Whether it waits no longer: if a device is busy now, the PEs do not meet for this again.
    pub(crate) last: bool,
}

/// The answers of PEs to a plan that is equal on all of them.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) unable: Vec<usize>,
    /// The first one whose device is not ready.
    pub(super) busy: Option<usize>,
    /// The first one that does not wait for that any longer, and its timeout.
    pub(super) last: Option<(usize, Duration)>,
}

/// What a meeting is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
#[cfg_attr(not(nvshmem_ge_3_8), allow(dead_code))]
pub(crate) enum Kind {
    Alloc = 1,
    Settle,
    Reclaim,
    Close,
    Split,
    Split2d,
    TeamInit,
    Blocks,
    QueuePairs,
}

impl Kind {
    fn name(number: u64) -> &'static str {
        const NAMES: [&str; 9] = [
            "an allocation",
            "the end of an allocation",
            "a reclaim",
            "a close",
            "a split of a team",
            "a split of a team in two dimensions",
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
        Self { operation, kind, numbers: [0; 6], explain: |_| String::new(), able: true, busy: false, last: false }
    }

    fn words(&self) -> Words {
        let mut words = [0; WORDS];
        words[0] = self.kind as u64;
        words[1..7].copy_from_slice(&self.numbers);
        words[ABLE] = u64::from(self.able) | u64::from(self.busy) << 1 | u64::from(self.last) << 2;
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

    /// Returns a disagreement with the first of `pes` whose words differ from those of most.
    fn compare(&self, said: &[Words], pes: &[usize]) -> Result<()> {
        let plan = |words: &Words| -> [u64; PLAN] { words[..PLAN].try_into().expect("it is shorter") };
        let votes = |at: &usize| said.iter().filter(|other| plan(other) == plan(&said[*at])).count();
        // If several have as many votes, the lowest PE counts, which comes last here.
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

    /// The text of a plan, with all its numbers if the text is the same as that of `other`.
    fn said_beside(&self, words: &Words, other: &Words) -> String {
        let what = self.said(words);
        if what == self.said(other) { format!("{what} with the numbers {:?}", &words[1..7]) } else { what }
    }
}

impl Inner {
    /// Meets all other PEs for `plan`: compares it, and frees what all have dropped. Returns the PEs that are not able to do it.
    ///
    /// # Errors
    /// Returns [`Error::Disagreement`] on all PEs if their plans differ, and does nothing then. Any other error is the end of the context.
    pub(crate) fn meet(&self, plan: &Plan) -> Result<Vec<usize>> {
        Ok(self.answers(plan, None)?.unable)
    }

    /// As [`meet`](Self::meet), but each PE adds words that are not compared. Returns those of all PEs.
    #[cfg(nvshmem_ge_3_3)]
    pub(crate) fn meet_with(&self, plan: &Plan, extra: &[u64; EXTRA]) -> Result<Vec<[u64; EXTRA]>> {
        let said = self.meet_for(plan, extra)?;
        Ok(said.iter().map(|words| words[KEYS - EXTRA..KEYS].try_into().expect("there are as many")).collect())
    }

    fn meet_for(&self, plan: &Plan, extra: &[u64]) -> Result<Vec<Words>> {
        let operation = plan.operation;
        // Freeing what all have dropped waits for the whole device.
        Quiet::check(operation, &[self.device])?;
        // Other words take the place of the bits.
        let most = if extra.is_empty() { AT_ONCE } else { 0 };
        let (list, from) = self.dropped_window(most)?;
        // Beside a capture of another thread nothing can be freed.
        let quiet = Quiet::can_be_kept(&[self.device]);
        let mut words = plan.words();
        for (at, (_, free)) in list.iter().enumerate() {
            words[BITS + at / 64] |= u64::from(*free && quiet) << (at % 64);
        }
        words[KEYS - extra.len()..KEYS].copy_from_slice(extra);
        let mut keys = self.teams.to_destroy()?;
        // The library waits for the whole device when it destroys a team. So that is left to a later meeting if the work of the device takes longer
        // than a moment.
        let devices = [self.device];
        let is_ready = || quiet && self.is_over_in_a_moment(&mut Busy::with(&devices), &devices);
        if !keys.is_empty() && !is_ready() {
            keys.clear();
        }
        words[KEYS..KEYS + keys.len()].copy_from_slice(&keys);
        let said = self.say(operation, &words)?;
        plan.compare(&said, &(0..self.n_pes).collect::<Vec<_>>())?;
        self.destroy_dropped(operation, &said)?;
        self.teams.have_said(said.iter().map(|words| &words[KEYS..TIMEOUT]));
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

    /// Comes together with all other PEs again and again, until nothing is left that all of them have dropped.
    ///
    /// A meeting looks at a part of the blocks and teams. A PE that has more which it could free, and has freed some in one of the
    /// last meetings, says so, and all come again.
    pub(crate) fn free_all_dropped(&self, operation: &'static str, deadline: &Deadline) -> Result<()> {
        let devices = [self.device];
        let (mut before, mut idle_turns, mut busy) = (usize::MAX, 0, Busy::with(&devices));
        loop {
            // Beside a capture or work of another thread this PE frees nothing. Such a meeting is not in vain, until the deadline. Work that begins
            // later does not count: there may always be some.
            let is_ready = self.is_over_in_a_moment(&mut busy, &devices) || deadline.expired();
            let blocks = self.dropped.list()?.iter().filter(|(_, free)| *free).count();
            let teams = self.teams.free()?.len();
            idle_turns = if blocks + teams < before { 0 } else { idle_turns + usize::from(is_ready) };
            before = blocks + teams;
            // So many meetings in vain, and all blocks and teams have had their turn.
            let turns = 2 + self.dropped.held().0 / AT_ONCE + 4 * teams.div_ceil(TEAMS);
            let has_more = before > 0 && idle_turns < turns;
            if self.meet(&Plan { able: !has_more, ..Plan::new(operation, Kind::Close) })?.is_empty() {
                return Ok(());
            }
        }
    }

    /// As [`meet`](Self::meet), for the members of a team. If these are all PEs, frees what all have dropped.
    pub(crate) fn meet_in(&self, plan: &Plan, team: &TeamState) -> Result<Vec<usize>> {
        Ok(self.answers(plan, Some(team))?.unable)
    }

    /// Meets the members of `team`, or all PEs if it is `None`. Returns their answers to the plan.
    pub(super) fn answers(&self, plan: &Plan, team: Option<&TeamState>) -> Result<Answers> {
        if let Some(team) = team.filter(|team| team.members.len() < self.n_pes) {
            let said = self.say_in(plan.operation, &plan.words(), team)?;
            plan.compare(&said, &team.members)?;
            return Ok(Answers::of(&said, &team.members));
        }
        let said = self.meet_for(plan, &[])?;
        Ok(Answers::of(&said, &(0..self.n_pes).collect::<Vec<_>>()))
    }

    /// Wraps `nvshmem_team_destroy`: destroys the teams that all of their members have dropped, in the order of their keys.
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
            // The other members have destroyed it.
            destroyed.inspect_err(|error| self.lose(error))?;
            self.watchdog.forget(key);
        }
        Ok(())
    }

    /// Returns the blocks that this meeting looks at, and where in the list they begin. At most so many.
    fn dropped_window(&self, most: usize) -> Result<(Vec<(u64, bool)>, usize)> {
        let list = self.dropped.list()?;
        let from = self.cursor.0.load(Ordering::Relaxed);
        Ok((list.into_iter().skip(from).take(most).collect(), from))
    }

    /// Wraps `nvshmem_free`: frees a block, which all PEs free now and nothing uses.
    fn free(&self, operation: &'static str, number: u64) -> Result<()> {
        let Some(address) = self.dropped.take(number) else { return Ok(()) };
        if address.ptr().is_null() {
            return Ok(());
        }
        let freed = self.on_quiet_device(operation, &Awaited::All, || {
            // SAFETY: from the library's allocation; all PEs have dropped it, their uses are done, and all free it now, in one order.
            unsafe { sys::nvshmem_free(address.ptr()) };
        });
        // The other PEs have freed it.
        freed.inspect_err(|error| self.lose(error))
    }
}

impl Answers {
    /// Reads the words of `pes`.
    fn of(said: &[Words], pes: &[usize]) -> Self {
        let who = |bit: u64, is: u64| pes.iter().zip(said).filter(move |(_, words)| words[ABLE] >> bit & 1 == is);
        Self {
            unable: who(0, 0).map(|(pe, _)| *pe).collect(),
            busy: who(1, 1).map(|(pe, _)| *pe).next(),
            last: who(2, 1).map(|(pe, words)| (*pe, Duration::from_millis(words[TIMEOUT]))).next(),
        }
    }
}
