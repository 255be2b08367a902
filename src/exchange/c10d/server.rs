//! A server that speaks as PyTorch's TCPStore, in the process of rank 0.

use std::collections::HashSet;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::codec::{Dialect, HELLO, MAX_BYTES, Query, STOP_WAITING, Scan, WAIT_CANCELED, Whole};
use crate::exchange::net::server::{Clients, Limits, PAUSE, Piece, Protocol, Refusal, Server};
use crate::exchange::table::Table;

/// The most connections that have sent nothing, where a quarter of the process's files is not
/// fewer. They have no deadline: each client of PyTorch 1.13 has one that it may never use, and
/// fails if it is closed.
const STRANGERS: usize = 2048;

/// The most bytes of queries that have not been answered, and of keys that clients wait for.
const PENDING: usize = 1 << 30;

/// Files for each rank. A rank may have two connections and more, and connections take half of all
/// files.
const FILES_PER_RANK: usize = 8;

/// Starts a server for the clients of `listener`: `size` ranks, and any others.
pub(super) fn start(listener: TcpListener, size: usize) -> io::Result<Server> {
    Server::start(listener, Service::new(size))
}

/// What the server holds.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) table: Table,
    files: usize,
}

/// What the server knows of one connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Its version of the protocol, once it has sent enough to tell.
    dialect: Option<Dialect>,
    scan: Scan,
}

/// What a client sends.
#[derive(Debug)]
pub(super) enum Message {
    Hello,
    Query(Whole),
}

impl Protocol for Service {
    type Session = Session;
    type Request = Message;

    fn limits(&self) -> Limits {
        Limits {
            // The process needs files for other things, too.
            connections: self.files / 2,
            strangers: STRANGERS.min(self.files / 4),
            greets_at_once: false,
            pause: PAUSE,
            pending: PENDING,
        }
    }

    fn session(&self) -> Session {
        Session::default()
    }

    fn has_greeted(session: &Session) -> bool {
        session.dialect.is_some()
    }

    /// No client says goodbye. It leaves with its connection.
    fn is_waited_for(session: &Session) -> bool {
        session.dialect.is_some()
    }

    fn next(&self, session: &mut Session, input: &[u8]) -> Result<Option<(usize, Message)>, Refusal> {
        let dialect = match session.dialect {
            Some(dialect) => dialect,
            None => {
                let Some(dialect) = Dialect::of_client(input).map_err(|()| Refusal::Close)? else { return Ok(None) };
                session.dialect = Some(dialect);
                if dialect == Dialect::Current {
                    return Ok(Some((HELLO.len(), Message::Hello)));
                }
                dialect
            }
        };
        let whole = session.scan.scan(dialect, input).map_err(|_| Refusal::Close)?;
        Ok(whole.map(|whole| (whole.len, Message::Query(whole))))
    }

    fn answer(
        &mut self,
        clients: &mut Clients<Session>,
        token: u64,
        message: Message,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        let Message::Query(whole) = message else { return Ok(()) };
        // As in PyTorch, a client whose query cannot be answered is closed.
        let answer = self.query(clients, token, whole.query, &whole.parts(bytes)).map_err(|()| Refusal::Close)?;
        if !answer.is_empty() {
            clients.send(token, answer);
        }
        Ok(())
    }
}

impl Service {
    pub(super) fn new(size: usize) -> Self {
        Self { table: Table::default(), files: raise_file_limit(size.saturating_mul(FILES_PER_RANK)) }
    }

