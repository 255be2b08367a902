//! The server of c10d's TCPStore among those who mean it no good, many who mean it well, and clients that come to something else.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use gpucomm::Error;
use gpucomm::exchange::{C10d, C10dPlace, Exchange, Store, Swap, TcpPlace};

use crate::support::{free_address, seed, slower};

const HELLO: [u8; 5] = [0, 0xce, 0xf7, 0x85, 0x3c];
const SET: u8 = 1;
const GET: u8 = 3;
const WAIT: u8 = 6;
const COUNT_KEYS: u8 = 7;
const CANCEL_WAIT: u8 = 12;

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [vec![SET], text(key.as_bytes()), text(value)].concat()
}

fn wait(key: &str) -> Vec<u8> {
    [vec![WAIT], 1_u64.to_le_bytes().to_vec(), text(key.as_bytes())].concat()
}

fn inside(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(slower(20.0))).unwrap();
    stream.write_all(&HELLO).unwrap();
    stream
}

fn number(stream: &mut TcpStream) -> u64 {
    let mut number = [0; 8];
    stream.read_exact(&mut number).unwrap();
    u64::from_le_bytes(number)
}

/// Whether the server closes a connection within the time.
fn closes(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    let ended = stream.read_to_end(&mut Vec::new());
    !matches!(ended, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// So many files, where this process may have them.
fn files(count: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one limit, and reads one.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_cur.max(count.min(limit.rlim_max));
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    limit.rlim_cur >= count
}

/// Two ranks at work while `attack` is on, and after it.
fn beside(attack: impl FnOnce(&str)) {
    let server = C10dPlace::new("127.0.0.1:0").serve(2).unwrap();
    let address = server.address().to_owned();
    let other = C10dPlace::new(&address).connect(1, 2).unwrap();
    let (begin, begun) = std::sync::mpsc::channel();
    let work = |store: C10d, begin: std::sync::mpsc::Sender<()>| {
        let x = Exchange::join_timeout(store, slower(20.0)).unwrap();
        let mut rounds = 0_u32;
        loop {
            let over = x.all_gather(&[u8::from(x.rank() == 0 && x.try_get("over").unwrap().is_some())]).unwrap();
            rounds += 1;
            if over[0] == [1] {
                break;
            }
            let _ = begin.send(());
        }
        assert!(rounds > 1);
        x.barrier().unwrap();
    };
    std::thread::scope(|scope| {
        let (ours, theirs) = (begin.clone(), begin);
        let ranks = [scope.spawn(|| work(server, ours)), scope.spawn(|| work(other, theirs))];
        for _ in 0..2 {
            begun.recv_timeout(slower(20.0)).unwrap();
        }
        attack(&address);
        // The only key of the exchange that says where its generation lies.
        let x = C10dPlace::new(&address).connect(1, 2).unwrap();
        let now = x.get(&["g/now"], slower(5.0)).unwrap().swap_remove(0).expect("a generation");
        let len = u32::from_le_bytes(now[..4].try_into().unwrap()) as usize;
        let path = String::from_utf8(now[4..4 + len].to_vec()).unwrap();
        x.set(&format!("{path}u/over"), b"", slower(5.0)).unwrap();
        drop(x);
        for rank in ranks {
            rank.join().unwrap();
        }
    });
}

/// Two threads of each rank meet at one server at once. A server that does not know its clients could
/// not tell them apart, so the threads of a rank come one after the other.
#[test]
fn threads_of_a_rank_take_turns() {
    for round in 0..10 {
        let server = C10dPlace::new("127.0.0.1:0").serve(2).unwrap();
        let place = &C10dPlace::new(server.address());
        let mut met: Vec<_> = thread::scope(|scope| {
            let join = |rank: u8| {
                let exchange = Exchange::join_timeout(place.connect(rank.into(), 2)?, slower(30.0))?;
                let mine = fastrand::u64(..);
                let all = exchange.all_gather(&mine.to_le_bytes())?;
                assert_eq!(all[usize::from(rank)], mine.to_le_bytes());
                Ok::<_, Error>((all, rank))
            };
            let threads = [0, 1, 0, 1].map(|rank| scope.spawn(move || join(rank)));
            threads.map(|one| one.join().unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"))).into()
        });
        // Each pair has what both of its ranks have said.
        met.sort();
        let pairs: Vec<_> = met.chunks(2).map(|pair| (pair[0].0 == pair[1].0, pair[0].1, pair[1].1)).collect();
        assert_eq!(pairs, [(true, 0, 1); 2], "round {round}");
    }
}

/// A pair of threads keeps its keys when another pair of the same ranks meets. The next meeting removes the keys of pairs that
/// have left.
#[test]
fn threads_that_meet_leave_others_what_they_have() {
    let server = C10dPlace::new("127.0.0.1:0").serve(2).unwrap();
    let place = &C10dPlace::new(server.address());
    let pair = || {
        thread::scope(|scope| {
            let join = |rank| Exchange::join_timeout(place.connect(rank, 2).unwrap(), slower(30.0)).unwrap();
            [0, 1].map(|rank| scope.spawn(move || join(rank))).map(|one| one.join().unwrap())
        })
    };
    let first = pair();
    first[0].set("kept", b"yes").unwrap();
    let part = first[0].subset(&[0]).unwrap();
    part.set("of a part", b"too").unwrap();
    let second = pair();
    second[1].set("kept", b"of the second").unwrap();
    let third = pair();
    for (pair, kept) in [(&first, &b"yes"[..]), (&second, b"of the second")] {
        pair.iter().for_each(|one| assert_eq!(one.with_timeout(slower(2.0)).get("kept").unwrap(), kept));
    }
    // A part is enough to keep what all have said.
    drop((first, second));
    let fourth = pair();
    assert_eq!(part.get("of a part").unwrap(), b"too");
    drop((part, third, fourth));
    let _last = pair();
    // The list of earlier generations, of which keys may be left, is the end of what rank 0 publishes.
    let now = server.get(&["g/now"], slower(5.0)).unwrap().swap_remove(0).expect("a generation");
    assert_eq!(now[now.len() - 4..], [0; 4], "{now:?}");
}

#[test]
fn garbage_harms_nobody() {
    let seed = seed();
    beside(|address| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut open = Vec::new();
        for at in 0..400 {
            let mut stream = TcpStream::connect(address).unwrap();
            let noise: Vec<u8> = (0..random.usize(1..3000)).map(|_| random.u8(..)).collect();
            let bytes = match at % 8 {
                0 => noise,
                1 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
                2 => HELLO[..random.usize(1..5)].to_vec(),
                3 => [&HELLO[..], &noise].concat(),
                // Half of a long value, and one that is too long.
                4 => [&HELLO[..], &[SET], &text(b"garbage"), &(9_u64 << 20).to_le_bytes(), &noise].concat(),
                5 => [&HELLO[..], &[SET], &text(b"garbage"), &u64::MAX.to_le_bytes(), &noise].concat(),
                6 => [&HELLO[..], &[WAIT], &(1_u64 << 62).to_le_bytes()].concat(),
                // As of 1.13: the length of a key.
                _ => [&[random.u8(..13)], &u64::MAX.to_le_bytes()[..]].concat(),
            };
            // The server may have closed before we are done.
            let _ = stream.write_all(&bytes);
            if at % 3 == 0 {
                open.push(stream);
            }
        }
    });
}

#[test]
fn half_a_hello_is_not_waited_for() {
    beside(|address| {
        let mut half = TcpStream::connect(address).unwrap();
        half.write_all(&HELLO[..3]).unwrap();
        let mut wrong = inside(address);
        wrong.write_all(&[200]).unwrap();
        assert!(closes(&mut wrong, slower(4.0)));
        assert!(closes(&mut half, slower(12.0)));
    });
}

#[test]
fn a_thousand_that_say_nothing() {
    let most = if files(6000) { 1000 } else { 200 };
    beside(|address| {
        let silent: Vec<TcpStream> = (0..most).map(|_| TcpStream::connect(address).unwrap()).collect();
        // There is still room for those who speak.
        let mut stream = inside(address);
        stream.write_all(&[COUNT_KEYS]).unwrap();
        number(&mut stream);
        drop(silent);
    });
}

#[test]
fn who_dies_in_a_wait() {
    beside(|address| {
        for _ in 0..50 {
            inside(address).write_all(&wait("late")).unwrap();
        }
        let mut waiting = inside(address);
        waiting.write_all(&wait("late")).unwrap();
        let mut given_up = inside(address);
        given_up.write_all(&[wait("late"), vec![CANCEL_WAIT]].concat()).unwrap();
        let mut byte = [9];
        given_up.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [1]);
        // One that does not read its answers: they wait for it, and nobody else does.
        let mut deaf = inside(address);
        deaf.write_all(&set("large", &vec![3; 8 << 20])).unwrap();
        deaf.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        for _ in 0..20 {
            let _ = deaf.write_all(&[&[GET], &text(b"large")[..]].concat());
        }
        let mut setter = inside(address);
        // Many at once, of which the last has an answer.
        setter.write_all(&[set("late", b"x").repeat(2000), vec![COUNT_KEYS]].concat()).unwrap();
        number(&mut setter);
        waiting.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [0]);
        // Who waits for what is there does not wait; nor is anybody told twice.
        given_up.write_all(&[wait("late"), vec![COUNT_KEYS]].concat()).unwrap();
        given_up.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [0]);
        assert!(number(&mut given_up) > 1);
    });
}

