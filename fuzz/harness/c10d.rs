//! The protocol of PyTorch's store under a fuzzer. Whatever bytes come, nothing panics, and what is
//! decoded encodes to the same bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::client::open;
use super::codec::{Dialect, HELLO, Query, Scan};
use super::link::Link;
use super::server::Service;
use crate::deadline::Deadline;
use crate::exchange::net::server::EventLoop;

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

/// Separates the parts of a query in a script.
const BETWEEN: u8 = b'|';

/// Bytes as queries to a server, or as answers to a client. The first byte says in which version,
/// and what the client has asked.
pub(in crate::exchange) fn messages(bytes: &[u8]) {
    let Some((what, bytes)) = bytes.split_first() else { return };
    let dialect = if what & 1 == 0 { Dialect::Current } else { Dialect::Old };
    if what & 2 == 0 { queries(dialect, bytes) } else { answers(dialect, what >> 2, bytes) }
}

/// Queries that come byte by byte are the same as queries that come at once, and encode to the same
/// bytes.
fn queries(dialect: Dialect, mut bytes: &[u8]) {
    let _ = Dialect::of_client(bytes);
    let mut scan = Scan::default();
    loop {
        let at_once = Scan::default().scan(dialect, bytes);
        let slowly = (0..=bytes.len()).map(|end| scan.scan(dialect, &bytes[..end]));
        let slowly = slowly.into_iter().find(|found| *found != Ok(None)).unwrap_or(Ok(None));
        assert_eq!(slowly, at_once);
        let Ok(Some(whole)) = at_once else { return };
        let (this, next) = bytes.split_at(whole.len);
        assert_eq!(encoded(dialect, whole.query, &whole.parts(bytes)), this);
        bytes = next;
    }
}

