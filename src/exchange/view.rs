//! Who takes part in an exchange, and where its keys lie.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::digest::short;
use super::store::{MAX_KEYS, Store};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::lock::{Mutex, MutexGuard};

/// How long one look into the store lasts while something is waited for. A store that knows wakes us before, when a rank ends.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// How long what must follow a decision may take when the deadline has been reached by it.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// A rank of a view.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    /// Its rank in the store.
    pub(super) root: usize,
    /// By what number the store knows this start of it.
    pub(super) id: u64,
}

/// How far a view is in what all of its ranks do together.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The round that comes next.
    pub(super) next: u64,
    /// Keys that this rank has set for earlier rounds.
    pub(super) own: Vec<(u64, String)>,
    /// How often each subset has been made.
    pub(super) subsets: HashMap<Vec<usize>, u64>,
}

/// Ranks that take part, and the keys of one generation.
pub(super) struct View {
    pub(super) store: Arc<dyn Store>,
    /// What the keys of all generations of this view begin with.
    pub(super) base: String,
    /// What the keys of this generation begin with.
    pub(super) path: String,
    pub(super) generation: u64,
    /// In the order of ranks.
    pub(super) members: Vec<Member>,
    pub(super) rank: usize,
    pub(super) progress: Mutex<Progress>,
    /// Those who went on without the others, once that was decided.
    pub(super) survivors: OnceLock<Arc<View>>,
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

/// What came for one of several keys that members were to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Came {
    Value(Vec<u8>),
    /// The member has ended without it.
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

    /// The number of the next thing that all do together. Every rank counts for itself.
    pub(super) fn round(&self) -> u64 {
        let mut progress = self.progress();
        progress.next += 1;
        progress.next
    }

    /// A view with other members, below this one. It must hold this rank.
    pub(super) fn child(&self, base: String, ranks: &[usize]) -> Option<Self> {
        let rank = ranks.iter().position(|rank| *rank == self.rank)?;
        let base = short(base);
        Some(Self {
            store: Arc::clone(&self.store),
            path: format!("{base}0/"),
            base,
            generation: self.generation,
            members: ranks.iter().map(|rank| self.members[*rank]).collect(),
            rank,
            progress: Mutex::default(),
            survivors: OnceLock::new(),
        })
    }

    /// Waits until each of the keys is there, of which the member stands beside it, until the first of those members has ended without
    /// it, or until time is up; or, with `enough`, until that says so.
    ///
    /// What is there is in the answer in any case, and what ended members have set before they did.
    pub(super) fn await_keys(
        &self,
        keys: &[(usize, String)],
        deadline: &Deadline,
        mut enough: impl FnMut(&[Came]) -> Result<bool>,
    ) -> Result<Vec<Came>> {
        let mut came = vec![Came::NotYet; keys.len()];
        let mut first = true;
        loop {
            let left = deadline.remaining();
            // The first look is short, as who is waited for may have ended long ago.
            let look = if first { LOOK / 25 } else { LOOK };
            first = false;
            self.look(keys, &mut came, left.min(look), deadline)?;
            if came.iter().all(|came| matches!(came, Came::Value(_))) {
                return Ok(came);
            }
            // Before the ends are asked for, so that one more look sees whatever was set before an end.
            let up = deadline.expired();
            let ends = self.ends(keys, &came, deadline)?;
            if ends.iter().any(Option::is_some) {
                self.look(keys, &mut came, Duration::ZERO, deadline)?;
                for (came, end) in came.iter_mut().zip(ends) {
                    if let (Came::NotYet, Some(how)) = (&*came, end) {
                        *came = Came::Ended(how);
                    }
                }
            }
            if up || enough(&came)? {
                return Ok(came);
            }
        }
    }

    /// Takes what is there of the keys that have not come; waits `within` for some of them.
    fn look(&self, keys: &[(usize, String)], came: &mut [Came], within: Duration, deadline: &Deadline) -> Result<()> {
        let missing: Vec<usize> = (0..keys.len()).filter(|at| came[*at] == Came::NotYet).collect();
        let mut within = within;
        for part in missing.chunks(MAX_KEYS) {
            let names: Vec<&str> = part.iter().map(|at| keys[*at].1.as_str()).collect();
            for (at, value) in part.iter().zip(patiently(deadline, || self.store.get(&names, within))?) {
                match value {
                    Some(value) => came[*at] = Came::Value(value),
                    // One that is waited for in vain is enough.
                    None => within = Duration::ZERO,
                }
            }
        }
        Ok(())
    }

    /// How those ended whose keys have not come.
    fn ends(&self, keys: &[(usize, String)], came: &[Came], deadline: &Deadline) -> Result<Vec<Option<String>>> {
        let mut ends = vec![None; keys.len()];
        let missing: Vec<usize> = (0..keys.len()).filter(|at| came[*at] == Came::NotYet).collect();
        let ids: Vec<u64> = missing.iter().map(|at| self.members[keys[*at].0].id).collect();
        if !ids.is_empty() {
            for (at, end) in missing.into_iter().zip(patiently(deadline, || self.store.ended(&ids, GRACE))?) {
                ends[at] = end;
            }
        }
        Ok(ends)
    }

    /// The values of keys, each of which one member sets; an error that names who has not. The first value that `objection` has something
    /// against, which knows whose it is, ends it at once.
    pub(super) fn values(
        &self,
        operation: &'static str,
        what: &str,
        keys: &[(usize, String)],
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
        let came = self.await_keys(keys, deadline, |came| {
            Ok(came.iter().any(|came| matches!(came, Came::Ended(_))) || objections(came).is_some())
        })?;
        if let Some(error) = objections(&came) {
            return Err(error);
        }
        for ((rank, _), came) in keys.iter().zip(&came) {
            if let Came::Ended(how) = came {
                return Err(Error::Gone {
                    operation,
                    rank: *rank,
                    how: format!("{how}; rank {} waits for it in {what}", self.rank),
                });
            }
        }
        let missing: Vec<usize> =
            keys.iter().zip(&came).filter(|(_, came)| **came == Came::NotYet).map(|((rank, _), _)| *rank).collect();
        if !missing.is_empty() {
            return Err(
                deadline.error(operation, format!("rank {}: {what}: {}", self.rank, not_come(&missing, self.size())))
            );
        }
        Ok(came.into_iter().map(|came| if let Came::Value(value) = came { value } else { Vec::new() }).collect())
    }
}

/// Asks a store again that took too long for a short question, until the deadline of the whole is reached.
pub(super) fn patiently<T>(deadline: &Deadline, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match ask() {
            Err(Error::Timeout { .. }) if !deadline.expired() => {}
            answer => return answer,
        }
    }
}

/// Who has not come, in words.
pub(super) fn not_come(missing: &[usize], size: usize) -> String {
    let list = missing.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    match missing.len() {
        1 => format!("rank {list} of {size} has not come"),
        _ => format!("ranks {list} of {size} have not come"),
    }
}
