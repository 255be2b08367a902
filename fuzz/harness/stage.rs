//! A server of a store, and the clients that a fuzzer has it serve.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::exchange::net::server::{EventLoop, Protocol};

/// A client, at its end of a connection.
pub(in crate::exchange) struct Client<C> {
    pub(in crate::exchange) stream: UnixStream,
    /// What the protocol knows of it.
    pub(in crate::exchange) state: C,
}

/// A server without a thread, and its clients.
pub(in crate::exchange) struct Stage<P: Protocol, C> {
    pub(in crate::exchange) server: EventLoop<P>,
    /// Open, so that the server does not end.
    _control: UnixStream,
    clients: [Option<Client<C>>; 4],
    /// The state of a client that has just connected.
    fresh: fn() -> C,
    /// Panics if the state of the protocol is inconsistent.
    check: fn(&P),
}

impl<P: Protocol, C> Stage<P, C> {
    pub(in crate::exchange) fn new(protocol: P, fresh: fn() -> C, check: fn(&P)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (control, theirs) = UnixStream::pair().expect("a pair of sockets");
        let server = EventLoop::new(listener, theirs, protocol).expect("a server");
        Self { server, _control: control, clients: [const { None }; 4], fresh, check }
    }

    /// Calls `step` for each step of a script, and then has all clients leave. A step is a byte, whose
    /// high half says which client acts and whose low bits say what it does, a number of bytes, and
    /// these bytes.
    pub(in crate::exchange) fn play(mut self, mut script: &[u8], mut step: impl FnMut(&mut Self, u8, usize, &[u8])) {
        while let [what, len, tail @ ..] = script {
            let (bytes, after) = tail.split_at(usize::from(*len).min(tail.len()));
            script = after;
            let who = usize::from(what >> 4) % self.clients.len();
            step(&mut self, what & 7, who, bytes);
            self.turn();
        }
        self.end();
    }

    /// A client. Connects it if it is not connected.
    pub(in crate::exchange) fn client(&mut self, who: usize) -> &mut Client<C> {
        let (server, fresh) = (&mut self.server, self.fresh);
        self.clients[who].get_or_insert_with(|| {
            let (stream, theirs) = UnixStream::pair().expect("a pair of sockets");
            stream.set_nonblocking(true).expect("a socket");
            server.admit(TcpStream::from(OwnedFd::from(theirs))).expect("room for it");
            Client { stream, state: fresh() }
        })
    }

    /// Closes the connection of a client.
    pub(in crate::exchange) fn leave(&mut self, who: usize) {
        self.clients[who] = None;
    }

    /// Sends what goes into the socket at once.
    pub(in crate::exchange) fn write(&mut self, who: usize, bytes: &[u8]) {
        let _ = self.client(who).stream.write(bytes);
    }

    /// Sends a long message in two parts.
    pub(in crate::exchange) fn write_in_two(&mut self, who: usize, bytes: &[u8]) {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.write(who, first);
        self.turn();
        self.write(who, second);
    }

    /// Reads what has come.
    pub(in crate::exchange) fn read(&mut self, who: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.client(who).stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => self.leave(who),
        }
        bytes
    }

    /// Has the server handle all events.
    pub(in crate::exchange) fn turn(&mut self) {
        for _ in 0..8 {
            let happened = self.server.turn(Some(Duration::ZERO)).expect("events");
            self.server.check();
            (self.check)(&self.server.protocol);
            if !happened {
                break;
            }
        }
    }

    /// All clients leave, and the server forgets them.
    fn end(mut self) {
        self.clients = [const { None }; 4];
        // A process that another thread has forked just now may hold a connection open for a moment.
        for round in 0..5000 {
            self.turn();
            if self.server.connected() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(u64::from(round >= 1000)));
        }
        assert_eq!((self.server.connected(), self.server.held_by_waits()), (0, 0));
    }
}
