//! Ranks as processes, some of which are killed: this program, started again.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpucomm::Error;
use gpucomm::exchange::{C10dPlace, Directory, Exchange, TcpPlace};

use crate::support::{free_address, new_path, slower};

pub const ROLE: &str = "GPUCOMM_TEST_EXCHANGE";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let parts: Vec<&str> = role.split('|').collect();
    let [role, form, place, rank, size] = parts[..] else { panic!("{role}") };
    let (rank, size): (usize, usize) = (rank.parse().unwrap(), size.parse().unwrap());
    let join = || {
        let time = slower(20.0);
        match form {
            "TCP" => Exchange::join_timeout(TcpPlace::new(place).with_timeout(time).store(rank, size)?, time),
            _ => Exchange::join_timeout(Directory::open(place, rank, size)?, time),
        }
    };
    match role {
        "serve" => crate::load::serve(place, size),
        "together" => together(&join().unwrap()),
        "again" => again(form, place, rank, size),
        "victim" => victim(&join().unwrap()),
        "first" => first(&join().unwrap(), form),
        "hosted" => crate::hosted::rank(place, rank, size),
        "holder" => crate::hosted::holder(place, rank, size),
        "restart" => restart(&join().unwrap()),
        "fds" => crate::fds::between_processes(&join().unwrap(), place),
        "stranger" => crate::fds::stranger(place),
        "stuck" => {
            let x = join().unwrap();
            x.add("count", 1).unwrap();
            println!("!ready");
            // Changes all the time, so that it is killed in the midst of one.
            loop {
                x.add("count", 1).unwrap();
                x.set(&format!("k{}", fastrand::u8(..)), &[0; 3000]).unwrap();
            }
        }
        other => panic!("{other}"),
    }
}

