//! PyTorch itself at the other end, where `GPUCOMM_TEST_PYTHON` names a Python that has it: `scripts/c10d`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpucomm::exchange::{C10dPlace, Exchange, Store, Swap};

use crate::scale::{ranks, timed};
use crate::support::{free_address, new_path, slower};

fn python() -> Option<String> {
    std::env::var("GPUCOMM_TEST_PYTHON").ok()
}

fn script() -> Command {
    let mut command = Command::new(python().unwrap());
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exchange/pytorch.py"));
    command
}

/// Runs `clients` beside a server of PyTorch, once for each kind of server that there is.
fn beside_a_server(does: &str, clients: impl Fn(&str, &str)) {
    let Some(_) = python() else { return };
    for backend in ["libuv", "poll"] {
        let mut child = script().args([does, backend]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.next().expect("an address");
        let kind = format!("{backend}: {}", lines.next().expect("a version"));
        println!("{kind}");
        clients(&address, &kind);
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success(), "{backend}");
    }
}

#[test]
#[ignore = "needs PyTorch: scripts/c10d"]
fn a_server_of_pytorch() {
    beside_a_server("serve", |address, _| check(address));
}

/// `GPUCOMM_TEST_RANKS=1000` measures more of them.
#[test]
#[ignore = "needs PyTorch: scripts/c10d"]
fn many_ranks_at_a_server_of_pytorch() {
    let (size, within) = (ranks(), slower(60.0));
    beside_a_server("host", |address, kind| {
        let place = C10dPlace::new(address).with_prefix("many/").with_timeout(within);
        let took = timed(size, |rank| Exchange::join_timeout(place.connect(rank, size)?, within));
        println!("{size} ranks: {took:?} over PyTorch's store, {kind}");
        assert!(took < slower(30.0), "{took:?}, {kind}");
    });
}

/// All that a store is asked, at a server of somebody else.
fn check(address: &str) {
    let within = slower(10.0);
    let place = C10dPlace::new(address).with_prefix("/").with_timeout(within);
    let store = place.connect(0, 1).unwrap();
    assert_eq!(store.get(&["from-torch"], within).unwrap(), [Some(b"x".to_vec())]);
    store.set("text", b"value", within).unwrap();
    assert_eq!(
        store.get(&["text", "none", "from-torch"], Duration::ZERO).unwrap()[..2],
        [Some(b"value".to_vec()), None]
    );
    assert_eq!((store.add("count", 2, within).unwrap(), store.add("count", 3, within).unwrap()), (2, 5));
    store.set("count", b"40", within).unwrap();
    assert_eq!(store.add("count", 2, within).unwrap(), 42);
    assert!(store.add("text", 1, within).unwrap_err().to_string().contains("expected a number"));
    assert_eq!(store.compare_and_set("swap", Some(b"x"), b"y", within).unwrap(), Swap::Found(None));
    assert_eq!(store.compare_and_set("swap", None, b"", within).unwrap(), Swap::Done);
    assert_eq!(store.compare_and_set("swap", None, b"y", within).unwrap(), Swap::Found(Some(Vec::new())));
    assert_eq!(store.compare_and_set("swap", Some(b""), b"y", within).unwrap(), Swap::Done);
    assert!(store.delete("swap", within).unwrap() && !store.delete("swap", within).unwrap());
    let large = vec![5; 7 << 20];
    store.set("large", &large, within).unwrap();
    assert!(store.get(&["large"], within).unwrap() == [Some(large)]);
    // Waits: in vain, and for what comes, however it does.
    let start = Instant::now();
    assert_eq!(store.get(&["late", "text"], Duration::from_millis(300)).unwrap(), [None, Some(b"value".to_vec())]);
    assert!(start.elapsed() >= Duration::from_millis(300) && start.elapsed() < slower(1.5), "{:?}", start.elapsed());
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| store.get(&["set", "added", "swapped"], within).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        store.set("set", b"1", within).unwrap();
        store.add("added", 1, within).unwrap();
        assert_eq!(store.compare_and_set("swapped", None, b"1", within).unwrap(), Swap::Done);
        assert_eq!(wait.join().unwrap(), vec![Some(b"1".to_vec()); 3]);
    });
    // Keys that go while others look at them.
    std::thread::scope(|scope| {
        let look = scope.spawn(|| {
            for _ in 0..300 {
                store.get(&["there", "text"], Duration::ZERO).unwrap();
            }
        });
        for _ in 0..100 {
            store.set("there", b"", within).unwrap();
            store.delete("there", within).unwrap();
        }
        look.join().unwrap();
    });
    // An exchange, in several generations.
    let place = C10dPlace::new(address).with_prefix("exchange/").with_timeout(within);
    std::thread::scope(|scope| {
        for rank in 0..3_u8 {
            let place = &place;
            scope.spawn(move || {
                let mut x = Exchange::join_timeout(place.connect(rank.into(), 3).unwrap(), within).unwrap();
                for round in 0..3 {
                    assert_eq!(x.all_gather(&[rank, round]).unwrap(), [[0, round], [1, round], [2, round]]);
                    assert!(x.vote(Ok(())).unwrap().unanimous());
                    x = x.next_generation().unwrap();
                }
                x.barrier().unwrap();
            });
        }
    });
    // What the script asks for.
    store.set("last", b"words", within).unwrap();
}

