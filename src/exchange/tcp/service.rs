//! What the thread of the server does: it holds the table and serves all connections.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::answer;
use super::connection::{Connection, Peer};
use super::gate::{Gate, Step};
use super::greeting::{MAX_HELLO, Purpose};
use super::message::{MAX_REQUEST, Request};
use crate::exchange::net::accept::{Arrival, accept};
use crate::exchange::net::events::{self, Events};
use crate::exchange::net::line::Piece;
use crate::exchange::system::is;
use crate::exchange::table::Table;

const LISTENER: u64 = 0;
const CONTROL: u64 = 1;

/// How long a client may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);

/// How long a client may pause within a request, or in taking an answer.
const PAUSE: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(30) };

/// So many connections may be open that have not said who they are. The oldest ones make room.
const STRANGERS: usize = 128;

/// So many bytes of requests may be held that have not come whole.
const HELD: usize = 1 << 30;

/// How long the server stays for the others when its own rank leaves.
const LINGER: Duration = Duration::from_secs(5);

pub(super) struct Service {
    events: Events,
    listener: TcpListener,
    control: UnixStream,
    gate: Gate,
    pub(super) table: Table,
    pub(super) connections: HashMap<u64, Connection>,
    /// Those who have not said who they are, oldest first.
    strangers: BTreeSet<u64>,
    /// Who waits for a key.
    pub(super) waits: HashMap<String, Vec<u64>>,
    /// When connections are to be looked at: one time for each at most. One that needs it no more is looked at in vain.
    timers: BTreeSet<(Instant, u64)>,
    /// How many bytes are held of requests that have not come whole.
    held: usize,
    /// How many may be.
    room: usize,
    next: u64,
    /// When to end though others are there.
    stop: Option<Instant>,
}