/// A rank; it ends with the test.
pub struct Child(pub std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a rank.
pub fn spawn(role: &str, (form, place): (&str, &str), rank: usize, size: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["processes::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, format!("{role}|{form}|{place}|{rank}|{size}"));
    Child(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
}

/// Waits for a line of a child that begins with `!`, and returns the rest of it.
pub fn line(child: &mut Child) -> String {
    let out = child.0.stdout.as_mut().unwrap();
    let mut out = BufReader::with_capacity(1, out);
    loop {
        let mut line = String::new();
        assert!(out.read_line(&mut line).unwrap() > 0, "the child has ended");
        // The test harness may have begun the line.
        if let Some((_, rest)) = line.trim_end().split_once('!') {
            return rest.to_owned();
        }
    }
}

/// Waits until all have ended. Each step of a child has its own deadline: only one that hangs needs so long.
pub fn all_succeed(children: Vec<Child>) {
    let limit = Instant::now() + slower(180.0);
    for mut child in children {
        let status = loop {
            match child.0.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > limit => panic!("a rank hangs"),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        assert!(status.success(), "{status}");
    }
}

pub fn kill(child: &mut Child) {
    child.0.kill().unwrap();
    child.0.wait().unwrap();
}

/// Runs with a place of each form; the directory must be empty afterwards, if `clean`.
fn each_form(body: impl Fn(&str, &str)) {
    body("TCP", &free_address());
    let path = new_path();
    body("directory", path.to_str().unwrap());
    let left: Vec<_> = std::fs::read_dir(&path).unwrap().collect();
    std::fs::remove_dir_all(&path).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

/// How often the same processes meet; `GPUCOMM_TEST_ROUNDS=1000` asks for more.
fn rounds() -> u32 {
    std::env::var("GPUCOMM_TEST_ROUNDS").map_or(30, |rounds| rounds.parse().unwrap())
}

/// Meets the others at one place again and again, as two threads at once that have a place each, and
/// comes early or late.
fn again(form: &str, place: &str, rank: usize, size: usize) {
    let time = slower(30.0);
    let meet = |way: usize| match form {
        "TCP" => {
            let address = place.split(',').nth(way).unwrap();
            Exchange::join_timeout(TcpPlace::new(address).with_timeout(time).store(rank, size)?, time)
        }
        "C10D" => {
            let address = place.split(',').nth(way).unwrap();
            Exchange::join_timeout(C10dPlace::new(address).with_timeout(time).store(rank, size)?, time)
        }
        _ => Exchange::join_timeout(Directory::open(format!("{place}/{way}"), rank, size)?, time),
    };
    let run = |way: usize| {
        for round in 0..rounds() {
            if fastrand::bool() {
                std::thread::sleep(Duration::from_micros(fastrand::u64(..3000)));
            }
            let said = |rank: usize| [way as u8, rank as u8, round as u8];
            let x = meet(way).unwrap_or_else(|error| panic!("{form}, round {round}: {error}"));
            let all = x.all_gather(&said(rank)).unwrap();
            assert!(all.iter().enumerate().all(|(rank, one)| *one == said(rank)), "{form}, round {round}: {all:?}");
            assert_eq!(x.broadcast(&said(rank), round as usize % size).unwrap(), said(round as usize % size));
            // Half of the time all leave as they like.
            if round % 2 == 0 {
                x.barrier().unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(0));
        run(1);
    });
}

/// The same processes meet at one place as often as they like, in any order of arrival.
#[test]
fn the_same_processes_meet_again() {
    let addresses = || format!("{},{}", free_address(), free_address());
    let path = new_path();
    for (form, place) in [("TCP", addresses()), ("C10D", addresses()), ("directory", path.display().to_string())] {
        all_succeed((0..4).map(|rank| spawn("again", (form, &place), rank, 4)).collect());
    }
    std::fs::remove_dir_all(&path).unwrap();
}

fn together(x: &Exchange) {
    for round in 0..20_u8 {
        let all = x.all_gather(&vec![x.rank() as u8; x.rank() * 100]).unwrap();
        assert!(all.iter().enumerate().all(|(rank, all)| *all == vec![rank as u8; rank * 100]));
        x.add("sum", 1).unwrap();
        assert_eq!(x.broadcast(&[x.rank() as u8], usize::from(round) % x.size()).unwrap(), [round % x.size() as u8]);
        assert!(x.vote(Ok(())).unwrap().unanimous());
    }
    assert_eq!(x.get("sum").unwrap(), (20 * x.size()).to_string().as_bytes());
    let next = x.next_generation().unwrap();
    assert_eq!(next.try_get("sum").unwrap(), None);
    next.barrier().unwrap();
}

#[test]
fn from_one_to_eight() {
    each_form(|form, place| {
        for size in [1, 2, 4, 8] {
            all_succeed((0..size).map(|rank| spawn("together", (form, place), rank, size)).collect());
        }
    });
}

/// Rank 1 is killed; the others are told at once, vote, and go on.
fn victim(x: &Exchange) {
    x.barrier().unwrap();
    println!("!ready");
    if x.rank() == 1 {
        std::thread::sleep(slower(60.0));
    }
    let error = x.barrier().unwrap_err();
    println!("!told");
    assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error}");
    assert!(error.to_string().contains("rank 1 has died"), "{error}");
    let vote = x.vote(Ok(())).unwrap();
    assert_eq!(vote.missing.len(), 1, "{vote}");
    let rest = x.survivors().unwrap();
    assert_eq!(rest.store_ranks(), [0, 2]);
    let rest = rest.next_generation().unwrap();
    assert_eq!(rest.all_gather(&[x.rank() as u8]).unwrap(), [[0], [2]]);
    rest.barrier().unwrap();
}

#[test]
fn a_rank_that_is_killed() {
    each_form(|form, place| {
        let mut children: Vec<Child> = (0..3).map(|rank| spawn("victim", (form, place), rank, 3)).collect();
        for child in &mut children {
            assert_eq!(line(child), "ready");
        }
        kill(&mut children[1]);
        let start = Instant::now();
        for rank in [0, 2] {
            assert_eq!(line(&mut children[rank]), "told");
        }
        println!("{form}: told after {:?}", start.elapsed());
        assert!(start.elapsed() < slower(2.0), "{:?}", start.elapsed());
        children.remove(1);
        all_succeed(children);
    });
}

/// Rank 0 is killed, with its server where it has one.
fn first(x: &Exchange, form: &str) {
    x.barrier().unwrap();
    println!("!ready");
    if x.rank() == 0 {
        std::thread::sleep(slower(60.0));
    }
    let start = Instant::now();
    let error = x.get("never").unwrap_err();
    assert!(matches!(error, Error::Departed { rank: 0, .. }), "{error}");
    if form == "TCP" {
        let says = "rank 0 held the store and has exited: lost the rendezvous store at 127.0.0.1:";
        assert!(error.to_string().contains(says), "{error}");
    }
    let error = x.barrier().unwrap_err();
    assert!(matches!(error, Error::Departed { rank: 0, .. }), "{error}");
    assert!(start.elapsed() < slower(10.0));
}

#[test]
fn rank_0_is_killed() {
    each_form(|form, place| {
        let mut children: Vec<Child> = (0..2).map(|rank| spawn("first", (form, place), rank, 2)).collect();
        for child in &mut children {
            assert_eq!(line(child), "ready");
        }
        kill(&mut children[0]);
        children.remove(0);
        all_succeed(children);
    });
}

/// Leaves an id behind; no run finds another one's.
fn restart(x: &Exchange) {
    let mine = std::process::id().to_le_bytes();
    for rank in 0..x.size() {
        assert_eq!(x.try_get(&format!("old/{rank}")).unwrap(), None, "an old key");
    }
    x.barrier().unwrap();
    x.set(&format!("old/{}", x.rank()), &mine).unwrap();
    let all = x.all_gather(&mine).unwrap();
    for (rank, pid) in all.iter().enumerate() {
        assert_eq!(x.get_from(rank, &format!("old/{rank}")).unwrap(), *pid, "an old key");
    }
    x.barrier().unwrap();
}

/// All are killed wherever they are, again and again; in between, a run goes through.
#[test]
fn killed_at_any_moment_and_restarted() {
    let path = new_path();
    let place = ("directory", path.to_str().unwrap());
    for run in 0..12 {
        let mut children: Vec<Child> =
            (0..3).map(|rank| spawn(["stuck", "restart", "restart"][run % 3], place, rank, 3)).collect();
        if run % 3 == 0 {
            line(&mut children[0]);
        } else {
            std::thread::sleep(Duration::from_millis(fastrand::u64(..60)));
        }
        for at in [1, 2, 0] {
            kill(&mut children[at]);
        }
        if run % 3 == 2 {
            all_succeed((0..3).map(|rank| spawn("restart", place, rank, 3)).collect());
        }
    }
    all_succeed((0..3).map(|rank| spawn("restart", place, rank, 3)).collect());
    let left: Vec<_> = std::fs::read_dir(&path).unwrap().collect();
    std::fs::remove_dir_all(&path).unwrap();
    assert!(left.is_empty(), "{left:?}");
}
