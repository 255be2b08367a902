use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::exchange::net::server::Server;
use crate::exchange::store::Store;
use crate::exchange::tcp::greeting::Hello;
use crate::exchange::tcp::{TcpPlace, server};

/// Values that no buffer of a socket holds.
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const LEN: usize = 15 << 20;

fn frame(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat()
}

fn length(stream: &mut TcpStream) -> usize {
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    u32::from_le_bytes(len) as usize
}

fn answer(stream: &mut TcpStream) {
    let len = length(stream);
    stream.read_exact(&mut vec![0; len]).unwrap();
}

fn start() -> Server {
    server::start(TcpListener::bind("127.0.0.1:0").unwrap(), Gate::new(String::new(), 1, None)).unwrap()
}

fn hello() -> Hello {
    Hello { purpose: Purpose::Requests, rank: 0, size: 1, id: 5, job: String::new(), server: 0, number: None }
}

fn comes_in(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(&frame(&hello().encode())).unwrap();
    answer(&mut stream);
    stream
}

fn asks(stream: &mut TcpStream) {
    stream.write_all(&frame(&Request::Get { keys: KEYS.to_vec(), ms: 0 }.encode())).unwrap();
}

/// Who takes its answer slowly gets all of it; who takes nothing is let go.
#[test]
fn who_takes_no_answer_is_let_go() {
    let server = start();
    let mut stream = comes_in(&server);
    for key in KEYS {
        stream.write_all(&frame(&Request::Set { key, value: &vec![7; LEN] }.encode())).unwrap();
        answer(&mut stream);
    }
    asks(&mut stream);
    let mut slow = stream;
    let mut idle = comes_in(&server);
    asks(&mut idle);

    let start = Instant::now();
    let mut rest = length(&mut slow);
    while rest > 0 {
        std::thread::sleep(PAUSE / 4);
        let part = rest.min(8 << 20);
        slow.read_exact(&mut vec![0; part]).unwrap();
        rest -= part;
    }
    assert!(start.elapsed() > PAUSE, "too quick for a test: {:?}", start.elapsed());
    std::thread::sleep(PAUSE * 2);
    idle.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut rest = Vec::new();
    // What was on its way may still come, or be lost with the connection.
    let _ = idle.read_to_end(&mut rest);
    assert!(rest.len() < KEYS.len() * LEN, "all of {} bytes", rest.len());
    // The other one may go on.
    slow.write_all(&frame(&Request::Get { keys: vec!["none"], ms: 0 }.encode())).unwrap();
    answer(&mut slow);
}

/// Who sends halves of requests is let go before they fill the memory; others go on.
#[test]
fn halves_do_not_fill_the_memory() {
    let (_control, ours) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut service = Service::new(listener, ours, Gate::new(String::new(), 1, None)).unwrap();
    service.room = 1 << 20;
    fn turn(service: &mut Service) {
        let mut happened = Vec::new();
        while service.turn(&mut happened, Some(Duration::from_millis(20))).is_ok() && !happened.is_empty() {}
        service.check();
    }
    let comes = |service: &mut Service| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&frame(&hello().encode())).unwrap();
        turn(service);
        answer(&mut stream);
        stream
    };
    let whole = frame(&Request::Set { key: "k", value: &vec![7; 900 << 10] }.encode());
    let (mut first, mut second) = (comes(&mut service), comes(&mut service));
    // Parts that a socket takes though nobody reads yet.
    let part = 100 << 10;
    for now in whole[..8 * part].chunks(part) {
        first.write_all(now).unwrap();
        turn(&mut service);
    }
    second.write_all(&whole[..part]).unwrap();
    turn(&mut service);
    assert_eq!((service.held, service.connected()), (9 * part, 2));
    // More than there is room for.
    second.write_all(&whole[part..3 * part]).unwrap();
    turn(&mut service);
    let mut said = String::new();
    let _ = second.take(200).read_to_string(&mut said);
    assert!(said.contains("the server is full"), "{said:?}");
    first.write_all(&whole[8 * part..]).unwrap();
    turn(&mut service);
    answer(&mut first);
    assert_eq!((service.held, service.connected()), (0, 1));
}

/// A rank that has given a try up, as the server did not answer, is not taken for one that has died when the server hears of it.
#[test]
fn a_server_that_was_frozen_hears_of_tries_that_are_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = TcpPlace::new(listener.local_addr().unwrap().to_string()).within(Duration::from_secs(60));
    let rank = std::thread::spawn(move || place.connect(0, 1).unwrap());
    // Longer than one try lasts in tests.
    std::thread::sleep(Duration::from_millis(1500));
    let server = server::start(listener, Gate::new(String::new(), 1, None)).unwrap();
    let store = rank.join().unwrap();
    assert_eq!(store.ended(&[store.id()], Duration::from_secs(20)).unwrap(), [None]);
    drop(store);
    drop(server);
}
