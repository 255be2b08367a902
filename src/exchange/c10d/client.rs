//! The store of one rank at a TCPStore.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::codec::Dialect;
use super::link::Link;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::net::client::{Client, Failure, Greeter, Holder, Reuse, SLACK};
use crate::exchange::net::server::Server;
use crate::exchange::store::{MAX_KEYS, Store, Swap, check_value, nonce};
use crate::exchange::table::sum;

/// How long one wait lasts before the keys are read. Some servers do not wake a client that waits
/// for a key when a compare-and-set makes it.
const SLICE: Duration = Duration::from_millis(250);

/// With the old version, a wait that is shorter than this is not sent to the server, because it
/// could be ended only with its connection.
const SHORT: Duration = Duration::from_millis(20);

/// The longest pause between two reads of keys.
const PAUSE: Duration = Duration::from_millis(16);

/// The server adds to numbers up to this one. It does not notice a sum of more than 64 bits.
const FAR: u64 = 1 << 62;

/// How connections begin: with the version of the protocol that is wanted, or that the first
/// connection has found.
#[derive(Debug, Clone)]
pub(super) struct DialectGreeter {
    pub(super) wanted: Option<Dialect>,
}

impl Greeter for DialectGreeter {
    type Connection = Link;

    /// The server also closes a connection whose query it cannot answer, so a closed one says
    /// nothing about the others.
    const CLOSING: Duration = Duration::ZERO;

    fn greet(
        &self,
        stream: TcpStream,
        first: Option<&Link>,
        deadline: &Deadline,
    ) -> std::result::Result<Link, Failure> {
        Link::open(stream, first.map(|first| first.dialect).or(self.wanted), deadline)
    }
}

/// The store of one rank at a TCPStore of PyTorch, or at a server that speaks as one: made by a
/// [`C10dPlace`](super::C10dPlace).
///
/// Such a server does not know its clients, so the death of a rank is not noticed: a rank that
/// waits for it waits until the deadline. When the server ends, all calls fail at once.
#[derive(Debug)]
pub struct C10d {
    client: Client<DialectGreeter>,
    /// Before all keys: others may use the same server.
    prefix: String,
    id: u64,
    /// The server cannot list its keys.
    lists_nothing: AtomicBool,
}

impl C10d {
    pub(super) fn connect(
        operation: &'static str,
        place: (DialectGreeter, String),
        address: String,
        ranks: (usize, usize),
        holder: Holder,
        server: Option<Server>,
        deadline: &Deadline,
    ) -> Result<Self> {
        let (greeter, prefix) = place;
        let client = Client::connect(operation, greeter, address, ranks, holder, server, deadline)?;
        let lists_nothing = (client.presence.dialect == Dialect::Old).into();
        Ok(Self { client, prefix, id: nonce(), lists_nothing })
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
        &self.client.address
    }

