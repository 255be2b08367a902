//! Ranks that share a secret, and who comes without it or sits in between.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use gpucomm::exchange::{Store, Swap, Tcp, TcpPlace};
use gpucomm::{Error, Result};

use crate::attack::{VERSION, beside_at, closes, frame, hello};
use crate::support::{free_address, slower};

const SECRET: &str = "correct horse";

fn at(address: &str) -> TcpPlace {
    TcpPlace::new(address).with_timeout(slower(10.0))
}

fn ours(address: &str) -> TcpPlace {
    at(address).with_secret(SECRET)
}

/// The next frame, if there is one.
fn next(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn why(result: Result<Tcp>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Exchange { operation: "TcpPlace::connect", .. }), "{error}");
    let text = format!("{error} {error:?}");
    assert!(!text.contains(SECRET), "{text}");
    text
}

#[test]
fn only_who_knows_it_comes_in() {
    let server = ours("127.0.0.1:0").serve(2).unwrap();
    let client = ours(server.address()).connect(1, 2).unwrap();
    let within = slower(5.0);
    for value in [&b""[..], b"a value", &vec![7; 1 << 20]] {
        client.set("a/k", value, within).unwrap();
        assert_eq!(server.get(&["a/k", "none"], Duration::ZERO).unwrap(), [Some(value.to_vec()), None]);
    }
    assert_eq!(client.add("sum", -3, within).unwrap(), -3);
    assert_eq!(server.compare_and_set("sum", Some(b"-3"), b"x", within).unwrap(), Swap::Done);
    // What the server objects to has a mark, too.
    let error = client.add("sum", 1, within).unwrap_err();
    assert!(error.to_string().contains("expected a number"), "{error}");

    let text = why(at(server.address()).connect(1, 2));
    assert!(text.contains("is refused: expected a rank with the shared secret, got one without any"), "{text}");
    for other in ["Correct horse", "correct horse ", "correct horse\0", "c"] {
        let text = why(at(server.address()).with_secret(other).connect(1, 2));
        assert!(text.contains("is refused: expected a proof of the shared secret, got one that is none"), "{text}");
    }
    // The same as bytes.
    assert!(at(server.address()).with_secret(SECRET.as_bytes()).connect(1, 2).is_ok());
    let error = at("127.0.0.1:0").with_secret("").serve(2).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains("at least 1 byte"), "{error}");

    let open = at("127.0.0.1:0").serve(2).unwrap();
    let text = why(ours(open.address()).connect(1, 2));
    assert!(text.contains("is refused: expected a rank without a shared secret, got one with a secret"), "{text}");
    for shown in [format!("{:?}", ours("a:1")), format!("{server:?}"), format!("{client:#?}")] {
        assert!(shown.contains("Secret(..)") && !shown.contains("horse"), "{shown}");
    }
}

#[test]
fn a_job_goes_on_beside_those_who_do_not_know_it() {
    let address = free_address();
    beside_at(ours(&address), || {
        let mut kept = Vec::new();
        for at_all in 0..60 {
            let place = at(&address);
            match at_all % 3 {
                0 => drop(why(place.with_secret(format!("guess {at_all}")).connect(1, 2))),
                1 => drop(why(place.connect(1, 2))),
                _ => {
                    // Asked for a proof, it says something else, or nothing.
                    let mut stream = TcpStream::connect(&address).unwrap();
                    let mut said = hello(VERSION, 0, (1, 2), "");
                    *said.last_mut().unwrap() = 1;
                    said.extend([7; 32]);
                    stream.write_all(&frame(&said[4..])).unwrap();
                    assert_eq!(next(&mut stream).unwrap()[12], 2, "it is not asked");
                    if at_all % 2 == 0 {
                        let _ = stream.write_all(&frame(&[0xff; 32]));
                    }
                    kept.push(stream);
                }
            }
        }
        assert!(kept.iter_mut().all(|stream| closes(stream, slower(10.0))));
    });
}

/// What somebody in between makes of each frame; `true` for those of the client, with their number on their connection.
type Tamper = fn(bool, usize, Vec<u8>) -> Vec<Vec<u8>>;

