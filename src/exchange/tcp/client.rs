//! The store of one rank over TCP.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::answer;
use super::dial::dial;
use super::greeting::{Hello, Purpose};
use super::link::Link;
use super::message::Request;
use super::secret::Secret;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::net::events::peek;
use crate::exchange::net::server::Server;
use crate::exchange::net::stream::{closed, timed_out};
use crate::exchange::store::{MAX_KEYS, MAX_VALUE, Store, Swap, check_value};
use crate::exchange::system::is;
use crate::exchange::wire::Reader;

/// How long an answer may be on its way beside the time that was asked for.
const SLACK: Duration = Duration::from_millis(900);

/// The longest answer.
const MAX_ANSWER: usize = MAX_KEYS * (MAX_VALUE + 8) + 1024;

/// The store of one rank over TCP: made by a [`TcpPlace`](super::TcpPlace).
///
/// It dies with rank 0, in whose process the server is: then all calls are [`Error::Gone`], at once. A rank whose process ends is noticed
/// by its connection, which the system closes; one whose host vanishes within half a minute.
#[derive(Debug)]
pub struct Tcp {
    address: String,
    hello: Hello,
    secret: Option<Secret>,
    /// Open for as long as this rank is there.
    presence: Link,
    /// Connections that nobody uses now. A call that waits has one for itself.
    free: Mutex<Vec<Link>>,
    /// In the process of rank 0.
    server: Option<Server>,
}

impl Tcp {
    pub(super) fn connect(
        operation: &'static str,
        address: String,
        (rank, size): (usize, usize),
        (job, secret): (String, Option<Secret>),
        server: Option<Server>,
        deadline: &Deadline,
    ) -> Result<Self> {
        let hello = Hello { purpose: Purpose::Presence, rank, size, id: 0, job, server: 0, number: None };
        let (presence, met) = dial(operation, &address, (&hello, secret.as_ref()), deadline, || true)?;
        let hello = Hello { purpose: Purpose::Requests, ..met };
        Ok(Self { address, hello, secret, presence, free: Mutex::default(), server })
    }

    /// The address of the server, as this rank reaches it.
    ///
    /// ```
    /// # use gpucomm::exchange::TcpPlace;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = TcpPlace::new("127.0.0.1:0").serve(1)?;
    /// // The system has chosen a port.
    /// assert!(server.address().starts_with("127.0.0.1:") && !server.address().ends_with(":0"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Asks, and makes something of the answer. `within` is the server's time, `key` is for messages.
    fn ask<T>(
        &self,
        operation: &'static str,
        key: &str,
        request: &Request<'_>,
        within: Duration,
        read: impl FnOnce(Reader<'_>) -> Option<T>,
    ) -> Result<T> {
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut link = match free {
            Some(link) => link,
            None => self.another(operation, &deadline)?,
        };
        let asked = link.send(&request.encode(), &deadline);
        let answer = asked.and_then(|()| link.receive(MAX_ANSWER, &deadline));
        let bytes = answer.map_err(|error| self.failed(operation, key, &error, &deadline))?;
        let failed = |reason: String| Error::Exchange { operation, key: key.to_owned(), reason };
        let unreadable = || failed(format!("expected an answer, got {} bytes that are none", bytes.len()));
        match answer::open(&bytes).ok_or_else(unreadable)? {
            Err(reason) => Err(failed(reason.to_owned())),
            Ok(reader) => {
                let value = read(reader).ok_or_else(unreadable)?;
                // One on which anything went wrong is not used again.
                self.free.lock().unwrap_or_else(PoisonError::into_inner).push(link);
                Ok(value)
            }
        }
    }

    /// Another connection, to the server that is known.
    fn another(&self, operation: &'static str, deadline: &Deadline) -> Result<Link> {
        let who = (&self.hello, self.secret.as_ref());
        match dial(operation, &self.address, who, deadline, || !self.server_has_ended()) {
            Ok((link, _)) => Ok(link),
            // Where the server was, nobody answers, or another one.
            Err(_) if self.server_has_ended() => {
                Err(Error::Gone { operation, rank: 0, how: "has ended, and its server with it".to_owned() })
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the connection is closed that is open for as long as the server is there.
    fn server_has_ended(&self) -> bool {
        !matches!(peek(&self.presence.stream), Err(error) if is(&error, &[libc::EAGAIN, libc::EINTR]))
    }

    /// Whether the server has ended, where it has just closed a connection. Its others are closed in the same moment, or it lets this
    /// rank go for a reason of its own.
    fn server_ends(&self) -> bool {
        let deadline = Deadline::after(SLACK / 4);
        while !self.server_has_ended() {
            if deadline.expired() {
                return false;
            }
            std::thread::sleep(SLACK / 200);
        }
        true
    }

    fn failed(&self, operation: &'static str, key: &str, error: &io::Error, deadline: &Deadline) -> Error {
        if timed_out(error) {
            let detail = format!("{key:?}: the server of rank 0 at {} has not answered", self.address);
            return deadline.error(operation, detail);
        }
        if closed(error) && self.server_ends() {
            return Error::Gone { operation, rank: 0, how: format!("has ended, and its server with it; {key:?}") };
        }
        Error::Exchange { operation, key: key.to_owned(), reason: format!("{}: {error}", self.address) }
    }
}

impl Store for Tcp {
    fn rank(&self) -> usize {
        self.hello.rank
    }

    fn size(&self) -> usize {
        self.hello.size
    }

    fn id(&self) -> u64 {
        self.hello.id
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        check_value("Store::set", value.len())?;
        self.ask("Store::set", key, &Request::Set { key, value }, within, |reader| reader.end(()))
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        let ms = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        let request = Request::Get { keys: keys.to_vec(), ms };
        let name = keys.first().copied().unwrap_or_default();
        self.ask("Store::get", name, &request, within, |reader| {
            answer::read_values(reader).filter(|values| values.len() == keys.len())
        })
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        self.ask("Store::add", key, &Request::Add { key, by }, within, |mut reader| reader.u64().map(u64::cast_signed))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        let operation = "Store::compare_and_set";
        check_value(operation, value.len())?;
        check_value(operation, expected.map_or(0, <[u8]>::len))?;
        self.ask(operation, key, &Request::CompareAndSet { key, expected, value }, within, answer::read_swap)
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        self.ask("Store::delete", key, &Request::Delete { key }, within, |mut reader| Some(reader.u8()? == 1))
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        self.ask("Store::clear", prefix, &Request::Clear { prefix }, within, |reader| reader.end(()))
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        self.ask("Store::ended", "", &Request::Ended { ids: ids.to_vec() }, within, |reader| {
            answer::read_ends(reader).filter(|ends| ends.len() == ids.len())
        })
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.presence.send(&Request::Bye.encode(), &Deadline::after(SLACK));
        }
        // Closed before the server is, which waits for the ranks that are there.
        let _ = self.presence.stream.shutdown(std::net::Shutdown::Both);
        drop(self.server.take());
    }
}
