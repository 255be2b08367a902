//! How one thread serves many connections until it is told to end, whatever they speak.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::accept::{Arrival, accept};
use super::events::{self, Events, Flags};
use super::timers::Timers;
use crate::exchange::system::is;

const LISTENER: u64 = 0;
const CONTROL: u64 = 1;

/// How many are let in before others have their turn.
const AT_ONCE: usize = 64;

/// How long the server stays for the others when its own rank leaves.
const LINGER: Duration = Duration::from_secs(5);

/// What a server waits for: who comes, what happens on connections, which are known by numbers, their times, and its end.
pub(in crate::exchange) struct Serving {
    pub(in crate::exchange) events: Events,
    pub(in crate::exchange) timers: Timers,
    /// Those who have not said who they are, oldest first, and how many there may be. The oldest ones make room.
    pub(in crate::exchange) strangers: BTreeSet<u64>,
    most_strangers: usize,
    listener: TcpListener,
    control: UnixStream,
    next: u64,
    /// When to end though others are there.
    stop: Option<Instant>,
}

impl Serving {
    /// For those who come to `listener`. It ends when the other end of `control` says so, or is closed.
    pub(in crate::exchange) fn new(
        listener: TcpListener,
        control: UnixStream,
        most_strangers: usize,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let events = Events::new()?;
        events.add(&listener, LISTENER, events::IN)?;
        events.add(&control, CONTROL, events::IN)?;
        Ok(Self {
            events,
            timers: Timers::default(),
            strangers: BTreeSet::new(),
            most_strangers,
            listener,
            control,
            next: CONTROL + 1,
            stop: None,
        })
    }

    /// Whether the rank of the server has left.
    pub(in crate::exchange) fn is_ending(&self) -> bool {
        self.stop.is_some()
    }

    /// How many have come.
    #[cfg(test)]
    pub(in crate::exchange) fn came(&self) -> u64 {
        self.next - CONTROL - 1
    }

    fn told_to_stop(&mut self) {
        let mut byte = [0];
        let now = Instant::now();
        let left = matches!(self.control.read(&mut byte), Ok(0));
        self.stop = Some(if left { now + LINGER } else { now });
        let _ = self.events.remove(&self.control);
    }

    /// Who has to go before one more may come.
    fn too_many(&self) -> Option<u64> {
        self.strangers.first().copied().filter(|_| self.strangers.len() >= self.most_strangers)
    }
}

/// A server: what it does with its connections.
pub(in crate::exchange) trait Serve: Sized {
    fn serving(&mut self) -> &mut Serving;

    /// Whether one more may be there.
    fn has_room(&self) -> bool {
        true
    }

    /// Somebody has come, by a connection that does not wait: a stranger.
    fn begin(&mut self, token: u64, stream: TcpStream);

    /// Something has happened to a connection, which may be closed already.
    fn happened(&mut self, token: u64, flags: Flags);

    /// The time of a connection is over.
    fn on_time(&mut self, token: u64, now: Instant);

    fn close(&mut self, token: u64);

    /// Whether anybody is there for whom it stays when its own rank has left.
    fn has_others(&self) -> bool;

    /// Whether something is left to do of what has happened.
    fn is_behind(&self) -> bool {
        false
    }

    /// Does of that what others may wait for.
    fn catch_up(&mut self) {}

    /// Serves until the end.
    fn run(mut self) {
        let mut happened = Vec::new();
        loop {
            let stop = self.serving().stop;
            if stop.is_some_and(|stop| !self.has_others() || stop <= Instant::now()) {
                return;
            }
            let next = self.serving().timers.first().into_iter().chain(stop).min();
            let mut within = next.map(|next| next.saturating_duration_since(Instant::now()));
            if self.is_behind() {
                within = Some(Duration::ZERO);
            }
            if self.turn(&mut happened, within).is_err() {
                return;
            }
        }
    }

    /// Waits so long for something to happen, and does all that it asks for.
    fn turn(&mut self, happened: &mut Vec<(u64, Flags)>, within: Option<Duration>) -> io::Result<()> {
        match self.serving().events.wait(happened, within) {
            Err(error) if !is(&error, &[libc::EINTR]) => return Err(error),
            _ => {}
        }
        for &(token, flags) in &*happened {
            match token {
                LISTENER => self.let_in(),
                CONTROL => self.serving().told_to_stop(),
                _ => self.happened(token, flags),
            }
        }
        self.catch_up();
        let now = Instant::now();
        while let Some(token) = self.serving().timers.over(now) {
            self.on_time(token, now);
        }
        Ok(())
    }

    /// All who wait to be let in, or some of them.
    fn let_in(&mut self) {
        for _ in 0..AT_ONCE {
            let stream = match accept(&self.serving().listener) {
                Arrival::Here(stream) => stream,
                Arrival::Nobody => return,
                Arrival::NoRoom => {
                    // Whoever is unknown makes room; without any, we ask again a little later.
                    match self.serving().strangers.first().copied() {
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

    /// Takes a connection that does not wait, where there is room for it.
    fn admit(&mut self, stream: TcpStream) -> io::Result<()> {
        if !self.has_room() {
            return Ok(());
        }
        let serving = self.serving();
        let token = serving.next;
        serving.next += 1;
        serving.events.add(&stream, token, events::IN)?;
        while let Some(oldest) = self.serving().too_many() {
            self.close(oldest);
        }
        self.serving().strangers.insert(token);
        self.begin(token, stream);
        Ok(())
    }
}