    /// Carries out a query. Returns its answer, or an error if its client is to be closed.
    fn query(
        &mut self,
        clients: &mut Clients<Session>,
        token: u64,
        query: Query,
        parts: &[&[u8]],
    ) -> Result<Vec<Piece>, ()> {
        let number = |count: usize| Piece::Own(u64::try_from(count).unwrap_or(u64::MAX).to_le_bytes().to_vec());
        let byte = |byte| vec![Piece::Own(vec![byte])];
        let table = &mut self.table;
        Ok(match (query, parts) {
            (Query::Set | Query::MultiSet, pairs) => {
                for pair in pairs.chunks_exact(2) {
                    table.set(pair[0], pair[1]).map_err(drop)?;
                    wake(clients, pair[0]);
                }
                Vec::new()
            }
            (Query::CompareSet, [key, expected, new]) => {
                let (found, is_set) = compare_and_set(table, key, expected, new)?;
                if is_set {
                    wake(clients, key);
                }
                vec![number(found.len()), Piece::Value(found)]
            }
            (Query::Get | Query::MultiGet, keys) => {
                let values = keys.iter().map(|key| table.get(key).unwrap_or_default());
                values.flat_map(|value| [number(value.len()), Piece::Value(value)]).collect()
            }
            (Query::Add, [key, by]) => {
                let sum = add(table, key, i64::from_le_bytes((*by).try_into().map_err(drop)?))?;
                wake(clients, key);
                vec![Piece::Own(sum.to_le_bytes().to_vec())]
            }
            (Query::Check, keys) => byte(u8::from(!keys.iter().all(|key| table.has(key)))),
            (Query::Wait, keys) => {
                let missing = keys.iter().filter(|key| !table.has(key)).map(|key| Arc::from(*key));
                let missing: HashSet<Arc<[u8]>> = missing.collect();
                if missing.is_empty() {
                    return Ok(byte(STOP_WAITING));
                }
                clients.begin_wait(token, missing, None);
                Vec::new()
            }
            (Query::CancelWait, _) => {
                clients.end_wait(token);
                byte(WAIT_CANCELED)
            }
            (Query::CountKeys, _) => vec![number(table.len())],
            (Query::Delete, [key]) => vec![number(table.delete(key).into())],
            (Query::Append, [key, more]) => {
                append(table, key, more)?;
                wake(clients, key);
                Vec::new()
            }
            (Query::Ping, [nonce]) => vec![Piece::Own(nonce.to_vec())],
            (Query::QueuePush, [key, value]) => {
                table.push(key, value).map_err(drop)?;
                if let Some(client) = clients.key_pushed(key) {
                    clients.send(client, byte(STOP_WAITING));
                }
                Vec::new()
            }
            (Query::QueuePop, [key]) => {
                let (len, value) = table.pop(key);
                let value = value.into_iter().flat_map(|value| [number(value.len()), Piece::Value(value)]);
                std::iter::once(number(len)).chain(value).collect()
            }
            (Query::QueueLen, [key]) => vec![number(table.queued(key))],
            (Query::ListKeys, _) => {
                let keys = table.keys().flat_map(|key| [number(key.len()), Piece::Value(key)]);
                std::iter::once(number(table.len())).chain(keys).collect()
            }
            _ => return Err(()),
        })
    }
}

/// A key has been set: ends the waits of clients that wait for nothing else.
fn wake(clients: &mut Clients<Session>, key: &[u8]) {
    for client in clients.key_set(key) {
        clients.send(client, [Piece::Own(vec![STOP_WAITING])]);
    }
}

/// Sets a key if it has the expected value. Returns the value afterwards, and whether it was set.
///
/// As in PyTorch, a key that is not set is treated as one with an empty value, but the answer is
/// then the value that was expected.
fn compare_and_set(table: &mut Table, key: &[u8], expected: &[u8], new: &[u8]) -> Result<(Arc<[u8]>, bool), ()> {
    match table.get(key) {
        None if !expected.is_empty() => Ok((expected.into(), false)),
        Some(found) if *found != *expected => Ok((found, false)),
        _ => {
            table.set(key, new).map_err(drop)?;
            Ok((new.into(), true))
        }
    }
}

fn add(table: &mut Table, key: &[u8], by: i64) -> Result<i64, ()> {
    let number = table.get(key).map_or(Some(0), |value| leading_number(&value));
    let sum = number.and_then(|number| number.checked_add(by)).ok_or(())?;
    table.set(key, sum.to_string().as_bytes()).map_err(drop)?;
    Ok(sum)
}

fn append(table: &mut Table, key: &[u8], more: &[u8]) -> Result<(), ()> {
    match table.get(key) {
        None => table.set(key, more).map_err(drop),
        Some(value) if value.len() + more.len() <= MAX_BYTES => table.set(key, &[&value, more].concat()).map_err(drop),
        Some(_) => Err(()),
    }
}