/// A query, as a client encodes it.
fn encoded(dialect: Dialect, query: Query, parts: &[&[u8]]) -> Vec<u8> {
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

/// A client that receives these bytes, and then the end of the connection.
fn answers(dialect: Dialect, asked: u8, bytes: &[u8]) {
    let (stream, mut server) = UnixStream::pair().expect("a pair of sockets");
    server.set_nonblocking(true).expect("a socket");
    // A socket takes some of them at once.
    let told = server.write(bytes).unwrap_or(0);
    server.shutdown(Shutdown::Write).expect("a socket");
    let bytes = &bytes[..told];
    let mut link = Link { stream: TcpStream::from(OwnedFd::from(stream)), dialect };
    let deadline = Deadline::after(Duration::from_secs(5));
    let keys = [b"a".to_vec(), b"a longer key".to_vec()];
    let text = |text: &[u8]| [&(text.len() as u64).to_le_bytes(), text].concat();
    match asked % 9 {
        0 => {
            if let Ok(values) = link.look(&keys, &deadline) {
                assert_eq!(values.len(), keys.len());
                for value in values.into_iter().flatten() {
                    let len = value.len();
                    assert!(len <= bytes.len() && open(value).is_none_or(|value| value.len() <= len));
                }
            }
        }
        1 => {
            let taken = link.set(&keys[0], b"value", &deadline).is_ok();
            assert!(!taken || bytes.len() >= 8);
        }
        2 => {
            if let Ok(found) = link.compare_and_set(&keys[0], b"old", b"new", &deadline) {
                assert!(bytes.starts_with(&text(&found)));
            }
        }
        3 => {
            if let Ok(sum) = link.add(&keys[0], -7, &deadline) {
                assert!(bytes.starts_with(&sum.to_le_bytes()));
            }
        }
        4 => assert!(link.delete(&keys, &deadline).is_ok_and(|count| count <= keys.len()) || bytes.len() < 16),
        5 => {
            if let Ok(keys) = link.list(&deadline) {
                let count = (keys.len() as u64).to_le_bytes().to_vec();
                let all = keys.iter().fold(count, |all, key| [all, text(key)].concat());
                assert!(bytes.starts_with(&all));
            }
        }
        6 => {
            let within = Duration::from_millis(1);
            let _ = link.wait(&keys, within, &deadline);
        }
        7 => drop(link.greet(&deadline)),
        // Nobody guesses the bytes that a server has to return.
        _ => assert!(link.find_out(&deadline).is_err()),
    }
}

/// Bytes as a script of what some clients of one server do in turn. A step is a byte that says
/// which client does what, a number of bytes, and these bytes.
pub(in crate::exchange) fn service(script: &[u8]) {
    let mut stage = Stage::new();
    let mut rest = script;
    while let [what, len, tail @ ..] = rest {
        let (bytes, after) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = after;
        let who = usize::from(what >> 4) % stage.clients.len();
        match what & 7 {
            0 => stage.write(who, bytes),
            1 => stage.connect(who, Dialect::Current),
            2 => stage.connect(who, Dialect::Old),
            3 => stage.clients[who] = None,
            // It sends no more, and reads what still comes.
            4 => _ = stage.client(who).0.shutdown(Shutdown::Write),
            5 => stage.ask(who, bytes),
            // A long value, in two parts.
            6 => {
                let value = vec![7; bytes.len() << 12];
                let query = encoded(stage.client(who).1, Query::Set, &[b"long", &value]);
                stage.write(who, &query[..query.len() / 2]);
                stage.turn();
                stage.write(who, &query[query.len() / 2..]);
            }
            _ => stage.read(who),
        }
        stage.turn();
    }
    stage.end();
}

/// A server without a thread, and its clients.
struct Stage {
    server: EventLoop<Service>,
    /// Open, so that the server does not end.
    _control: UnixStream,
    clients: [Option<(UnixStream, Dialect)>; 4],
}

impl Stage {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (control, theirs) = UnixStream::pair().expect("a pair of sockets");
        let server = EventLoop::new(listener, theirs, Service::new(4)).expect("a server");
        Self { server, _control: control, clients: [const { None }; 4] }
    }

    /// The connection of a client and its version, made if there is none.
    fn client(&mut self, who: usize) -> &mut (UnixStream, Dialect) {
        let server = &mut self.server;
        self.clients[who].get_or_insert_with(|| {
            let (stream, theirs) = UnixStream::pair().expect("a pair of sockets");
            stream.set_nonblocking(true).expect("a socket");
            server.admit(TcpStream::from(OwnedFd::from(theirs))).expect("room for it");
            (stream, Dialect::Old)
        })
    }

    fn connect(&mut self, who: usize, dialect: Dialect) {
        self.clients[who] = None;
        self.client(who).1 = dialect;
        if dialect == Dialect::Current {
            self.write(who, &HELLO);
        }
    }

    /// Sends what goes into the socket at once.
    fn write(&mut self, who: usize, bytes: &[u8]) {
        let _ = self.client(who).0.write(bytes);
    }

    /// Sends a valid query. The first byte says which, and the rest are its parts.
    fn ask(&mut self, who: usize, bytes: &[u8]) {
        let Some((query, rest)) = bytes.split_first() else { return };
        let query = QUERIES[usize::from(*query) % QUERIES.len()];
        let mut parts: Vec<Vec<u8>> = rest.split(|byte| *byte == BETWEEN).map(<[u8]>::to_vec).collect();
        match (query, &mut parts[..]) {
            (Query::Add, [_, by]) => by.resize(8, 0),
            (Query::Ping, [number]) => number.resize(4, 0),
            _ => {}
        }
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let bytes = encoded(self.client(who).1, query, &parts);
        self.write(who, &bytes);
    }

    /// Reads what has come.
    fn read(&mut self, who: usize) {
        let mut bytes = Vec::new();
        match self.client(who).0.read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => self.clients[who] = None,
        }
    }

    /// Has the server handle all events.
    fn turn(&mut self) {
        for _ in 0..8 {
            let happened = self.server.turn(Some(Duration::ZERO)).expect("events");
            self.server.check();
            assert!(self.server.protocol.table.is_consistent());
            if !happened {
                break;
            }
        }
    }

    /// All clients leave, and the server forgets them.
    fn end(mut self) {
        self.clients = [const { None }; 4];
        for _ in 0..1000 {
            self.turn();
            if self.server.connected() == 0 {
                break;
            }
        }
        assert_eq!((self.server.connected(), self.server.held_by_waits()), (0, 0));
    }
}

#[cfg(test)]
#[path = "c10d_seeds.rs"]
pub(in crate::exchange) mod seeds;
