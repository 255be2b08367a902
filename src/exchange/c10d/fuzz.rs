//! What a fuzzer calls of PyTorch's store. What is right of bytes that nobody has sent: no panic, and what is understood is what was said.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::dialect::{Dialect, HELLO, Query};
use super::scan::Scan;
use super::sealed::open;
use super::service::Service;
use super::talk::Talk;
use crate::deadline::Deadline;
use crate::exchange::net::serving::Serve;

/// All that can be asked.
const QUERIES: [Query; 17] = [
    Query::Set,
    Query::CompareSet,
    Query::Get,
    Query::Add,
    Query::Check,
    Query::Wait,
    Query::CountKeys,
    Query::Delete,
    Query::Append,
    Query::MultiGet,
    Query::MultiSet,
    Query::CancelWait,
    Query::Ping,
    Query::QueuePush,
    Query::QueuePop,
    Query::QueueLen,
    Query::ListKeys,
];

/// What stands between the parts of a query in a script.
const BETWEEN: u8 = b'|';

/// Bytes as what a server is asked, or as what a client is answered. The first byte says in which protocol, and what was asked.
pub(in crate::exchange) fn messages(bytes: &[u8]) {
    let Some((what, bytes)) = bytes.split_first() else { return };
    let dialect = if what & 1 == 0 { Dialect::Today } else { Dialect::Old };
    if what & 2 == 0 { queries(dialect, bytes) } else { answers(dialect, what >> 2, bytes) }
}

/// What comes byte after byte is what comes at once, and is what somebody has said who speaks this protocol.
fn queries(dialect: Dialect, mut bytes: &[u8]) {
    let _ = Dialect::of(bytes);
    let mut scan = Scan::default();
    loop {
        let at_once = Scan::default().go_on(dialect, bytes);
        let slowly = (0..=bytes.len()).map(|end| scan.go_on(dialect, &bytes[..end]));
        let slowly = slowly.into_iter().find(|found| *found != Ok(None)).unwrap_or(Ok(None));
        assert_eq!(slowly, at_once);
        let Ok(Some(whole)) = at_once else { return };
        let (this, next) = bytes.split_at(whole.len);
        assert_eq!(said(dialect, whole.query, &whole.parts(bytes)), this);
        bytes = next;
    }
}

/// A query, as a client says it.
fn said(dialect: Dialect, query: Query, parts: &[&[u8]]) -> Vec<u8> {
    let text = |text: &&[u8]| [&(text.len() as u64).to_le_bytes(), *text].concat();
    let count = |count: usize| (count as u64).to_le_bytes().to_vec();
    let texts = parts.iter().map(text).collect::<Vec<_>>().concat();
    let rest = match (query, parts) {
        (Query::Check | Query::Wait | Query::MultiGet, keys) => [count(keys.len()), texts].concat(),
        (Query::MultiSet, pairs) => [count(pairs.len() / 2), texts].concat(),
        (Query::Add, [key, by]) => [text(key), by.to_vec()].concat(),
        (Query::Ping, [number]) => number.to_vec(),
        _ => texts,
    };
    [&[dialect.number(query)], &rest[..]].concat()
}

/// A client that hears these bytes, and then nothing more.
fn answers(dialect: Dialect, asked: u8, bytes: &[u8]) {
    let (stream, mut server) = UnixStream::pair().expect("a pair of sockets");
    server.set_nonblocking(true).expect("a socket");
    // What goes into a socket at once.
    let told = server.write(bytes).unwrap_or(0);
    server.shutdown(Shutdown::Write).expect("a socket");
    let bytes = &bytes[..told];
    let mut talk = Talk { stream: TcpStream::from(OwnedFd::from(stream)), dialect };
    let deadline = Deadline::after(Duration::from_secs(5));
    let keys = [b"a".to_vec(), b"a longer key".to_vec()];
    let text = |text: &[u8]| [&(text.len() as u64).to_le_bytes(), text].concat();
    match asked % 9 {
        0 => {
            if let Ok(values) = talk.look(&keys, &deadline) {
                assert_eq!(values.len(), keys.len());
                for value in values.into_iter().flatten() {
                    let len = value.len();
                    assert!(len <= bytes.len() && open(value).is_none_or(|value| value.len() <= len));
                }
            }
        }
        1 => {
            let taken = talk.set(&keys[0], b"value", &deadline).is_ok();
            assert!(!taken || bytes.len() >= 8);
        }
        2 => {
            if let Ok(found) = talk.compare_and_set(&keys[0], b"old", b"new", &deadline) {
                assert!(bytes.starts_with(&text(&found)));
            }
        }
        3 => {
            if let Ok(sum) = talk.add(&keys[0], -7, &deadline) {
                assert!(bytes.starts_with(&sum.to_le_bytes()));
            }
        }
        4 => assert!(talk.delete(&keys, &deadline).is_ok_and(|count| count <= keys.len()) || bytes.len() < 16),
        5 => {
            if let Ok(keys) = talk.list(&deadline) {
                let count = (keys.len() as u64).to_le_bytes().to_vec();
                let all = keys.iter().fold(count, |all, key| [all, text(key)].concat());
                assert!(bytes.starts_with(&all));
            }
        }
        6 => {
            let within = Duration::from_millis(1);
            let _ = talk.wait(&keys, within, &deadline);
        }
        7 => drop(talk.greet(&deadline)),
        // Nobody guesses the number that is to be answered.
        _ => assert!(talk.find_out(&deadline).is_err()),
    }
}

