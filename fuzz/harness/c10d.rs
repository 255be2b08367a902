//! The protocol of PyTorch's store under a fuzzer. Whatever bytes come, nothing panics, and what is
//! decoded encodes to the same bytes.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::client::open;
use super::codec::{CURRENT, Dialect, HELLO, Query, Scan};
use super::link::Link;
use super::server::Service;
use crate::deadline::Deadline;
use crate::exchange::fuzz::stage::Stage;

/// The queries, in the order in which scripts number them.
fn queries_of_scripts() -> Vec<Query> {
    CURRENT.into_iter().flatten().collect()
}

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

/// Bytes as a script of what some clients of one server do in turn; see [`Stage::play`].
pub(in crate::exchange) fn service(script: &[u8]) {
    let check = |service: &Service| assert!(service.table.is_consistent());
    Stage::new(Service::new(4), || Dialect::Old, check).play(script, |stage, what, who, bytes| match what {
        0 => stage.write(who, bytes),
        1 => connect(stage, who, Dialect::Current),
        2 => connect(stage, who, Dialect::Old),
        3 => stage.leave(who),
        // It sends no more, and reads what still comes.
        4 => _ = stage.client(who).stream.shutdown(Shutdown::Write),
        5 => ask(stage, who, bytes),
        6 => {
            let value = vec![7; bytes.len() << 12];
            let query = encoded(stage.client(who).state, Query::Set, &[b"long", &value]);
            stage.write_in_two(who, &query);
        }
        _ => _ = stage.read(who),
    });
}

fn connect(stage: &mut Stage<Service, Dialect>, who: usize, dialect: Dialect) {
    stage.leave(who);
    stage.client(who).state = dialect;
    if dialect == Dialect::Current {
        stage.write(who, &HELLO);
    }
}

/// Sends a valid query. The first byte says which, and the rest are its parts.
fn ask(stage: &mut Stage<Service, Dialect>, who: usize, bytes: &[u8]) {
    let Some((query, rest)) = bytes.split_first() else { return };
    let queries = queries_of_scripts();
    let query = queries[usize::from(*query) % queries.len()];
    let mut parts: Vec<Vec<u8>> = rest.split(|byte| *byte == BETWEEN).map(<[u8]>::to_vec).collect();
    match (query, &mut parts[..]) {
        (Query::Add, [_, by]) => by.resize(8, 0),
        (Query::Ping, [number]) => number.resize(4, 0),
        _ => {}
    }
    let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    let bytes = encoded(stage.client(who).state, query, &parts);
    stage.write(who, &bytes);
}

#[cfg(test)]
#[path = "c10d_seeds.rs"]
pub(in crate::exchange) mod seeds;
