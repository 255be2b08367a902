//! What the thread of the server does: it holds the table and serves all connections.

use std::collections::HashMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::answer;
use super::connection::{Connection, Peer};
use super::gate::{Gate, Step};
use super::greeting::{MAX_HELLO, Purpose};
use super::message::{MAX_REQUEST, Request};
use crate::exchange::net::events::{self, Flags};
use crate::exchange::net::line::Piece;
use crate::exchange::net::serving::{Serve, Serving};
use crate::exchange::table::Table;

/// How long a client may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);

/// How long a client may pause within a request, or in taking an answer.
const PAUSE: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(30) };

/// So many connections may be open that have not said who they are. The oldest ones make room.
const STRANGERS: usize = 128;

/// So many bytes of requests may be held that have not come whole.
const HELD: usize = 1 << 30;

pub(super) struct Service {
    serving: Serving,
    gate: Gate,
    pub(super) table: Table,
    pub(super) connections: HashMap<u64, Connection>,
    /// Who waits for a key.
    pub(super) waits: HashMap<String, Vec<u64>>,
    /// How many bytes are held of requests that have not come whole.
    held: usize,
    /// How many may be.
    room: usize,
}

impl Serve for Service {
    fn serving(&mut self) -> &mut Serving {
        &mut self.serving
    }

    fn begin(&mut self, token: u64, stream: TcpStream) {
        self.connections.insert(token, Connection::new(stream));
        self.limit(token, GREETING);
    }

    /// Reads and answers what has come, and sends on.
    fn happened(&mut self, token: u64, flags: Flags) {
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

    fn close(&mut self, token: u64) {
        self.serving.strangers.remove(&token);
        self.serving.timers.forget(token);
        let Some(connection) = self.connections.remove(&token) else { return };
        self.held -= connection.held();
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

    fn on_time(&mut self, token: u64, now: Instant) {
        let Some(connection) = self.connections.get(&token) else { return };
        if connection.stale.is_some_and(|stale| stale <= now) {
            self.close(token);
        } else if connection.waiting.as_ref().is_some_and(|waiting| waiting.until <= now) {
            self.end_wait(token);
        }
        self.schedule(token);
    }

    fn has_others(&self) -> bool {
        self.connections.values().any(|one| matches!(one.peer, Peer::Presence(_)))
    }
}

impl Service {
    /// For those who come to `listener`. It ends when the other end of `control` says so, or is closed.
    pub(super) fn new(listener: TcpListener, control: UnixStream, gate: Gate) -> io::Result<Self> {
        Ok(Self {
            serving: Serving::new(listener, control, STRANGERS)?,
            gate,
            table: Table::default(),
            connections: HashMap::new(),
            waits: HashMap::new(),
            held: 0,
            room: HELD,
        })
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
        let Some(connection) = self.connections.get(&token) else { return };
        let until = connection.waiting.as_ref().map(|waiting| waiting.until);
        if let Some(first) = connection.stale.into_iter().chain(until).min() {
            self.serving.timers.look(token, first);
        }
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
        if self.serving.is_ending() && !of_this_run {
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
                self.serving.strangers.remove(&token);
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
        let _ = self.serving.events.change(&connection.line.stream, token, interest);
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
}

#[cfg(any(test, fuzzing))]
impl Service {
    /// Says what does not add up between its parts.
    pub(super) fn check(&self) {
        assert!(self.serving.timers.adds_up(|token| self.connections.contains_key(token)));
        assert_eq!(self.held, self.connections.values().map(Connection::held).sum::<usize>());
        assert!(self.serving.strangers.iter().all(|token| self.connections[token].peer == Peer::Unknown));
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
