//! The members of an exchange, and how they wait for each other's keys in the store.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::combined::Combined;
use super::digest::short;
use super::live::Live;
use super::store::{MAX_KEYS, Store};
use crate::deadline::{Deadline, backoff};
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};

/// The longest single request to the store while a rank waits. A store that notices the end of a rank
/// answers earlier.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// The first request of a wait is short: a rank may have ended before the call.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(10);

/// The time for the steps that must follow a decision, if the deadline passes while it is made.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// A rank of a view.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    /// The rank in the store.
    pub(super) root: usize,
    /// The number by which the store identifies this start of the rank.
    pub(super) id: u64,
}

/// The progress of a view through its collective calls.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The number of the last round.
    pub(super) next: u64,
    /// The rounds that threads of this rank are in, or wait for.
    pub(super) under_way: BTreeSet<u64>,
    /// The keys that this rank has set in earlier rounds.
    pub(super) own: Vec<(u64, String)>,
    /// How often each subset of the ranks was made.
    pub(super) subsets: HashMap<Vec<usize>, u64>,
}

/// The ranks of an exchange, and the place of their keys in the store, in one generation.
pub(super) struct View {
    pub(super) store: Arc<dyn Store>,
    /// The prefix of the keys of all generations.
    pub(super) base: String,
    /// The prefix of the keys of this generation.
    pub(super) path: String,
    pub(super) generation: u64,
    /// The members, in the order of their ranks.
    pub(super) members: Vec<Member>,
    pub(super) rank: usize,
    pub(super) progress: Mutex<Progress>,
    /// The view of the ranks that continue without the others, after the ranks have decided so.
    pub(super) survivors: OnceLock<Arc<View>>,
    /// At a place whose server does not know its clients: that the path is in use.
    pub(super) live: Option<Live>,
}

/// A collective call of this rank, until it is dropped.
#[derive(Debug)]
pub(super) struct Round<'a> {
    view: &'a View,
    pub(super) number: u64,
}