#[test]
#[ignore = "needs PyTorch: scripts/c10d"]
fn clients_of_pytorch() {
    let Some(_) = python() else { return };
    let server = C10dPlace::new("127.0.0.1:0").serve(1).unwrap();
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let mut clients: Vec<_> =
        (0..2).map(|client| script().args(["use", &port, &client.to_string()]).spawn().unwrap()).collect();
    // To import PyTorch takes a busy machine long.
    let within = slower(120.0);
    // They meet each other, and us.
    assert_eq!(server.get(&["/met/0", "/met/1"], within).unwrap(), vec![Some(b"hello".to_vec()); 2]);
    server.set("/from-rust", b"7", within).unwrap();
    for client in &mut clients {
        assert!(client.wait().unwrap().success());
    }
    assert_eq!(server.get(&["/count"], Duration::ZERO).unwrap(), [Some(b"10".to_vec())]);
}

/// A worker of torchrun: the ranks of each start meet each other, and none reads what one before it has left.
#[test]
#[ignore = "the body of workers"]
fn worker() {
    let Ok(log) = std::env::var("GPUCOMM_TEST_WORKER") else { return };
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("no {name}"));
    let number = |name: &str| variable(name).parse::<usize>().unwrap();
    assert_eq!(variable("TORCHELASTIC_USE_AGENT_STORE"), "True");
    let (rank, size, start) = (number("RANK"), number("WORLD_SIZE"), number("TORCHELASTIC_RESTART_COUNT"));
    let place =
        C10dPlace::new(format!("{}:{}", variable("MASTER_ADDR"), variable("MASTER_PORT"))).with_prefix("gpucomm/");
    let within = slower(30.0);
    let x = Exchange::join_timeout(place.with_timeout(within).connect(rank, size).unwrap(), within).unwrap();
    let mine = [start as u8, rank as u8];
    let all: Vec<[u8; 2]> = (0..size).map(|rank| [start as u8, rank as u8]).collect();
    assert_eq!(x.all_gather(&mine).unwrap(), all);
    assert_eq!(x.try_get("id").unwrap().filter(|id| *id != [start as u8]), None);
    if rank == 0 {
        x.set("id", &[start as u8]).unwrap();
    }
    assert_eq!(x.get("id").unwrap(), [start as u8]);
    x.barrier().unwrap();
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    log.write_all(format!("{start} {rank}\n").as_bytes()).unwrap();
    x.barrier().unwrap();
    if start < 2 && rank == start {
        std::process::exit(3);
    }
    if start < 2 {
        // Until the agent ends it.
        std::thread::sleep(within);
    }
}

#[test]
#[ignore = "needs PyTorch: scripts/c10d"]
fn torchrun_starts_ranks_again() {
    let Some(python) = python() else { return };
    // That of Debian's 1.13 starts nothing.
    let new = "import sys, torch; sys.exit(torch.__version__ < '2')";
    if !Command::new(&python).args(["-c", new]).status().unwrap().success() {
        println!("no torchrun of PyTorch 2");
        return;
    }
    let (log, address) = (new_path(), free_address());
    let port = address.rsplit_once(':').unwrap().1;
    let run =
        ["-m", "torch.distributed.run", "--nproc_per_node", "3", "--max_restarts", "2", "--monitor_interval", "0.1"];
    let status = Command::new(python)
        .args(run)
        .args(["--master_port", port, "--no_python"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "pytorch::worker", "--ignored", "--nocapture"])
        .env("GPUCOMM_TEST_WORKER", &log)
        .env("OMP_NUM_THREADS", "1")
        .status()
        .unwrap();
    let mut lines: Vec<String> = std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    let _ = std::fs::remove_file(&log);
    lines.sort();
    assert!(status.success(), "{status}: {lines:?}");
    assert_eq!(lines, ["0 0", "0 1", "0 2", "1 0", "1 1", "1 2", "2 0", "2 1", "2 2"]);
}