/// As many clients as there are in a large job, each with its keys, and each reading those of another.
#[test]
fn a_thousand_clients() {
    let clients = if files(6000) { 1024 } else { 100 };
    many(clients, 100);
}

/// Where few files may be open, a server for many raises that, as far as it may.
#[test]
fn more_ranks_than_files() {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -S -n 256; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    shell.args(["c10d::more_ranks_than_files_in_a_process_of_its_own", "--exact", "--ignored", "--nocapture"]);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "changes what the process may do"]
fn more_ranks_than_files_in_a_process_of_its_own() {
    let most = || {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(most(), 256);
    let few = C10dPlace::new("127.0.0.1:0").serve(16).unwrap();
    assert_eq!(most(), 256, "raised without need");
    drop(few);
    let server = C10dPlace::new("127.0.0.1:0").serve(200).unwrap();
    let all: Vec<_> = (0..400).map(|_| inside(server.address())).collect();
    assert_eq!((most(), all.len()), (1600, 400));
}

#[test]
#[ignore = "takes long"]
fn a_thousand_clients_with_many_keys() {
    assert!(files(6000));
    many(1024, 1000);
}

fn many(clients: usize, keys: usize) {
    let server = C10dPlace::new("127.0.0.1:0").serve(1).unwrap();
    let start = Instant::now();
    let threads = 8;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let address = server.address();
            scope.spawn(move || {
                let mine = (thread..clients).step_by(threads);
                let mut streams: Vec<_> = mine.map(|client| (client, inside(address))).collect();
                for (client, stream) in &mut streams {
                    let sets = (0..keys).flat_map(|at| set(&format!("{client}/{at}"), &at.to_le_bytes()));
                    let all: Vec<u8> = sets.chain([COUNT_KEYS]).collect();
                    stream.write_all(&all).unwrap();
                }
                for (client, stream) in &mut streams {
                    assert!(number(stream) >= keys as u64);
                    // Of a neighbour, who may be about to set it.
                    let key = format!("{}/{}", (*client + 1) % clients, keys - 1);
                    let get = [vec![GET], text(key.as_bytes())].concat();
                    stream.write_all(&wait(&key)).unwrap();
                    stream.read_exact(&mut [0]).unwrap();
                    stream.write_all(&get).unwrap();
                    assert_eq!((number(stream), number(stream)), (8, keys as u64 - 1));
                }
            });
        }
    });
    println!("{clients} clients, {keys} keys each: {:?}", start.elapsed());
    let mut last = inside(server.address());
    last.write_all(&[COUNT_KEYS]).unwrap();
    assert_eq!(number(&mut last), (clients * keys) as u64);
}

