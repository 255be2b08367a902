//! The store that `gpucomm run` hosts, and `gpucomm store`: ranks die, rank 0 too, and the others
//! go on.
//!
//! Ranks are this program, started again for one test that is ignored otherwise.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpucomm::{Communicator, InPlace, Launch, ReduceOp, Stream};

use crate::harness::{Output, command, finish};
use crate::run::{launcher, shell, sorted, with_default_signals};
use crate::run_ends::lives;
use crate::slower::slower;

const ROLE: &str = "GPUCOMM_TEST_STORE";
const VICTIM: &str = "GPUCOMM_TEST_VICTIM";

/// What is started as a rank.
fn program(role: &str) -> Vec<String> {
    let exe = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let args = ["run_store::rank", "--exact", "--ignored", "--nocapture", "--test-threads=1"];
    let env = ["env".to_owned(), format!("{ROLE}={role}"), exe];
    env.into_iter().chain(args.map(str::to_owned)).collect()
}

fn start(options: &[&str], role: &str, set: &[(&str, &str)]) -> Child {
    let program = program(role);
    let words: Vec<&str> = program.iter().map(String::as_str).collect();
    let mut command = launcher(&[options, &["--"], &words].concat());
    command.env("GPUCOMM_TIMEOUT", "60s").envs(set.iter().copied());
    command.spawn().unwrap()
}

fn run(options: &[&str], role: &str, set: &[(&str, &str)]) -> Output {
    finish(start(options, role, set))
}

/// Since a moment that is the same for all processes.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

#[test]
#[ignore = "a rank"]
fn rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let launch = Launch::from_env().unwrap();
    let victim = std::env::var(VICTIM).ok().and_then(|rank| rank.parse().ok());
    let is_victim = victim == Some(launch.rank());
    match &*role {
        "together" => together(&launch),
        "recover" => recover(&launch, is_victim),
        "late" => {
            let x = launch.join().unwrap();
            x.barrier().unwrap();
            if launch.rank() < 2 {
                return;
            }
            // Those of the other node have ended, and their launcher stays.
            let rest = x.survivors().unwrap();
            std::thread::sleep(slower(1.0));
            rest.barrier().unwrap();
            println!("!size {}", rest.size());
        }
        "restart" => {
            let x = launch.join().unwrap();
            assert_eq!(x.try_get("old").unwrap(), None, "a key of the last start");
            x.barrier().unwrap();
            x.set("old", b"").unwrap();
            if is_victim && std::env::var("TORCHELASTIC_RESTART_COUNT").unwrap() == "0" {
                std::process::exit(5);
            }
            let _ = x.barrier();
        }
        "world" => world(&launch, is_victim),
        "replaced" => replaced(&launch, victim),
        "replacement" => again(&launch),
        other => panic!("{other}"),
    }
}

fn together(launch: &Launch) {
    let x = launch.join().unwrap();
    let all = x.all_gather(&[x.rank() as u8]).unwrap();
    assert!(all.iter().enumerate().all(|(rank, value)| *value == [rank as u8]));
    x.barrier().unwrap();
    println!("!together {} {}", x.size(), launch.master_address().unwrap());
}

fn sum(comm: &Communicator) -> gpucomm::Result<u64> {
    let stream = Stream::new(comm.device())?;
    let mut x = comm.alloc_from(&stream, &[1u64; 100])?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    Ok(x.to_vec(&stream)?[99])
}

/// Ends this process as `kill -9` does.
fn die() -> ! {
    println!("!dies {}", now());
    // SAFETY: it ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!()
}