/// Bytes as a script of what some clients of one server do, one after the other: a step is a byte that says who does what, the number
/// of bytes that it does it with, and these.
pub(in crate::exchange) fn service(script: &[u8]) {
    let mut stage = Stage::new();
    let mut rest = script;
    while let [what, len, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = after;
        let who = usize::from(what >> 4) % stage.clients.len();
        match what & 7 {
            0 => stage.write(who, bytes),
            1 => stage.comes(who, Dialect::Today),
            2 => stage.comes(who, Dialect::Old),
            3 => stage.clients[who] = None,
            // It asks no more, and takes what it is still told.
            4 => _ = stage.client(who).0.shutdown(Shutdown::Write),
            5 => stage.asks(who, bytes),
            // A long value, in two parts.
            6 => {
                let value = vec![7; bytes.len() << 12];
                let query = said(stage.client(who).1, Query::Set, &[b"long", &value]);
                stage.write(who, &query[..query.len() / 2]);
                stage.turn();
                stage.write(who, &query[query.len() / 2..]);
            }
            _ => stage.listen(who),
        }
        stage.turn();
    }
    stage.end();
}

/// A server without a thread, and those who come to it.
struct Stage {
    service: Service,
    /// Closed, it asks the server to end, which nobody does here.
    _control: UnixStream,
    clients: [Option<(UnixStream, Dialect)>; 4],
}

impl Stage {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (control, theirs) = UnixStream::pair().expect("a pair of sockets");
        let service = Service::new(listener, theirs, 4).expect("a server");
        Self { service, _control: control, clients: [const { None }; 4] }
    }

    /// The connection of a client and what it speaks, made where there is none.
    fn client(&mut self, who: usize) -> &mut (UnixStream, Dialect) {
        let service = &mut self.service;
        self.clients[who].get_or_insert_with(|| {
            let (stream, theirs) = UnixStream::pair().expect("a pair of sockets");
            stream.set_nonblocking(true).expect("a socket");
            theirs.set_nonblocking(true).expect("a socket");
            service.admit(TcpStream::from(OwnedFd::from(theirs))).expect("room for it");
            (stream, Dialect::Old)
        })
    }

    fn comes(&mut self, who: usize, dialect: Dialect) {
        self.clients[who] = None;
        self.client(who).1 = dialect;
        if dialect == Dialect::Today {
            self.write(who, &HELLO);
        }
    }

    /// Sends what goes into the socket at once.
    fn write(&mut self, who: usize, bytes: &[u8]) {
        let _ = self.client(who).0.write(bytes);
    }

    /// As it should be: the first byte says what, the rest are the parts of it.
    fn asks(&mut self, who: usize, bytes: &[u8]) {
        let Some((query, rest)) = bytes.split_first() else { return };
        let query = QUERIES[usize::from(*query) % QUERIES.len()];
        let mut parts: Vec<Vec<u8>> = rest.split(|byte| *byte == BETWEEN).map(<[u8]>::to_vec).collect();
        match (query, &mut parts[..]) {
            (Query::Add, [_, by]) => by.resize(8, 0),
            (Query::Ping, [number]) => number.resize(4, 0),
            _ => {}
        }
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let bytes = said(self.client(who).1, query, &parts);
        self.write(who, &bytes);
    }

    /// Takes what is there to be read.
    fn listen(&mut self, who: usize) {
        let mut bytes = Vec::new();
        match self.client(who).0.read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => self.clients[who] = None,
        }
    }

    /// All that the server has to do now.
    fn turn(&mut self) {
        let mut happened = Vec::new();
        // What nobody takes is not told of again.
        for _ in 0..8 {
            self.service.turn(&mut happened, Some(Duration::ZERO)).expect("events");
            self.service.check();
            if happened.is_empty() && !self.service.is_behind() {
                break;
            }
        }
    }

    /// All leave, and nothing of them stays.
    fn end(mut self) {
        self.clients = [const { None }; 4];
        for _ in 0..1000 {
            self.turn();
            if self.service.connections.is_empty() {
                break;
            }
        }
        assert!(self.service.connections.is_empty() && self.service.waits.held() == 0);
    }
}

#[cfg(test)]
#[path = "fuzz_seeds.rs"]
pub(in crate::exchange) mod seeds;
