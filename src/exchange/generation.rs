//! Generations: how the ranks of one run meet, whatever keys earlier runs have left in the store.
//!
//! Rank 0 of the view draws a new name for the generation and publishes it. The other ranks answer
//! under that name, each with a nonce. When all have answered, rank 0 lists the nonces. A rank that
//! finds its own nonce in the list knows that rank 0 has met *this* start of it, in a generation
//! that is younger than that start. So keys of an earlier run are never mistaken for those of this
//! run, whichever rank has died in between.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::handle::Exchange;
use super::live::{self, Live};
use super::store::{Checked, MAX_KEYS, Store, nonce};
use super::turns::Turn;
use super::view::{GRACE, Member, View, not_come, patiently};
use super::wire::{Reader, Writer};
use crate::deadline::{Deadline, check_environment, default_timeout};
use crate::error::{Error, Result};
use crate::lock::Mutex;

/// How often a rank that waits checks whether rank 0 has started a newer generation.
const LOOK: Duration = Duration::from_millis(50);

/// The same for each rank that waits, if there are many.
const EACH: Duration = Duration::from_micros(250);

/// The generation that rank 0 makes, as it publishes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) path: String,
    pub(super) generation: u64,
    /// The start of rank 0 that makes it.
    pub(super) id: u64,
    /// Earlier generations, of which keys may be left.
    pub(super) old: Vec<String>,
}

impl Current {
    pub(super) fn encode(&self) -> Vec<u8> {
        let writer = Writer::default().text(&self.path).u64(self.generation).u64(self.id).count(self.old.len());
        self.old.iter().fold(writer, |writer, old| writer.text(old)).0
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (path, generation, id) = (reader.text()?.to_owned(), reader.u64()?, reader.u64()?);
        let old = reader.list(|reader| Some(reader.text()?.to_owned()))?;
        reader.end(Self { path, generation, id, old })
    }
}

/// A start of a rank, and the nonce that it has drawn for this meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    id: u64,
    nonce: u64,
}

impl Arrival {
    pub(super) fn encode(self) -> Vec<u8> {
        Writer::default().u64(self.id).u64(self.nonce).0
    }

    pub(super) fn decode(mut reader: Reader<'_>) -> Option<Self> {
        let arrival = Self { id: reader.u64()?, nonce: reader.u64()? };
        reader.end(arrival)
    }
}

/// A meeting as one rank goes through it.
struct Meeting<'a> {
    operation: &'static str,
    store: &'a dyn Store,
    base: &'a str,
    /// The generation that is left, if there is one.
    from: Option<&'a str>,
    rank: usize,
    size: usize,
    me: Arrival,
    deadline: Deadline,
    /// Whether rank 0 may have made all that is in the store before this start: then its server
    /// ends, and another one comes.
    is_stale: &'a Cell<bool>,
}