#[test]
fn something_else_at_the_address() {
    // Another server of ours closes the connection, in both protocols; one says what is none.
    let tcp = TcpPlace::new("127.0.0.1:0").serve(1).unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let says = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let error = C10dPlace::new(address).with_timeout(slower(5.0)).connect(1, 2).unwrap_err();
    assert!(error.to_string().contains("expected a TCPStore of PyTorch, got something else"), "{error}");
    says.join().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [tcp.address().to_owned(), silent.local_addr().unwrap().to_string(), free_address()] {
        let error = C10dPlace::new(&address).with_timeout(Duration::from_millis(400)).connect(1, 2).unwrap_err();
        assert!(matches!(error, Error::Timeout { operation: "C10dPlace::connect", .. }), "{error}");
        assert!(error.to_string().contains("has not come"), "{error}");
    }
    assert!(C10dPlace::new("127.0.0.1:0").with_prefix("x".repeat(2000)).serve(1).is_err());
    assert!(C10dPlace::new("127.0.0.1:0").connect(2, 2).is_err());
}

#[test]
fn a_server_that_ends_is_noticed() {
    let of_protocol = |old: bool| {
        let server = C10dPlace::new("127.0.0.1:0").serve(2).unwrap();
        let mut place = C10dPlace::new(server.address());
        if old {
            place = place.old_protocol();
        }
        let (of_rank_0, of_somebody) = (place.clone(), place.connect(1, 2).unwrap());
        let of_rank_0 = of_rank_0.store(1, 2).unwrap();
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| of_somebody.get(&["never"], slower(20.0)).unwrap_err());
            std::thread::sleep(Duration::from_millis(50));
            let start = Instant::now();
            // It stays for those who are there, and no longer than five seconds.
            drop(server);
            assert!(start.elapsed() < slower(8.0), "{:?}", start.elapsed());
            let error = wait.join().unwrap();
            assert!(error.to_string().contains("the server has ended"), "{error}");
        });
        let error = of_rank_0.set("k", b"", slower(5.0)).unwrap_err();
        assert!(matches!(error, Error::Departed { rank: 0, .. }), "{error}");
    };
    std::thread::scope(|scope| {
        for old in [false, true] {
            scope.spawn(move || of_protocol(old));
        }
    });
}

