//! The TCP server among those who mean it no good, and clients that come to something else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, Store, Tcp, TcpPlace};
use gpucomm::{Error, Result};

use crate::support::{free_address, seed, slower};

/// The version of the protocol.
pub const VERSION: u32 = 4;

pub fn frame(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat()
}

/// What a client says first, as the protocol has it.
pub fn hello(version: u32, purpose: u8, (rank, size): (u32, u32), job: &str) -> Vec<u8> {
    let mut bytes = b"gpucommX".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.push(purpose);
    bytes.extend(rank.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend(77_u64.to_le_bytes());
    bytes.extend(u32::try_from(job.len()).unwrap().to_le_bytes());
    bytes.extend(job.as_bytes());
    bytes.extend(0_u64.to_le_bytes());
    // Without a secret.
    bytes.push(0);
    frame(&bytes)
}

/// A connection that has been let in, for requests.
pub fn inside(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&hello(VERSION, 1, (1, 2), "")).unwrap();
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut answer = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((&answer[..8], answer[12]), (&b"gpucommX"[..], 0));
    stream
}

/// Whether the server closes a connection within the time.
pub fn closes(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    let mut rest = Vec::new();
    !matches!(stream.read_to_end(&mut rest), Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut))
}

/// Two ranks at work while `attack` is on; returns what it returns, once they have worked on after it.
pub fn beside<R: Send>(attack: impl FnOnce(&str) -> R + Send) -> R {
    let address = free_address();
    beside_at(TcpPlace::new(&address), || attack(&address))
}

/// The same at this place.
pub fn beside_at<R: Send>(place: TcpPlace, attack: impl FnOnce() -> R + Send) -> R {
    let place = place.with_timeout(slower(20.0));
    beside_stores(|rank| place.store(rank, 2), || place.connect(1, 2), attack)
}

/// The same at a server that is no rank.
pub fn beside_hosted<R: Send>(attack: impl FnOnce(&str) -> R + Send) -> R {
    let server = TcpPlace::new("127.0.0.1:0").host().unwrap();
    let address = server.address().to_string();
    let place = TcpPlace::new(&address).with_timeout(slower(20.0));
    beside_stores(|rank| place.connect(rank, 2), || place.connect(1, 2), || attack(&address))
}

/// The same over these stores, with another one of rank 1.
fn beside_stores<R: Send>(
    store: impl Fn(usize) -> Result<Tcp> + Sync,
    another: impl FnOnce() -> Result<Tcp>,
    attack: impl FnOnce() -> R + Send,
) -> R {
    let work = |x: &Exchange, rounds: u8| {
        for round in 0..rounds {
            assert_eq!(x.all_gather(&[round, x.rank() as u8]).unwrap(), [[round, 0], [round, 1]]);
        }
    };
    std::thread::scope(|scope| {
        let store = &store;
        let [first, second] = [0, 1].map(|rank| {
            scope.spawn(move || {
                let x = Exchange::join_timeout(store(rank).unwrap(), slower(20.0)).unwrap();
                x.set(&format!("here/{rank}"), b"").unwrap();
                work(&x, 20);
                // Until the attack is over.
                x.get("over").unwrap();
                work(&x, 50);
                x.barrier().unwrap();
            })
        });
        let x = another().unwrap();
        let result = attack();
        let path = {
            // The only key that says where the generation lies.
            let now = x.get(&["g/now"], slower(5.0)).unwrap().swap_remove(0).expect("a generation");
            let len = u32::from_le_bytes(now[..4].try_into().unwrap()) as usize;
            String::from_utf8(now[4..4 + len].to_vec()).unwrap()
        };
        x.set(&format!("{path}u/over"), b"", slower(5.0)).unwrap();
        drop(x);
        first.join().unwrap();
        second.join().unwrap();
        result
    })
}

#[test]
fn garbage_harms_nobody() {
    beside(garbage);
    beside_hosted(garbage);
}

fn garbage(address: &str) -> usize {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut open = Vec::new();
    for at in 0..400 {
        // The server may have closed before we are done.
        let mut stream = TcpStream::connect(address).unwrap();
        let bytes: Vec<u8> = match at % 8 {
            0 => (0..random.usize(1..3000)).map(|_| random.u8(..)).collect(),
            1 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            2 => u32::MAX.to_le_bytes().to_vec(),
            3 => hello(VERSION, 1, (1, 2), "")[..random.usize(1..30)].to_vec(),
            4 => [
                hello(VERSION, 1, (1, 2), ""),
                frame(&(0..random.usize(..200)).map(|_| random.u8(..)).collect::<Vec<_>>()),
            ]
            .concat(),
            // Half of a long request.
            5 => [hello(VERSION, 1, (1, 2), ""), (20_u32 << 20).to_le_bytes().to_vec(), vec![0; random.usize(..9000)]]
                .concat(),
            6 => [hello(VERSION, 1, (1, 2), ""), u32::MAX.to_le_bytes().to_vec()].concat(),
            _ => [hello(VERSION, 7, (1, 2), ""), vec![0; 64]].concat(),
        };
        let _ = stream.write_all(&bytes);
        if at % 3 == 0 {
            open.push(stream);
        }
    }
    open.len()
}

#[test]
fn connections_that_say_nothing_make_room() {
    beside(silence);
    beside_hosted(silence);
}

fn silence(address: &str) {
    let mut silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&hello(VERSION, 0, (1, 2), "")[..20]).unwrap();
    // There is still room for those who speak.
    drop(inside(address));
    assert!(closes(&mut silent[0], slower(2.0)), "the oldest one is not closed");
    let start = Instant::now();
    assert!(closes(&mut half, slower(8.0)) && closes(&mut silent[299], slower(8.0)));
    assert!(start.elapsed() < slower(8.0));
}