/// The number at the start of a value, as C reads one: behind blanks, up to the first byte that is
/// no digit.
fn leading_number(value: &[u8]) -> Option<i64> {
    let blanks = value.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
    let rest = &value[blanks..];
    let sign = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
    let digits = rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..sign + digits]).ok()?.parse().ok()
}

/// Raises the limit of open files to `wanted`, as far as that is allowed, and returns the limit.
///
/// NCCL does the same in the process of rank 0. A limit that is high enough stays as it is, because
/// `select` does not work with file descriptors above 1024.
fn raise_file_limit(wanted: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let Some(current) = current else { return usize::MAX };
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX).min(maximum.unwrap_or(u64::MAX));
    let is_raised = wanted > current && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok();
    usize::try_from(if is_raised { wanted } else { current }).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Shutdown, SocketAddr, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::exchange::net::server::EventLoop;

    /// How many queries of one connection are answered in its turn, and more.
    const TURN: usize = 512;

    fn start() -> (EventLoop<Service>, SocketAddr, UnixStream) {
        let (control, ours) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (EventLoop::new(listener, ours, Service::new(4)).unwrap(), address, control)
    }

    /// One turn, after which the parts of the server agree.
    fn turn(server: &mut EventLoop<Service>) {
        server.turn(Some(Duration::from_millis(20))).unwrap();
        server.check();
        assert!(server.protocol.table.is_consistent());
    }

    /// Turns until `done`.
    fn until(server: &mut EventLoop<Service>, mut done: impl FnMut(&EventLoop<Service>) -> bool) {
        let start = Instant::now();
        while !done(server) {
            assert!(start.elapsed() < Duration::from_secs(60), "{server:?}");
            turn(server);
        }
    }

    fn connect(server: &mut EventLoop<Service>, address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&HELLO).unwrap();
        let before = server.accepted();
        until(server, |server| server.accepted() > before && server.all_known());
        stream
    }

    fn text(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text].concat()
    }

    fn set(key: &str) -> Vec<u8> {
        [vec![Dialect::Current.number(Query::Set)], text(key.as_bytes()), text(b"")].concat()
    }

    fn wait(keys: &[&str]) -> Vec<u8> {
        let start = [vec![Dialect::Current.number(Query::Wait)], (keys.len() as u64).to_le_bytes().to_vec()].concat();
        keys.iter().fold(start, |all, key| [all, text(key.as_bytes())].concat())
    }

    #[test]
    fn numbers_as_c_reads_them() {
        let cases: [(&[u8], Option<i64>); 9] = [
            (b"12", Some(12)),
            (b" -7 apples", Some(-7)),
            (b"+3\0\x99\x01", Some(3)),
            (b"", None),
            (b"x1", None),
            (b"-", None),
            (b"9223372036854775807", Some(i64::MAX)),
            (b"9223372036854775808", None),
            (b"1_000", Some(1)),
        ];
        for (text, expected) in cases {
            assert_eq!(leading_number(text), expected, "{text:?}");
        }
    }

    #[test]
    fn values_are_changed_as_in_pytorch() {
        let mut table = Table::default();
        let swap = |table: &mut Table, expected: &[u8], new: &[u8]| {
            let (found, is_set) = compare_and_set(table, b"k", expected, new).unwrap();
            (found.to_vec(), is_set)
        };
        assert_eq!(swap(&mut table, b"x", b"y"), (b"x".to_vec(), false));
        assert_eq!(table.len(), 0);
        assert_eq!(swap(&mut table, b"", b"y"), (b"y".to_vec(), true));
        assert_eq!(swap(&mut table, b"", b"z"), (b"y".to_vec(), false));
        assert_eq!(swap(&mut table, b"y", b"z"), (b"z".to_vec(), true));
        append(&mut table, b"k", b"end").unwrap();
        assert_eq!(table.get(b"k").as_deref(), Some(&b"zend"[..]));
        assert_eq!(add(&mut table, b"k", 1), Err(()));
        let sums = [add(&mut table, b"n", i64::MAX), add(&mut table, b"n", 1), add(&mut table, b"n", -1)];
        assert_eq!(sums, [Ok(i64::MAX), Err(()), Ok(i64::MAX - 1)]);
        append(&mut table, b"new", b"x").unwrap();
        assert!(table.delete(b"new") && !table.delete(b"new"));
    }

    /// The server stops reading from a client that sends faster than its queries are answered.
    #[test]
    fn many_queries_at_once_do_not_fill_the_memory() {
        let (mut server, address, _control) = start();
        let mut stream = connect(&mut server, address);
        let writer = std::thread::spawn(move || {
            let part = set("k").repeat(50_000);
            for _ in 0..200 {
                if stream.write_all(&part).is_err() {
                    break;
                }
            }
        });
        until(&mut server, |server| server.behind() > 0);
        let mut most = 0;
        for _ in 0..400 {
            turn(&mut server);
            most = most.max(server.held());
            assert!(server.behind() <= 1, "{}", server.behind());
        }
        // What is read at once, and the query that had not come whole before.
        assert!(most <= (4 << 20) + (128 << 10), "{most} bytes are held");
        drop(server);
        writer.join().unwrap();
    }

    /// A client that sends much and leaves keeps no other waiting, and all that it has sent is
    /// answered.
    #[test]
    fn a_client_that_leaves_has_turns_as_others_have() {
        let (mut server, address, _control) = start();
        let mut stream = connect(&mut server, address);
        // So much a socket takes though nobody reads.
        let count = 4 * TURN;
        let sets: Vec<u8> = (0..count).flat_map(|at| set(&at.to_string())).collect();
        stream.write_all(&sets).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut before = 0;
        while server.connected() > 0 {
            turn(&mut server);
            let now = server.protocol.table.len();
            // An event, and what was left of it.
            assert!(now <= before + 2 * TURN, "{before} and then {now}");
            before = now;
        }
        assert_eq!((server.protocol.table.len(), server.held()), (count, 0));
    }

    /// A client is woken whose next query was held up, and that query is answered.
    #[test]
    fn a_query_before_the_end_of_a_wait_is_answered() {
        let (mut server, address, _control) = start();
        let (mut first, mut second) = (connect(&mut server, address), connect(&mut server, address));
        first.write_all(&wait(&["k"])).unwrap();
        until(&mut server, |server| server.held_by_waits() > 0);
        // As where an answer that was on its way has held it up.
        let token = server.tokens()[0];
        server.put_input(token, &[Dialect::Current.number(Query::CountKeys)]);
        second.write_all(&set("k")).unwrap();
        until(&mut server, |server| server.held_by_waits() == 0 && server.held() == 0);
        let mut said = [9; 9];
        first.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        first.read_exact(&mut said).unwrap();
        assert_eq!(said, [0, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    fn is_closed(stream: &mut TcpStream) -> bool {
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        !matches!(stream.read(&mut [0]), Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    #[test]
    fn all_clients_together_have_limits() {
        let (mut server, address, _control) = start();
        server.limits().pending = 1 << 20;
        // Parts of values, and keys that are waited for. What one client may hold, many may not.
        let mut half = connect(&mut server, address);
        let long =
            [vec![Dialect::Current.number(Query::Set)], text(b"k"), (1_u64 << 22).to_le_bytes().to_vec()].concat();
        half.write_all(&[&long[..], &[0; 100 << 10]].concat()).unwrap();
        until(&mut server, |server| server.held() > 100 << 10);
        let mut streams = Vec::new();
        let key = "k".repeat(60 << 10);
        for _ in 0..20 {
            streams.push(connect(&mut server, address));
            streams.last_mut().unwrap().write_all(&wait(&[&key])).unwrap();
            let before = (server.held_by_waits(), server.connected());
            until(&mut server, |server| {
                (server.held_by_waits(), server.connected()) != before && server.held() < 110 << 10
            });
            assert!(server.held() + server.held_by_waits() <= 1 << 20);
        }
        assert!(server.connected() < 20, "nobody is closed");
        // It may be one turn later that it is closed.
        until(&mut server, |_| is_closed(&mut streams[19]));
        assert!(!is_closed(&mut half) && !is_closed(&mut streams[0]));
        // Nor may there be any number of connections.
        server.limits().connections = server.connected() + 1;
        let mut last = connect(&mut server, address);
        let mut more = TcpStream::connect(address).unwrap();
        for _ in 0..10 {
            turn(&mut server);
        }
        assert!(is_closed(&mut more) && !is_closed(&mut last));
    }
}
