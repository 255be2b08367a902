//! The TCP server, in a process of its own, under load and attack: what it holds then, and what it has given back after.
//!
//! The big forms, with 1024 ranks that are threads, and several times as many of everything, take a minute or two:
//!
//! ```sh
//! cargo test --features emulator,secret --test exchange load:: -- --ignored --nocapture --test-threads 1
//! ```

use std::io::Write;
use std::net::TcpStream;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, Store, Tcp, TcpPlace};

use crate::attack::{VERSION, closes, frame, hello, inside};
use crate::processes::{Child, all_succeed, line, spawn};
use crate::support::{free_address, slower};

/// A server until somebody sets the key `over`.
pub fn serve(address: &str, size: usize) {
    let server = TcpPlace::new(address).serve(size).unwrap();
    // With all connections of its own.
    assert!(!server.delete("over", slower(WITHIN)).unwrap());
    println!("!ready");
    while !matches!(server.get(&["over"], slower(1.0)), Ok(values) if values[0].is_some()) {}
}

/// The server's process, and what the system says of it.
struct Served {
    address: String,
    child: Child,
    size: usize,
}

impl Served {
    fn new(size: usize) -> Self {
        let address = free_address();
        let mut child = spawn("serve", ("TCP", &address), 0, size);
        assert_eq!(line(&mut child), "ready");
        Self { address, child, size }
    }

    fn client(&self, rank: usize) -> Tcp {
        TcpPlace::new(&self.address).with_timeout(slower(20.0)).connect(rank, self.size).unwrap()
    }

    fn proc(&self, what: &str) -> String {
        format!("/proc/{}/{what}", self.child.0.id())
    }

    /// How much memory it has, in MiB.
    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
    }

    /// How many files it has open.
    fn files(&self) -> usize {
        std::fs::read_dir(self.proc("fd")).unwrap().count()
    }

    /// Waits until it has no more open than that.
    fn closed_down_to(&self, most: usize, within: Duration) {
        let start = Instant::now();
        while self.files() > most {
            assert!(start.elapsed() < within, "{} files are open, and not {most}", self.files());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(self) {
        self.client(1).set("over", b"", slower(WITHIN)).unwrap();
        all_succeed(vec![self.child]);
    }
}

const WITHIN: f64 = 20.0;

/// So many keys are set, read and removed again, and some of them once more, which takes no more memory.
fn keys(count: usize) {
    // Many at once, so that a busy machine has not to turn to another process for each key.
    const CLIENTS: usize = 50;
    let served = Served::new(CLIENTS);
    let before = served.memory();
    let mut after = Vec::new();
    for (round, count) in [(0_u8, count), (1, count / 10)] {
        std::thread::scope(|scope| {
            for part in 0..CLIENTS {
                let served = &served;
                scope.spawn(move || {
                    let client = served.client(part);
                    let name = |at: usize| format!("k/{at}");
                    let own: Vec<usize> = (part..count).step_by(CLIENTS).collect();
                    for at in &own {
                        client.set(&name(*at), &[round; 32], slower(WITHIN)).unwrap();
                    }
                    for part in own.chunks(64) {
                        let names: Vec<String> = part.iter().map(|at| name(*at)).collect();
                        let names: Vec<&str> = names.iter().map(String::as_str).collect();
                        let values = client.get(&names, slower(WITHIN)).unwrap();
                        assert!(values.iter().all(|value| value.as_deref() == Some(&[round; 32])));
                    }
                });
            }
        });
        after.push(served.memory());
        let client = served.client(0);
        client.clear("k/", slower(WITHIN)).unwrap();
        assert!(!client.delete("k/0", slower(WITHIN)).unwrap());
    }
    println!("{count} keys: {before} MiB before, {after:?} MiB with them");
    // A key and its value are about 40 bytes, and may cost ten times that.
    assert!(after[0] < before + 16 + count * 400 / (1 << 20), "{before} {after:?}");
    assert!(after[1] < after[0] + 8, "{before} {after:?}");
    served.end();
}

#[test]
fn many_keys() {
    keys(20_000);
}

/// `GPUCOMM_TEST_CLIENTS=10000` measures more of them; each has two connections, for which `ulimit -n` makes room.
#[test]
fn a_thousand_clients_at_once() {
    let ranks: usize = std::env::var("GPUCOMM_TEST_CLIENTS").map_or(1024, |ranks| ranks.parse().unwrap());
    let served = Served::new(ranks);
    let (before, files) = (served.memory(), served.files());
    // No more than there are threads for come in the same moment; all of them stay.
    let comes = |part: usize| (part..ranks).step_by(32).map(|rank| served.client(rank)).collect::<Vec<_>>();
    let (all, last) = (Barrier::new(32), &*format!("r/{}", ranks - 1));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for part in 0..32 {
            let (all, served, comes) = (&all, &served, &comes);
            scope.spawn(move || {
                let clients = comes(part);
                for client in &clients {
                    client.set(&format!("r/{}", client.rank()), &[7; 100], slower(WITHIN)).unwrap();
                    client.add("sum", 1, slower(WITHIN)).unwrap();
                }
                if all.wait().is_leader() {
                    println!("{ranks} clients: {:?}, {} files", start.elapsed(), served.files());
                    assert!(served.files() >= files + 2 * ranks);
                }
                all.wait();
                // Each sees all of them, and one another one that has left.
                for client in &clients {
                    let values = client.get(&["sum", "r/0", last], slower(WITHIN)).unwrap();
                    assert_eq!(values[0].as_deref(), Some(ranks.to_string().as_bytes()));
                    assert!(values.iter().all(Option::is_some));
                    assert_eq!(client.ended(&[client.id()], slower(WITHIN)).unwrap(), [None]);
                }
                all.wait();
            });
        }
    });
    served.closed_down_to(files, slower(20.0));
    let after = served.memory();
    println!("{before} MiB before, {after} MiB after");
    assert!(after < before + 48.max(ranks / 20), "{before} {after}");
    served.end();
}