impl Meeting<'_> {
    fn now_key(&self) -> String {
        format!("{}now", self.base)
    }

    fn one(&self, key: &str, within: Duration) -> Result<Option<Vec<u8>>> {
        Ok(patiently(&self.deadline, || self.store.get(&[key], self.deadline.remaining().min(within)))?.swap_remove(0))
    }

    fn now(&self, within: Duration) -> Result<Option<Current>> {
        let key = self.now_key();
        let Some(bytes) = self.one(&key, within)? else { return Ok(None) };
        let unreadable = || Error::Exchange {
            operation: self.operation,
            key,
            reason: format!("expected the name of a generation, got {} bytes that are none", bytes.len()),
        };
        Current::decode(&bytes).map(Some).ok_or_else(unreadable)
    }

    /// The ranks that have answered in the generation at `path`.
    fn arrivals(&self, path: &str) -> Result<Vec<Option<Arrival>>> {
        let values = self.of_all(|rank| answer_key(path, rank))?;
        Ok(values.into_iter().map(|value| value.and_then(|value| Arrival::decode(Reader(&value)))).collect())
    }

    /// What each rank has set under its key so far.
    fn of_all(&self, key: impl Fn(usize) -> String) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<String> = (0..self.size).map(key).collect();
        let mut all = Vec::with_capacity(self.size);
        for part in keys.chunks(MAX_KEYS) {
            let part: Vec<&str> = part.iter().map(String::as_str).collect();
            all.extend(patiently(&self.deadline, || self.store.get(&part, Duration::ZERO))?);
        }
        Ok(all)
    }

    fn missing(&self, path: &str) -> Result<String> {
        let arrivals = self.arrivals(path)?;
        let missing: Vec<usize> = (0..self.size).filter(|rank| arrivals[*rank].is_none()).collect();
        if !missing.is_empty() {
            return Ok(not_come(&missing, self.size));
        }
        let ids: Vec<u64> = arrivals.iter().flatten().map(|arrival| arrival.id).collect();
        let ends = self.store.ended(&ids, GRACE)?;
        let ends = ends.into_iter().enumerate().filter_map(|(rank, how)| Some(format!("rank {rank} {}", how?)));
        let ends: Vec<String> = ends.collect();
        Ok(if ends.is_empty() {
            "all have come, too late".to_owned()
        } else {
            format!("{}, and has not come again", ends.join(", "))
        })
    }

    /// Rank 0 makes the generation.
    fn lead(&self) -> Result<(Current, Vec<Arrival>)> {
        let before = self.now(Duration::ZERO)?;
        let generation = self.store.add(&format!("{}count", self.base), 1, self.deadline.remaining())?;
        let path = format!("{}{generation}-{:016x}/", self.base, self.me.nonce);
        let mut old = before.map_or_else(Vec::new, |before| [before.old, vec![before.path]].concat());
        if let Some(from) = self.from
            && old.iter().all(|old| old != from)
        {
            old.push(from.to_owned());
        }
        // A run that dies again and again before its ranks meet does not make the list grow
        // forever.
        old.drain(..old.len().saturating_sub(64));
        let mut now = Current { path, generation: generation.unsigned_abs(), id: self.me.id, old };
        let left = || self.deadline.remaining();
        self.answer(&now.path)?;
        self.store.set(&self.now_key(), &now.encode(), left())?;

        let arrivals = loop {
            self.wait_for_answers(&now.path)?;
            let arrivals: Option<Vec<Arrival>> = self.arrivals(&now.path)?.into_iter().collect();
            if let Some(arrivals) = arrivals {
                let ids: Vec<u64> = arrivals.iter().map(|arrival| arrival.id).collect();
                let ends = patiently(&self.deadline, || self.store.ended(&ids, GRACE))?;
                if ends.iter().all(Option::is_none) {
                    break arrivals;
                }
                // A rank that has answered and died may be started again.
                std::thread::sleep(LOOK.min(self.deadline.remaining()));
            }
            if self.deadline.expired() {
                let late = self.deadline.error(self.operation, self.missing(&now.path)?);
                return Err(late.waited_by(self.rank));
            }
        };
        let list = arrivals
            .iter()
            .fold(Writer::default().count(arrivals.len()), |w, arrival| w.u64(arrival.id).u64(arrival.nonce));
        self.store.set(&format!("{}ok", now.path), &list.0, left().max(GRACE))?;
        // All ranks have left the earlier generations, but for other threads of theirs. One that cannot be removed now stays on the
        // list.
        let live = self.live_of_all(&now)?;
        let is_live = |old: &String| live.iter().any(|path| path.starts_with(old));
        let (live, old): (Vec<_>, Vec<_>) = now.old.iter().cloned().partition(is_live);
        let removed = old.iter().try_for_each(|old| self.store.clear(old, left().max(GRACE)));
        if removed.is_ok() && !old.is_empty() {
            now.old = live;
            // The other ranks are in the new generation already. If this fails, the next generation
            // removes the earlier ones again.
            let _ = self.store.set(&self.now_key(), &now.encode(), left().max(GRACE));
        }
        Ok((now, arrivals))
    }

    /// Answers in the generation at `path`: this start of this rank has come. If other threads of the rank
    /// are in other generations, rank 0 has to know before that.
    fn answer(&self, path: &str) -> Result<()> {
        let mut live = self.store.turn().map_or_else(Vec::new, |place| live::paths(&place));
        // This thread leaves that one.
        live.retain(|path| self.from != Some(path));
        if !live.is_empty() {
            let list = live.iter().fold(Writer::default().count(live.len()), |writer, path| writer.text(path));
            self.store.set(&live_key(path, self.rank), &list.0, self.deadline.remaining())?;
        }
        self.store.set(&answer_key(path, self.rank), &self.me.encode(), self.deadline.remaining())
    }

    /// The generations in which other threads of the ranks are that have answered.
    fn live_of_all(&self, now: &Current) -> Result<Vec<String>> {
        if self.store.turn().is_none() || now.old.is_empty() {
            return Ok(Vec::new());
        }
        let values = self.of_all(|rank| live_key(&now.path, rank))?;
        let list = |value: &Vec<u8>| Reader(value).list(|reader| Some(reader.text()?.to_owned()));
        Ok(values.iter().flatten().filter_map(list).flatten().collect())
    }

    /// Waits until all ranks have answered, or the deadline passes. Asks for each answer until it is
    /// there, and not again.
    fn wait_for_answers(&self, path: &str) -> Result<()> {
        let mut missing: Vec<String> = (0..self.size).map(|rank| answer_key(path, rank)).collect();
        while !missing.is_empty() && !self.deadline.expired() {
            let part: Vec<&str> = missing.iter().take(MAX_KEYS).map(String::as_str).collect();
            let within = self.deadline.remaining().min(LOOK);
            let values = patiently(&self.deadline, || self.store.get(&part, within))?;
            let mut came = values.iter().map(Option::is_some);
            missing.retain(|_| !came.next().unwrap_or(false));
        }
        Ok(())
    }

    /// The ranks that have met in the generation at `path`, once all have.
    fn met(&self, path: &str, within: Duration) -> Result<Option<Vec<Arrival>>> {
        let list = self.one(&format!("{path}ok"), within)?;
        Ok(list.and_then(|list| {
            let mut reader = Reader(&list);
            let arrivals = reader.list(|r| Some(Arrival { id: r.u64()?, nonce: r.u64()? }))?;
            reader.end(arrivals).filter(|arrivals| arrivals.len() == self.size)
        }))
    }

    /// Another rank answers in each generation that rank 0 makes, until it has met the others in
    /// one.
    fn follow(&self) -> Result<(Current, Vec<Arrival>)> {
        let mut answered: Vec<Current> = Vec::new();
        // Many ranks look less often: they share one store.
        let look = LOOK.max(EACH.saturating_mul(u32::try_from(self.size).unwrap_or(u32::MAX)));
        let met = loop {
            let known = answered.last().cloned();
            let now = self.now(if known.is_none() { LOOK } else { Duration::ZERO })?;
            if let Some(now) = &now
                && self.from != Some(&now.path)
                && known.as_ref().is_none_or(|known| known.path != now.path)
            {
                // Rank 0 may have met this rank in a generation that it has left again. Then this
                // rank enters that one first.
                if let Some(known) = known
                    && let Some(arrivals) = self.met(&known.path, Duration::ZERO)?
                    && arrivals[self.rank] == self.me
                {
                    break (known, arrivals);
                }
                self.is_stale.set(self.met(&now.path, Duration::ZERO)?.is_some());
                self.answer(&now.path)?;
                answered.push(now.clone());
            }
            if answered.is_empty() && now.is_some() {
                // Rank 0 is still in the generation that this rank leaves.
                std::thread::sleep(LOOK.min(self.deadline.remaining()) / 10);
            }
            if let Some(now) = answered.last() {
                match self.met(&now.path, look)? {
                    Some(arrivals) if arrivals[self.rank] == self.me => break (now.clone(), arrivals),
                    // This list is final, and lacks this start of this rank. Rank 0 will make
                    // another generation.
                    Some(_) => {
                        self.is_stale.set(true);
                        std::thread::sleep(LOOK.min(self.deadline.remaining()) / 5);
                        if self.store.goes_with(now.id)? {
                            let how = "held the store and has left: lost the rendezvous store".to_owned();
                            return Err(Error::Departed { operation: self.operation, rank: 0, how });
                        }
                    }
                    None => {}
                }
            }
            if self.deadline.expired() {
                return Err(self.late(answered.last())?);
            }
        };
        for now in answered.iter().filter(|now| now.path != met.0.path) {
            // The answer may be in a generation that has been removed already.
            let _ = self.store.delete(&answer_key(&now.path, self.rank), GRACE);
        }
        Ok(met)
    }

    /// The error of a rank that has not met the others in time.
    fn late(&self, now: Option<&Current>) -> Result<Error> {
        let detail = match now {
            None => not_come(&[0], self.size),
            Some(now) => {
                let missing = self.missing(&now.path)?;
                match self.store.ended(&[now.id], GRACE)?.swap_remove(0) {
                    Some(how) => format!("rank 0 of generation {} {how}; {missing}", now.generation),
                    None => missing,
                }
            }
        };
        let late = self.deadline.error(self.operation, format!("rank {}: {detail}", self.rank));
        Ok(late.waited_by(self.rank))
    }

    /// Meets the other ranks, whose ranks in the store are `roots`, and returns the view of the
    /// generation.
    fn meet(self, store: Arc<dyn Store>, roots: &[usize]) -> Result<View> {
        let (now, arrivals) = if self.rank == 0 { self.lead()? } else { self.follow()? };
        let live = store.turn().map(|place| Live::new(&place, &now.path));
        let members =
            roots.iter().zip(&arrivals).map(|(root, arrival)| Member { root: *root, id: arrival.id }).collect();
        Ok(View {
            base: self.base.to_owned(),
            path: now.path,
            generation: now.generation,
            members,
            rank: self.rank,
            progress: Mutex::default(),
            survivors: OnceLock::new(),
            store,
            live,
        })
    }
}

