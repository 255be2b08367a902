//! The client of a store: how one rank reaches the server, and the connections that it keeps.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::address::resolve;
use super::keep_alive;
use super::server::{LINGER, Server};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::owner_process::OwnerProcess;
use crate::lock::Mutex;

/// How long an answer may be on its way, beside the time that the request was given.
pub(in crate::exchange) const SLACK: Duration = Duration::from_millis(900);

/// How long one attempt to connect may take. A server that does not answer may be about to end.
const ATTEMPT: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(5) };

/// The longest pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// After this time a rank that still tries to connect says so, and why, on stderr: it may wait for minutes.
const NOTICE: Duration = Duration::from_secs(5);

/// How long no byte may come of an answer that has begun, after its deadline.
const STALL: Duration = SLACK;

/// The bytes a second at which an answer has to come that takes longer than its deadline.
const LEAST_RATE: f64 = (1 << 20) as f64;

/// The longest that an answer comes after its deadline.
const LATEST: Duration = Duration::from_secs(60);

/// The shortest timeout of a socket.
const MOMENT: Duration = Duration::from_millis(1);

/// The most memory that is taken at once for bytes that were announced and have not come.
const PART: usize = 1 << 20;

/// Why an attempt to connect failed.
pub(in crate::exchange) enum Failure {
    /// A later attempt may succeed.
    Later(String),
    /// No attempt will.
    Never(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidData => {
                Self::Never(format!("expected a server of an exchange, got something else: {error}"))
            }
            _ if timed_out(&error) => Self::Later("it does not answer".to_owned()),
            _ if is_closed(&error) => Self::Later(format!("it closes the connection ({error})")),
            _ => Self::Later(error.to_string()),
        }
    }
}

/// How the connections of one rank begin.
pub(in crate::exchange) trait Greeter {
    /// A connection on which the server has answered.
    type Connection: fmt::Debug + AsRef<TcpStream>;

    /// How long the server may take to close all connections of a rank when it ends. After that
    /// time, a closed connection means that the server has closed this one alone.
    const CLOSING: Duration;

    /// Greets the server. `first` is the connection that the rank keeps open for as long as it is
    /// there, if it has one yet.
    fn greet(
        &self,
        stream: TcpStream,
        first: Option<&Self::Connection>,
        deadline: &Deadline,
    ) -> std::result::Result<Self::Connection, Failure>;
}

/// Whether a connection can be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exchange) enum Reuse {
    Yes,
    No,
}

/// Whose process has the server of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exchange) enum Holder {
    Rank0,
    /// The process of no rank of this exchange.
    NoRank,
}

impl Holder {
    pub(in crate::exchange) fn of(at_rank_0: bool) -> Self {
        if at_rank_0 { Self::Rank0 } else { Self::NoRank }
    }

    /// The server, in words.
    fn server(self) -> &'static str {
        match self {
            Self::Rank0 => "the server of rank 0",
            Self::NoRank => "the rendezvous store",
        }
    }
}

/// The connections of one rank to its server.
#[derive(Debug)]
pub(in crate::exchange) struct Client<G: Greeter> {
    pub(in crate::exchange) greeter: G,
    pub(in crate::exchange) address: String,
    pub(in crate::exchange) rank: usize,
    pub(in crate::exchange) size: usize,
    pub(in crate::exchange) holder: Holder,
    /// Open for as long as the rank and the server are there.
    pub(in crate::exchange) presence: G::Connection,
    /// Connections that no call uses now. Each call has one to itself, as it may wait.
    idle: Mutex<Vec<G::Connection>>,
    pub(in crate::exchange) owner: OwnerProcess,
    /// The server, if it is in this process.
    server: Option<Server>,
}

impl<G: Greeter> Client<G> {
    pub(in crate::exchange) fn connect(
        operation: &'static str,
        greeter: G,
        address: String,
        (rank, size): (usize, usize),
        holder: Holder,
        server: Option<Server>,
        deadline: &Deadline,
    ) -> Result<Self> {
        let greet = |stream, deadline: &Deadline| greeter.greet(stream, None, deadline);
        let presence = dial(operation, (&address, holder), rank, deadline, || true, greet)?;
        Ok(Self {
            greeter,
            address,
            rank,
            size,
            holder,
            presence,
            idle: Mutex::default(),
            owner: OwnerProcess::this(),
            server,
        })
    }