    fn key(&self, key: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), key.as_bytes()].concat()
    }

    /// Sends queries that the server has no reason to refuse, but `why`.
    fn once<T>(
        &self,
        operation: &'static str,
        key: &str,
        deadline: &Deadline,
        why: &str,
        query: impl FnOnce(&mut Link) -> std::io::Result<T>,
    ) -> Result<T> {
        let done = self.client.with_connection(operation, key, deadline, |link| Ok((query(link)?, Reuse::Yes)))?;
        done.ok_or_else(|| self.failed(operation, key, &format!("the server has closed the connection{why}")))
    }

    fn failed(&self, operation: &'static str, key: &str, why: &str) -> Error {
        self.client.failed(operation, key, &why)
    }

    /// The values of keys, as the server holds them.
    fn look(
        &self,
        operation: &'static str,
        name: &str,
        keys: &[Vec<u8>],
        deadline: &Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        loop {
            let look = |link: &mut Link| Ok((link.look(keys, deadline)?, Reuse::Yes));
            match self.client.with_connection(operation, name, deadline, look)? {
                Some(values) => return Ok(values),
                None if deadline.expired() => {
                    return Err(self.failed(operation, name, "the server closes the connection again and again"));
                }
                // A key has been deleted meanwhile.
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// The value of a key, as the server holds it. Empty if it is not set.
    fn raw(&self, operation: &'static str, name: &str, key: &[u8], deadline: &Deadline) -> Result<Vec<u8>> {
        let mut values = self.look(operation, name, &[key.to_vec()], deadline)?;
        Ok(values.pop().flatten().unwrap_or_default())
    }

    /// Sets a key if the server still holds `raw` for it, and says whether it did.
    fn swap(
        &self,
        operation: &'static str,
        (name, key): (&str, &[u8]),
        raw: &[u8],
        value: &[u8],
        deadline: &Deadline,
    ) -> Result<bool> {
        let new = seal(value);
        let swap = |link: &mut Link| link.compare_and_set(key, raw, &new, deadline);
        Ok(self.once(operation, name, deadline, too_long(value), swap)? == new)
    }

    /// Waits until the keys may be set, at most for `within`. Returns whether the server says that
    /// they are.
    fn wait(&self, operation: &'static str, name: &str, keys: &[Vec<u8>], within: Duration) -> Result<bool> {
        if self.client.presence.dialect == Dialect::Old && within < SHORT {
            std::thread::sleep(within.min(PAUSE / 4));
            return Ok(false);
        }
        let deadline = Deadline::after(within.saturating_add(SLACK));
        Ok(self
            .client
            .with_connection(operation, name, &deadline, |link| link.wait(keys, within, &deadline))?
            .unwrap_or(false))
    }
}

/// Why a server may not have taken a value.
fn too_long(value: &[u8]) -> &'static str {
    if value.len() < 8 << 20 { "" } else { "; those of PyTorch take values of less than 8 MiB" }
}

impl Store for C10d {
    fn rank(&self) -> usize {
        self.client.rank
    }

    fn size(&self) -> usize {
        self.client.size
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn turn(&self) -> Option<String> {
        let Client { address, rank, .. } = &self.client;
        Some(format!("{address} as rank {rank} with prefix {:?}", self.prefix))
    }

    fn lingers(&self) -> Duration {
        self.client.lingers()
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        let operation = "Store::set";
        check_value(operation, value.len())?;
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let (name, sealed) = (self.key(key), seal(value));
        self.once(operation, key, &deadline, too_long(value), |link| link.set(&name, &sealed, &deadline))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        let operation = "Store::get";
        if keys.len() > MAX_KEYS {
            return Err(Error::argument(operation, "keys", format_args!("at most {MAX_KEYS}"), keys.len()));
        }
        let (start, name) = (Deadline::after(within), keys.first().copied().unwrap_or_default());
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| self.key(key)).collect();
        let (mut pause, mut woken) = (PAUSE / 16, false);
        loop {
            let values = self.look(operation, name, &keys, &deadline)?;
            let values: Vec<Option<Vec<u8>>> = values.into_iter().map(|value| value.and_then(open)).collect();
            if start.expired() || values.iter().all(Option::is_some) {
                return Ok(values);
            }
            // A key that is deleted again, or has an empty value, which counts as none, does not
            // make the next wait last.
            if woken {
                std::thread::sleep(pause.min(start.remaining()));
                pause = (pause * 2).min(PAUSE);
            }
            let missing = keys.iter().zip(&values).filter(|(_, value)| value.is_none());
            let missing: Vec<Vec<u8>> = missing.map(|(key, _)| key.clone()).collect();
            woken = self.wait(operation, name, &missing, start.remaining().min(SLICE))?;
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
                let add = |link: &mut Link| Ok((link.add(&name, by, &deadline)?, Reuse::Yes));
                if let Some(sum) = self.client.with_connection(operation, key, &deadline, add)? {
                    return Ok(sum);
                }
                // The server closes the connection if the value is no number any more. If it is
                // one, the server may have added to it already, and is not asked twice.
                add_up(self.raw(operation, key, &name, &deadline)?)?;
                let why = "the server has closed the connection, and may have added or not";
                return Err(self.failed(operation, key, why));
            }
            if self.swap(operation, (key, &name), &raw, sum.to_string().as_bytes(), &deadline)? {
                return Ok(sum);
            }
            if deadline.expired() {
                return Err(deadline.error(operation, format!("{key:?}: other clients change it all the time")));
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
                return Err(deadline.error(operation, format!("{key:?}: other clients change it all the time")));
            }
        }
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let keys = [self.key(key)];
        let deleted = self.once("Store::delete", key, &deadline, "", |link| link.delete(&keys, &deadline))?;
        Ok(deleted > 0)
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        let operation = "Store::clear";
        if self.lists_nothing.load(Ordering::Relaxed) {
            return Ok(());
        }
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let start = self.key(prefix);
        let list = |link: &mut Link| Ok((link.list(&deadline)?, Reuse::Yes));
        let Some(mut keys) = self.client.with_connection(operation, prefix, &deadline, list)? else {
            // Keys of earlier generations stay there.
            self.lists_nothing.store(true, Ordering::Relaxed);
            return Ok(());
        };
        keys.retain(|key| key.starts_with(&start));
        self.once(operation, prefix, &deadline, "", |link| link.delete(&keys, &deadline)).map(drop)
    }

    fn goes_with(&self, id: u64) -> Result<bool> {
        Ok(self.client.depends_on_rank_0() && self.get(&[&left(id)], Duration::ZERO)?.iter().any(Option::is_some))
    }

    fn again(&self, pause: Duration, within: Duration) -> Option<Result<Arc<dyn Store>>> {
        if !self.client.depends_on_rank_0() {
            return None;
        }
        let deadline = Deadline::after(within);
        self.client.hang_up(pause, &deadline);
        let (place, address) = ((self.client.greeter.clone(), self.prefix.clone()), self.client.address.clone());
        let ranks = (self.client.rank, self.client.size);
        let store = Self::connect("Exchange::join", place, address, ranks, Holder::Rank0, None, &deadline);
        Some(store.map(|store| Arc::new(store) as Arc<dyn Store>))
    }
}