/// One rank is killed. The others learn of it by an operation that it takes no part in (checked) or
/// by the exchange, recover, and go on.
fn recover(launch: &Launch, is_victim: bool) {
    let x = launch.join().unwrap();
    // SAFETY: all ranks run this program.
    let comm = unsafe { Communicator::from_launch(launch).unwrap() };
    assert_eq!(sum(&comm).unwrap(), launch.size() as u64);
    x.barrier().unwrap();
    if is_victim {
        // The others are in their waits by then.
        std::thread::sleep(Duration::from_millis(300));
        if std::env::var_os("GPUCOMM_TEST_FORKS").is_some() {
            // SAFETY: the child sleeps, and ends without anything that is done at the end of a
            // process.
            unsafe {
                if libc::fork() == 0 {
                    libc::sleep(100);
                    libc::_exit(0);
                }
            }
        }
        die();
    }
    let error = if comm.is_checked() { sum(&comm).unwrap_err() } else { x.barrier().unwrap_err() };
    println!("!told {} {error}", now());
    let recovered = comm.recover(&x).unwrap();
    println!("!recovered {}", now());
    assert_eq!(recovered.comm.size(), launch.size() - 1);
    assert_eq!(sum(&recovered.comm).unwrap(), recovered.comm.size() as u64);
    recovered.exchange.barrier().unwrap();
    println!("!goes on");
}

/// A world whose ranks are processes is rebuilt of those that are left.
fn world(launch: &Launch, is_victim: bool) {
    use gpucomm::world::health::Phase;
    use gpucomm::world::{World, requests};
    // SAFETY: all ranks run this program.
    let world = unsafe { World::from_launch(launch, &Default::default()).unwrap() };
    let rank = world.rank(launch.rank()).unwrap();
    rank.submit(requests::barrier()).wait().unwrap();
    if is_victim {
        std::thread::sleep(Duration::from_millis(300));
        die();
    }
    while world.health().phase == Phase::Up {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("!told {} {:?}", now(), world.health().phase);
    world.rebuild(gpucomm::world::Members::Survivors).unwrap();
    println!("!recovered {}", now());
    assert_eq!(world.size(), launch.size() - 1);
    world.ranks().remove(0).submit(requests::barrier()).wait().unwrap();
    println!("!goes on");
    world.close_timeout(slower(20.0)).unwrap();
}

/// One rank is killed at a random moment, within an operation or between two. The others recover, compute, start a process in
/// its place, and meet that one. Nothing of the communicators before is left on the device in the end.
fn replaced(launch: &Launch, victim: Option<usize>) {
    let device = launch.find_device().unwrap();
    let before = device.memory_info().unwrap().free;
    let x = launch.join().unwrap();
    // SAFETY: all ranks run this program.
    let comm = unsafe { Communicator::from_launch(launch).unwrap() };
    assert_eq!(sum(&comm).unwrap(), launch.size() as u64);
    x.barrier().unwrap();
    if victim == Some(launch.rank()) {
        let after = Duration::from_micros(fastrand::u64(..100_000));
        std::thread::spawn(move || {
            std::thread::sleep(after);
            die()
        });
    }
    let error = loop {
        if let Err(error) = sum(&comm) {
            break error;
        }
    };
    println!("!told {} {error}", now());
    let recovered = comm.recover(&x).unwrap();
    println!("!recovered {}", now());
    let sums = sum(&recovered.comm).unwrap();
    println!("!computed {}", now());
    assert_eq!((sums, recovered.comm.size()), (launch.size() as u64 - 1, launch.size() - 1));
    let rank = recovered.exchange.rank();
    recovered.exchange.barrier().unwrap();
    recovered.comm.close().unwrap();
    // The place of the one that was killed is the last.
    let vars = |rank: usize| {
        let size = launch.size().to_string();
        // Each goes on with the device that it has, and the new one has that of the old.
        let local = if rank + 1 == launch.size() { victim.unwrap() } else { launch.local_rank().unwrap() };
        [
            ("GPUCOMM_RANK", rank.to_string()),
            ("GPUCOMM_SIZE", size.clone()),
            ("GPUCOMM_LOCAL_RANK", local.to_string()),
            ("GPUCOMM_LOCAL_SIZE", size),
            ("GPUCOMM_JOB", "replaced".to_owned()),
        ]
    };
    let replacement = (rank == 0).then(|| {
        let program = program("replacement");
        let mut command = std::process::Command::new(&program[0]);
        command.args(&program[1..]).envs(vars(launch.size() - 1)).spawn().unwrap()
    });
    let own = vars(rank);
    let var = |name: &str| own.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone());
    again(&Launch::from_vars(|name| var(name).or_else(|| std::env::var(name).ok())).unwrap());
    assert!(replacement.is_none_or(|mut child| child.wait().unwrap().success()));
    assert_eq!(device.memory_info().unwrap().free, before, "memory is lost");
    println!("!goes on");
}