/// All kinds of clients that one does not wish for, so many times, while a job goes on.
fn attack(times: usize) {
    let served = Served::new(2);
    let (before, files) = (served.memory(), served.files());
    let address = &served.address;
    let over = std::sync::atomic::AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let job = scope.spawn(|| {
            let client = served.client(0);
            let mut longest = Duration::ZERO;
            for round in 1.. {
                let start = Instant::now();
                assert_eq!(client.add("round", 1, slower(WITHIN)).unwrap(), round);
                longest = longest.max(start.elapsed());
                if over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
            longest
        });
        let mut silent: Vec<TcpStream> = (0..1000).map(|_| TcpStream::connect(address).unwrap()).collect();
        for round in 0..times {
            // Few of them are kept, and those only for a while.
            served.closed_down_to(files + 128 + 16, slower(10.0));
            let get = |key: &[u8]| {
                let len = u32::try_from(key.len()).unwrap().to_le_bytes();
                frame(&[&[1][..], &60_000_u32.to_le_bytes(), &1_u32.to_le_bytes(), &len, key].concat())
            };
            for at in 0..100_u32 {
                // One that dies while it waits for what never comes, for another key each.
                inside(address).write_all(&get(format!("never/{round}/{at}").as_bytes())).unwrap();
                // A rank that comes and dies.
                let mut rank = TcpStream::connect(address).unwrap();
                let _ = rank.write_all(&hello(VERSION, 0, (1, 2), ""));
                // One that has a secret, where there is none; of another job; garbage.
                let mut secret = hello(VERSION, 1, (1, 2), "");
                *secret.last_mut().unwrap() = 1;
                secret.extend([7; 32]);
                let secret = frame(&secret[4..]);
                for bytes in [secret, hello(VERSION, 1, (1, 2), "another"), vec![0xa5; 3000]] {
                    let _ = TcpStream::connect(address).unwrap().write_all(&bytes);
                }
            }
            // A megabyte of what is said to be many, which does not come.
            for _ in 0..20 {
                let mut half = inside(address);
                half.write_all(&(30_u32 << 20).to_le_bytes()).unwrap();
                half.write_all(&vec![0; 1 << 20]).unwrap();
            }
        }
        assert!(closes(&mut silent[999], slower(20.0)), "one that says nothing stays");
        // The one of the job is still there, with two connections.
        served.closed_down_to(files + 2, slower(20.0));
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        job.join().unwrap()
    });
    let after = served.memory();
    println!("{times} times: {before} MiB before, {after} MiB after; the job waited {longest:?} at most");
    assert!(after < before + 64, "{before} {after}");
    assert!(longest < slower(10.0), "{longest:?}");
    served.end();
}

#[test]
fn attackers_leave_nothing_behind() {
    attack(2);
}

#[test]
#[ignore = "long: see the top of the file"]
fn attackers_leave_nothing_behind_for_long() {
    attack(50);
}

#[test]
#[ignore = "long: see the top of the file"]
fn a_million_keys() {
    keys(1_000_000);
}

/// 1024 threads that all come in the same moment, and do together what ranks do.
#[test]
#[ignore = "long: see the top of the file"]
fn a_thousand_ranks_at_once() {
    const RANKS: usize = 1024;
    let place = TcpPlace::new(free_address()).with_timeout(slower(60.0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..RANKS)
            .map(|rank| {
                let place = &place;
                let body = move || {
                    let x = Exchange::join_timeout(place.store(rank, RANKS).unwrap(), slower(120.0)).unwrap();
                    let all = x.all_gather(&u32::try_from(rank).unwrap().to_le_bytes()).unwrap();
                    assert!(all.iter().zip(0_u32..).all(|(all, rank)| *all == rank.to_le_bytes()));
                    x.barrier().unwrap();
                };
                std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, body).unwrap()
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
    });
    println!("{RANKS} ranks: {:?}", start.elapsed());
}
