//! What the thread of the server does: it holds the table and serves all connections.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::answer;
use super::connection::{Connection, Peer, Piece, Waiting};
use super::events;
use super::events::Events;
use super::message::{Hello, MAX_HELLO, MAX_REQUEST, Purpose, Request, Welcome};
use crate::exchange::store::nonce;
use crate::exchange::system::is;
use crate::exchange::table::Table;
use crate::exchange::wire::Writer;

const LISTENER: u64 = 0;
const CONTROL: u64 = 1;

/// How long a client may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);

/// How long a client may pause within a request, or in taking an answer.
const PAUSE: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(30) };

/// So many connections may be open that have not said who they are. The oldest ones make room.
const STRANGERS: usize = 128;

/// How long the server stays for the others when its own rank leaves.
const LINGER: Duration = Duration::from_secs(5);

pub(super) struct Service {
    events: Events,
    listener: TcpListener,
    control: UnixStream,
    job: String,
    size: usize,
    nonce: u64,
    table: Table,
    connections: HashMap<u64, Connection>,
    /// Those who have not said who they are, oldest first.
    strangers: BTreeSet<u64>,
    /// Who waits for a key.
    waits: HashMap<String, Vec<u64>>,
    /// When connections are to be looked at. One that needs it no more is looked at in vain.
    timers: BTreeSet<(Instant, u64)>,
    next: u64,
    /// When to end though others are there.
    stop: Option<Instant>,
}

