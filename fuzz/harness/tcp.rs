//! The store over TCP under a fuzzer. Whatever bytes come, nothing panics, and what is decoded
//! encodes to the same bytes.

// Without the feature there are no secrets, so what follows a secret is unreachable.
#![cfg_attr(not(feature = "secret"), allow(unreachable_code))]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::codec::{self, Request};
use super::greeting::{Admission, Decision, Hello, Purpose, Reply, prove, trust};
use super::secret::{FrameCodes, Secret};
use super::server::Service;
use crate::exchange::net::server::EventLoop;
use crate::exchange::store::random;

#[cfg(feature = "secret")]
fn secret(wanted: bool) -> Option<Secret> {
    wanted.then(|| Secret::new(b"a secret"))
}

#[cfg(not(feature = "secret"))]
fn secret(_wanted: bool) -> Option<Secret> {
    None
}

/// Bytes as the first frame of a client, as an answer to it, and as a proof.
pub(in crate::exchange) fn greeting(bytes: &[u8]) {
    if let Ok(hello) = Hello::decode(bytes) {
        assert_eq!(hello.encode(), bytes);
    }
    match Reply::decode(bytes) {
        Reply::Unknown | Reply::Refused(_) => {}
        known => assert_eq!(known.encode(), bytes),
    }
    let open = Admission::new(String::new(), 2, None);
    let decision = open.decide(None, bytes);
    assert!(matches!(decision, Decision::Admit(_, None, _) | Decision::Refuse(_) | Decision::Ignore));
    let closed = Admission::new(String::new(), 2, secret(true));
    match closed.decide(None, bytes) {
        Decision::Admit(..) => assert!(secret(true).is_none(), "without a proof"),
        // Nobody guesses a proof.
        Decision::Challenge(challenged, _) => {
            assert!(matches!(closed.decide(Some(&challenged), bytes), Decision::Refuse(_)));
        }
        Decision::Refuse(_) | Decision::Ignore => {}
    }
}

/// Bytes as a request, and as an answer.
pub(in crate::exchange) fn request(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(request.encode(), bytes);
    }
    if let Some(Ok(reader)) = codec::open(bytes) {
        let _ = (codec::read_swap(reader), codec::read_values(reader), codec::read_departures(reader));
    }
}

/// Bytes as a script of what some clients of one server do in turn. A step is a byte that says
/// which client does what, a number of bytes, and these bytes.
pub(in crate::exchange) fn service(script: &[u8]) {
    let [mode, rest @ ..] = script else { return };
    let mut stage = Stage::new(secret(mode & 1 == 1));
    let mut rest = rest;
    while let [what, len, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = after;
        let who = usize::from(what >> 4) % stage.clients.len();
        match what & 7 {
            0 => stage.write(who, bytes),
            1 => stage.write(who, &framed(bytes)),
            2 => stage.connect(who, Purpose::Requests),
            3 => stage.connect(who, Purpose::Presence),
            4 => stage.clients[who] = None,
            // A valid frame of a client that has been admitted.
            5 => stage.ask(who, bytes),
            // A long value, in two parts.
            6 => {
                let value = vec![7; bytes.len() << 12];
                let frame = framed(&Request::Set { key: "long", value: &value }.encode());
                stage.write(who, &frame[..frame.len() / 2]);
                stage.turn();
                stage.write(who, &frame[frame.len() / 2..]);
            }
            _ => stage.read(who),
        }
        stage.turn();
    }
    stage.end();
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes(), bytes].concat()
}

/// A client, at its end of a connection.
struct Client {
    stream: UnixStream,
    codes: Option<FrameCodes>,
}

/// A server without a thread, and its clients.
struct Stage {
    server: EventLoop<Service>,
    /// Open, so that the server does not end.
    _control: UnixStream,
    secret: Option<Secret>,
    clients: [Option<Client>; 4],
}

impl Stage {
    fn new(secret: Option<Secret>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (control, theirs) = UnixStream::pair().expect("a pair of sockets");
        let service = Service::new(Admission::new(String::new(), 4, secret.clone()));
        let server = EventLoop::new(listener, theirs, service).expect("a server");
        Self { server, _control: control, secret, clients: [const { None }; 4] }
    }

    /// The connection of a client, made where there is none.
    fn client(&mut self, who: usize) -> &mut Client {
        let server = &mut self.server;
        self.clients[who].get_or_insert_with(|| {
            let (stream, theirs) = UnixStream::pair().expect("a pair of sockets");
            stream.set_nonblocking(true).expect("a socket");
            server.admit(TcpStream::from(OwnedFd::from(theirs))).expect("room for it");
            Client { stream, codes: None }
        })
    }

    /// Sends what goes into the socket at once.
    fn write(&mut self, who: usize, bytes: &[u8]) {
        let _ = self.client(who).stream.write(bytes);
    }

    fn read(&mut self, who: usize) {
        let _ = self.received(who);
    }

    /// Reads what has come.
    fn received(&mut self, who: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.client(who).stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => self.clients[who] = None,
        }
        bytes
    }

    fn reply(&mut self, who: usize) -> Reply {
        self.turn();
        let bytes = self.received(who);
        Reply::decode(bytes.get(4..).expect("an answer"))
    }

    /// Connects anew, and is admitted.
    fn connect(&mut self, who: usize, purpose: Purpose) {
        self.clients[who] = None;
        let nonce = self.secret.as_ref().map(|_| random());
        let id = who as u64;
        let said = Hello { purpose, rank: who, size: 4, id, job: String::new(), server: 0, nonce }.encode();
        self.write(who, &framed(&said));
        match (self.reply(who), self.secret.clone()) {
            (Reply::Welcome { proof: None, .. }, None) => {}
            (Reply::Challenge(nonce), Some(secret)) => {
                self.write(who, &framed(&prove(&secret, &nonce, &said)));
                let answer = self.reply(who);
                let Reply::Welcome { server, proof: Some(proof) } = answer else { panic!("{answer:?}") };
                let codes = trust(&secret, &nonce, &said, server, &proof);
                self.client(who).codes = Some(codes.expect("a proof"));
            }
            other => panic!("not admitted: {other:?}"),
        }
    }

    fn ask(&mut self, who: usize, bytes: &[u8]) {
        let codes = &mut self.client(who).codes;
        let code = codes.as_mut().map(|codes| codes.sign(std::iter::once(bytes)));
        let code = code.as_ref().map_or(&[][..], |code| code);
        self.write(who, &framed(&[bytes, code].concat()));
    }

    /// Has the server handle all events.
    fn turn(&mut self) {
        for _ in 0..8 {
            if !self.server.turn(Some(Duration::ZERO)).expect("events") {
                break;
            }
        }
        self.server.check();
        self.server.protocol.check();
    }

    /// All clients leave, and the server forgets them.
    fn end(mut self) {
        self.clients = [const { None }; 4];
        self.turn();
        assert_eq!(self.server.connected(), 0);
    }
}

#[cfg(test)]
#[path = "tcp_seeds.rs"]
pub(in crate::exchange) mod seeds;