    /// Sends a request on a connection that no other call uses. `Ok(None)` if the server has
    /// closed the connection and is still there. `key` is for errors.
    pub(in crate::exchange) fn with_connection<T>(
        &self,
        operation: &'static str,
        key: &str,
        deadline: &Deadline,
        request: impl FnOnce(&mut G::Connection) -> io::Result<(T, Reuse)>,
    ) -> Result<Option<T>> {
        let idle = self.idle.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.another(operation, key, deadline)?,
        };
        // A connection on which anything went wrong is not used again.
        match request(&mut connection) {
            Ok((value, reuse)) => {
                if reuse == Reuse::Yes {
                    self.idle.lock().push(connection);
                }
                Ok(Some(value))
            }
            Err(error) if is_closed(&error) => {
                if self.server_ends() {
                    Err(self.gone(operation, key))
                } else {
                    Ok(None)
                }
            }
            Err(error) if timed_out(&error) => {
                let detail = format!("{key:?}: no answer from the rendezvous store at {}", self.address);
                Err(deadline.error(operation, detail))
            }
            Err(error) => Err(self.failed(operation, key, &error)),
        }
    }

    /// Whether the server is in the process of rank 0, which is another rank.
    pub(in crate::exchange) fn depends_on_rank_0(&self) -> bool {
        self.holder == Holder::Rank0 && self.rank != 0
    }

    /// Whether this process has the server.
    pub(in crate::exchange) fn serves(&self) -> bool {
        self.server.is_some()
    }

    /// How long the drop of the server of this process may wait for its clients.
    pub(in crate::exchange) fn lingers(&self) -> Duration {
        if self.serves() { LINGER } else { Duration::ZERO }
    }

    /// Closes all connections, for which the server may wait, and pauses. No call uses any now.
    pub(in crate::exchange) fn hang_up(&self, pause: Duration, deadline: &Deadline) {
        self.idle.lock().clear();
        let _ = self.presence.as_ref().shutdown(Shutdown::Both);
        std::thread::sleep(pause.min(deadline.remaining()));
    }

    /// Another connection, to the server that is known.
    fn another(&self, operation: &'static str, key: &str, deadline: &Deadline) -> Result<G::Connection> {
        let greet = |stream, deadline: &Deadline| self.greeter.greet(stream, Some(&self.presence), deadline);
        let at = (&*self.address, self.holder);
        let dialed = dial(operation, at, self.rank, deadline, || !self.server_has_ended(), greet);
        // If the server has ended, nobody answers at its address, or another server.
        dialed.map_err(|error| if self.server_has_ended() { self.gone(operation, key) } else { error })
    }

    /// Whether the connection is closed that is open for as long as the server is there.
    fn server_has_ended(&self) -> bool {
        let peeked = rustix::net::recv(self.presence.as_ref(), &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
    }

    /// Whether the server has ended, which has just closed a connection.
    fn server_ends(&self) -> bool {
        let deadline = Deadline::after(G::CLOSING);
        loop {
            if self.server_has_ended() {
                return true;
            }
            if deadline.expired() {
                return false;
            }
            std::thread::sleep(G::CLOSING / 50);
        }
    }

    /// The error of a rank whose server has ended.
    fn gone(&self, operation: &'static str, key: &str) -> Error {
        let address = &self.address;
        match self.holder {
            Holder::Rank0 => {
                // Some requests are about no key.
                let about = if key.is_empty() { String::new() } else { format!(" ({key:?})") };
                let how = format!("held the store and has exited: lost the rendezvous store at {address}{about}");
                Error::Departed { operation, rank: 0, how }
            }
            Holder::NoRank => {
                let reason = format!("lost the rendezvous store at {address}: the server has ended");
                Error::Exchange { operation, key: key.to_owned(), reason }
            }
        }
    }

    pub(in crate::exchange) fn failed(&self, operation: &'static str, key: &str, why: &dyn fmt::Display) -> Error {
        Error::Exchange { operation, key: key.to_owned(), reason: format!("{}: {why}", self.address) }
    }
}

impl<G: Greeter> Drop for Client<G> {
    fn drop(&mut self) {
        // Close the connections before the server, which waits for the ranks that are there.
        self.idle.get_mut().clear();
        if !self.owner.is_another() {
            let _ = self.presence.as_ref().shutdown(Shutdown::Both);
        }
        drop(self.server.take());
    }
}

