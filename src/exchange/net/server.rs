//! The server of a store: one thread that serves many connections, whatever protocol their clients
//! speak.
//!
//! A [`Protocol`] finds the requests in the bytes of a connection and answers them. The event loop
//! here does the rest. It accepts connections, reads and writes without blocking, keeps the limits,
//! runs the timers, and ends when the process that has started it drops it.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::keep_alive;
use super::timers::Timers;
use super::waits::Waits;
use crate::exchange::owner_process::OwnerProcess;

const LISTENER: u64 = 0;
const CONTROL: u64 = 1;

/// The most events that one turn of the loop takes.
const EVENTS: usize = 256;

/// The most connections that are accepted before other events are handled.
const ACCEPTS: usize = 64;

/// The most bytes that are read from one connection before the others have their turn.
const READ: usize = 4 << 20;

/// The most requests of one connection that are answered before the others have their turn.
const REQUESTS: usize = 512;

/// How long the server stays for the other ranks after its own rank has left.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// How long a client may take to greet the server, and to read why it is refused.
const GREETING: Duration = Duration::from_secs(5);

/// How long a client may pause within a request, or while it reads an answer.
pub(in crate::exchange) const PAUSE: Duration = Duration::from_secs(30);

/// What the process of a server tells its thread: that it has a notice for the protocol, or that
/// the server ends at once.
const NOTICE: u8 = 1;
const STOP: u8 = 2;

/// What one server takes from its clients.
#[derive(Debug, Clone, Copy)]
pub(in crate::exchange) struct Limits {
    /// The most connections.
    pub(in crate::exchange) connections: usize,
    /// The most connections that have not greeted the server. The oldest one is closed when another
    /// one comes.
    pub(in crate::exchange) strangers: usize,
    /// The time for a greeting starts when the client connects. Otherwise it starts with the first
    /// byte.
    pub(in crate::exchange) greets_at_once: bool,
    /// How long a client may pause within a request, or while it reads an answer.
    pub(in crate::exchange) pause: Duration,
    /// The most bytes that are kept for requests that are not answered: incomplete ones, and keys
    /// that clients wait for.
    pub(in crate::exchange) pending: usize,
}

/// A part of an answer. A value is shared with the table, so that sending it to many clients needs
/// no memory.
#[derive(Debug)]
pub(in crate::exchange) enum Piece {
    Own(Vec<u8>),
    Value(Arc<[u8]>),
}

impl Piece {
    pub(in crate::exchange) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Value(bytes) => bytes,
        }
    }
}

/// Why a connection is closed.
#[derive(Debug)]
pub(in crate::exchange) enum Refusal {
    /// At once.
    Close,
    /// After this answer has been sent.
    Answer(Vec<Piece>),
}

/// What a server says and remembers; the event loop calls it.
pub(in crate::exchange) trait Protocol {
    /// What the protocol remembers of one connection.
    type Session;
    /// A whole request, as far as `next` has decoded it.
    type Request;

    fn limits(&self) -> Limits;

    fn session(&self) -> Self::Session;

    /// Whether the client has greeted the server, and so is no stranger.
    fn has_greeted(session: &Self::Session) -> bool;

    /// Whether the server stays for this client when its own rank has left.
    fn is_waited_for(session: &Self::Session) -> bool;

    /// The next request and its length, once all of its bytes are in `input`.
    fn next(&self, session: &mut Self::Session, input: &[u8]) -> Result<Option<(usize, Self::Request)>, Refusal>;

    /// Answers a request, which stands in `bytes`.
    fn answer(
        &mut self,
        clients: &mut Clients<Self::Session>,
        token: u64,
        request: Self::Request,
        bytes: &[u8],
    ) -> Result<(), Refusal>;

    /// Answers a client whose wait has reached its deadline.
    fn wait_expired(&mut self, _clients: &mut Clients<Self::Session>, _token: u64) {}

    /// A connection is closed.
    fn closed(&mut self, _clients: &mut Clients<Self::Session>, _session: Self::Session) {}

    /// The process of the server has a notice.
    fn notified(&mut self, _clients: &mut Clients<Self::Session>) {}

    /// When the protocol has something to do, if no client has.
    fn next_time(&self) -> Option<Instant> {
        None
    }

