//! What the thread of the server does: it holds the values and serves all connections.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::values::Values;
use super::waits::Waits;
use crate::exchange::net::events::{self, Flags};
use crate::exchange::net::server::Server;
use crate::exchange::net::serving::{Serve, Serving};
use crate::exchange::system::most_files;

/// How long a client may take to say which protocol it speaks, once it has begun.
const GREETING: Duration = Duration::from_secs(5);

/// How long a client may pause within a query, or in taking an answer.
const PAUSE: Duration = Duration::from_secs(30);

/// So many connections may be open that have said nothing: a quarter of the files of this process, and no more than this. The oldest ones
/// make room. They have no time for it, as each client of PyTorch 1.13 has one that it may never use, and does not bear that it is closed.
const STRANGERS: usize = 2048;

/// How many queries of one connection are answered before others have their turn.
const TURN: usize = 512;

/// So many bytes may be held of queries that have not come whole, or were not looked at, and of keys that somebody waits for.
const HELD: usize = 1 << 30;

/// Files for each rank: it may have two connections and more, and connections take half of all files.
const FILES: usize = 8;

/// A server for those who come to `listener`: so many ranks, and whoever else.
pub(super) fn start(listener: TcpListener, size: usize) -> io::Result<Server> {
    Server::start(listener, |listener, control| {
        let service = Service::new(listener, control, size)?;
        Ok(move || service.run())
    })
}

pub(super) struct Service {
    serving: Serving,
    pub(super) values: Values,
    pub(super) waits: Waits,
    pub(super) connections: HashMap<u64, Connection>,
    /// How many connections there may be.
    most: usize,
    /// Those of whom something was read that was not looked at: until it is, no more is read.
    pub(super) again: BTreeSet<u64>,
    /// How many bytes are held of what connections have sent.
    held: usize,
    /// How many may be, with those of keys that somebody waits for.
    room: usize,
}

impl Serve for Service {
    fn serving(&mut self) -> &mut Serving {
        &mut self.serving
    }

    /// The process needs files for other things, too.
    fn has_room(&self) -> bool {
        self.connections.len() < self.most
    }

    fn begin(&mut self, token: u64, stream: TcpStream) {
        self.connections.insert(token, Connection::new(stream));
    }

    fn happened(&mut self, token: u64, flags: Flags) {
        // It is told of again, once what it has sent before is looked at.
        if !self.again.contains(&token) {
            self.serve(token, flags);
        }
    }

    fn on_time(&mut self, token: u64, now: Instant) {
        match self.connections.get(&token).and_then(|one| one.stale) {
            Some(stale) if stale <= now => self.close(token),
            Some(stale) => self.serving.timers.look(token, stale),
            None => {}
        }
    }

    fn close(&mut self, token: u64) {
        self.serving.strangers.remove(&token);
        self.serving.timers.forget(token);
        self.again.remove(&token);
        self.waits.end(token);
        if let Some(connection) = self.connections.remove(&token) {
            self.held -= connection.held();
        }
    }

    /// Nobody says goodbye; who has said anything leaves with its connection.
    fn has_others(&self) -> bool {
        self.connections.values().any(|one| one.dialect.is_some())
    }

    fn is_behind(&self) -> bool {
        !self.again.is_empty()
    }

    fn catch_up(&mut self) {
        for token in std::mem::take(&mut self.again) {
            self.serve(token, 0);
        }
    }
}

impl Service {
    /// For those who come to `listener`. It ends when the other end of `control` says so, or is closed.
    pub(super) fn new(listener: TcpListener, control: UnixStream, size: usize) -> io::Result<Self> {
        let files = most_files(size.saturating_mul(FILES));
        Ok(Self {
            serving: Serving::new(listener, control, STRANGERS.min(files / 4))?,
            values: Values::default(),
            waits: Waits::default(),
            connections: HashMap::new(),
            most: files / 2,
            again: BTreeSet::new(),
            held: 0,
            room: HELD,
        })
    }

    /// Reads and answers what has come on a connection, and sends on.
    fn serve(&mut self, token: u64, flags: Flags) {
        if flags & events::OUT != 0 {
            self.send(token);
        }
        // One that an event before this one has closed.
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let reads = events::IN | events::OVER;
        if flags & reads != 0 {
            let before = connection.held();
            connection.over |= !matches!(connection.line.read(), Ok(true));
            self.held = self.held - before + connection.held();
        }
        let alive = self.answer_all(token);
        let Some(connection) = self.connections.get_mut(&token) else { return };
        // Who leaves has its turns until all is looked at: what it has set last is set.
        if !alive || connection.over && !self.again.contains(&token) {
            return self.close(token);
        }
        let before = connection.held();
        let (begun, known, timed) = (connection.begun(), connection.dialect.is_some(), connection.stale.is_some());
        self.held = self.held - before + connection.held();
        if self.held + self.waits.held() > self.room && (begun || self.waits.is_held(token)) {
            return self.close(token);
        }
        if known {
            self.serving.strangers.remove(&token);
        }
        match (begun, known) {
            // A greeting has one time for all of it; a query may take as long as it goes on.
            (true, false) if !timed => self.limit(token, GREETING),
            (true, true) if flags & reads != 0 || !timed => self.limit(token, PAUSE),
            (false, _) if connection.line.drained() => connection.stale = None,
            _ => {}
        }
    }

    /// Ends a connection after so long, unless it is freed of that.
    fn limit(&mut self, token: u64, time: Duration) {
        let stale = Instant::now() + time;
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.stale = Some(stale);
            self.serving.timers.look(token, stale);
        }
    }

    /// Answers queries that have come, while it is their turn and the other end takes the answers; `false` if the connection is to end.
    fn answer_all(&mut self, token: u64) -> bool {
        for _ in 0..TURN {
            let Some(connection) = self.connections.get_mut(&token) else { return false };
            if !connection.line.drained() {
                return true;
            }
            let (start, whole) = match connection.next() {
                Ok(Some(found)) => found,
                Ok(None) => return true,
                Err(()) => return false,
            };
            connection.stale = None;
            // Set aside, as others may be told of what stands in it.
            let input = std::mem::take(&mut connection.line.input);
            let answered = self.answer(token, &whole, &input[start..]);
            let Some(connection) = self.connections.get_mut(&token) else {
                self.held -= input.len();
                return false;
            };
            connection.line.input = input;
            if answered.is_err() {
                return false;
            }
            // A set has no answer.
            if !connection.line.drained() {
                self.send(token);
            }
        }
        self.again.insert(token);
        true
    }

    /// Sends what can go now, and says what the connection is to be woken for.
    pub(super) fn send(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Ok(taken) = connection.line.flush() else { return self.close(token) };
        let drained = connection.line.drained();
        // Who does not take its answers is not asked what else it wants.
        let interest = if drained { events::IN } else { events::OUT };
        let _ = self.serving.events.change(&connection.line.stream, token, interest);
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
        let is_there = |token: &u64| self.connections.contains_key(token);
        assert_eq!(self.held, self.connections.values().map(Connection::held).sum::<usize>());
        assert!(self.again.iter().all(is_there) && self.serving.timers.adds_up(is_there));
        assert!(self.serving.strangers.iter().all(|token| self.connections[token].dialect.is_none()));
        assert!(self.waits.adds_up(is_there) && self.values.adds_up());
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