impl Service {
    /// For those who come to `listener`. It ends when the other end of `control` says so, or is closed.
    pub(super) fn new(listener: TcpListener, control: UnixStream, job: String, size: usize) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let events = Events::new()?;
        events.add(&listener, LISTENER, events::IN)?;
        events.add(&control, CONTROL, events::IN)?;
        Ok(Self {
            events,
            listener,
            control,
            job,
            size,
            nonce: nonce(),
            table: Table::default(),
            connections: HashMap::new(),
            strangers: BTreeSet::new(),
            waits: HashMap::new(),
            timers: BTreeSet::new(),
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
            if let Err(error) = self.events.wait(&mut happened, within)
                && !is(&error, &[libc::EINTR])
            {
                return;
            }
            for &(token, flags) in &happened {
                match token {
                    LISTENER => self.accept(),
                    CONTROL => self.told_to_stop(),
                    _ => self.serve(token, flags),
                }
            }
            self.on_time();
        }
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
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is(&error, OUT_OF_FILES) => {
                    // Whoever is unknown makes room; without any, we ask again a little later.
                    match self.strangers.first().copied() {
                        Some(oldest) => self.close(oldest),
                        None => std::thread::sleep(Duration::from_millis(10)),
                    }
                    return;
                }
                // That one has gone again.
                Err(_) => continue,
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let token = self.next;
            self.next += 1;
            if self.events.add(&stream, token, events::IN).is_err() {
                continue;
            }
            while self.strangers.len() >= STRANGERS
                && let Some(oldest) = self.strangers.first().copied()
            {
                self.close(oldest);
            }
            let stale = Instant::now() + GREETING;
            self.connections.insert(token, Connection::new(stream, stale));
            self.strangers.insert(token);
            self.timers.insert((stale, token));
        }
    }

    /// Reads and answers what has come on a connection, and sends on.
    fn serve(&mut self, token: u64, flags: events::Flags) {
        if flags & events::OUT != 0 {
            self.send(token);
        }
        // One that an event before this one has closed.
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let reads = events::IN | events::OVER;
        let open = flags & reads == 0 || matches!(connection.read(), Ok(true));
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
        let stale = Instant::now() + time;
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.stale = Some(stale);
            self.timers.insert((stale, token));
        }
    }

    /// Says why not, and ends.
    fn refuse(&mut self, token: u64, pieces: Vec<Piece>) -> Option<bool> {
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
        let frame = match connection.frame(max).ok()? {
            Some(frame) => frame,
            None => return Some(false),
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
        let hello = Hello::decode(frame).and_then(|hello| match hello.objection(&self.job, self.size, self.nonce) {
            Some(objection) => Err(Some(objection)),
            None => Ok(hello),
        });
        let connection = self.connections.get_mut(&token)?;
        match hello {
            Ok(hello) => {
                connection.peer = match hello.purpose {
                    Purpose::Presence => Peer::Presence(hello.id),
                    Purpose::Requests => Peer::Requests,
                };
                connection.stale = None;
                self.strangers.remove(&token);
                connection.send(vec![Piece::Own(Welcome { server: self.nonce }.encode())]);
                Some(true)
            }
            Err(reason) => self.refuse(token, vec![Piece::Own(Welcome::refuse(&reason?))]),
        }
    }

    fn answer(&mut self, token: u64, frame: &[u8]) -> Option<bool> {
        let request = match Request::decode(frame) {
            Ok(request) => request,
            Err(reason) => return self.refuse(token, answer::refused(&reason)),
        };
        let (changed, pieces) = match request {
            Request::Set { key, value } => {
                (Some(key), self.table.set(key, value).map(|()| answer::done(Writer::default())))
            }
            Request::Add { key, by } => {
                (Some(key), self.table.add(key, by).map(|sum| answer::done(Writer::default().u64(sum.cast_unsigned()))))
            }
            Request::CompareAndSet { key, expected, value } => {
                (Some(key), self.table.compare_and_set(key, expected, value).map(|swap| answer::swap(&swap)))
            }
            Request::Delete { key } => (None, Ok(answer::done(Writer::default().u8(self.table.delete(key).into())))),
            Request::Clear { prefix } => {
                self.table.clear(prefix);
                (None, Ok(answer::done(Writer::default())))
            }
            Request::Ended { ids } => (None, Ok(answer::ends(ids.iter().map(|id| self.table.ended(*id))))),
            Request::Get { keys, ms } => return self.get(token, &keys, Duration::from_millis(ms.into())),
            Request::Bye => return None,
        };
        let pieces = pieces.unwrap_or_else(|reason| answer::refused(&reason));
        self.connections.get_mut(&token)?.send(pieces);
        if let Some(key) = changed {
            self.came(key);
        }
        Some(true)
    }

    fn get(&mut self, token: u64, keys: &[&str], within: Duration) -> Option<bool> {
        let missing: Vec<&str> = keys.iter().filter(|key| self.table.get(key).is_none()).copied().collect();
        let connection = self.connections.get_mut(&token)?;
        if missing.is_empty() || within.is_zero() {
            connection.send(answer::values(keys.iter().map(|key| self.table.get(key)).collect()));
            return Some(true);
        }
        let until = Instant::now() + within;
        for key in &missing {
            self.waits.entry((*key).to_owned()).or_default().push(token);
        }
        connection.waiting = Some(Waiting {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            missing: missing.into_iter().map(str::to_owned).collect(),
            until,
        });
        self.timers.insert((until, token));
        Some(true)
    }

    /// A key may be there now that was not.
    fn came(&mut self, key: &str) {
        if self.waits.is_empty() || self.table.get(key).is_none() {
            return;
        }
        for token in self.waits.remove(key).unwrap_or_default() {
            let waiting = self.connections.get_mut(&token).and_then(|one| one.waiting.as_mut());
            if let Some(waiting) = waiting {
                waiting.missing.remove(key);
                if waiting.missing.is_empty() {
                    self.end_wait(token);
                }
            }
        }
    }

    /// Sends who waits what is there.
    fn end_wait(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Some(waiting) = connection.waiting.take() else { return };
        connection.send(answer::values(waiting.keys.iter().map(|key| self.table.get(key)).collect()));
        self.forget(token, &waiting);
        self.send(token);
    }

    fn forget(&mut self, token: u64, waiting: &Waiting) {
        for key in &waiting.missing {
            if let Some(tokens) = self.waits.get_mut(key) {
                tokens.retain(|other| *other != token);
                if tokens.is_empty() {
                    self.waits.remove(key);
                }
            }
        }
    }

    /// Sends what can go now, and says what the connection is to be woken for.
    fn send(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let flushed = connection.flush();
        let drained = connection.drained();
        let taken = match flushed {
            Ok(taken) if !(drained && connection.closing) => taken,
            _ => return self.close(token),
        };
        // Who does not take its answers is not asked what else it wants.
        let interest = if drained { events::IN } else { events::OUT };
        let _ = self.events.change(&connection.stream, token, interest);
        if connection.closing {
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
            let Some(connection) = self.connections.get(&token) else { continue };
            if connection.stale.is_some_and(|stale| stale <= now) {
                self.close(token);
            } else if connection.waiting.as_ref().is_some_and(|waiting| waiting.until <= now) {
                self.end_wait(token);
            }
        }
    }
}

/// The process or the system has no more file descriptors or memory for a connection.
const OUT_OF_FILES: &[i32] = &[libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