/// Those that are left, and one that was started in place of the one that was killed.
fn again(launch: &Launch) {
    // SAFETY: all ranks run this program.
    let comm = unsafe { Communicator::from_launch(launch).unwrap() };
    assert_eq!(sum(&comm).unwrap(), launch.size() as u64);
    println!("!joined {}", now());
    comm.close().unwrap();
}

/// What follows this word, on each line that has it.
fn said<'a>(output: &'a Output, word: &str) -> Vec<&'a str> {
    let begin = format!("!{word}");
    output.out.lines().filter_map(|line| Some(line.split_once(&*begin)?.1.trim())).collect()
}

/// How long after the death the last of the others has said this.
fn after(output: &Output, word: &str) -> Duration {
    let time = |text: &str| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    let dies = time(said(output, "dies")[0]);
    let last = said(output, word).into_iter().map(time).max().unwrap();
    Duration::from_micros(last.saturating_sub(dies))
}

fn one_dies(role: &str, size: usize, victim: usize, set: &[(&str, &str)]) -> Output {
    let (size_text, victim) = (size.to_string(), victim.to_string());
    let set = [set, &[(VICTIM, &*victim)]].concat();
    let output = run(&["-n", &size_text, "--keep-going"], role, &set);
    assert_eq!(output.code, Some(137), "{}\n{}", output.out, output.err);
    assert_eq!(said(&output, "goes on").len(), size - 1, "rank {victim}: {}\n{}", output.out, output.err);
    output
}

#[test]
fn any_rank_may_die_and_the_others_recover() {
    for (role, set) in [("recover", &[][..]), ("recover", &[("GPUCOMM_CHECKED", "1")]), ("world", &[])] {
        for victim in [0, 2] {
            let output = one_dies(role, 3, victim, set);
            let (told, recovered) = (after(&output, "told"), after(&output, "recovered"));
            println!("{role} {set:?}, rank {victim}: told after {told:?}, recovered after {recovered:?}");
            // Long before any timeout.
            assert!(recovered < slower(3.0), "{recovered:?}\n{}", output.out);
        }
    }
}

/// A child that the rank has forked holds its connections open.
#[test]
fn a_rank_that_leaves_a_fork_behind_has_died() {
    for victim in [0, 1] {
        let output = one_dies("recover", 2, victim, &[("GPUCOMM_TEST_FORKS", "1")]);
        assert!(after(&output, "told") < slower(3.0), "{}", output.out);
        let says = format!("rank {victim} was killed by signal 9 (SIGKILL)");
        assert!(said(&output, "told")[0].contains(&says), "{}", output.out);
    }
}

/// How long it takes: the table of docs/measurements.
#[test]
#[ignore = "measures"]
fn times() {
    const RUNS: usize = 20;
    println!("| ranks learn by | killed | told, median | told, longest | recovered, median | recovered, longest |");
    println!("|---|---|---|---|---|---|");
    let ways = [
        ("the exchange", "recover", &[][..]),
        ("a checked communicator", "recover", &[("GPUCOMM_CHECKED", "1")]),
        ("a World", "world", &[]),
    ];
    for (name, role, set) in ways {
        for victim in [0, 2] {
            let runs: Vec<Output> = (0..RUNS).map(|_| one_dies(role, 4, victim, set)).collect();
            let times = |word: &str| {
                let mut times: Vec<f64> = runs.iter().map(|run| after(run, word).as_secs_f64() * 1e3).collect();
                times.sort_unstable_by(f64::total_cmp);
                (times[RUNS / 2], times[RUNS - 1])
            };
            let ((told, last), (recovered, longest)) = (times("told"), times("recovered"));
            println!("| {name} | rank {victim} | {told:.1} ms | {last:.1} ms | {recovered:.1} ms | {longest:.1} ms |");
        }
    }
}