    /// Does what is due.
    fn time_is(&mut self, _now: Instant) {}

    /// What a client is told that sends more than the server has room for.
    fn no_room(&self, _session: &mut Self::Session) -> Refusal {
        Refusal::Close
    }
}

/// One connection, as the server sees it.
#[derive(Debug)]
pub(in crate::exchange) struct Connection<S> {
    pub(in crate::exchange) session: S,
    stream: TcpStream,
    /// What the client has sent, from the first byte that is not forgotten.
    input: Vec<u8>,
    /// How much of the input has been answered.
    answered: usize,
    /// What is still to be sent, and how much of its first piece is gone.
    output: VecDeque<Piece>,
    sent: usize,
    /// The client is no stranger any more.
    greeted: bool,
    /// The events that the connection is registered for.
    interest: EventFlags,
    /// When the connection is closed, unless the client goes on.
    expires: Option<Instant>,
    /// When its wait for keys is over.
    wait_until: Option<Instant>,
    /// It is closed once its output has been sent.
    refused: bool,
    /// The client sends no more.
    ended: bool,
    /// It is closed, and about to be removed.
    closed: bool,
}

impl<S> Connection<S> {
    /// Reads what has come.
    fn read(&mut self) {
        let (mut part, mut taken) = ([0; 64 << 10], 0);
        while taken < READ {
            match self.stream.read(&mut part) {
                Ok(len) if len > 0 => {
                    self.input.extend_from_slice(&part[..len]);
                    taken += len;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    /// Writes what the client takes now, and says whether it has taken anything.
    fn write(&mut self) -> io::Result<bool> {
        let mut taken = false;
        while let Some(piece) = self.output.front() {
            let bytes = piece.bytes();
            if self.sent == bytes.len() {
                self.output.pop_front();
                self.sent = 0;
                continue;
            }
            match self.stream.write(&bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => {
                    self.sent += len;
                    taken = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Forgets the requests that have been answered.
    fn forget(&mut self) {
        self.input.drain(..self.answered);
        self.answered = 0;
        // A client that has sent a large request may be silent for long.
        if self.input.is_empty() {
            self.input = Vec::new();
        }
    }
}

/// The connections of a server and what they wait for.
#[derive(Debug)]
pub(in crate::exchange) struct Clients<S> {
    connections: HashMap<u64, Connection<S>>,
    /// Which clients wait for which keys.
    waits: Waits,
    timers: Timers,
    limits: Limits,
    epoll: OwnedFd,
    /// Those that have not greeted the server. Tokens count up, so the first is the oldest.
    strangers: BTreeSet<u64>,
    /// Those whose input has not been looked at to its end. Until it is, no more is read from them.
    behind: BTreeSet<u64>,
    /// Those that are closed and not removed yet.
    closed: Vec<u64>,
    /// The bytes of all inputs together.
    held: usize,
    /// Whether the rank of the server has left.
    is_ending: bool,
}

impl<S> Clients<S> {
    fn get(&mut self, token: u64) -> Option<&mut Connection<S>> {
        self.connections.get_mut(&token).filter(|connection| !connection.closed)
    }

    pub(in crate::exchange) fn session(&mut self, token: u64) -> Option<&mut S> {
        self.get(token).map(|connection| &mut connection.session)
    }

    /// Whether the rank of the server has left, so that new clients belong to the next run.
    pub(in crate::exchange) fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Sends pieces to a client, behind what is still to be sent.
    pub(in crate::exchange) fn send(&mut self, token: u64, pieces: impl IntoIterator<Item = Piece>) {
        let Some(connection) = self.get(token) else { return };
        connection.output.extend(pieces);
        // A request that came while the client did not take its answers has not been looked at.
        if !connection.input.is_empty() {
            self.behind.insert(token);
        }
        self.flush(token);
    }

    /// The client waits for these keys, and for no others any more.
    pub(in crate::exchange) fn begin_wait(&mut self, token: u64, keys: HashSet<Arc<[u8]>>, until: Option<Instant>) {
        self.waits.begin(token, keys);
        if let Some(connection) = self.get(token) {
            connection.wait_until = until;
        }
        self.schedule(token);
    }

    /// The client waits no more.
    pub(in crate::exchange) fn end_wait(&mut self, token: u64) {
        self.waits.end(token);
        if let Some(connection) = self.get(token) {
            connection.wait_until = None;
        }
    }

    /// A key has been set: the clients that have waited for nothing else. Their waits are over.
    pub(in crate::exchange) fn key_set(&mut self, key: &[u8]) -> Vec<u64> {
        self.waits.key_set(key)
    }

    /// A value has been put into a queue: the first client that has waited for nothing else. Its
    /// wait is over.
    pub(in crate::exchange) fn key_pushed(&mut self, key: &[u8]) -> Option<u64> {
        self.waits.key_pushed(key)
    }

    /// All clients that wait.
    pub(in crate::exchange) fn waiting(&self) -> Vec<u64> {
        self.waits.clients()
    }

    /// Clients whose sessions are like this.
    pub(in crate::exchange) fn which(&self, is: impl Fn(&S) -> bool) -> Vec<u64> {
        let there = self.connections.iter().filter(|(_, connection)| !connection.closed && is(&connection.session));
        there.map(|(token, _)| *token).collect()
    }

    /// Closes a connection. The event loop removes it, and tells the protocol.
    pub(in crate::exchange) fn close(&mut self, token: u64) {
        if let Some(connection) = self.get(token) {
            connection.closed = true;
            self.closed.push(token);
        }
    }

    /// Sends an answer, and closes the connection behind it.
    fn refuse(&mut self, token: u64, refusal: Refusal) {
        let Refusal::Answer(pieces) = refusal else { return self.close(token) };
        let Some(connection) = self.connections.get_mut(&token).filter(|one| !one.closed) else { return };
        self.held -= std::mem::take(&mut connection.input).len();
        connection.answered = 0;
        connection.output.extend(pieces);
        connection.refused = true;
        self.end_wait(token);
        self.expire(token, GREETING);
        self.flush(token);
    }

    /// Writes what can go now, and registers for the events that the connection needs next.
    fn flush(&mut self, token: u64) {
        let pause = self.limits.pause;
        let Some(connection) = self.connections.get_mut(&token).filter(|one| !one.closed) else { return };
        let Ok(taken) = connection.write() else { return self.close(token) };
        let drained = connection.output.is_empty();
        if drained && connection.refused {
            return self.close(token);
        }
        // No more is read from a client that does not take its answers.
        let interest = if drained { EventFlags::IN } else { EventFlags::OUT };
        if interest != connection.interest {
            let _ = epoll::modify(&self.epoll, &connection.stream, EventData::new_u64(token), interest);
            connection.interest = interest;
        }
        // Neither a refusal nor a greeting gets more time.
        if connection.refused || !connection.greeted {
            return;
        }
        // A value that is replaced stays in memory until it has been sent, so a client may not take
        // forever.
        if drained {
            connection.expires = None;
        } else if taken || connection.expires.is_none() {
            self.expire(token, pause);
        }
    }

    /// Closes a connection after this time, unless the client goes on.
    fn expire(&mut self, token: u64, after: Duration) {
        if let Some(connection) = self.get(token) {
            connection.expires = Some(Instant::now() + after);
            self.schedule(token);
        }
    }

    /// Sets the timer of a connection to the first of its times.
    fn schedule(&mut self, token: u64) {
        let Some(connection) = self.get(token) else { return };
        let first = connection.expires.into_iter().chain(connection.wait_until).min();
        if let Some(first) = first {
            self.timers.set(token, first);
        }
    }
}

/// A server and its connections, until it ends.
#[derive(Debug)]
pub(in crate::exchange) struct EventLoop<P: Protocol> {
    pub(in crate::exchange) protocol: P,
    pub(in crate::exchange) clients: Clients<P::Session>,
    listener: TcpListener,
    control: UnixStream,
    next_token: u64,
    /// When to end although other ranks are there.
    stop: Option<Instant>,
}

impl<P: Protocol> EventLoop<P> {
    /// A server at `listener`. It ends when the other end of `control` is closed or sends a byte.
    pub(in crate::exchange) fn new(listener: TcpListener, control: UnixStream, protocol: P) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &control, EventData::new_u64(CONTROL), EventFlags::IN)?;
        let clients = Clients {
            connections: HashMap::new(),
            waits: Waits::default(),
            timers: Timers::default(),
            limits: protocol.limits(),
            epoll,
            strangers: BTreeSet::new(),
            behind: BTreeSet::new(),
            closed: Vec::new(),
            held: 0,
            is_ending: false,
        };
        Ok(Self { protocol, clients, listener, control, next_token: CONTROL + 1, stop: None })
    }

    /// Serves until the end.
    fn run(mut self) {
        loop {
            if self.stop.is_some_and(|stop| !self.is_waited_for() || stop <= Instant::now()) {
                return;
            }
            let next = self.clients.timers.first().into_iter().chain(self.stop).chain(self.protocol.next_time()).min();
            let within = next.map(|next| next.saturating_duration_since(Instant::now()));
            if self.turn(within).is_err() {
                return;
            }
        }
    }

    fn is_waited_for(&self) -> bool {
        self.clients.connections.values().any(|connection| P::is_waited_for(&connection.session))
    }

    /// Waits for events, at most for so long, and handles them. Returns whether anything happened.
    pub(in crate::exchange) fn turn(&mut self, within: Option<Duration>) -> io::Result<bool> {
        let within = if self.clients.behind.is_empty() { within } else { Some(Duration::ZERO) };
        // A time that is too long for the system is as good as none.
        let within = within.and_then(|within| Timespec::try_from(within).ok());
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.clients.epoll, spare_capacity(&mut events), within.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => self.accept(),
                CONTROL => self.told(),
                // A connection with a backlog is told of again, once its backlog is answered.
                token if self.clients.behind.contains(&token) => {}
                token => self.serve(token, event.flags),
            }
        }
        let behind = std::mem::take(&mut self.clients.behind);
        let happened = !events.is_empty() || !behind.is_empty();
        for token in behind {
            self.serve(token, EventFlags::empty());
        }
        let now = Instant::now();
        while let Some(token) = self.clients.timers.expired(now) {
            self.time_is_up(token, now);
        }
        self.protocol.time_is(now);
        Ok(happened)
    }

    /// Hears what the process of the server has to say.
    fn told(&mut self) {
        let (now, mut byte) = (Instant::now(), [0]);
        let told = self.control.read(&mut byte);
        if matches!(told, Ok(1)) && byte == [NOTICE] {
            self.protocol.notified(&mut self.clients);
            return self.remove_closed();
        }
        // The end of the stream says that the rank has left, a byte that it has failed.
        let left = matches!(told, Ok(0));
        self.stop = Some(if left { now + LINGER } else { now });
        self.clients.is_ending = true;
        let _ = epoll::delete(&self.clients.epoll, &self.control);
    }

    /// Accepts the connections that have come, or some of them.
    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    keep_alive(&stream);
                    // A connection that cannot be served is closed.
                    let _ = self.admit(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_out_of_files(&error) => {
                    // The oldest stranger makes room. Without one, try again a little later.
                    match self.clients.strangers.first().copied() {
                        Some(oldest) => self.close(oldest),
                        None => std::thread::sleep(Duration::from_millis(10)),
                    }
                    return;
                }
                // The client has gone again.
                Err(_) => {}
            }
        }
    }

    /// Takes a connection, if there is room for it.
    pub(in crate::exchange) fn admit(&mut self, stream: TcpStream) -> io::Result<()> {
        let limits = self.clients.limits;
        if self.clients.connections.len() >= limits.connections {
            return Ok(());
        }
        stream.set_nonblocking(true)?;
        let token = self.next_token;
        self.next_token += 1;
        let interest = EventFlags::IN;
        epoll::add(&self.clients.epoll, &stream, EventData::new_u64(token), interest)?;
        while self.clients.strangers.len() >= limits.strangers
            && let Some(oldest) = self.clients.strangers.first().copied()
        {
            self.close(oldest);
        }
        self.clients.strangers.insert(token);
        let connection = Connection {
            session: self.protocol.session(),
            stream,
            input: Vec::new(),
            answered: 0,
            output: VecDeque::new(),
            sent: 0,
            greeted: false,
            interest,
            expires: None,
            wait_until: None,
            refused: false,
            ended: false,
            closed: false,
        };
        self.clients.connections.insert(token, connection);
        if limits.greets_at_once {
            self.clients.expire(token, GREETING);
        }
        Ok(())
    }

    /// Reads and answers what has come on a connection, and sends on.
    fn serve(&mut self, token: u64, events: EventFlags) {
        if events.contains(EventFlags::OUT) {
            self.clients.flush(token);
        }
        let reads = events.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        // An event before this one may have closed it.
        let Some(connection) = self.clients.get(token) else { return self.remove_closed() };
        if reads {
            let before = connection.input.len();
            connection.read();
            let more = connection.input.len() - before;
            self.clients.held += more;
        }
        if let Err(refusal) = self.answer_all(token) {
            self.clients.refuse(token, refusal);
        }
        self.keep_limits(token, reads);
        self.remove_closed();
    }

    /// Answers the requests that have come, while it is the client's turn and it takes the answers.
    fn answer_all(&mut self, token: u64) -> Result<(), Refusal> {
        for _ in 0..REQUESTS {
            let Some(connection) = self.clients.get(token) else { return Ok(()) };
            if connection.refused || !connection.output.is_empty() {
                return Ok(());
            }
            let start = connection.answered;
            let next = self.protocol.next(&mut connection.session, &connection.input[start..]);
            connection.greeted = P::has_greeted(&connection.session);
            let Some((len, request)) = next? else { return Ok(()) };
            connection.answered += len;
            if connection.greeted {
                connection.expires = None;
            }
            // Set aside, as the answer may change the connection.
            let input = std::mem::take(&mut connection.input);
            let answered = self.protocol.answer(&mut self.clients, token, request, &input[start..start + len]);
            if let Some(connection) = self.clients.connections.get_mut(&token) {
                connection.input = input;
                connection.greeted = P::has_greeted(&connection.session);
            }
            answered?;
        }
        self.clients.behind.insert(token);
        Ok(())
    }

    /// Closes a connection that has ended or takes too much room, and sets its time.
    fn keep_limits(&mut self, token: u64, has_read: bool) {
        let clients = &mut self.clients;
        let is_behind = clients.behind.contains(&token);
        let Some(connection) = clients.connections.get_mut(&token) else { return };
        // The requests of a client that has left have their turns: what it has set last is set.
        if connection.closed || connection.ended && !is_behind {
            return clients.close(token);
        }
        if connection.greeted {
            clients.strangers.remove(&token);
        }
        if connection.refused {
            return;
        }
        let before = connection.input.len();
        connection.forget();
        clients.held -= before - connection.input.len();
        let has_begun = !connection.input.is_empty();
        if clients.held + clients.waits.bytes() > clients.limits.pending
            && (has_begun || clients.waits.is_waiting(token))
        {
            let refusal = self.protocol.no_room(&mut connection.session);
            return clients.refuse(token, refusal);
        }
        let is_timed = connection.expires.is_some();
        match (has_begun, connection.greeted) {
            // A greeting has one time for all of it. A request may take as long as it goes on.
            (true, false) if !is_timed => clients.expire(token, GREETING),
            (true, true) if has_read || !is_timed => clients.expire(token, clients.limits.pause),
            (false, true) if connection.output.is_empty() => connection.expires = None,
            _ => {}
        }
    }

    fn time_is_up(&mut self, token: u64, now: Instant) {
        let Some(connection) = self.clients.get(token) else { return };
        if connection.expires.is_some_and(|expires| expires <= now) {
            return self.close(token);
        }
        if connection.wait_until.is_some_and(|until| until <= now) {
            self.protocol.wait_expired(&mut self.clients, token);
            self.remove_closed();
        }
        self.clients.schedule(token);
    }

    fn close(&mut self, token: u64) {
        self.clients.close(token);
        self.remove_closed();
    }

    fn remove_closed(&mut self) {
        while let Some(token) = self.clients.closed.pop() {
            self.clients.strangers.remove(&token);
            self.clients.behind.remove(&token);
            self.clients.timers.clear(token);
            self.clients.waits.end(token);
            if let Some(connection) = self.clients.connections.remove(&token) {
                self.clients.held -= connection.input.len();
                self.protocol.closed(&mut self.clients, connection.session);
            }
        }
    }
}

/// Whether the process or the system has no file descriptor or memory for another connection.
fn is_out_of_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

#[cfg(any(test, fuzzing))]
impl<P: Protocol> EventLoop<P> {
    /// Panics where the parts of the server contradict each other.
    pub(in crate::exchange) fn check(&self) {
        let clients = &self.clients;
        let is_there = |token: &u64| clients.connections.contains_key(token);
        assert!(clients.closed.is_empty());
        assert_eq!(clients.held, clients.connections.values().map(|one| one.input.len()).sum::<usize>());
        assert!(clients.behind.iter().all(is_there) && clients.timers.is_consistent(is_there));
        assert!(clients.strangers.iter().all(|token| !clients.connections[token].greeted));
        assert!(clients.waits.is_consistent(is_there));
    }

    /// How many bytes are kept for waits.
    pub(in crate::exchange) fn held_by_waits(&self) -> usize {
        self.clients.waits.bytes()
    }

    /// How many clients are connected.
    pub(in crate::exchange) fn connected(&self) -> usize {
        self.clients.connections.len()
    }
}

#[cfg(test)]
impl<P: Protocol> EventLoop<P> {
    /// How many clients have ever connected.
    pub(in crate::exchange) fn accepted(&self) -> u64 {
        self.next_token - CONTROL - 1
    }

    /// How many bytes are kept of what clients have sent.
    pub(in crate::exchange) fn held(&self) -> usize {
        self.clients.held
    }

    /// Those whose input has not been looked at to its end.
    pub(in crate::exchange) fn behind(&self) -> usize {
        self.clients.behind.len()
    }

    pub(in crate::exchange) fn tokens(&self) -> Vec<u64> {
        let mut tokens: Vec<u64> = self.clients.connections.keys().copied().collect();
        tokens.sort_unstable();
        tokens
    }

    pub(in crate::exchange) fn all_known(&self) -> bool {
        self.clients.connections.values().all(|one| one.greeted)
    }

    pub(in crate::exchange) fn limits(&mut self) -> &mut Limits {
        &mut self.clients.limits
    }

    /// Bytes that a client has sent and nobody has looked at, as where an answer that it did not
    /// take held them up.
    pub(in crate::exchange) fn put_input(&mut self, token: u64, bytes: &[u8]) {
        if let Some(connection) = self.clients.connections.get_mut(&token) {
            connection.input.extend_from_slice(bytes);
            self.clients.held += bytes.len();
        }
    }
}

/// A server and its thread, as the process that has started it holds them.
#[derive(Debug)]
pub(in crate::exchange) struct Server {
    pub(in crate::exchange) address: SocketAddr,
    control: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    owner: OwnerProcess,
    /// Whether it stays for the other ranks when it is dropped.
    lingers: bool,
}

impl Server {
    /// Starts a thread that serves the clients of `listener`.
    pub(in crate::exchange) fn start<P>(listener: TcpListener, protocol: P) -> io::Result<Self>
    where
        P: Protocol + Send + 'static,
        P::Session: Send,
    {
        let address = listener.local_addr()?;
        let (control, theirs) = UnixStream::pair()?;
        let service = EventLoop::new(listener, theirs, protocol)?;
        let thread = std::thread::Builder::new().name("gpucomm-exchange".to_owned()).spawn(move || service.run())?;
        Ok(Self { address, control: Some(control), thread: Some(thread), owner: OwnerProcess::this(), lingers: true })
    }

    /// The same, which ends at once when it is dropped.
    pub(in crate::exchange) fn without_lingering(mut self) -> Self {
        self.lingers = false;
        self
    }

    /// Has the protocol look for a notice of this process.
    pub(in crate::exchange) fn notify(&self) {
        self.tell(NOTICE);
    }

    fn tell(&self, what: u8) {
        if self.owner.is_another() {
            return;
        }
        if let Some(mut control) = self.control.as_ref() {
            let _ = control.write(&[what]);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Closing the stream tells the thread to end when all other ranks have left. A byte before
        // that ends it at once.
        if !self.lingers || std::thread::panicking() {
            self.tell(STOP);
        }
        drop(self.control.take());
        match self.thread.take() {
            // A forked child does not have the thread.
            Some(thread) if self.owner.is_another() => std::mem::forget(thread),
            Some(thread) => _ = thread.join(),
            None => {}
        }
    }
}
