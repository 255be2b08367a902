//! What the thread of the server does: it holds the values and serves all connections.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::values::Values;
use super::waits::Waits;
use crate::exchange::net::accept::{Arrival, accept};
use crate::exchange::net::events::{self, Events};
use crate::exchange::net::server::Server;
use crate::exchange::system::{is, most_files};

const LISTENER: u64 = 0;
const CONTROL: u64 = 1;

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

/// How long the server stays for the others when its own rank leaves.
const LINGER: Duration = Duration::from_secs(5);

/// A server for those who come to `listener`.
pub(super) fn start(listener: TcpListener) -> io::Result<Server> {
    Server::start(listener, |listener, control| {
        let service = Service::new(listener, control)?;
        Ok(move || service.run())
    })
}

pub(super) struct Service {
    events: Events,
    listener: TcpListener,
    control: UnixStream,
    pub(super) values: Values,
    pub(super) waits: Waits,
    pub(super) connections: HashMap<u64, Connection>,
    /// Those who have said nothing, oldest first, and how many there may be.
    strangers: BTreeSet<u64>,
    most_strangers: usize,
    /// How many connections there may be.
    most: usize,
    /// Those of whom something was read that was not looked at: until it is, no more is read.
    pub(super) again: BTreeSet<u64>,
    /// When connections are to be looked at: one time for each at most. One that needs it no more is looked at in vain.
    timers: BTreeSet<(Instant, u64)>,
    /// How many bytes are held of what connections have sent.
    held: usize,
    /// How many may be, with those of keys that somebody waits for.
    room: usize,
    next: u64,
    /// When to end though others are there.
    stop: Option<Instant>,
}

impl Service {
    fn new(listener: TcpListener, control: UnixStream) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let events = Events::new()?;
        events.add(&listener, LISTENER, events::IN)?;
        events.add(&control, CONTROL, events::IN)?;
        Ok(Self {
            events,
            listener,
            control,
            values: Values::default(),
            waits: Waits::default(),
            connections: HashMap::new(),
            strangers: BTreeSet::new(),
            most_strangers: STRANGERS.min(most_files() / 4),
            most: most_files() / 2,
            again: BTreeSet::new(),
            timers: BTreeSet::new(),
            held: 0,
            room: HELD,
            next: CONTROL + 1,
            stop: None,
        })
    }

    fn run(mut self) {
        let mut happened = Vec::new();
        loop {
            if let Some(stop) = self.stop {
                // Nobody says goodbye; who has said anything leaves with its connection.
                let others = self.connections.values().any(|one| one.dialect.is_some());
                if !others || stop <= Instant::now() {
                    return;
                }
            }
            let next = self.timers.first().map(|(when, _)| *when).into_iter().chain(self.stop).min();
            let mut within = next.map(|next| next.saturating_duration_since(Instant::now()));
            if !self.again.is_empty() {
                within = Some(Duration::ZERO);
            }
            if self.turn(&mut happened, within).is_err() {
                return;
            }
        }
    }

    /// Waits so long for something to happen, and does all that it asks for.
    fn turn(&mut self, happened: &mut Vec<(u64, events::Flags)>, within: Option<Duration>) -> io::Result<()> {
        match self.events.wait(happened, within) {
            Err(error) if !is(&error, &[libc::EINTR]) => return Err(error),
            _ => {}
        }
        for &(token, flags) in &*happened {
            match token {
                LISTENER => self.accept(),
                CONTROL => self.told_to_stop(),
                // It is told of again, once what it has sent before is looked at.
                _ if self.again.contains(&token) => {}
                _ => self.serve(token, flags),
            }
        }
        for token in std::mem::take(&mut self.again) {
            self.serve(token, 0);
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
            if self.connections.len() >= self.most {
                // The process needs files for other things, too.
                continue;
            }
            let token = self.next;
            self.next += 1;
            if self.events.add(&stream, token, events::IN).is_err() {
                continue;
            }
            while self.strangers.len() >= self.most_strangers
                && let Some(oldest) = self.strangers.first().copied()
            {
                self.close(oldest);
            }
            self.connections.insert(token, Connection::new(stream));
            self.strangers.insert(token);
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
            self.strangers.remove(&token);
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
            self.schedule(token);
        }
    }

    /// Has a connection looked at when its time is over.
    fn schedule(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Some(stale) = connection.stale else { return };
        match connection.due {
            // Looked at in vain then, it has its next time.
            Some(due) if due <= stale => return,
            Some(due) => _ = self.timers.remove(&(due, token)),
            None => {}
        }
        connection.due = Some(stale);
        self.timers.insert((stale, token));
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
        let _ = self.events.change(&connection.line.stream, token, interest);
        // Values that somebody replaces live on while they are to be sent, so nobody may leave them lying for ever.
        if drained {
            connection.stale = None;
        } else if taken || connection.stale.is_none() {
            self.limit(token, PAUSE);
        }
    }

    fn close(&mut self, token: u64) {
        self.strangers.remove(&token);
        self.again.remove(&token);
        self.waits.end(token);
        let Some(connection) = self.connections.remove(&token) else { return };
        self.held -= connection.held();
        if let Some(due) = connection.due {
            self.timers.remove(&(due, token));
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
            }
            self.schedule(token);
        }
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
