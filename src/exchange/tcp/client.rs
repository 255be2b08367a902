//! The store of one rank over TCP.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use super::codec::{self, Request};
use super::greeting::{Hello, Purpose, Reply, prove, trust};
use super::secret::{FrameCipher, SEAL, Secret};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::net::client::{Client, Failure, Greeter, Holder, Reuse, SLACK, fill, take, write};
use crate::exchange::net::server::Server;
use crate::exchange::store::{MAX_KEYS, MAX_VALUE, Store, Swap, check_value, nonce, random};
use crate::exchange::wire::Reader;

/// The longest answer to a request.
const MAX_ANSWER: usize = MAX_KEYS * (MAX_VALUE + 8) + 1024;

/// How long one of several addresses is tried before the next one is.
const TRY: Duration = Duration::from_secs(2);

/// The longest answer to a greeting.
const MAX_REPLY: usize = 4096;

/// A connection to the server: frames within a deadline.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    /// Seals and opens frames, once both ends have proved that they know the secret.
    cipher: Option<FrameCipher>,
    /// The numbers of the starts of this rank and of the server.
    id: u64,
    server: u64,
    /// Who has the server, as it says itself.
    holder: Holder,
}

impl AsRef<TcpStream> for Link {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Link {
    fn send(&mut self, bytes: &[u8], deadline: &Deadline) -> io::Result<()> {
        let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
        let sealed = match &mut self.cipher {
            Some(cipher) => Some(cipher.seal(std::iter::once(bytes)).ok_or_else(too_long)?),
            None => None,
        };
        let bytes = sealed.as_deref().unwrap_or(bytes);
        let len = u32::try_from(bytes.len()).map_err(|_| too_long())?;
        // One write, so that a short request is one packet.
        write(&mut self.stream, &[&len.to_le_bytes(), bytes].concat(), deadline)
    }

    fn receive(&mut self, max: usize, deadline: &Deadline) -> io::Result<Vec<u8>> {
        let mut len = [0; 4];
        fill(&mut self.stream, &mut len, deadline)?;
        let head = len;
        let len = usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX);
        if len > max && head.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            let reason = format!("text that begins with {:?}", String::from_utf8_lossy(&head));
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let max = max + if self.cipher.is_some() { SEAL } else { 0 };
        let bytes = take(&mut self.stream, len, max, deadline)?;
        let Some(cipher) = &mut self.cipher else { return Ok(bytes) };
        cipher.open(bytes).ok_or_else(|| {
            let expected = "expected an answer that is encrypted with the shared secret";
            io::Error::new(io::ErrorKind::InvalidData, format!("{expected}, got another one: it is not of the server"))
        })
    }
}

/// Who greets the server.
#[derive(Debug, Clone)]
pub(super) struct RankGreeter {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) job: String,
    pub(super) secret: Option<Secret>,
}

impl Greeter for RankGreeter {
    type Connection = Link;

    /// The server closes no connection of a rank for other reasons than its end, or a refusal.
    const CLOSING: Duration = Duration::from_millis(225);

    fn greet(
        &self,
        stream: TcpStream,
        first: Option<&Link>,
        deadline: &Deadline,
    ) -> std::result::Result<Link, Failure> {
        // A server that was too slow may hear of an attempt when that has been given up, and take
        // its rank for one that has died. So each attempt of the first connection is another start.
        let (purpose, id, met) = match first {
            None => (Purpose::Presence, nonce(), 0),
            Some(first) => (Purpose::Requests, first.id, first.server),
        };
        let secret = self.secret.as_ref();
        let Self { rank, size, .. } = *self;
        let nonce = secret.map(|_| random());
        let said = Hello { purpose, rank, size, id, job: self.job.clone(), server: met, nonce }.encode();
        let mut link = Link { stream, cipher: None, id, server: 0, holder: Holder::Rank0 };
        link.send(&said, deadline)?;
        let mut challenge = None;
        loop {
            let reply = Reply::decode(&link.receive(MAX_REPLY, deadline)?);
            let reason = match (reply, secret, challenge) {
                (Reply::Refused(reason), ..) => return Err(Failure::Never(reason)),
                (Reply::Welcome { server, at_rank_0, proof: None }, None, _) => {
                    return Ok(Link { server, holder: Holder::of(at_rank_0), ..link });
                }
                (Reply::Challenge(nonce), Some(secret), None) => {
                    link.send(&prove(secret, &nonce, &said), deadline)?;
                    challenge = Some(nonce);
                    continue;
                }
                (Reply::Welcome { server, at_rank_0, proof: Some(proof) }, Some(secret), Some(nonce)) => {
                    let holder = Holder::of(at_rank_0);
                    match trust(secret, &nonce, &said, (server, at_rank_0), &proof) {
                        Some(cipher) => return Ok(Link { cipher: Some(cipher), server, holder, ..link }),
                        None => "expected a server with the shared secret, got one that does not prove that it has it",
                    }
                }
                (Reply::Welcome { .. }, Some(_), _) => {
                    "expected a server with the shared secret, got one that proves none"
                }
                (Reply::Challenge(_) | Reply::Welcome { .. }, None, _) => {
                    "expected a server without a shared secret, got one that asks for it"
                }
                (Reply::Challenge(_) | Reply::Unknown, ..) => "expected a server of an exchange, got something else",
            };
            return Err(Failure::Never(reason.to_owned()));
        }
    }
}

