//! Listeners that are no store of ours, and rendezvous on several addresses of one host.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use gpucomm::exchange::{C10dPlace, Exchange, TcpPlace};
use gpucomm::{Error, Result};

use crate::support::slower;

/// Listens at a port of its own, and does this with each client.
fn listener(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = std::sync::Arc::new(serve);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = std::sync::Arc::clone(&serve);
            thread::spawn(move || serve(client));
        }
    });
    address
}

/// Sends `text` at once, or once the client has sent something, and keeps the connection open.
fn answers(text: &'static str, at_once: bool) -> String {
    listener(move |mut client| {
        let mut bytes = [0; 64];
        if !at_once {
            let _ = client.read(&mut bytes);
        }
        let _ = client.write_all(text.as_bytes());
        while client.read(&mut bytes).is_ok_and(|len| len > 0) {}
    })
}

/// The errors of ranks that look for a store at `address`, over TCP and over c10d.
fn errors(address: &str, within: Duration) -> [Error; 2] {
    let tcp = TcpPlace::new(address).with_timeout(within).connect(1, 2);
    let c10d = C10dPlace::new(address).with_timeout(within).connect(1, 2);
    let tcp = tcp.and_then(|store| Exchange::join_timeout(store, within));
    let c10d = c10d.and_then(|store| Exchange::join_timeout(store, within));
    [tcp, c10d].map(|joined| joined.map(drop).unwrap_err())
}

#[test]
fn servers_of_other_protocols_are_named_at_once() {
    const HTTP: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    for (text, at_once) in [(HTTP, false), ("SSH-2.0-OpenSSH_9.2\r\n", true), ("-ERR unknown command\r\n", false)] {
        let address = answers(text, at_once);
        let begin = Instant::now();
        for error in errors(&address, slower(300.0)) {
            assert!(matches!(error, Error::Exchange { .. }), "{text:?}: {error:?}");
            let said = error.to_string();
            assert!(said.contains(&address) && said.contains("got something else"), "{text:?}: {said}");
        }
        assert!(begin.elapsed() < slower(20.0), "{text:?}: {:?}", begin.elapsed());
    }
}

#[test]
fn servers_that_do_not_answer_are_named() {
    let silent = answers("", false);
    let closing = listener(drop);
    for (address, why) in [(&silent, "it does not answer"), (&closing, "it closes the connection")] {
        let [tcp, c10d] = errors(address, slower(1.0));
        for error in [&tcp, &c10d] {
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            let said = error.to_string();
            assert!(said.contains(address.as_str()) && said.contains("rank 1"), "{said}");
        }
        assert!(tcp.to_string().contains(why), "{tcp}");
    }
}

/// Where other hosts may look for rank 0, it is found at each address of this host, of IPv4 and of IPv6.
#[test]
fn rank_0_is_found_over_ipv4_and_ipv6() {
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    for c10d in [false, true] {
        let store = |rank: usize, at: &str| -> Result<Exchange> {
            let within = slower(20.0);
            if c10d {
                let place = C10dPlace::new(at).with_timeout(within);
                Exchange::join_timeout(if rank == 0 { place.serve(3)? } else { place.connect(rank, 3)? }, within)
            } else {
                let place = TcpPlace::new(at).with_timeout(within);
                Exchange::join_timeout(if rank == 0 { place.serve(3)? } else { place.connect(rank, 3)? }, within)
            }
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let everywhere = if has_ipv6 { format!("[::]:{port}") } else { format!("0.0.0.0:{port}") };
        let other = if has_ipv6 { format!("[::1]:{port}") } else { format!("127.0.0.1:{port}") };
        let places = [everywhere, format!("127.0.0.1:{port}"), other];
        thread::scope(|scope| {
            let ranks: Vec<_> = places
                .iter()
                .enumerate()
                .map(|(rank, at)| scope.spawn(move || store(rank, at)?.all_gather(&[rank as u8])))
                .collect();
            for rank in ranks {
                assert_eq!(rank.join().unwrap().unwrap(), [[0], [1], [2]]);
            }
        });
    }
}
