//! The server of the exchange's own protocol, in the process of rank 0.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::codec::{self, MAX_REQUEST, Request};
use super::greeting::{Admission, Challenged, Decision, MAX_HELLO, Purpose};
use super::secret::{FrameCodes, TAG};
use crate::exchange::net::server::{Clients, Limits, PAUSE, Piece, Protocol, Refusal, Server};
use crate::exchange::table::{Departures, Table};
use crate::exchange::wire::Writer;

/// The most connections that have not been admitted.
const STRANGERS: usize = 128;

/// The most bytes of requests that have not been answered.
const PENDING: usize = 1 << 30;

/// Serves the ranks that connect to `listener`.
pub(super) fn start(listener: TcpListener, admission: Admission) -> io::Result<Server> {
    Server::start(listener, Service::new(admission))
}

/// What the server holds.
#[derive(Debug)]
pub(super) struct Service {
    admission: Admission,
    table: Table,
    departures: Departures,
}

/// What the server knows of one connection.
#[derive(Debug)]
pub(super) struct Session {
    peer: Peer,
    /// The codes of frames, from a client that has proved that it knows the secret.
    codes: Option<Box<FrameCodes>>,
    /// The keys that the client asked for, while it waits for some of them.
    waits_for: Option<Vec<String>>,
}

/// Who is at the other end of a connection.
#[derive(Debug)]
enum Peer {
    Unknown,
    /// It has been asked for a proof that it knows the secret.
    Challenged(Box<Challenged>),
    /// The rank that is there for as long as the connection is open, by the number of its start.
    Presence(u64),
    Requests,
}

impl Protocol for Service {
    type Session = Session;
    /// The length of the frame without its code.
    type Request = usize;

    fn limits(&self) -> Limits {
        Limits {
            connections: usize::MAX,
            strangers: STRANGERS,
            greets_at_once: true,
            pause: if cfg!(test) { Duration::from_millis(500) } else { PAUSE },
            pending: PENDING,
        }
    }

    fn session(&self) -> Session {
        Session { peer: Peer::Unknown, codes: None, waits_for: None }
    }

    fn has_greeted(session: &Session) -> bool {
        matches!(session.peer, Peer::Presence(_) | Peer::Requests)
    }

    fn is_waited_for(session: &Session) -> bool {
        matches!(session.peer, Peer::Presence(_))
    }

    fn next(&self, session: &mut Session, input: &[u8]) -> Result<Option<(usize, usize)>, Refusal> {
        // A client that sends the next request before it has its answer breaks the protocol.
        if session.waits_for.is_some() && !input.is_empty() {
            return Err(Refusal::Close);
        }
        match frame(session, input) {
            Ok(found) => Ok(found),
            Err(reason) if matches!(session.peer, Peer::Requests) => Err(refuse(session, codec::refused(&reason))),
            Err(_) => Err(Refusal::Close),
        }
    }

    fn answer(&mut self, clients: &mut Clients<Session>, token: u64, len: usize, bytes: &[u8]) -> Result<(), Refusal> {
        let is_ending = clients.is_ending();
        let frame = &bytes[4..4 + len];
        let Some(session) = clients.session(token) else { return Ok(()) };
        match &session.peer {
            Peer::Unknown | Peer::Challenged(_) => {
                let answer = self.greet(session, frame, is_ending)?;
                clients.send(token, answer);
                Ok(())
            }
            Peer::Requests => self.request(clients, token, frame),
            Peer::Presence(id) => {
                if Request::decode(frame) == Ok(Request::Bye) {
                    self.departures.record(*id, "has left");
                }
                Err(Refusal::Close)
            }
        }
    }

    fn wait_expired(&mut self, clients: &mut Clients<Session>, token: u64) {
        self.end_wait(clients, token);
    }

    fn closed(&mut self, clients: &mut Clients<Session>, session: Session) {
        let Peer::Presence(id) = session.peer else { return };
        self.departures.record(id, "has died: its connection is closed");
        // All clients that wait have to look whether it is one of those that they wait for.
        for token in clients.waiting() {
            self.end_wait(clients, token);
        }
    }