/// The store of one rank over TCP: made by a [`TcpPlace`](super::TcpPlace).
///
/// The server is in the process of rank 0, or is a [`TcpServer`](super::TcpServer). When the process
/// of rank 0 ends, and the server with it, all calls return [`Error::Departed`] at once. At a
/// `TcpServer` nothing but that rank is lost. The end of another rank is noticed by its connection,
/// which the system closes with the process. If a host vanishes, that takes up to half a minute.
#[derive(Debug)]
pub struct Tcp {
    client: Client<RankGreeter>,
    /// Where rank 0 may serve next time, if not only at this address.
    pub(crate) addresses: Vec<String>,
}

impl Tcp {
    pub(super) fn connect(
        operation: &'static str,
        address: String,
        greeter: RankGreeter,
        holder: Holder,
        server: Option<Server>,
        deadline: &Deadline,
    ) -> Result<Self> {
        let ranks = (greeter.rank, greeter.size);
        let mut client = Client::connect(operation, greeter, address, ranks, holder, server, deadline)?;
        client.holder = client.presence.holder;
        Ok(Self { client, addresses: Vec::new() })
    }

    /// Connects to the next server, at the first address at which one answers.
    fn connect_again(&self, deadline: &Deadline) -> Result<Arc<dyn Store>> {
        let connect = |address: &str, deadline: &Deadline| {
            let greeter = self.client.greeter.clone();
            let at = address.to_owned();
            let mut store = Self::connect("Exchange::join", at, greeter, Holder::Rank0, None, deadline)?;
            store.addresses.clone_from(&self.addresses);
            Ok(Arc::new(store))
        };
        if self.addresses.len() < 2 {
            return Ok(connect(&self.client.address, deadline)?);
        }
        let mut last = None;
        let found = deadline.until(|| {
            for address in &self.addresses {
                match connect(address, &Deadline::after(TRY.min(deadline.remaining()))) {
                    Ok(store) => return Ok(Some(store)),
                    Err(error) => last = Some(error),
                }
            }
            Ok(None)
        })?;
        match (found, last) {
            (Some(store), _) => Ok(store),
            (None, Some(error)) => Err(error),
            (None, None) => Err(deadline.error("Exchange::join", "rank 0 is not reached")),
        }
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
        &self.client.address
    }

    /// Sends a request, which has `within` at the server, and reads the result in its answer. `key`
    /// is for errors.
    fn ask<T>(
        &self,
        operation: &'static str,
        key: &str,
        request: &Request<'_>,
        within: Duration,
        read: impl FnOnce(Reader<'_>) -> Option<T>,
    ) -> Result<T> {
        let deadline = Deadline::after(within.saturating_add(SLACK));
        let failed = |reason: String| Error::Exchange { operation, key: key.to_owned(), reason };
        let answer = self.client.with_connection(operation, key, &deadline, |link| {
            link.send(&request.encode(), &deadline)?;
            let bytes = link.receive(MAX_ANSWER, &deadline)?;
            let unreadable = || failed(format!("expected an answer, got {} bytes that are none", bytes.len()));
            Ok(match codec::open(&bytes).ok_or_else(unreadable) {
                Err(error) => (Err(error), Reuse::No),
                Ok(Err(reason)) => (Err(failed(reason.to_owned())), Reuse::No),
                Ok(Ok(result)) => match read(result) {
                    Some(value) => (Ok(value), Reuse::Yes),
                    None => (Err(unreadable()), Reuse::No),
                },
            })
        })?;
        answer.unwrap_or_else(|| Err(self.client.failed(operation, key, &"the server has closed the connection")))
    }
}

impl Store for Tcp {
    fn rank(&self) -> usize {
        self.client.rank
    }

    fn size(&self) -> usize {
        self.client.size
    }

    fn id(&self) -> u64 {
        self.client.presence.id
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
            codec::read_values(reader).filter(|values| values.len() == keys.len())
        })
    }

    fn add(&self, key: &str, by: i64, within: Duration) -> Result<i64> {
        self.ask("Store::add", key, &Request::Add { key, by }, within, |mut reader| reader.u64().map(u64::cast_signed))
    }

    fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8], within: Duration) -> Result<Swap> {
        let operation = "Store::compare_and_set";
        check_value(operation, value.len())?;
        check_value(operation, expected.map_or(0, <[u8]>::len))?;
        self.ask(operation, key, &Request::CompareAndSet { key, expected, value }, within, codec::read_swap)
    }

    fn delete(&self, key: &str, within: Duration) -> Result<bool> {
        self.ask("Store::delete", key, &Request::Delete { key }, within, |mut reader| Some(reader.u8()? == 1))
    }

    fn clear(&self, prefix: &str, within: Duration) -> Result<()> {
        self.ask("Store::clear", prefix, &Request::Clear { prefix }, within, |reader| reader.end(()))
    }

    fn lingers(&self) -> Duration {
        self.client.lingers()
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        self.ask("Store::ended", "", &Request::Ended { ids: ids.to_vec() }, within, |reader| {
            codec::read_departures(reader).filter(|ends| ends.len() == ids.len())
        })
    }

    fn goes_with(&self, id: u64) -> Result<bool> {
        Ok(self.client.depends_on_rank_0() && self.ended(&[id], SLACK)?.iter().any(Option::is_some))
    }

    fn again(&self, pause: Duration, within: Duration) -> Option<Result<Arc<dyn Store>>> {
        if !self.client.depends_on_rank_0() {
            return None;
        }
        let deadline = Deadline::after(within);
        self.client.hang_up(pause, &deadline);
        Some(self.connect_again(&deadline))
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.client.owner.is_another() {
            let _ = self.client.presence.send(&Request::Bye.encode(), &Deadline::after(SLACK));
        }
    }
}