/// Connects to the server at `address` and greets it. Tries again until the deadline, or until
/// there is no `hope` that it answers.
fn dial<T>(
    operation: &'static str,
    (address, holder): (&str, Holder),
    rank: usize,
    deadline: &Deadline,
    hope: impl Fn() -> bool,
    greet: impl Fn(TcpStream, &Deadline) -> std::result::Result<T, Failure>,
) -> Result<T> {
    let (begin, mut pause, mut is_said) = (Instant::now(), Duration::from_millis(5), false);
    loop {
        let why = match attempt(address, deadline, &greet) {
            Ok(connected) => return Ok(connected),
            Err(Failure::Never(reason)) => {
                let reason = format!("rank {rank} is refused: {reason}");
                return Err(Error::Exchange { operation, key: address.to_owned(), reason });
            }
            Err(Failure::Later(why)) => why,
        };
        let goes_on = hope();
        if goes_on && !is_said && begin.elapsed() >= NOTICE {
            is_said = true;
            eprintln!("gpucomm: rank {rank} still waits for {} at {address}: {why}", holder.server());
        }
        if goes_on {
            std::thread::sleep(pause.min(deadline.remaining()));
            pause = (pause * 2).min(PAUSE);
        }
        // An attempt without time would replace the reason by one of its own.
        if !goes_on || deadline.expired() {
            let detail = format!("rank {rank}: {} at {address} has not come: {why}", holder.server());
            return Err(deadline.error(operation, detail));
        }
    }
}

/// One attempt, at each address of a name.
fn attempt<T>(
    address: &str,
    deadline: &Deadline,
    greet: &impl Fn(TcpStream, &Deadline) -> std::result::Result<T, Failure>,
) -> std::result::Result<T, Failure> {
    let mut last = Failure::Later(format!("{address} has no address"));
    for address in resolve(address, deadline)? {
        let attempt = Deadline::after(deadline.remaining().min(ATTEMPT));
        match connect(&address, &attempt).and_then(|stream| greet(stream, &attempt)) {
            Ok(connected) => return Ok(connected),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

/// A connection to another socket at `address`.
pub(in crate::exchange) fn connect(
    address: &SocketAddr,
    deadline: &Deadline,
) -> std::result::Result<TcpStream, Failure> {
    let stream = TcpStream::connect_timeout(address, at_least_a_moment(deadline))?;
    if stream.local_addr()? == stream.peer_addr()? {
        // If nobody listens at a port of this host, the system may give that port to the very
        // connection that asks for it.
        return Err(Failure::Later("nobody listens".to_owned()));
    }
    stream.set_nodelay(true)?;
    keep_alive(&stream);
    Ok(stream)
}

/// What is left of the deadline, and not nothing, which sockets refuse.
fn at_least_a_moment(deadline: &Deadline) -> Duration {
    deadline.remaining().max(MOMENT)
}

/// Sends all of `bytes`.
pub(in crate::exchange) fn write(stream: &mut TcpStream, mut bytes: &[u8], deadline: &Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(at_least_a_moment(deadline)))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if deadline.expired() && !bytes.is_empty() {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Receives as many bytes as `bytes` has room for.
pub(in crate::exchange) fn fill(stream: &mut TcpStream, bytes: &mut [u8], deadline: &Deadline) -> io::Result<()> {
    fill_by(stream, bytes, deadline, deadline)
}

/// Receives as many bytes as `bytes` has room for. After the deadline, goes on as long as bytes come,
/// until `end`.
fn fill_by(stream: &mut TcpStream, mut bytes: &mut [u8], deadline: &Deadline, end: &Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        let pause = deadline.remaining().max(STALL.min(end.remaining()));
        stream.set_read_timeout(Some(pause.max(MOMENT)))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server has closed the connection")),
            Ok(len) => bytes = &mut bytes[len..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if end.expired() && !bytes.is_empty() {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Receives `len` bytes, and takes memory only for those that have come. Refuses more than `max`. A
/// deadline is for the beginning of an answer: a long one takes its time, as long as bytes come.
pub(in crate::exchange) fn take(
    stream: &mut TcpStream,
    len: usize,
    max: usize,
    deadline: &Deadline,
) -> io::Result<Vec<u8>> {
    if len > max {
        let reason = format!("expected at most {max} bytes, got {len}");
        return Err(io::Error::new(ErrorKind::InvalidData, reason));
    }
    let longest = Duration::from_secs_f64(len as f64 / LEAST_RATE).min(LATEST);
    let end = Deadline::after(deadline.remaining() + longest);
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let start = bytes.len();
        bytes.resize(len.min(start + PART), 0);
        fill_by(stream, &mut bytes[start..], deadline, &end)?;
    }
    Ok(bytes)
}

/// Whether `error` says that the other end has closed the connection.
pub(in crate::exchange) fn is_closed(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

pub(in crate::exchange) fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_reason_of_the_last_full_attempt_is_kept() {
        let nobody_listens = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let deadline = Deadline::after(Duration::from_secs(2));
        let greet = |_: TcpStream, _: &Deadline| Ok::<_, Failure>(());
        let error = dial("test", (&format!("localhost:{nobody_listens}"), Holder::Rank0), 1, &deadline, || true, greet)
            .unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
    }
}