    fn no_room(&self, session: &mut Session) -> Refusal {
        let reason = "the server is full: it holds too many bytes of requests that have not come whole";
        match session.peer {
            Peer::Requests => refuse(session, codec::refused(reason)),
            _ => Refusal::Close,
        }
    }
}

/// The length of the next whole frame of `input`, with its head and code and without.
fn frame(session: &mut Session, input: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let Some((head, rest)) = input.split_first_chunk::<4>() else { return Ok(None) };
    let len = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
    let max = if Service::has_greeted(session) { MAX_REQUEST } else { MAX_HELLO };
    let max = max + if session.codes.is_some() { TAG } else { 0 };
    if len > max {
        return Err(format!("expected at most {max} bytes, got {len}"));
    }
    if rest.len() < len {
        return Ok(None);
    }
    // Many small requests at once would keep the other clients waiting.
    if rest.len() > len {
        return Err("expected one request at a time".to_owned());
    }
    let content = match &mut session.codes {
        None => Some(rest),
        Some(codes) => codes.verify(rest),
    };
    match content {
        Some(content) => Ok(Some((4 + len, content.len()))),
        None => {
            let expected = "expected a request with the mark of the shared secret";
            Err(format!("{expected}, got one without the right one: it is not of this rank"))
        }
    }
}

/// A frame of these pieces, with its head and code.
fn framed(session: &mut Session, mut pieces: Vec<Piece>) -> Vec<Piece> {
    if let Some(codes) = &mut session.codes {
        let code = codes.sign(pieces.iter().map(Piece::bytes));
        pieces.push(Piece::Own(code.to_vec()));
    }
    let len: usize = pieces.iter().map(|piece| piece.bytes().len()).sum();
    // A frame holds at most MAX_KEYS values, which four bytes count easily.
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    pieces.insert(0, Piece::Own(len.to_le_bytes().to_vec()));
    pieces
}

/// Closes a connection after this answer.
fn refuse(session: &mut Session, answer: Vec<Piece>) -> Refusal {
    Refusal::Answer(framed(session, answer))
}

impl Service {
    pub(super) fn new(admission: Admission) -> Self {
        Self { admission, table: Table::default(), departures: Departures::default() }
    }

    /// Answers a frame of a client that has not been admitted.
    fn greet(&self, session: &mut Session, frame: &[u8], is_ending: bool) -> Result<Vec<Piece>, Refusal> {
        let challenged = match &session.peer {
            Peer::Challenged(challenged) => Some(&**challenged),
            _ => None,
        };
        let decision = self.admission.decide(challenged, frame);
        let is_of_this_run = match &decision {
            Decision::Challenge(..) => true,
            Decision::Admit(hello, ..) => hello.purpose == Purpose::Requests,
            Decision::Refuse(_) | Decision::Ignore => false,
        };
        if is_ending && !is_of_this_run {
            // The rank of this server has left. A client that comes now looks for the server of the
            // next run, and tries again.
            return Err(Refusal::Close);
        }
        let answer = |answer| vec![Piece::Own(answer)];
        match decision {
            Decision::Challenge(challenged, reply) => {
                session.peer = Peer::Challenged(challenged);
                Ok(framed(session, answer(reply)))
            }
            Decision::Admit(hello, codes, reply) => {
                session.peer = match hello.purpose {
                    Purpose::Presence => Peer::Presence(hello.id),
                    Purpose::Requests => Peer::Requests,
                };
                // The welcome itself has no code yet.
                let reply = framed(session, answer(reply));
                session.codes = codes;
                Ok(reply)
            }
            Decision::Refuse(reply) => Err(refuse(session, answer(reply))),
            Decision::Ignore => Err(Refusal::Close),
        }
    }