/// Both protocols at one server, as ranks have them who run different versions; and sums that the server would get wrong.
#[test]
fn both_protocols_at_once() {
    let within = slower(5.0);
    let server = C10dPlace::new("127.0.0.1:0").serve(2).unwrap();
    let old = C10dPlace::new(server.address()).old_protocol().connect(1, 2).unwrap();
    old.set("a", b"7", within).unwrap();
    assert_eq!(server.add("a", 5, within).unwrap(), 12);
    assert_eq!(old.add("a", i64::MAX - 12, within).unwrap(), i64::MAX);
    assert!(old.add("a", 1, within).unwrap_err().to_string().contains("64 bits"));
    assert_eq!(server.add("a", i64::MIN, within).unwrap(), -1);
    assert_eq!(old.get(&["a", "b"], Duration::ZERO).unwrap(), [Some(b"-1".to_vec()), None]);
    assert_eq!(old.compare_and_set("a", Some(b"-1"), b"", within).unwrap(), Swap::Done);
    assert_eq!(server.compare_and_set("a", None, b"", within).unwrap(), Swap::Found(Some(Vec::new())));
    // Nobody who waits misses what a compare-and-set makes.
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| old.get(&["b"], within).unwrap());
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(server.compare_and_set("b", None, b"x", within).unwrap(), Swap::Done);
        assert_eq!(wait.join().unwrap(), [Some(b"x".to_vec())]);
    });
    assert!(old.delete("b", within).unwrap() && !server.delete("b", within).unwrap());
    drop(old);
}