/// Somebody between a client and the server at `to`, for as long as anybody comes.
fn between(to: &str, tamper: Tamper) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = to.to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let Ok(server) = TcpStream::connect(&to) else { return };
            let ways = [(true, client.try_clone(), server.try_clone()), (false, Ok(server), Ok(client))];
            for (asks, from, to) in ways {
                let (mut from, mut to) = (from.unwrap(), to.unwrap());
                std::thread::spawn(move || {
                    let mut number = 0;
                    while let Some(bytes) = next(&mut from) {
                        for bytes in tamper(asks, number, bytes) {
                            let _ = to.write_all(&frame(&bytes));
                        }
                        number += 1;
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    address
}

/// Frames 0 and 1 of the client, 0 and 1 of the server, are the greeting.
#[test]
fn who_sits_in_between_changes_nothing() {
    let server = ours("127.0.0.1:0").serve(2).unwrap();
    let within = slower(5.0);
    let asks = |tamper: Tamper| ours(&between(server.address(), tamper)).connect(1, 2);

    // Who only listens is not noticed.
    let client = asks(|_, _, bytes| vec![bytes]).unwrap();
    assert_eq!((client.add("n", 1, within).unwrap(), client.add("n", 1, within).unwrap()), (1, 2));
    let sum = || server.get(&["n"], Duration::ZERO).unwrap();
    let before = sum();

    let changed: Tamper = |asks, number, mut bytes| {
        if asks && number == 2 {
            // The number that is to be added.
            let at = bytes.len() - 17;
            bytes[at] ^= 1;
        }
        vec![bytes]
    };
    let error = asks(changed).unwrap().add("n", 1, within).unwrap_err();
    assert!(error.to_string().contains("expected a request that is encrypted with the shared secret"), "{error}");

    let injected: Tamper = |asks, number, bytes| {
        if asks && number == 2 { vec![b"\x04\x01\0\0\0n".to_vec()] } else { vec![bytes] }
    };
    let error = asks(injected).unwrap().add("n", 1, within).unwrap_err();
    assert!(error.to_string().contains("expected a request that is encrypted with the shared secret"), "{error}");
    assert_eq!(sum(), before);

    let left_out: Tamper = |asks, number, bytes| {
        // An answer comes for what the server has never heard.
        if asks && number == 3 { vec![] } else { vec![bytes] }
    };
    let client = asks(left_out).unwrap();
    client.set("x", b"", within).unwrap();
    let error = client.set("x", b"y", slower(0.1)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");

    let answered: Tamper = |asks, number, mut bytes| {
        if !asks && number == 2 {
            bytes[0] ^= 1;
        }
        vec![bytes]
    };
    let error = asks(answered).unwrap().get(&["n"], Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("expected an answer that is encrypted with the shared secret"), "{error}");

    // What was said before, said again at the same place of another connection.
    let again: Tamper = |asks, number, bytes| {
        use std::sync::Mutex;
        static SAID: Mutex<Vec<u8>> = Mutex::new(Vec::new());
        let mut said = SAID.lock().unwrap();
        // Of requests, which go on connections of their own: those of ranks say goodbye there.
        if asks && number == 2 && bytes.len() > 25 {
            if said.is_empty() {
                *said = bytes.clone();
            } else {
                return vec![said.clone()];
            }
        }
        vec![bytes]
    };
    let address = between(server.address(), again);
    let first = ours(&address).connect(1, 2).unwrap().add("n", 1, within).unwrap();
    let error = ours(&address).connect(1, 2).unwrap().add("n", 1, within).unwrap_err();
    assert!(error.to_string().contains("expected a request that is encrypted with the shared secret"), "{error}");
    assert_eq!(sum(), [Some(first.to_string().into_bytes())]);

    // In the greeting: the client's hello, its proof, and the server's.
    let greeting: [(Tamper, &str); 3] = [
        (
            |asks, number, bytes| if asks && number == 0 { change_at(bytes, 20) } else { vec![bytes] },
            "expected a proof",
        ),
        (|asks, number, bytes| if asks && number == 1 { change_at(bytes, 5) } else { vec![bytes] }, "expected a proof"),
        (
            |asks, number, bytes| if !asks && number == 1 { change_at(bytes, 40) } else { vec![bytes] },
            "expected a server with the shared secret, got one that does not prove",
        ),
    ];
    for (tamper, expected) in greeting {
        let text = why(asks(tamper));
        assert!(text.contains(expected), "{text}");
    }
}

fn change_at(mut bytes: Vec<u8>, at: usize) -> Vec<Vec<u8>> {
    bytes[at] ^= 1;
    vec![bytes]
}

/// What a client and the server have said is of use to nobody who has heard it.
#[test]
fn what_was_overheard_lets_nobody_in() {
    use std::sync::Mutex;
    static SAID: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    let server = ours("127.0.0.1:0").serve(2).unwrap();
    let listens: Tamper = |asks, _, bytes| {
        if asks {
            SAID.lock().unwrap().push(bytes.clone());
        }
        vec![bytes]
    };
    drop(ours(&between(server.address(), listens)).connect(1, 2).unwrap());
    let said = SAID.lock().unwrap().clone();
    assert!(said.len() >= 2 && said[1].len() == 32, "a hello and a proof: {said:?}");
    assert!(said.iter().all(|said| !said.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())));
    let mut thief = TcpStream::connect(server.address()).unwrap();
    thief.set_read_timeout(Some(slower(5.0))).unwrap();
    for (said, answer) in said.iter().zip([2, 1]) {
        thief.write_all(&frame(said)).unwrap();
        let heard = next(&mut thief).unwrap();
        assert_eq!(heard[12], answer, "{}", String::from_utf8_lossy(&heard));
    }
    assert!(closes(&mut thief, slower(5.0)));
}

/// Who listens sees who greets whom, and no key and no value.
#[test]
fn who_listens_reads_nothing() {
    use std::sync::Mutex;
    static HEARD: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    let server = ours("127.0.0.1:0").serve(2).unwrap();
    let listens: Tamper = |_, _, bytes| {
        HEARD.lock().unwrap().push(bytes.clone());
        vec![bytes]
    };
    let client = ours(&between(server.address(), listens)).connect(1, 2).unwrap();
    let within = slower(5.0);
    for round in 0..3 {
        client.set("the-key", b"the-value", within).unwrap();
        assert_eq!(client.get(&["the-key"], within).unwrap(), [Some(b"the-value".to_vec())]);
        assert_eq!(client.add("the-count", 7, within).unwrap(), 7 * (round + 1));
    }
    let heard = HEARD.lock().unwrap();
    let has = |what: &[u8]| heard.iter().any(|bytes| bytes.windows(what.len()).any(|part| part == what));
    assert!(heard.len() > 18 && has(b"gpucommX"), "the greeting is not encrypted");
    assert!([&b"the-"[..], b"key", b"value", b"count"].into_iter().all(|what| !has(what)));
}

/// Who only says that it is the server.
#[test]
fn a_server_that_proves_nothing_is_not_trusted() {
    let says: [(&[&[u8]], &str); 3] = [
        // Welcome, without a proof; with one that is none, unasked; and after the client has proved itself.
        (&[&[0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1]], "got one that proves none"),
        (&[&[0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 1]], "got one that proves none"),
        (&[&[2], &[0, 1, 5, 0, 0, 0, 0, 0, 0, 0, 1]], "got one that does not prove that it has it"),
    ];
    for (answers, expected) in says {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let fake = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                next(&mut stream).unwrap();
                let mut bytes = [b"gpucommX", &VERSION.to_le_bytes()[..], answer].concat();
                if answer[0] == 2 || answer[1] == 1 {
                    bytes.extend([7; 32]);
                }
                stream.write_all(&frame(&bytes)).unwrap();
            }
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let text = why(ours(&address).connect(1, 2));
        assert!(text.contains("expected a server with the shared secret"), "{text}");
        assert!(text.contains(expected), "{text}");
        fake.join().unwrap();
    }
}