/// The key of the answer of a rank in the generation at `path`.
/// The key under which a rank names the generations that its other threads are in.
fn live_key(path: &str, rank: usize) -> String {
    format!("{path}l/{rank}")
}

fn answer_key(path: &str, rank: usize) -> String {
    format!("{path}j/{rank}")
}

impl Exchange {
    /// Meets the other ranks of a store in a new generation, within the
    /// [default timeout](crate::default_timeout).
    ///
    /// All ranks must call it. Each run of a program gets keys that no run before it has seen, also
    /// where the store outlives them; a rank that dies here and is started again is waited for.
    /// What is left of earlier generations is removed.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// let place = Threads::new(2);
    /// std::thread::scope(|scope| {
    ///     let other = scope.spawn(|| Exchange::join(place.store(1)?)?.all_gather(b"one"));
    ///     let all = Exchange::join(place.store(0)?)?.all_gather(b"zero")?;
    ///     assert_eq!(all, [b"zero".to_vec(), b"one".to_vec()]);
    ///     other.join().expect("no panic").map(drop)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`], which lists who has not come; what the store says: [`Error::Departed`] where
    /// rank 0 of a [`Tcp`](super::Tcp) has ended, and [`Error::Exchange`] where it fails, or
    /// somebody else has written to its keys; [`Error::InvalidArgument`] where `GPUCOMM_TIMEOUT`
    /// holds no time.
    pub fn join(store: impl Store + 'static) -> Result<Self> {
        Self::meet(store, None)
    }

