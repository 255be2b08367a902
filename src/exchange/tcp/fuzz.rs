//! What a fuzzer calls of the store over TCP. What is right of bytes that nobody has sent: no panic, and what is understood is what was said.

// Without the feature, nothing comes after a secret, as there is none.
#![cfg_attr(not(feature = "secret"), allow(unreachable_code))]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::answer;
use super::gate::{Gate, Step, prove, trust};
use super::greeting::{Hello, Purpose, Reception, draw};
use super::message::Request;
use super::secret::{Seals, Secret};
use super::service::Service;
use crate::exchange::net::serving::Serve;

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
    match Reception::decode(bytes) {
        Reception::Unknown | Reception::Refused(_) => {}
        known => assert_eq!(known.encode(), bytes),
    }
    let open = Gate::new(String::new(), 2, None);
    assert!(matches!(open.hear(None, bytes).0, Step::In(_, None) | Step::Refused | Step::Stranger));
    let closed = Gate::new(String::new(), 2, secret(true));
    match closed.hear(None, bytes).0 {
        Step::In(..) => assert!(secret(true).is_none(), "without a proof"),
        // Nobody guesses one.
        Step::Ask(asked) => assert!(matches!(closed.hear(Some(&asked), bytes).0, Step::Refused)),
        Step::Refused | Step::Stranger => {}
    }
}

/// Bytes as a request, and as an answer.
pub(in crate::exchange) fn request(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(request.encode(), bytes);
    }
    if let Some(Ok(reader)) = answer::open(bytes) {
        let _ = (answer::read_swap(reader), answer::read_values(reader), answer::read_ends(reader));
    }
}

/// Bytes as a script of what some clients of one server do, one after the other: a step is a byte that says who does what, the number
/// of bytes that it does it with, and these.
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
            2 => stage.comes(who, Purpose::Requests),
            3 => stage.comes(who, Purpose::Presence),
            4 => stage.clients[who] = None,
            // As it should be, by who has been let in.
            5 => stage.asks(who, bytes),
            // A long value, in two parts.
            6 => {
                let value = vec![7; bytes.len() << 12];
                let frame = framed(&Request::Set { key: "long", value: &value }.encode());
                stage.write(who, &frame[..frame.len() / 2]);
                stage.turn();
                stage.write(who, &frame[frame.len() / 2..]);
            }
            _ => stage.listen(who),
        }
        stage.turn();
    }
    stage.end();
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes(), bytes].concat()
}

/// One end of a connection.
struct Client {
    stream: UnixStream,
    seals: Option<Seals>,
}

/// A server without a thread, and those who come to it.
struct Stage {
    service: Service,
    /// Closed, it asks the server to end, which nobody does here.
    _control: UnixStream,
    secret: Option<Secret>,
    clients: [Option<Client>; 4],
}

impl Stage {
    fn new(secret: Option<Secret>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (control, theirs) = UnixStream::pair().expect("a pair of sockets");
        let gate = Gate::new(String::new(), 4, secret.clone());
        let service = Service::new(listener, theirs, gate).expect("a server");
        Self { service, _control: control, secret, clients: [const { None }; 4] }
    }

    /// The connection of a client, made where there is none.
    fn client(&mut self, who: usize) -> &mut Client {
        let service = &mut self.service;
        self.clients[who].get_or_insert_with(|| {
            let (stream, theirs) = UnixStream::pair().expect("a pair of sockets");
            stream.set_nonblocking(true).expect("a socket");
            theirs.set_nonblocking(true).expect("a socket");
            service.admit(TcpStream::from(OwnedFd::from(theirs))).expect("room for it");
            Client { stream, seals: None }
        })
    }

    /// Sends what goes into the socket at once.
    fn write(&mut self, who: usize, bytes: &[u8]) {
        let _ = self.client(who).stream.write(bytes);
    }

    fn listen(&mut self, who: usize) {
        let _ = self.heard(who);
    }

    /// What is there to be read.
    fn heard(&mut self, who: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.client(who).stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => self.clients[who] = None,
        }
        bytes
    }

    fn reception(&mut self, who: usize) -> Reception {
        self.turn();
        let bytes = self.heard(who);
        Reception::decode(bytes.get(4..).expect("an answer"))
    }

    /// Comes anew, and is let in.
    fn comes(&mut self, who: usize, purpose: Purpose) {
        self.clients[who] = None;
        let number = self.secret.as_ref().map(|_| draw());
        let id = who as u64;
        let said = Hello { purpose, rank: who, size: 4, id, job: String::new(), server: 0, number }.encode();
        self.write(who, &framed(&said));
        match (self.reception(who), self.secret.clone()) {
            (Reception::Welcome { proof: None, .. }, None) => {}
            (Reception::Asked(number), Some(secret)) => {
                self.write(who, &framed(&prove(&secret, &number, &said)));
                let answer = self.reception(who);
                let Reception::Welcome { server, proof: Some(proof) } = answer else { panic!("{answer:?}") };
                let seals = trust(&secret, &number, &said, server, &proof);
                self.client(who).seals = Some(seals.expect("a proof"));
            }
            other => panic!("not let in: {other:?}"),
        }
    }

    fn asks(&mut self, who: usize, bytes: &[u8]) {
        let seals = &mut self.client(who).seals;
        let mark = seals.as_mut().map(|seals| seals.mark(std::iter::once(bytes)));
        let mark = mark.as_ref().map_or(&[][..], |mark| mark);
        self.write(who, &framed(&[bytes, mark].concat()));
    }

    /// All that the server has to do now.
    fn turn(&mut self) {
        let mut happened = Vec::new();
        // What nobody takes is not told of again.
        for _ in 0..8 {
            self.service.turn(&mut happened, Some(Duration::ZERO)).expect("events");
            if happened.is_empty() {
                break;
            }
        }
        self.service.check();
    }

    /// All leave, and nothing of them stays.
    fn end(mut self) {
        self.clients = [const { None }; 4];
        self.turn();
        assert_eq!(self.service.connected(), 0);
        self.service.check();
    }
}

#[cfg(test)]
#[path = "fuzz_seeds.rs"]
pub(in crate::exchange) mod seeds;
