//! The server of the exchange's own protocol: in the process of rank 0, or of none.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use super::codec::{self, MAX_REQUEST, Request};
use super::greeting::{Admission, Challenged, Decision, MAX_HELLO, Purpose, Reply};
use super::jobs::Jobs;
use super::secret::{FrameCipher, SEAL};
use crate::exchange::net::server::{Clients, Limits, PAUSE, Piece, Protocol, Refusal, Server};
use crate::exchange::wire::Writer;
use crate::lock::Mutex;

/// The most connections that have not been admitted.
const STRANGERS: usize = 128;

/// The most bytes of requests that have not been answered.
const PENDING: usize = 1 << 30;

/// Serves the ranks that connect to `listener`.
pub(super) fn start(listener: TcpListener, admission: Admission) -> io::Result<Server> {
    Server::start(listener, Service::new(admission))
}

/// As [`start`], with what the process of the server learns from it and tells it.
pub(super) fn start_with(listener: TcpListener, admission: Admission, outside: Outside) -> io::Result<Server> {
    Server::start(listener, Service::with(admission, outside))
}

/// A rank that has ended, as the process of the server knows.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) job: String,
    pub(super) rank: usize,
    pub(super) how: String,
}

/// What the thread of a server shares with the process that has it.
#[derive(Debug, Clone, Default)]
pub(super) struct Outside {
    /// How many ranks are connected.
    pub(super) connected: Arc<AtomicUsize>,
    /// Ranks of which the thread is to be [notified](Server::notify).
    pub(super) ended: Arc<Mutex<Vec<Ended>>>,
}

/// What the server holds.
#[derive(Debug)]
pub(super) struct Service {
    admission: Admission,
    jobs: Jobs,
    ended: Arc<Mutex<Vec<Ended>>>,
}

/// What the server knows of one connection.
#[derive(Debug)]
pub(super) struct Session {
    peer: Peer,
    /// Seals and opens frames, for a client that has proved that it knows the secret.
    cipher: Option<Box<FrameCipher>>,
    /// The keys that the client asked for, while it waits for some of them.
    waits_for: Option<Vec<Vec<u8>>>,
}

/// Who is at the other end of a connection.
#[derive(Debug)]
enum Peer {
    Unknown,
    /// It has been asked for a proof that it knows the secret.
    Challenged(Box<Challenged>),
    /// The rank that is there for as long as the connection is open.
    Presence {
        job: u64,
        id: u64,
    },
    /// A rank of this job.
    Requests {
        job: u64,
    },
}