#[test]
fn who_keeps_to_no_rule_is_dropped() {
    beside(disorder);
    beside_hosted(disorder);
}

fn disorder(address: &str) {
    // A request that waits, and then another one.
    let waiting =
        frame(&[&[1][..], &60_000_u32.to_le_bytes(), &1_u32.to_le_bytes(), &1_u32.to_le_bytes(), b"k"].concat());
    let mut stream = inside(address);
    stream.write_all(&waiting).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    stream.write_all(&waiting).unwrap();
    assert!(closes(&mut stream, slower(3.0)));
    // Many requests at once, none of which waits for its answer.
    let quick = frame(&[&[1][..], &0_u32.to_le_bytes(), &1_u32.to_le_bytes(), &1_u32.to_le_bytes(), b"k"].concat());
    let mut hasty = inside(address);
    hasty.write_all(&quick.repeat(1000)).unwrap();
    assert!(closes(&mut hasty, slower(3.0)));
    // One that dies in a wait.
    for _ in 0..50 {
        inside(address).write_all(&waiting).unwrap();
    }
    // One that does not read its answers: they wait for it, and nobody else does.
    let mut deaf = inside(address);
    let value = vec![3_u8; 8 << 20];
    let set = [&[0][..], &1_u32.to_le_bytes(), b"v", &(value.len() as u32).to_le_bytes(), &value].concat();
    deaf.write_all(&frame(&set)).unwrap();
    deaf.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    for _ in 0..20 {
        let _ = deaf.write_all(&frame(
            &[&[1][..], &0_u32.to_le_bytes(), &1_u32.to_le_bytes(), &1_u32.to_le_bytes(), b"v"].concat(),
        ));
    }
    // An unknown request is answered by why not.
    let mut unknown = inside(address);
    unknown.write_all(&frame(&[99])).unwrap();
    let mut answer = Vec::new();
    unknown.set_read_timeout(Some(slower(3.0))).unwrap();
    unknown.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("expected a request, got 1 bytes"), "{answer:?}");
}

#[test]
fn who_is_no_rank_of_this_job_is_told_so() {
    let address = free_address();
    let server = TcpPlace::new(&address).with_job("ours").serve(2).unwrap();
    let place = TcpPlace::new(server.address()).with_timeout(slower(5.0));
    let why = |result: Result<gpucomm::exchange::Tcp>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Exchange { operation: "TcpPlace::connect", .. }), "{error}");
        error.to_string()
    };
    let text = why(place.clone().with_job("theirs").connect(1, 2));
    assert!(text.contains("expected a rank of the job \"ours\", got one of \"theirs\""), "{text}");
    let text = why(place.clone().with_job("ours").connect(1, 3));
    assert!(text.contains("expected one of 2 ranks, got one of 3"), "{text}");
    assert!(place.clone().with_job("x".repeat(300)).connect(1, 2).is_err());
    assert!(place.with_job("ours").connect(1, 2).is_ok());

    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(&hello(9, 0, (1, 2), "ours")).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("expected version 4 of the protocol, got 9"), "{answer:?}");
    // As version 1 was, whose hello was shorter.
    let mut old = TcpStream::connect(&address).unwrap();
    let said = hello(1, 0, (1, 2), "ours");
    old.write_all(&frame(&said[4..said.len() - 1])).unwrap();
    let mut answer = Vec::new();
    old.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("expected version 4 of the protocol, got 1"), "{answer:?}");
    // The address is taken.
    let error = TcpPlace::new(&address).with_timeout(Duration::from_millis(200)).serve(2).unwrap_err();
    assert!(matches!(&error, Error::Exchange { key, .. } if *key == address), "{error}");
}

#[test]
fn something_else_at_the_address() {
    // It answers, but in another language.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(&frame(b"HTTP/1.1 400 Bad Request")).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let error = TcpPlace::new(address).with_timeout(slower(5.0)).connect(1, 2).unwrap_err();
    assert!(error.to_string().contains("expected a server of an exchange, got something else"), "{error}");
    server.join().unwrap();
    // It says nothing, or nobody is there.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [silent.local_addr().unwrap().to_string(), free_address(), "no-such-name.invalid:1".to_owned()] {
        let start = Instant::now();
        let error = TcpPlace::new(&address).with_timeout(Duration::from_millis(300)).connect(1, 2).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(error.to_string().contains(&address) && error.to_string().contains("has not come"), "{error}");
        assert!(address.contains("invalid") || start.elapsed() < slower(1.5), "{:?}", start.elapsed());
    }
}

#[test]
fn a_server_that_comes_late_and_other_addresses() {
    let start = Instant::now();
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        let port = free_address().rsplit_once(':').unwrap().1.to_owned();
        let address = format!("{host}:{port}");
        if TcpListener::bind(&address).is_err() {
            println!("no {host} here");
            continue;
        }
        let place = TcpPlace::new(&address).with_timeout(slower(10.0));
        std::thread::scope(|scope| {
            let other =
                scope.spawn(|| Exchange::join_timeout(place.store(1, 2).unwrap(), slower(10.0)).unwrap().barrier());
            std::thread::sleep(Duration::from_millis(150));
            let x = Exchange::join_timeout(place.store(0, 2).unwrap(), slower(10.0)).unwrap();
            x.barrier().unwrap();
            // The server stays until the other has left.
            drop(x);
            other.join().unwrap().unwrap();
        });
    }
    assert!(start.elapsed() < slower(4.0), "{:?}", start.elapsed());
}