impl Round<'_> {
    /// Waits until the calls of this rank are done that began before this one, on other threads, or it
    /// `gives_up`. When all ranks have come to a round, none of them then reads the values of an earlier one.
    pub(super) fn wait_for_turn(
        &self,
        operation: &'static str,
        deadline: &Deadline,
        gives_up: impl Fn() -> bool,
    ) -> Result<()> {
        let is_first = || self.view.progress().under_way.first() == Some(&self.number);
        if is_first() {
            return Ok(());
        }
        // The threads of a parent are not in a forked child, whose store refuses the call.
        if let Err(error @ Error::InvalidUsage { .. }) = self.view.store.get(&[&self.view.path], Duration::ZERO) {
            return Err(error);
        }
        if deadline.wait(|| is_first() || gives_up()) {
            return Ok(());
        }
        let (rank, earlier) = (self.view.rank, self.view.progress().under_way.first().copied());
        let detail = format!(
            "rank {rank}: another thread of this rank is in round {} still, before round {}",
            earlier.unwrap_or_default(),
            self.number
        );
        Err(deadline.error(operation, detail).waited_by(rank))
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.view.progress().under_way.remove(&self.number);
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roots: Vec<_> = self.members.iter().map(|member| member.root).collect();
        f.debug_struct("Exchange")
            .field("rank", &self.rank)
            .field("ranks", &roots)
            .field("generation", &self.generation)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The state of a key that a member sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Came {
    Value(Vec<u8>),
    /// The member has ended without setting the key. The text says how it ended.
    Ended(String),
    NotYet,
}

impl View {
    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    /// The key of what a rank sets in a round.
    pub(super) fn round_key(&self, round: u64, rank: usize) -> String {
        format!("{}c/{round}/{rank}", self.path)
    }

    /// Begins a collective call. Each rank counts its calls for itself.
    pub(super) fn round(&self) -> Round<'_> {
        let mut progress = self.progress();
        progress.next += 1;
        let number = progress.next;
        progress.under_way.insert(number);
        Round { view: self, number }
    }

    /// Makes a view of some of the ranks, whose keys start with `base`. Returns `None` if this rank is not
    /// one of them.
    pub(super) fn child(&self, base: String, ranks: &[usize]) -> Option<Self> {
        let rank = ranks.iter().position(|rank| *rank == self.rank)?;
        let base = short(base);
        let path = format!("{base}0/");
        Some(Self {
            store: Arc::clone(&self.store),
            live: self.live.as_ref().map(|live| live.another(&path)),
            path,
            base,
            generation: self.generation,
            members: ranks.iter().map(|rank| self.members[*rank]).collect(),
            rank,
            progress: Mutex::default(),
            survivors: OnceLock::new(),
        })
    }

    /// Waits for keys. Each key comes with the member that sets it.
    ///
    /// Returns when all keys are set, when `enough` returns true, or when the deadline passes. The result
    /// has the values that are set at that time, including those that members set before they ended.
    pub(super) fn await_keys(
        &self,
        keys: &[(usize, String)],
        deadline: &Deadline,
        enough: impl FnMut(&[Came]) -> Result<bool>,
    ) -> Result<Vec<Came>> {
        self.await_values(keys, None, deadline, enough)
    }

    /// As [`View::await_keys`], for keys whose values may also come as one.
    fn await_values(
        &self,
        keys: &[(usize, String)],
        mut combined: Option<Combined<'_>>,
        deadline: &Deadline,
        mut enough: impl FnMut(&[Came]) -> Result<bool>,
    ) -> Result<Vec<Came>> {
        let mut came = vec![Came::NotYet; keys.len()];
        let (mut look, mut in_vain) = (FIRST_LOOK, 0u32);
        loop {
            let asked = self.ask(keys, &mut combined, &mut came, look, deadline);
            look = LOOK;
            // Check the deadline before asking for the ends. If it passes in between, the loop reads the keys once
            // more, and so sees everything that was set before an end.
            let up = deadline.expired();
            let late = match asked {
                Ok(()) if came.iter().all(|came| matches!(came, Came::Value(_))) => return Ok(came),
                Ok(()) => self.mark_ended(keys, &mut came).err(),
                Err(error) => Some(error),
            };
            match late {
                None => in_vain = 0,
                // The store is slow. The caller may not want to wait for it.
                Some(Error::Timeout { .. }) if !up => {
                    backoff(in_vain);
                    in_vain = in_vain.saturating_add(1);
                }
                Some(error) => return Err(error),
            }
            if up || enough(&came)? {
                return Ok(came);
            }
        }
    }

    /// Asks the store once for the missing keys, or for all of them as one. Waits up to `within` for them.
    fn ask(
        &self,
        keys: &[(usize, String)],
        combined: &mut Option<Combined<'_>>,
        came: &mut [Came],
        within: Duration,
        deadline: &Deadline,
    ) -> Result<()> {
        if let Some(of_all) = combined {
            let Some(bytes) = self.await_combined(&of_all.key, within, deadline)? else {
                return self.look(keys, came, Duration::ZERO);
            };
            if let Some(values) = of_all.split(&bytes, keys.len()) {
                came.iter_mut().zip(values).for_each(|(came, value)| *came = Came::Value(value.to_vec()));
                return Ok(());
            }
            // All members have set their keys, and each of them reads those of the others.
            *combined = None;
        }
        self.look(keys, came, deadline.remaining().min(within))
    }

    /// Marks the members that have ended without setting their keys.
    fn mark_ended(&self, keys: &[(usize, String)], came: &mut [Came]) -> Result<()> {
        let ends = self.ends(keys, came)?;
        if ends.iter().any(Option::is_some) {
            self.look(keys, came, Duration::ZERO)?;
            for (came, end) in came.iter_mut().zip(ends) {
                if let (Came::NotYet, Some(how)) = (&*came, end) {
                    *came = Came::Ended(how);
                }
            }
        }
        Ok(())
    }

    /// Waits for the combined value of all members, until they have to be looked at: one of them has
    /// ended, the deadline passes, or `look` does. With many members `look` lasts longer, because each
    /// of them then reads the keys of all: a few of them do so before the others.
    pub(super) fn await_combined(&self, key: &str, look: Duration, deadline: &Deadline) -> Result<Option<Vec<u8>>> {
        let many = u32::try_from(self.size() / MAX_KEYS).unwrap_or(u32::MAX);
        let is_first = self.rank.is_multiple_of(MAX_KEYS);
        let until = Deadline::after(match many {
            0 => look,
            many => LOOK.saturating_mul(many).saturating_mul(if is_first { 1 } else { 8 }),
        });
        // A store that notices the end of a rank answers earlier.
        let longest = LOOK.saturating_mul(1 + many / 4);
        let has_ended = || {
            let ids: Vec<u64> = self.members.iter().map(|member| member.id).collect();
            let ends = patiently(deadline, || self.store.ended(&ids, GRACE))?;
            Ok::<_, Error>(ends.iter().any(Option::is_some))
        };
        loop {
            let within = until.remaining().min(deadline.remaining()).min(longest);
            let value = patiently(deadline, || self.store.get(&[key], within))?.swap_remove(0);
            if value.is_some() || until.expired() || deadline.expired() || has_ended()? {
                return Ok(value);
            }
        }
    }

    /// Reads the missing keys that are set. Waits up to `within` for the first key that is not.
    fn look(&self, keys: &[(usize, String)], came: &mut [Came], within: Duration) -> Result<()> {
        let missing: Vec<usize> = (0..keys.len()).filter(|at| came[*at] == Came::NotYet).collect();
        let mut within = within;
        for part in missing.chunks(MAX_KEYS) {
            let names: Vec<&str> = part.iter().map(|at| keys[*at].1.as_str()).collect();
            for (at, value) in part.iter().zip(self.store.get(&names, within)?) {
                match value {
                    Some(value) => came[*at] = Came::Value(value),
                    // The call has waited for one key. Do not wait for the others, too.
                    None => within = Duration::ZERO,
                }
            }
        }
        Ok(())
    }

    /// For each missing key, how its member has ended, if it has.
    fn ends(&self, keys: &[(usize, String)], came: &[Came]) -> Result<Vec<Option<String>>> {
        let mut ends = vec![None; keys.len()];
        let missing: Vec<usize> = (0..keys.len()).filter(|at| came[*at] == Came::NotYet).collect();
        let ids: Vec<u64> = missing.iter().map(|at| self.members[keys[*at].0].id).collect();
        if !ids.is_empty() {
            for (at, end) in missing.into_iter().zip(self.store.ended(&ids, GRACE)?) {
                ends[at] = end;
            }
        }
        Ok(ends)
    }

    /// Waits for keys, and returns their values. Each key comes with the member that sets it. The error
    /// names the members that have not set theirs. `objection` gets each rank and its value, and may
    /// return an error, which ends the wait immediately. The values may come as one.
    pub(super) fn values(
        &self,
        operation: &'static str,
        what: &str,
        (keys, combined): (&[(usize, String)], Option<Combined<'_>>),
        deadline: &Deadline,
        objection: impl Fn(usize, &[u8]) -> Option<Error>,
    ) -> Result<Vec<Vec<u8>>> {
        let objections = |came: &[Came]| {
            let values = keys.iter().zip(came).filter_map(|((rank, _), came)| match came {
                Came::Value(value) => Some((*rank, value)),
                _ => None,
            });
            values.filter_map(|(rank, value)| objection(rank, value)).next()
        };
        let came = self.await_values(keys, combined, deadline, |came| {
            Ok(came.iter().any(|came| matches!(came, Came::Ended(_))) || objections(came).is_some())
        })?;
        if let Some(error) = objections(&came) {
            return Err(error);
        }
        for ((rank, _), came) in keys.iter().zip(&came) {
            if let Came::Ended(how) = came {
                return Err(Error::Departed {
                    operation,
                    rank: *rank,
                    how: format!("{how}; rank {} waits for it in {what}", self.rank),
                });
            }
        }
        let missing: Vec<usize> =
            keys.iter().zip(&came).filter(|(_, came)| **came == Came::NotYet).map(|((rank, _), _)| *rank).collect();
        if !missing.is_empty() {
            return Err(deadline
                .error(operation, format!("rank {}: {what}: {}", self.rank, not_come(&missing, self.size())))
                .between((Some(self.rank), only(&missing))));
        }
        Ok(came.into_iter().map(|came| if let Came::Value(value) = came { value } else { Vec::new() }).collect())
    }
}

/// Repeats a short request that has timed out, until the deadline of the whole call passes. Pauses in
/// between: a store may time out at once.
pub(super) fn patiently<T>(deadline: &Deadline, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let mut round = 0u32;
    loop {
        match ask() {
            Err(Error::Timeout { .. }) if !deadline.expired() => backoff(round),
            answer => return answer,
        }
        round = round.saturating_add(1);
    }
}

/// The missing rank, if it is one.
fn only(missing: &[usize]) -> Option<usize> {
    if let [one] = missing { Some(*one) } else { None }
}

/// Names the missing ranks in words.
pub(super) fn not_come(missing: &[usize], size: usize) -> String {
    let list = missing.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    match missing.len() {
        1 => format!("rank {list} of {size} has not come"),
        _ => format!("ranks {list} of {size} have not come"),
    }
}