impl Protocol for Service {
    type Session = Session;
    /// The content of an encrypted frame. `None` for a frame in plain text.
    type Request = Option<Vec<u8>>;

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
        Session { peer: Peer::Unknown, cipher: None, waits_for: None }
    }

    fn has_greeted(session: &Session) -> bool {
        matches!(session.peer, Peer::Presence { .. } | Peer::Requests { .. })
    }

    fn is_waited_for(session: &Session) -> bool {
        matches!(session.peer, Peer::Presence { .. })
    }

    fn next(&self, session: &mut Session, input: &[u8]) -> Result<Option<Frame>, Refusal> {
        // A client that sends the next request before it has its answer breaks the protocol.
        if session.waits_for.is_some() && !input.is_empty() {
            return Err(Refusal::Close);
        }
        match frame(session, input) {
            Ok(found) => Ok(found),
            Err(reason) if matches!(session.peer, Peer::Requests { .. }) => {
                Err(refuse(session, codec::refused(&reason)))
            }
            Err(_) => Err(Refusal::Close),
        }
    }

    fn answer(
        &mut self,
        clients: &mut Clients<Session>,
        token: u64,
        opened: Option<Vec<u8>>,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        let is_ending = clients.is_ending();
        let frame = opened.as_deref().unwrap_or(&bytes[4..]);
        let Some(session) = clients.session(token) else { return Ok(()) };
        match &session.peer {
            Peer::Unknown | Peer::Challenged(_) => {
                let answer = self.greet(session, frame, is_ending)?;
                clients.send(token, answer);
                Ok(())
            }
            Peer::Requests { job } => {
                let job = *job;
                self.request(clients, token, job, frame)
            }
            Peer::Presence { job, id } => {
                if Request::decode(frame) == Ok(Request::Bye) {
                    self.jobs.depart(*job, *id, "has left");
                }
                Err(Refusal::Close)
            }
        }
    }

    fn wait_expired(&mut self, clients: &mut Clients<Session>, token: u64) {
        self.end_wait(clients, token);
    }

    fn closed(&mut self, clients: &mut Clients<Session>, session: Session) {
        let Peer::Presence { job, id } = session.peer else { return };
        self.jobs.depart(job, id, "has died: its connection is closed");
        self.jobs.leave(job, id);
        // The clients that wait have to look whether it is one of those that they wait for.
        for token in clients.waiting() {
            let is_of_job = |session: &mut Session| matches!(session.peer, Peer::Requests { job: its } if its == job);
            if clients.session(token).is_some_and(is_of_job) {
                self.end_wait(clients, token);
            }
        }
    }

    fn notified(&mut self, clients: &mut Clients<Session>) {
        for Ended { job, rank, how } in std::mem::take(&mut *self.ended.lock()) {
            let Some((job, ids)) = self.jobs.starts(&job, rank) else { continue };
            ids.iter().for_each(|id| self.jobs.depart(job, *id, &how));
            // Another process may have the connection open still, such as a child of the rank.
            let is_its = |session: &Session| matches!(&session.peer, Peer::Presence { job: its, id } if *its == job && ids.contains(id));
            clients.which(is_its).into_iter().for_each(|token| clients.close(token));
        }
    }

    fn next_time(&self) -> Option<Instant> {
        self.jobs.next_end()
    }

    fn time_is(&mut self, now: Instant) {
        self.jobs.end_empty(now);
    }

    fn no_room(&self, session: &mut Session) -> Refusal {
        let reason = "the server is full: it holds too many bytes of requests that have not come whole";
        match session.peer {
            Peer::Requests { .. } => refuse(session, codec::refused(reason)),
            _ => Refusal::Close,
        }
    }
}

/// The length of a frame, and what it says if it is encrypted.
type Frame = (usize, Option<Vec<u8>>);

/// The next whole frame of `input`.
fn frame(session: &mut Session, input: &[u8]) -> Result<Option<Frame>, String> {
    let Some((head, rest)) = input.split_first_chunk::<4>() else { return Ok(None) };
    let len = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
    let max = if Service::has_greeted(session) { MAX_REQUEST } else { MAX_HELLO };
    let max = max + if session.cipher.is_some() { SEAL } else { 0 };
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
    let Some(cipher) = &mut session.cipher else { return Ok(Some((4 + len, None))) };
    match cipher.open(rest.to_vec()) {
        Some(opened) => Ok(Some((4 + len, Some(opened)))),
        None => {
            let expected = "expected a request that is encrypted with the shared secret";
            Err(format!("{expected}, got another one: it is not of this rank"))
        }
    }
}