/// The key that says that the start of rank 0 with this number has left, and its server ends.
fn left(id: u64) -> String {
    format!("left/{id:016x}")
}

impl Drop for C10d {
    fn drop(&mut self) {
        // Nothing else says so: the server stays for a moment, and serves a rank that comes back too soon.
        if self.client.serves() && !self.client.owner.is_another() {
            let _ = self.set(&left(self.id), b"1", Duration::ZERO);
        }
    }
}

// The server's compare-and-set returns the value afterwards. It does not say who has set that, nor
// whether there was a value before. So no two values that are set are equal, and none is empty:
// behind each stand a 0, eight bytes that are drawn for it, and a 1. The server still adds to a
// number in front of them, as it reads up to the first byte that is no digit. The sum has no such
// end.

const START: u8 = 0;
const END: u8 = 1;

/// The length of the end of a value.
const LEN: usize = 10;

/// A value to be set, which equals no other one.
pub(super) fn seal(value: &[u8]) -> Vec<u8> {
    [value, &[START], &nonce().to_le_bytes(), &[END]].concat()
}

/// The value that was set. `None` for an empty one, which no rank sets, and some servers return for
/// a key that is not set.
pub(super) fn open(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    if bytes.is_empty() {
        return None;
    }
    if let Some(len) = bytes.len().checked_sub(LEN)
        && bytes[len] == START
        && bytes.last() == Some(&END)
    {
        bytes.truncate(len);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_values_are_opened() {
        for value in [&b""[..], b"5", b"\0\0", b"\x01", &[0; 10], &[1; 10], &[7; 300]] {
            assert_eq!(open(seal(value)).as_deref(), Some(value));
            assert_ne!(seal(value), seal(value));
            // A value that looks like a sealed one is kept whole.
            assert_eq!(open(seal(&seal(value))).map(|value| value.len()), Some(value.len() + LEN));
        }
        assert_eq!(open(Vec::new()), None);
        assert_eq!(open(b"-12".to_vec()).as_deref(), Some(&b"-12"[..]));
    }
}