impl Service {
    /// For those who come to `listener`. It ends when the other end of `control` says so, or is closed.
    pub(super) fn new(listener: TcpListener, control: UnixStream, gate: Gate) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let events = Events::new()?;
        events.add(&listener, LISTENER, events::IN)?;
        events.add(&control, CONTROL, events::IN)?;
        Ok(Self {
            events,
            listener,
            control,
            gate,
            table: Table::default(),
            connections: HashMap::new(),
            strangers: BTreeSet::new(),
            waits: HashMap::new(),
            timers: BTreeSet::new(),
            held: 0,
            room: HELD,
            next: CONTROL + 1,
            stop: None,
        })
    }

    pub(super) fn run(mut self) {
        let mut happened = Vec::new();
        loop {
            if let Some(stop) = self.stop {
                let others = self.connections.values().any(|one| matches!(one.peer, Peer::Presence(_)));
                if !others || stop <= Instant::now() {
                    return;
                }
            }
            let next = self.timers.first().map(|(when, _)| *when).into_iter().chain(self.stop).min();
            let within = next.map(|next| next.saturating_duration_since(Instant::now()));
            if self.turn(&mut happened, within).is_err() {
                return;
            }
        }
    }

    /// Waits so long for something to happen, and does all that it asks for.
    pub(super) fn turn(
        &mut self,
        happened: &mut Vec<(u64, events::Flags)>,
        within: Option<Duration>,
    ) -> io::Result<()> {
        match self.events.wait(happened, within) {
            Err(error) if !is(&error, &[libc::EINTR]) => return Err(error),
            _ => {}
        }
        for &(token, flags) in &*happened {
            match token {
                LISTENER => self.accept(),
                CONTROL => self.told_to_stop(),
                _ => self.serve(token, flags),
            }
        }
        self.on_time();
        Ok(())
    }

    fn told_to_stop(&mut self) {
        let mut byte = [0];
        let now = Instant::now();
        let left = matches!(io::Read::read(&mut &self.control, &mut byte), Ok(0));
        self.stop = Some(if left { now + LINGER } else { now });
        let _ = self.events.remove(&self.control);
    }

    fn accept(&mut self) {
        for _ in 0..64 {
            let stream = match accept(&self.listener) {
                Arrival::Here(stream) => stream,
                Arrival::Nobody => return,
                Arrival::NoRoom => {
                    // Whoever is unknown makes room; without any, we ask again a little later.
                    match self.strangers.first().copied() {
                        Some(oldest) => self.close(oldest),
                        None => std::thread::sleep(Duration::from_millis(10)),
                    }
                    return;
                }
            };
            // One that cannot be served has gone, too.
            let _ = self.admit(stream);
        }
    }

    /// Takes a connection that does not wait.
    pub(super) fn admit(&mut self, stream: TcpStream) -> io::Result<()> {
        let token = self.next;
        self.next += 1;
        self.events.add(&stream, token, events::IN)?;
        while self.strangers.len() >= STRANGERS
            && let Some(oldest) = self.strangers.first().copied()
        {
            self.close(oldest);
        }
        self.connections.insert(token, Connection::new(stream));
        self.strangers.insert(token);
        self.limit(token, GREETING);
        Ok(())
    }

    /// Reads and answers what has come on a connection, and sends on.
    fn serve(&mut self, token: u64, flags: events::Flags) {
        if flags & events::OUT != 0 {
            self.send(token);
        }
        // One that an event before this one has closed.
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let reads = events::IN | events::OVER;
        let before = connection.held();
        let open = flags & reads == 0 || matches!(connection.line.read(), Ok(true));
        self.held = self.held - before + connection.held();
        // Who asks again before it was answered keeps to no rule.
        let mut alive = !(connection.waiting.is_some() && connection.begun());
        while alive && self.connections.get(&token).is_some_and(Connection::listens) {
            match self.next_frame(token) {
                Some(true) => self.send(token),
                Some(false) => break,
                None => alive = false,
            }
        }
        if !open || !alive {
            return self.close(token);
        }
        if self.held > self.room && self.connections.get(&token).is_some_and(|one| one.begun() && one.listens()) {
            let reason =
                format!("the server is full: it holds {} bytes of requests that have not come whole", self.room);
            self.refuse(token, answer::refused(&reason));
            return self.send(token);
        }
        if let Some(connection) = self.connections.get(&token)
            && connection.begun()
            && connection.peer != Peer::Unknown
        {
            // A greeting has one time for all of it; a request may take as long as it goes on.
            self.limit(token, PAUSE);
        }
    }

    /// Ends a connection after so long, unless it is freed of that.
    fn limit(&mut self, token: u64, time: Duration) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.stale = Some(Instant::now() + time);
            self.schedule(token);
        }
    }

    /// Has a connection looked at when the first of its times is over.
    pub(super) fn schedule(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let until = connection.waiting.as_ref().map(|waiting| waiting.until);
        let Some(first) = connection.stale.into_iter().chain(until).min() else { return };
        match connection.due {
            // Looked at in vain then, it has its next time.
            Some(due) if due <= first => return,
            Some(due) => _ = self.timers.remove(&(due, token)),
            None => {}
        }
        connection.due = Some(first);
        self.timers.insert((first, token));
    }

    /// Says why not, and ends.
    pub(super) fn refuse(&mut self, token: u64, pieces: Vec<Piece>) -> Option<bool> {
        let connection = self.connections.get_mut(&token)?;
        connection.send(pieces);
        connection.closing = true;
        self.limit(token, GREETING);
        Some(true)
    }

    /// Answers the next frame; `Some(false)` if there is none, `None` if the connection is to end.
    fn next_frame(&mut self, token: u64) -> Option<bool> {
        let connection = self.connections.get_mut(&token)?;
        let max = if connection.peer == Peer::Unknown { MAX_HELLO } else { MAX_REQUEST };
        let before = connection.held();
        let frame = connection.frame(max);
        self.held = self.held - before + connection.held();
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => return Some(false),
            Err(reason) if connection.peer == Peer::Requests => return self.refuse(token, answer::refused(&reason)),
            Err(_) => return None,
        };
        if connection.peer != Peer::Unknown {
            connection.stale = None;
        }
        match connection.peer {
            Peer::Unknown => self.greet(token, &frame),
            Peer::Requests => self.answer(token, &frame),
            Peer::Presence(id) => {
                if Request::decode(&frame) == Ok(Request::Bye) {
                    self.table.end(id, "has left");
                }
                None
            }
        }
    }

    fn greet(&mut self, token: u64, frame: &[u8]) -> Option<bool> {
        let connection = self.connections.get_mut(&token)?;
        let (step, answer) = self.gate.hear(connection.asked.as_deref(), frame);
        let answer = vec![Piece::Own(answer)];
        let of_this_run = match &step {
            Step::Ask(_) => true,
            Step::In(hello, _) => hello.purpose == Purpose::Requests,
            Step::Refused | Step::Stranger => false,
        };
        if self.stop.is_some() && !of_this_run {
            // Its rank has left: who comes now looks for the server of the next run, and asks again.
            return None;
        }
        match step {
            Step::Ask(asked) => {
                connection.asked = Some(asked);
                connection.send(answer);
                Some(true)
            }
            Step::In(hello, seals) => {
                connection.asked = None;
                connection.peer = match hello.purpose {
                    Purpose::Presence => Peer::Presence(hello.id),
                    Purpose::Requests => Peer::Requests,
                };
                connection.stale = None;
                self.strangers.remove(&token);
                connection.send(answer);
                connection.seals = seals;
                Some(true)
            }
            Step::Refused => self.refuse(token, answer),
            Step::Stranger => None,
        }
    }

    /// Sends what can go now, and says what the connection is to be woken for.
    pub(super) fn send(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let flushed = connection.line.flush();
        let drained = connection.line.drained();
        let taken = match flushed {
            Ok(taken) if !(drained && connection.closing) => taken,
            _ => return self.close(token),
        };
        // Who does not take its answers is not asked what else it wants.
        let interest = if drained { events::IN } else { events::OUT };
        let _ = self.events.change(&connection.line.stream, token, interest);
        if connection.closing {
            return;
        }
        if connection.peer == Peer::Unknown {
            // The time of its greeting goes on.
            return;
        }
        // Values that somebody replaces live on while they are to be sent, so nobody may leave them lying for ever.
        if drained {
            connection.stale = None;
        } else if taken || connection.stale.is_none() {
            self.limit(token, PAUSE);
        }
    }

    fn close(&mut self, token: u64) {
        self.strangers.remove(&token);
        let Some(connection) = self.connections.remove(&token) else { return };
        self.held -= connection.held();
        if let Some(due) = connection.due {
            self.timers.remove(&(due, token));
        }
        if let Some(waiting) = &connection.waiting {
            self.forget(token, waiting);
        }
        if let Peer::Presence(id) = connection.peer {
            self.table.end(id, "has died: its connection is closed");
            // All who wait look whether it is one of those they wait for.
            let waiting: Vec<u64> =
                self.connections.iter().filter(|(_, one)| one.waiting.is_some()).map(|(token, _)| *token).collect();
            for token in waiting {
                self.end_wait(token);
            }
        }
    }

    /// Ends what has lasted too long.
    fn on_time(&mut self) {
        let now = Instant::now();
        while let Some((when, token)) = self.timers.first().copied()
            && when <= now
        {
            self.timers.pop_first();
            let Some(connection) = self.connections.get_mut(&token) else { continue };
            connection.due = None;
            if connection.stale.is_some_and(|stale| stale <= now) {
                self.close(token);
            } else if connection.waiting.as_ref().is_some_and(|waiting| waiting.until <= now) {
                self.end_wait(token);
            }
            self.schedule(token);
        }
    }
}

#[cfg(any(test, fuzzing))]
impl Service {
    /// Says what does not add up between its parts.
    pub(super) fn check(&self) {
        assert!(self.timers.len() <= self.connections.len(), "{} timers", self.timers.len());
        assert!(self.timers.iter().all(|(due, token)| self.connections[token].due == Some(*due)));
        assert_eq!(self.held, self.connections.values().map(Connection::held).sum::<usize>());
        assert!(self.strangers.iter().all(|token| self.connections[token].peer == Peer::Unknown));
        for (key, tokens) in &self.waits {
            let waits =
                |token: &u64| self.connections[token].waiting.as_ref().is_some_and(|one| one.missing.contains(key));
            assert!(!tokens.is_empty() && tokens.iter().all(waits), "{key:?}");
        }
        assert!(self.table.adds_up());
    }

    /// How many are connected.
    pub(super) fn connected(&self) -> usize {
        self.connections.len()
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
