//! The store of one rank at a TCPStore.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::dialect::Dialect;
use super::sealed::{open, seal};
use super::talk::{Reuse, Talk};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::net::dial::dial;
use crate::exchange::net::events::peek;
use crate::exchange::net::server::Server;
use crate::exchange::net::stream::{closed, timed_out};
use crate::exchange::store::{MAX_KEYS, Store, Swap, check_value, nonce};
use crate::exchange::system::is;
use crate::exchange::table::sum;

/// How long an answer may be on its way beside the time that was asked for.
const SLACK: Duration = Duration::from_millis(900);

/// How long a wait lasts before the keys are looked at: some servers do not tell who waits for a key that a compare-and-set has made.
const SLICE: Duration = Duration::from_millis(250);

/// Shorter waits than this are none of the server's where it cannot be told of their end.
const SHORT: Duration = Duration::from_millis(20);

/// The longest pause between two looks.
const PAUSE: Duration = Duration::from_millis(16);

/// Numbers up to here are added to by the server, which does not notice when a sum has more than 64 bits.
const FAR: u64 = 1 << 62;

/// How a store is reached, and by whom.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) address: String,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) prefix: String,
    /// The only protocol that is tried.
    pub(super) dialect: Option<Dialect>,
    /// The server is in the process of rank 0.
    pub(super) at_rank_0: bool,
}

/// The store of one rank at a TCPStore of PyTorch, or at a server that speaks as one: made by a [`C10dPlace`](super::C10dPlace).
///
/// Nobody is told when a rank dies, as such a server does not know who its clients are: who waits for it waits until the deadline. When the
/// server ends, all calls fail at once.
#[derive(Debug)]
pub struct C10d {
    way: Way,
    id: u64,
    dialect: Dialect,
    /// Open for as long as the server is there.
    presence: Talk,
    /// Connections that nobody uses now. A call that waits has one for itself.
    free: Mutex<Vec<Talk>>,
    /// The server does not list its keys.
    lists_nothing: AtomicBool,
    /// In the process of rank 0.
    server: Option<Server>,
}

impl C10d {
    pub(super) fn connect(
        operation: &'static str,
        way: Way,
        server: Option<Server>,
        deadline: &Deadline,
    ) -> Result<Self> {
        let known = way.dialect;
        let greet = |stream, deadline: &Deadline| Talk::begin(stream, known, deadline);
        let presence = dial(operation, &way.address, way.rank, deadline, || true, greet)?;
        let dialect = presence.dialect;
        let lists_nothing = (dialect == Dialect::Old).into();
        Ok(Self { way, id: nonce(), dialect, presence, free: Mutex::default(), lists_nothing, server })
    }