    /// Carries out a request.
    fn request(&mut self, clients: &mut Clients<Session>, token: u64, frame: &[u8]) -> Result<(), Refusal> {
        let Some(session) = clients.session(token) else { return Ok(()) };
        let request = match Request::decode(frame) {
            Ok(request) => request,
            Err(reason) => return Err(refuse(session, codec::refused(&reason))),
        };
        let empty = Writer::default;
        let (changed, answer) = match request {
            Request::Set { key, value } => {
                (Some(key), self.table.set(key.as_bytes(), value).map(|()| codec::done(empty())))
            }
            Request::Add { key, by } => {
                let sum = self.table.add(key.as_bytes(), by);
                (Some(key), sum.map(|sum| codec::done(empty().u64(sum.cast_unsigned()))))
            }
            Request::CompareAndSet { key, expected, value } => {
                let swap = self.table.compare_and_set(key.as_bytes(), expected, value);
                (Some(key), swap.map(|swap| codec::swap(&swap)))
            }
            Request::Delete { key } => (None, Ok(codec::done(empty().u8(self.table.delete(key.as_bytes()).into())))),
            Request::Clear { prefix } => {
                self.table.clear(prefix.as_bytes());
                (None, Ok(codec::done(empty())))
            }
            Request::Ended { ids } => (None, Ok(codec::departures(ids.iter().map(|id| self.departures.get(*id))))),
            Request::Get { keys, ms } => {
                self.get(clients, token, &keys, Duration::from_millis(ms.into()));
                return Ok(());
            }
            Request::Bye => return Err(Refusal::Close),
        };
        let answer = framed(session, answer.unwrap_or_else(|reason| codec::refused(&reason)));
        clients.send(token, answer);
        if let Some(key) = changed.filter(|key| self.table.has(key.as_bytes())) {
            for token in clients.key_set(key.as_bytes()) {
                self.end_wait(clients, token);
            }
        }
        Ok(())
    }

    /// Answers with the values of `keys`, once all of them are set or `within` is over.
    fn get(&self, clients: &mut Clients<Session>, token: u64, keys: &[&str], within: Duration) {
        let Some(session) = clients.session(token) else { return };
        let missing = keys.iter().map(|key| key.as_bytes()).filter(|key| !self.table.has(key));
        let missing: std::collections::HashSet<Arc<[u8]>> = missing.map(Arc::from).collect();
        session.waits_for = Some(keys.iter().map(|key| (*key).to_owned()).collect());
        if missing.is_empty() || within.is_zero() {
            self.end_wait(clients, token);
        } else {
            clients.begin_wait(token, missing, Some(Instant::now() + within));
        }
    }

    /// Sends a client that waits the values that are there.
    fn end_wait(&self, clients: &mut Clients<Session>, token: u64) {
        clients.end_wait(token);
        let Some(session) = clients.session(token) else { return };
        let Some(keys) = session.waits_for.take() else { return };
        let values = keys.iter().map(|key| self.table.get(key.as_bytes())).collect();
        let answer = framed(session, codec::values(values));
        clients.send(token, answer);
    }

    /// Panics where the parts of the server contradict each other.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) {
        assert!(self.table.is_consistent() && self.departures.is_consistent());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::exchange::net::server::EventLoop;
    use crate::exchange::store::Store;
    use crate::exchange::tcp::TcpPlace;
    use crate::exchange::tcp::greeting::Hello;

    /// Values that do not fit into the buffers of sockets.
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    const LEN: usize = 15 << 20;
    const SHORT_PAUSE: Duration = Duration::from_millis(500);

    fn frame(bytes: &[u8]) -> Vec<u8> {
        [&u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat()
    }

    fn read_length(stream: &mut TcpStream) -> usize {
        let mut len = [0; 4];
        stream.read_exact(&mut len).unwrap();
        u32::from_le_bytes(len) as usize
    }

    fn read_answer(stream: &mut TcpStream) {
        let len = read_length(stream);
        stream.read_exact(&mut vec![0; len]).unwrap();
    }

    fn admission() -> Admission {
        Admission::new(String::new(), 1, None)
    }

    fn start_server() -> Server {
        start(TcpListener::bind("127.0.0.1:0").unwrap(), admission()).unwrap()
    }

    fn greet(address: SocketAddr) -> TcpStream {
        let purpose = Purpose::Requests;
        let hello = Hello { purpose, rank: 0, size: 1, id: 5, job: String::new(), server: 0, nonce: None };
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&frame(&hello.encode())).unwrap();
        stream
    }

