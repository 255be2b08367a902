//! Values that take longer over the network than one request to the store waits for an answer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use gpucomm::exchange::{C10dPlace, Exchange, Store, TcpPlace};

use crate::support::slower;

/// Forwards the bytes of a connection in one direction, at most `rate` a second.
fn forward(mut from: TcpStream, mut to: TcpStream, rate: Option<usize>) {
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
            rate.into_iter().for_each(|rate| thread::sleep(Duration::from_secs_f64(len as f64 / rate as f64)));
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// The address of a link to the server at `to`, over which at most `rate` bytes a second come to each client.
fn slow_link(to: String, rate: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&to).unwrap());
            [&client, &server].into_iter().for_each(|stream| stream.set_nodelay(true).unwrap());
            forward(client.try_clone().unwrap(), server.try_clone().unwrap(), None);
            forward(server, client, Some(rate));
        }
    });
    address
}

/// All ranks gather `len` bytes of each, set a key, and read the one of rank 0.
fn pass<S: Store + 'static>(ranks: usize, len: usize, connect: impl Fn(usize) -> S + Sync) {
    let done = Barrier::new(ranks);
    thread::scope(|scope| {
        let (connect, done) = (&connect, &done);
        for rank in 0..ranks {
            scope.spawn(move || {
                let exchange = Exchange::join(connect(rank)).unwrap().with_timeout(slower(40.0));
                let value = |rank: usize| vec![rank as u8; len];
                let all = exchange.all_gather(&value(rank)).unwrap();
                assert!(all.iter().enumerate().all(|(rank, one)| *one == value(rank)));
                exchange.set(&format!("of rank {rank}"), &value(rank)).unwrap();
                assert!(exchange.get("of rank 0").unwrap() == value(0));
                assert!(exchange.try_get("of rank 0").unwrap().is_some_and(|got| got == value(0)));
                assert!(exchange.broadcast(&value(rank), 0).unwrap() == value(0));
                // The one that serves leaves last.
                done.wait();
            });
        }
    });
}

/// Three values of 4 MiB at 5 MiB/s take 2.4 s.
#[test]
fn few_ranks_over_a_slow_link() {
    let server = TcpPlace::new("127.0.0.1:0").host().unwrap();
    let place = TcpPlace::new(slow_link(server.address().to_string(), 5 << 20));
    pass(3, 4 << 20, |rank| place.connect(rank, 3).unwrap());
}

/// 20 values of 320 KiB at 4 MiB/s take 1.6 s, and those that one rank combines as long.
#[test]
fn many_ranks_over_a_slow_link() {
    let server = TcpPlace::new("127.0.0.1:0").host().unwrap();
    let place = TcpPlace::new(slow_link(server.address().to_string(), 4 << 20));
    pass(20, 320 << 10, |rank| place.connect(rank, 20).unwrap());
}

/// One value of 6 MiB at 4 MiB/s takes 1.5 s.
#[test]
fn c10d_over_a_slow_link() {
    let server = C10dPlace::new("127.0.0.1:0").serve(2).unwrap();
    let place = C10dPlace::new(slow_link(server.address().to_owned(), 4 << 20));
    let server = std::sync::Mutex::new(Some(server));
    pass(2, 6 << 20, |rank| match rank {
        0 => server.lock().unwrap().take().unwrap(),
        _ => place.connect(rank, 2).unwrap(),
    });
}