/// Any rank is killed, again and again: `GPUCOMM_TEST_KILLS=100` for the table of docs/measurements.
#[test]
fn a_rank_is_killed_at_any_moment_and_replaced() {
    let kills = std::env::var("GPUCOMM_TEST_KILLS").map_or(3, |kills| kills.parse().unwrap());
    let words = ["told", "computed", "joined"];
    let mut times: [Vec<Duration>; 3] = Default::default();
    for kill in 0..kills {
        let output = one_dies("replaced", 4, kill % 4, &[("GPUCOMM_CHECKED", "1")]);
        for (word, times) in words.iter().zip(&mut times) {
            times.push(after(&output, word));
        }
    }
    for (word, times) in words.iter().zip(&mut times) {
        times.sort_unstable();
        let (median, longest) = (times[kills / 2], times[kills - 1]);
        println!("{word}: {median:?} in the median, {longest:?} at most, of {kills}");
        // Long before any timeout.
        assert!(longest < slower(6.0), "{word}: {times:?}");
    }
}

#[test]
fn ranks_find_the_store_unless_the_user_names_one() {
    let script = "echo $GPUCOMM_STORE ${GPUCOMM_STORE_SECRET:+hush}";
    let output = shell(&["-n", "2"], script);
    let lines = sorted(&output.out);
    let secret = if cfg!(feature = "secret") { " hush" } else { "" };
    let address = lines[0].strip_prefix("[0] server://127.0.0.1:").unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(lines[1], format!("[1] server://127.0.0.1:{address}"));
    assert!(address.strip_suffix(secret).unwrap().parse::<u16>().unwrap() > 0, "{lines:?}");
    // The user's own, in the environment and by an option.
    let mut named = launcher(&["-n", "1", "--", "sh", "-c", script]);
    let output = finish(named.env("GPUCOMM_STORE", "file:///x").spawn().unwrap());
    assert_eq!(output.out, "[0] file:///x\n", "{}", output.err);
    let output = shell(&["-n", "1", "--env", "GPUCOMM_STORE=tcp://a:1"], script);
    assert_eq!(output.out, "[0] tcp://a:1\n", "{}", output.err);
    // A launcher that is a rank of another one has a store of its own.
    let mut inner = launcher(&["-n", "1", "--", "sh", "-c", script]);
    inner.envs([("GPUCOMM_RUN", "0/1"), ("GPUCOMM_STORE", "server://outer:1"), ("GPUCOMM_STORE_SECRET", "of another")]);
    let output = finish(inner.spawn().unwrap());
    assert!(output.out.contains("server://127.0.0.1:") && output.out.trim().ends_with(secret), "{}", output.out);
    // A secret that is set to nothing is none.
    let output = shell(&["-n", "1", "--env", "GPUCOMM_STORE_SECRET="], script);
    assert!(!output.out.contains("hush"), "{}", output.out);
    let output = run(&["-n", "3"], "together", &[]);
    assert_eq!(output.code, Some(0), "{}\n{}", output.out, output.err);
    assert!(said(&output, "together").iter().all(|said| said.starts_with("3 127.0.0.1:")), "{}", output.out);
}

#[test]
fn all_start_again_at_the_same_store() {
    let output = run(&["-n", "3", "--max-restarts", "2"], "restart", &[(VICTIM, "0")]);
    assert_eq!(output.code, Some(0), "{}\n{}", output.out, output.err);
    assert!(output.err.contains("status 5; all ranks are started again (1 of 2)"), "{}", output.err);
}