    fn connect(server: &Server) -> TcpStream {
        let mut stream = greet(server.address);
        read_answer(&mut stream);
        stream
    }

    fn ask_for_all(stream: &mut TcpStream) {
        stream.write_all(&frame(&Request::Get { keys: KEYS.to_vec(), ms: 0 }.encode())).unwrap();
    }

    /// A client that reads its answer slowly gets all of it. A client that reads nothing is closed.
    #[test]
    fn a_client_that_reads_no_answer_is_closed() {
        let server = start_server();
        let mut slow = connect(&server);
        for key in KEYS {
            slow.write_all(&frame(&Request::Set { key, value: &vec![7; LEN] }.encode())).unwrap();
            read_answer(&mut slow);
        }
        ask_for_all(&mut slow);
        let mut idle = connect(&server);
        ask_for_all(&mut idle);

        let start = Instant::now();
        let mut rest = read_length(&mut slow);
        while rest > 0 {
            std::thread::sleep(SHORT_PAUSE / 4);
            let part = rest.min(8 << 20);
            slow.read_exact(&mut vec![0; part]).unwrap();
            rest -= part;
        }
        assert!(start.elapsed() > SHORT_PAUSE, "too quick for a test: {:?}", start.elapsed());
        std::thread::sleep(SHORT_PAUSE * 2);
        idle.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut rest = Vec::new();
        // What was on its way may still come, or be lost with the connection.
        let _ = idle.read_to_end(&mut rest);
        assert!(rest.len() < KEYS.len() * LEN, "all of {} bytes", rest.len());
        // The other one may go on.
        slow.write_all(&frame(&Request::Get { keys: vec!["none"], ms: 0 }.encode())).unwrap();
        read_answer(&mut slow);
    }

    /// A client that sends parts of requests is closed before they fill the memory, and others go
    /// on.
    #[test]
    fn incomplete_requests_do_not_fill_the_memory() {
        let (_control, ours) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = EventLoop::new(listener, ours, Service::new(admission())).unwrap();
        server.limits().pending = 1 << 20;
        fn turn(server: &mut EventLoop<Service>) {
            while server.turn(Some(Duration::from_millis(20))).unwrap() {}
            server.check();
            server.protocol.check();
        }
        let connect = |server: &mut EventLoop<Service>| {
            let mut stream = greet(address);
            turn(server);
            read_answer(&mut stream);
            stream
        };
        let whole = frame(&Request::Set { key: "k", value: &vec![7; 900 << 10] }.encode());
        let (mut first, mut second) = (connect(&mut server), connect(&mut server));
        // Parts that a socket takes though nobody reads yet.
        let part = 100 << 10;
        for now in whole[..8 * part].chunks(part) {
            first.write_all(now).unwrap();
            turn(&mut server);
        }
        second.write_all(&whole[..part]).unwrap();
        turn(&mut server);
        assert_eq!((server.held(), server.connected()), (9 * part, 2));
        // More than there is room for.
        second.write_all(&whole[part..3 * part]).unwrap();
        turn(&mut server);
        let mut said = String::new();
        let _ = second.take(200).read_to_string(&mut said);
        assert!(said.contains("the server is full"), "{said:?}");
        first.write_all(&whole[8 * part..]).unwrap();
        turn(&mut server);
        read_answer(&mut first);
        assert_eq!((server.held(), server.connected()), (0, 1));
    }

    /// The server did not answer an attempt to connect, and the rank tried again. When the server
    /// hears of the first attempt, it does not take the rank for one that has died.
    #[test]
    fn a_server_that_was_frozen_hears_of_attempts_that_are_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = TcpPlace::new(listener.local_addr().unwrap().to_string()).with_timeout(Duration::from_secs(60));
        let rank = std::thread::spawn(move || place.connect(0, 1).unwrap());
        // Longer than one attempt lasts in tests.
        std::thread::sleep(Duration::from_millis(1500));
        let server = start(listener, admission()).unwrap();
        let store = rank.join().unwrap();
        assert_eq!(store.ended(&[store.id()], Duration::from_secs(20)).unwrap(), [None]);
        drop(store);
        drop(server);
    }
}