    /// The same within `timeout`, which also holds for the calls of this exchange.
    ///
    /// ```
    /// # use gpucomm::Error;
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// // Nobody is rank 1.
    /// let late = Exchange::join_timeout(Threads::new(2).store(0)?, Duration::from_millis(50));
    /// assert!(matches!(late, Err(Error::Timeout { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_timeout(store: impl Store + 'static, timeout: Duration) -> Result<Self> {
        Self::meet(store, Some(timeout))
    }

    fn meet(store: impl Store + 'static, timeout: Option<Duration>) -> Result<Self> {
        let operation = "Exchange::join";
        check_environment(operation)?;
        let mut store: Arc<dyn Store> = Arc::new(Checked::new(store));
        let (rank, size) = (store.rank(), store.size());
        super::store::check_rank(operation, rank, size)?;
        let deadline = Deadline::after(timeout.unwrap_or_else(default_timeout));
        let roots: Vec<usize> = (0..size).collect();
        let _turn = store.turn().map(|name| Turn::take(operation, name, &deadline)).transpose()?;
        let mut pause = LOOK / 10;
        loop {
            let me = Arrival { id: store.id(), nonce: nonce() };
            let is_stale = &Cell::new(true);
            let meeting =
                Meeting { operation, store: &*store, base: "g/", from: None, rank, size, me, deadline, is_stale };
            let error = match meeting.meet(Arc::clone(&store), &roots) {
                Ok(view) => return Ok(Self::of(Arc::new(view), timeout)),
                Err(error) => error,
            };
            // A rank may come back to the server of the last run, whose rank 0 is about to leave.
            if rank == 0 || !is_stale.get() || !matches!(error, Error::Departed { rank: 0, .. }) {
                return Err(error);
            }
            let Some(next) = store.again(pause, deadline.remaining()) else { return Err(error) };
            store = Arc::new(Checked::new(next?));
            pause = (2 * pause).min(2 * LOOK);
        }
    }

    /// Meets the same ranks again, with fresh keys. All ranks must call it, and be done with this
    /// generation, whose keys and views are gone then.
    ///
    /// ```
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// exchange.set("step", b"1000")?;
    /// let next = exchange.next_generation()?;
    /// assert_eq!((next.generation(), next.try_get("step")?), (exchange.generation() + 1, None));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn next_generation(&self) -> Result<Self> {
        let view = &self.view;
        let me = Arrival { id: view.store.id(), nonce: nonce() };
        let meeting = Meeting {
            operation: "Exchange::next_generation",
            store: &*view.store,
            base: &view.base,
            from: Some(&view.path),
            rank: view.rank,
            size: view.size(),
            me,
            deadline: self.deadline(),
            is_stale: &Cell::new(false),
        };
        let roots = self.store_ranks();
        let next = meeting.meet(Arc::clone(&view.store), &roots)?;
        Ok(self.with_view(Arc::new(next)))
    }
}
