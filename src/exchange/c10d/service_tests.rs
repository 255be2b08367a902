use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::*;
use crate::exchange::c10d::dialect::{Dialect, HELLO, Query};

fn start() -> (Service, SocketAddr, UnixStream) {
    let (control, ours) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (Service::new(listener, ours, 4).unwrap(), address, control)
}

/// One turn; what the parts of the service say of each other holds after it.
fn turn(service: &mut Service) {
    let within = Duration::from_millis(if service.again.is_empty() { 20 } else { 0 });
    service.turn(&mut Vec::new(), Some(within)).unwrap();
    service.check();
}

/// Turns until `done`.
fn until(service: &mut Service, done: impl Fn(&Service) -> bool) {
    let start = Instant::now();
    while !done(service) {
        assert!(start.elapsed() < Duration::from_secs(60), "{service:?}", service = service.connections);
        turn(service);
    }
}

fn comes(service: &mut Service, address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&HELLO).unwrap();
    let before = service.serving.came();
    until(service, |one| one.serving.came() > before && one.connections.values().all(|one| one.dialect.is_some()));
    stream
}

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

fn set(key: &str) -> Vec<u8> {
    [vec![Dialect::Today.number(Query::Set)], text(key.as_bytes()), text(b"")].concat()
}

fn wait(keys: &[&str]) -> Vec<u8> {
    let start = [vec![Dialect::Today.number(Query::Wait)], (keys.len() as u64).to_le_bytes().to_vec()].concat();
    keys.iter().fold(start, |all, key| [all, text(key.as_bytes())].concat())
}

/// Whoever sends more than is answered in its turns is not read on meanwhile.
#[test]
fn many_queries_at_once_do_not_fill_the_memory() {
    let (mut service, address, _control) = start();
    let mut stream = comes(&mut service, address);
    let writer = std::thread::spawn(move || {
        let part = set("k").repeat(50_000);
        for _ in 0..200 {
            if stream.write_all(&part).is_err() {
                break;
            }
        }
    });
    until(&mut service, |one| !one.again.is_empty());
    let (mut most, start) = (0, Instant::now());
    for _ in 0..400 {
        turn(&mut service);
        most = most.max(service.held);
        assert!(service.again.len() <= 1, "{:?}", service.again);
    }
    // What is read at once, and the query that had not come whole before.
    assert!(most <= (4 << 20) + (128 << 10), "{most} bytes are held");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    drop(service);
    writer.join().unwrap();
}

/// Whoever sends much and leaves keeps nobody waiting, and all that it has sent is looked at.
#[test]
fn who_leaves_has_turns_as_others_have() {
    let (mut service, address, _control) = start();
    let mut stream = comes(&mut service, address);
    let token = *service.connections.keys().next().unwrap();
    // So much a socket takes though nobody reads.
    let count = 4 * TURN;
    let sets: Vec<u8> = (0..count).flat_map(|at| set(&at.to_string())).collect();
    stream.write_all(&sets).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut before = 0;
    while service.connections.contains_key(&token) {
        turn(&mut service);
        let now = service.values.len();
        // An event, and what was left of it.
        assert!(now <= before + 2 * TURN, "{before} and then {now}");
        before = now;
    }
    assert_eq!((service.values.len(), service.held), (count, 0));
}

/// Who was told while its answers were not taken is heard again.
#[test]
fn what_was_asked_before_one_is_told_is_answered() {
    let (mut service, address, _control) = start();
    let (mut first, mut second) = (comes(&mut service, address), comes(&mut service, address));
    first.write_all(&wait(&["k"])).unwrap();
    until(&mut service, |one| one.waits.held() > 0);
    // As where an answer that was on its way has held it up.
    let token = *service.connections.keys().min().unwrap();
    let asked = Dialect::Today.number(Query::CountKeys);
    service.connections.get_mut(&token).unwrap().line.input.push(asked);
    service.held += 1;
    second.write_all(&set("k")).unwrap();
    until(&mut service, |one| one.waits.held() == 0 && one.held == 0);
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
fn all_together_have_bounds() {
    let (mut service, address, _control) = start();
    service.room = 1 << 20;
    // Halves of values, and keys that are waited for: what one may hold, many may not.
    let mut half = comes(&mut service, address);
    let long = [vec![Dialect::Today.number(Query::Set)], text(b"k"), (1_u64 << 22).to_le_bytes().to_vec()].concat();
    half.write_all(&[&long[..], &[0; 100 << 10]].concat()).unwrap();
    until(&mut service, |one| one.held > 100 << 10);
    let mut streams = Vec::new();
    let key = "k".repeat(60 << 10);
    for _ in 0..20 {
        streams.push(comes(&mut service, address));
        streams.last_mut().unwrap().write_all(&wait(&[&key])).unwrap();
        let before = (service.waits.held(), service.connections.len());
        until(&mut service, |one| (one.waits.held(), one.connections.len()) != before && one.held < 110 << 10);
        assert!(service.held + service.waits.held() <= service.room);
    }
    assert!(service.connections.len() < 20, "nobody is closed");
    assert!(!is_closed(&mut half) && !is_closed(&mut streams[0]) && is_closed(&mut streams[19]));
    // Nor may there be any number of connections.
    service.most = service.connections.len() + 1;
    let mut last = comes(&mut service, address);
    let mut more = TcpStream::connect(address).unwrap();
    for _ in 0..10 {
        turn(&mut service);
    }
    assert!(is_closed(&mut more) && !is_closed(&mut last));
}