/// Two ports of this machine that follow each other.
fn two_ports() -> u16 {
    loop {
        let port = fastrand::u16(17_000..31_000);
        let is_free = |port| std::net::TcpListener::bind(("0.0.0.0", port)).is_ok();
        if is_free(port) && is_free(port + 1) {
            return port;
        }
    }
}

#[test]
fn nodes_meet_at_the_first_ones_store() {
    let nodes = |role: &str, more: &[&str]| {
        let master = format!("127.0.0.1:{}", two_ports());
        [0, 1].map(|node: usize| {
            let node = node.to_string();
            let options = ["-n", "4", "--nodes", "2", "--node-rank", &node, "--master", &master];
            start(&[&options, more].concat(), role, &[])
        })
    };
    for more in [&[][..], &["--store-port", &two_ports().to_string()]] {
        for child in nodes("together", more) {
            let output = finish(child);
            assert_eq!(output.code, Some(0), "{}\n{}", output.out, output.err);
            assert_eq!(said(&output, "together").len(), 2, "{}", output.out);
        }
    }
    // The launcher of the first node stays for the ranks of the other one.
    let begin = Instant::now();
    let [first, second] = nodes("late", &[]);
    let (first, second) = (finish(first), finish(second));
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{}\n{}\n{}", first.err, second.out, second.err);
    assert_eq!(said(&second, "size"), ["2", "2"], "{}", second.out);
    assert!(begin.elapsed() < slower(30.0), "{:?}", begin.elapsed());
    // Its port is taken.
    let port = two_ports();
    let _taken = std::net::TcpListener::bind(("0.0.0.0", port + 1)).unwrap();
    let master = format!("127.0.0.1:{port}");
    let output = shell(&["-n", "2", "--nodes", "2", "--node-rank", "0", "--master", &master], "true");
    assert_eq!(output.code, Some(1), "{}", output.err);
    let says = format!("no store for the ranks at port {}, and --store-port names another", port + 1);
    assert!(output.err.contains(&says) && output.err.lines().count() == 1, "{}", output.err);
}

#[test]
fn a_store_by_itself_serves_until_it_is_asked_to_end() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut store = with_default_signals(command(&["store", "--listen", "127.0.0.1:0"]));
        let mut store = store.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(store.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        let named = format!("server://{}", address.trim());
        // Two runs, one after the other, of another launcher.
        for size in [2, 3] {
            let ranks: Vec<Child> = (0..size)
                .map(|rank: usize| {
                    let program = program("together");
                    let mut command = std::process::Command::new(&program[0]);
                    command.args(&program[1..]).env("GPUCOMM_STORE", &named).env("GPUCOMM_TIMEOUT", "60s");
                    command.env("GPUCOMM_RANK", rank.to_string()).env("GPUCOMM_SIZE", size.to_string());
                    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
                })
                .collect();
            for rank in ranks {
                let output = finish(rank);
                assert_eq!(output.code, Some(0), "{}\n{}", output.out, output.err);
            }
        }
        assert!(lives(&store.id().to_string()));
        // SAFETY: it sends a signal to a process that this test has started.
        unsafe { libc::kill(store.id().cast_signed(), signal) };
        let output = finish(store);
        assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{}", output.out);
        // No server listens there now, and the error says which command starts one.
        let output = run(&["-n", "1"], "together", &[("GPUCOMM_STORE", &named), ("GPUCOMM_TIMEOUT", "200ms")]);
        let says = format!("start it there: gpucomm store --listen {}", address.trim());
        assert!(output.code != Some(0) && output.err.contains(&says), "{}\n{}", output.out, output.err);
    }
    for (listen, says) in [("localhost", "HOST:PORT"), ("192.0.2.1:7", "192.0.2.1:7")] {
        let output = crate::harness::run(&["store", "--listen", listen]);
        assert!(matches!(output.code, Some(1 | 2)) && output.err.contains(says), "{}", output.err);
        assert_eq!(output.err.lines().count(), 1, "{}", output.err);
    }
}
