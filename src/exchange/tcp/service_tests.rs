use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::exchange::tcp::server::Server;

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

fn comes_in(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let hello = Hello { purpose: Purpose::Requests, rank: 0, size: 1, id: 5, job: String::new(), server: 0 };
    stream.write_all(&frame(&hello.encode())).unwrap();
    answer(&mut stream);
    stream
}

fn asks(stream: &mut TcpStream) {
    stream.write_all(&frame(&Request::Get { keys: KEYS.to_vec(), ms: 0 }.encode())).unwrap();
}

/// Who takes its answer slowly gets all of it; who takes nothing is let go.
#[test]
fn who_takes_no_answer_is_let_go() {
    let server = Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), String::new(), 1).unwrap();
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