/// A frame of these pieces, with its head.
fn framed(session: &mut Session, mut pieces: Vec<Piece>) -> Vec<Piece> {
    if let Some(cipher) = &mut session.cipher {
        // Values hold much less than what is too long for the cipher.
        pieces = vec![Piece::Own(cipher.seal(pieces.iter().map(Piece::bytes)).unwrap_or_default())];
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
        Self::with(admission, Outside::default())
    }

    fn with(admission: Admission, outside: Outside) -> Self {
        let jobs = Jobs::new(!admission.is_at_rank_0(), outside.connected);
        Self { admission, jobs, ended: outside.ended }
    }

    /// Answers a frame of a client that has not been admitted.
    fn greet(&mut self, session: &mut Session, frame: &[u8], is_ending: bool) -> Result<Vec<Piece>, Refusal> {
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
            Decision::Admit(hello, cipher, reply) => {
                let job = match self.jobs.enter(&hello) {
                    Ok(job) => job,
                    Err(reason) => return Err(refuse(session, answer(Reply::Refused(reason).encode()))),
                };
                session.peer = match hello.purpose {
                    Purpose::Presence => Peer::Presence { job, id: hello.id },
                    Purpose::Requests => Peer::Requests { job },
                };
                // The welcome itself has no code yet.
                let reply = framed(session, answer(reply));
                session.cipher = cipher;
                Ok(reply)
            }
            Decision::Refuse(reply) => Err(refuse(session, answer(reply))),
            Decision::Ignore => Err(Refusal::Close),
        }
    }

    /// Carries out a request of a rank of this job.
    fn request(&mut self, clients: &mut Clients<Session>, token: u64, job: u64, frame: &[u8]) -> Result<(), Refusal> {
        let Some(session) = clients.session(token) else { return Ok(()) };
        let request = match Request::decode(frame) {
            Ok(request) => request,
            Err(reason) => return Err(refuse(session, codec::refused(&reason))),
        };
        if !self.jobs.has(job) {
            let reason =
                "no rank of this job has been connected for so long that the server has nothing of it any more";
            return Err(refuse(session, codec::refused(reason)));
        }
        let empty = Writer::default;
        let of_job = |key: &str| [&job.to_be_bytes(), key.as_bytes()].concat();
        let table = &mut self.jobs.table;
        let (changed, answer) = match request {
            Request::Set { key, value } => {
                let key = of_job(key);
                let set = table.set(&key, value);
                (Some(key), set.map(|()| codec::done(empty())))
            }
            Request::Add { key, by } => {
                let key = of_job(key);
                let sum = table.add(&key, by);
                (Some(key), sum.map(|sum| codec::done(empty().u64(sum.cast_unsigned()))))
            }
            Request::CompareAndSet { key, expected, value } => {
                let key = of_job(key);
                let swap = table.compare_and_set(&key, expected, value);
                (Some(key), swap.map(|swap| codec::swap(&swap)))
            }
            Request::Delete { key } => (None, Ok(codec::done(empty().u8(table.delete(&of_job(key)).into())))),
            Request::Clear { prefix } => {
                table.clear(&of_job(prefix));
                (None, Ok(codec::done(empty())))
            }
            Request::Ended { ids } => (None, Ok(codec::departures(ids.iter().map(|id| self.jobs.departure(job, *id))))),
            Request::Get { keys, ms } => {
                let keys = keys.into_iter().map(of_job).collect();
                self.get(clients, token, keys, Duration::from_millis(ms.into()));
                return Ok(());
            }
            Request::Bye => return Err(Refusal::Close),
        };
        let answer = framed(session, answer.unwrap_or_else(|reason| codec::refused(&reason)));
        clients.send(token, answer);
        if let Some(key) = changed.filter(|key| self.jobs.table.has(key)) {
            for token in clients.key_set(&key) {
                self.end_wait(clients, token);
            }
        }
        Ok(())
    }

    /// Answers with the values of `keys`, once all of them are set or `within` is over.
    fn get(&self, clients: &mut Clients<Session>, token: u64, keys: Vec<Vec<u8>>, within: Duration) {
        let Some(session) = clients.session(token) else { return };
        let missing = keys.iter().filter(|key| !self.jobs.table.has(key));
        let missing: std::collections::HashSet<Arc<[u8]>> = missing.map(|key| Arc::from(&**key)).collect();
        session.waits_for = Some(keys);
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
        let values = keys.iter().map(|key| self.jobs.table.get(key)).collect();
        let answer = framed(session, codec::values(values));
        clients.send(token, answer);
    }

    /// Panics where the parts of the server contradict each other.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) {
        self.jobs.check();
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