    /// The address of the server, as this rank reaches it.
    ///
    /// ```
    /// # use gpucomm::exchange::C10dPlace;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = C10dPlace::new("127.0.0.1:0").serve(1)?;
    /// // The system has chosen a port.
    /// assert!(server.address().starts_with("127.0.0.1:") && !server.address().ends_with(":0"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn address(&self) -> &str {
        &self.way.address
    }

    fn key(&self, key: &str) -> Vec<u8> {
        [self.way.prefix.as_bytes(), key.as_bytes()].concat()
    }

    /// Does something on a connection that nobody else uses meanwhile. `Ok(None)` where the server closes it and is still there.
    fn on<T>(
        &self,
        operation: &'static str,
        key: &str,
        deadline: &Deadline,
        what: impl FnOnce(&mut Talk) -> io::Result<(T, Reuse)>,
    ) -> Result<Option<T>> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut talk = match free {
            Some(talk) => talk,
            None => self.another(operation, deadline)?,
        };
        match what(&mut talk) {
            Ok((value, Reuse::Yes)) => {
                // One on which anything went wrong is not used again.
                self.free.lock().unwrap_or_else(PoisonError::into_inner).push(talk);
                Ok(Some(value))
            }
            Ok((value, Reuse::No)) => Ok(Some(value)),
            Err(error) if closed(&error) => {
                if self.server_has_ended() {
                    Err(self.gone(operation, key))
                } else {
                    Ok(None)
                }
            }
            Err(error) if timed_out(&error) => {
                let detail = format!("{key:?}: the server at {} has not answered", self.way.address);
                Err(deadline.error(operation, detail))
            }
            Err(error) => Err(self.failed(operation, key, &error)),
        }
    }

    /// As [`on`](Self::on), where the server has no reason to close the connection but `why`.
    fn once<T>(
        &self,
        operation: &'static str,
        key: &str,
        deadline: &Deadline,
        why: &str,
        what: impl FnOnce(&mut Talk) -> io::Result<T>,
    ) -> Result<T> {
        let done = self.on(operation, key, deadline, |talk| Ok((what(talk)?, Reuse::Yes)))?;
        done.ok_or_else(|| self.failed(operation, key, &format!("the server has closed the connection{why}")))
    }

    /// Another connection, to the server that is known.
    fn another(&self, operation: &'static str, deadline: &Deadline) -> Result<Talk> {
        let greet = |stream, deadline: &Deadline| Talk::begin(stream, Some(self.dialect), deadline);
        let hope = || !self.server_has_ended();
        let talk = dial(operation, &self.way.address, self.way.rank, deadline, hope, greet);
        talk.map_err(|error| if self.server_has_ended() { self.gone(operation, "") } else { error })
    }

    /// Whether the connection is closed that is open for as long as the server is there.
    fn server_has_ended(&self) -> bool {
        !matches!(peek(&self.presence.stream), Err(error) if is(&error, &[libc::EAGAIN, libc::EINTR]))
    }

    fn gone(&self, operation: &'static str, key: &str) -> Error {
        if self.way.at_rank_0 {
            let how = format!("has ended, and its server with it; {key:?}");
            return Error::Gone { operation, rank: 0, how };
        }
        self.failed(operation, key, &"the server has ended")
    }

    fn failed(&self, operation: &'static str, key: &str, why: &dyn std::fmt::Display) -> Error {
        Error::Exchange { operation, key: key.to_owned(), reason: format!("{}: {why}", self.way.address) }
    }

    /// What lies at the keys, as it lies there.
    fn look(
        &self,
        operation: &'static str,
        name: &str,
        keys: &[Vec<u8>],
        deadline: &Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        loop {
            let look = |talk: &mut Talk| Ok((talk.look(keys, deadline)?, Reuse::Yes));
            // One of them has gone while we looked.
            match self.on(operation, name, deadline, look)? {
                Some(values) => return Ok(values),
                None if deadline.expired() => {
                    return Err(self.failed(operation, name, &"the server closes the connection again and again"));
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// What lies at a key, as it lies there; empty where nothing does.
    fn raw(&self, operation: &'static str, name: &str, key: &[u8], deadline: &Deadline) -> Result<Vec<u8>> {
        let mut values = self.look(operation, name, &[key.to_vec()], deadline)?;
        Ok(values.pop().flatten().unwrap_or_default())
    }

    /// Puts `value` where `raw` lies; whether it still did.
    fn swap(
        &self,
        operation: &'static str,
        (name, key): (&str, &[u8]),
        raw: &[u8],
        value: &[u8],
        deadline: &Deadline,
    ) -> Result<bool> {
        let new = seal(value);
        let swap = |talk: &mut Talk| talk.compare_and_set(key, raw, &new, deadline);
        Ok(self.once(operation, name, deadline, too_long(value), swap)? == new)
    }

    /// Waits until keys may have come, at most for so long; whether the server says that they have.
    fn wait(&self, operation: &'static str, name: &str, keys: &[Vec<u8>], within: Duration) -> Result<bool> {
        if self.dialect == Dialect::Old && within < SHORT {
            std::thread::sleep(within.min(PAUSE / 4));
            return Ok(false);
        }
        let deadline = Deadline::after(within.saturating_add(SLACK));
        Ok(self.on(operation, name, &deadline, |talk| talk.wait(keys, within, &deadline))?.unwrap_or(false))
    }
}

/// Why a server may not have taken a value.
fn too_long(value: &[u8]) -> &'static str {
    if value.len() < 8 << 20 { "" } else { "; those of PyTorch take values of less than 8 MiB" }
}

impl Store for C10d {
    fn rank(&self) -> usize {
        self.way.rank
    }

    fn size(&self) -> usize {
        self.way.size
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        let operation = "Store::set";
        check_value(operation, value.len())?;
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let (name, sealed) = (self.key(key), seal(value));
        self.once(operation, key, &deadline, too_long(value), |talk| talk.set(&name, &sealed, &deadline))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        let operation = "Store::get";
        if keys.len() > MAX_KEYS {
            return Err(Error::argument(operation, "keys", format_args!("at most {MAX_KEYS}"), keys.len()));
        }
        let (start, name) = (Deadline::after(within), keys.first().copied().unwrap_or_default());
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| self.key(key)).collect();
        let (mut pause, mut told) = (PAUSE / 16, false);
        loop {
            let values = self.look(operation, name, &keys, &deadline)?;
            let values: Vec<Option<Vec<u8>>> = values.into_iter().map(|value| value.and_then(open)).collect();
            if start.expired() || values.iter().all(Option::is_some) {
                return Ok(values);
            }
            // A key that came and went, or has an empty value, which is none: to wait again would not take any time.
            if told {
                std::thread::sleep(pause.min(start.remaining()));
                pause = (pause * 2).min(PAUSE);
            }
            let missing = keys.iter().zip(&values).filter(|(_, value)| value.is_none());
            let missing: Vec<Vec<u8>> = missing.map(|(key, _)| key.clone()).collect();
            told = self.wait(operation, name, &missing, start.remaining().min(SLICE))?;
        }
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        let operation = "Store::add";
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let name = self.key(key);
        let add_up = |raw| {
            let refused = |reason| Error::Exchange { operation, key: key.to_owned(), reason };
            sum(open(raw).as_deref(), by).map_err(refused)
        };
        loop {
            let raw = self.raw(operation, key, &name, &deadline)?;
            let sum = add_up(raw.clone())?;
            if sum.unsigned_abs().max(by.unsigned_abs()) < FAR {
                let add = |talk: &mut Talk| Ok((talk.add(&name, by, &deadline)?, Reuse::Yes));
                if let Some(sum) = self.on(operation, key, &deadline, add)? {
                    return Ok(sum);
                }
                // Closed, where it is no number any more; where it still is one, the server may have added before, and is not asked twice.
                add_up(self.raw(operation, key, &name, &deadline)?)?;
                let why = "the server has closed the connection, and may have added or not";
                return Err(self.failed(operation, key, &why));
            }
            if self.swap(operation, (key, &name), &raw, sum.to_string().as_bytes(), &deadline)? {
                return Ok(sum);
            }
            if deadline.expired() {
                return Err(deadline.error(operation, format!("{key:?}: others change it all the time")));
            }
        }
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        let operation = "Store::compare_and_set";
        check_value(operation, value.len())?;
        check_value(operation, expected.map_or(0, <[u8]>::len))?;
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let name = self.key(key);
        loop {
            let raw = self.raw(operation, key, &name, &deadline)?;
            let found = open(raw.clone());
            if found.as_deref() != expected {
                return Ok(Swap::Found(found));
            }
            if self.swap(operation, (key, &name), &raw, value, &deadline)? {
                return Ok(Swap::Done);
            }
            if deadline.expired() {
                return Err(deadline.error(operation, format!("{key:?}: others change it all the time")));
            }
        }
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let keys = [self.key(key)];
        let deleted = self.once("Store::delete", key, &deadline, "", |talk| talk.delete(&keys, &deadline))?;
        Ok(deleted > 0)
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        let operation = "Store::clear";
        if self.lists_nothing.load(Ordering::Relaxed) {
            return Ok(());
        }
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let start = self.key(prefix);
        let list = |talk: &mut Talk| Ok((talk.list(&deadline)?, Reuse::Yes));
        let Some(mut keys) = self.on(operation, prefix, &deadline, list)? else {
            // What is left there is left.
            self.lists_nothing.store(true, Ordering::Relaxed);
            return Ok(());
        };
        keys.retain(|key| key.starts_with(&start));
        self.once(operation, prefix, &deadline, "", |talk| talk.delete(&keys, &deadline)).map(drop)
    }
}

impl Drop for C10d {
    fn drop(&mut self) {
        // Closed before the server is, which waits for those who are there.
        self.free.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        let _ = self.presence.stream.shutdown(std::net::Shutdown::Both);
        drop(self.server.take());
    }
}
