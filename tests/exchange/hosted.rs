//! A server that is no rank, and outlives all of them.

use std::time::{Duration, Instant};

use gpucomm::Error;
use gpucomm::exchange::{Exchange, Store, TcpPlace, TcpServer};

use crate::processes::{all_succeed, kill, line, spawn};
use crate::support::slower;

fn host() -> (TcpServer, TcpPlace) {
    let server = TcpPlace::new("127.0.0.1:0").host().unwrap();
    let place = TcpPlace::new(server.address().to_string()).with_timeout(slower(20.0));
    (server, place)
}

fn join(place: &TcpPlace, rank: usize, size: usize) -> Exchange {
    Exchange::join_timeout(place.connect(rank, size).unwrap(), slower(20.0)).unwrap()
}

/// Runs `body` as each of so many ranks of a job.
fn run(place: &TcpPlace, size: usize, body: impl Fn(Exchange) + Sync) {
    std::thread::scope(|scope| {
        for rank in 0..size {
            let body = &body;
            scope.spawn(move || body(join(place, rank, size)));
        }
    });
}

#[test]
fn jobs_have_their_own_keys_and_sizes() {
    let (_server, place) = host();
    std::thread::scope(|scope| {
        for (job, size) in [("a", 2), ("b", 3), ("", 1)] {
            let place = place.clone().with_job(job);
            scope.spawn(move || {
                run(&place, size, |x| {
                    for round in 0..50_u8 {
                        let all = x.all_gather(&[&[round, x.rank() as u8], job.as_bytes()].concat()).unwrap();
                        let expected = |rank| [&[round, rank as u8], job.as_bytes()].concat();
                        assert!(all.iter().enumerate().all(|(rank, value)| *value == expected(rank)), "{all:?}");
                    }
                    x.add("sum", 1).unwrap();
                    x.barrier().unwrap();
                    assert_eq!(x.get("sum").unwrap(), size.to_string().as_bytes());
                    x.barrier().unwrap();
                });
            });
        }
    });
}

/// Keys that the store itself has, without generations.
#[test]
fn one_job_reads_and_clears_nothing_of_another() {
    let (server, place) = host();
    let within = slower(5.0);
    let [a, b] = ["a", "b"].map(|job| place.clone().with_job(job).connect(0, 1).unwrap());
    a.set("k", b"of a", within).unwrap();
    assert_eq!(b.get(&["k"], Duration::ZERO).unwrap(), [None]);
    b.set("k", b"of b", within).unwrap();
    b.clear("k", within).unwrap();
    assert_eq!(a.get(&["k"], Duration::ZERO).unwrap(), [Some(b"of a".to_vec())]);
    assert_eq!(server.connected(), 2);
    // A rank of one job has not ended for another.
    let id = b.id();
    drop(b);
    let start = Instant::now();
    while server.connected() > 1 {
        assert!(start.elapsed() < slower(5.0));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(a.ended(&[id], within).unwrap(), [None]);
}

#[test]
fn ranks_of_a_job_agree_on_its_size() {
    let (_server, place) = host();
    let first = place.clone().with_job("a").connect(0, 2).unwrap();
    let error = place.clone().with_job("a").connect(1, 3).unwrap_err();
    assert!(matches!(error, Error::Exchange { operation: "TcpPlace::connect", .. }), "{error}");
    assert!(error.to_string().contains("expected one of 2 ranks, got one of 3"), "{error}");
    drop(first);
    // All have left, and the job is started again with more.
    let start = Instant::now();
    while let Err(error) = place.clone().with_job("a").connect(1, 3) {
        assert!(start.elapsed() < slower(5.0), "{error}");
    }
    // A server for one job has no other.
    let only = TcpPlace::new("127.0.0.1:0").with_job("ours").host().unwrap();
    let at = TcpPlace::new(only.address().to_string()).with_timeout(slower(5.0));
    let error = at.clone().with_job("theirs").connect(0, 1).unwrap_err();
    assert!(error.to_string().contains("expected a rank of the job \"ours\", got one of \"theirs\""), "{error}");
    assert!(at.with_job("ours").connect(0, 1).is_ok());
}

#[test]
fn runs_follow_each_other_at_one_server() {
    let (_server, place) = host();
    let mut last = 0;
    for size in [2, 2, 3, 1, 4] {
        run(&place, size, |x| {
            assert_eq!(x.try_get("old").unwrap(), None, "a key of an earlier run");
            x.barrier().unwrap();
            x.set("old", b"").unwrap();
            x.barrier().unwrap();
        });
        last += 1;
    }
    assert_eq!(last, 5);
}

#[test]
fn the_end_of_the_server_is_told_without_a_rank() {
    let (server, place) = host();
    let address = server.address().to_string();
    std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let place = &place;
            scope.spawn(move || {
                let x = join(place, rank, 2);
                x.barrier().unwrap();
                x.get("never").unwrap_err()
            })
        });
        let start = Instant::now();
        while server.connected() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(300));
        drop(server);
        for rank in ranks {
            let error = rank.join().unwrap();
            assert!(matches!(error, Error::Exchange { .. }), "{error}");
            let says = format!("lost the rendezvous store at {address}: the server has ended");
            assert!(error.to_string().contains(&says) && !error.to_string().contains("rank 0"), "{error}");
        }
        // It does not stay for them.
        assert!(start.elapsed() < slower(4.0), "{:?}", start.elapsed());
    });
    let error = place.with_timeout(Duration::from_millis(200)).connect(0, 2).unwrap_err();
    assert!(error.to_string().contains(&format!("the rendezvous store at {address} has not come")), "{error}");
}

/// A rank of three in a process of its own. The one that is named `place` is killed; the others go
/// on.
pub fn rank(place: &str, rank: usize, size: usize) {
    let (address, victim) = place.split_once('#').unwrap();
    let x = join(&TcpPlace::new(address).with_timeout(slower(20.0)), rank, size);
    x.barrier().unwrap();
    println!("!ready");
    if victim == rank.to_string() {
        std::thread::sleep(slower(60.0));
    }
    let error = x.barrier().unwrap_err();
    println!("!told");
    assert!(matches!(&error, Error::Departed { rank, .. } if rank.to_string() == victim), "{error}");
    assert!(error.to_string().contains(&format!("rank {victim} has died")), "{error}");
    let rest = x.survivors().unwrap();
    assert_eq!(rest.size(), size - 1);
    let rest = rest.next_generation().unwrap();
    assert_eq!(rest.all_gather(&[7]).unwrap(), vec![[7]; size - 1]);
    rest.barrier().unwrap();
}

#[test]
fn any_rank_may_die() {
    for victim in [0, 1, 2] {
        let (server, _) = host();
        let place = format!("{}#{victim}", server.address());
        let mut children: Vec<_> = (0..3).map(|rank| spawn("hosted", ("TCP", &place), rank, 3)).collect();
        children.iter_mut().for_each(|child| assert_eq!(line(child), "ready"));
        kill(&mut children[victim]);
        let start = Instant::now();
        children.remove(victim);
        children.iter_mut().for_each(|child| assert_eq!(line(child), "told"));
        println!("rank {victim}: told after {:?}", start.elapsed());
        assert!(start.elapsed() < slower(1.0), "{:?}", start.elapsed());
        all_succeed(children);
    }
}

/// Forks a child that keeps the connections open, and waits to be killed.
pub fn holder(address: &str, rank: usize, size: usize) {
    let x = join(&TcpPlace::new(address).with_timeout(slower(20.0)), rank, size);
    x.barrier().unwrap();
    // SAFETY: the child calls `sleep` and `_exit`, and nothing else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::sleep(120);
            libc::_exit(0);
        }
    }
    println!("!{child}");
    std::thread::sleep(slower(60.0));
}

/// Somebody else knows that the rank has died, whose connections a child of it holds open.
#[test]
fn a_death_can_be_told() {
    let (server, place) = host();
    let address = server.address().to_string();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let x = join(&place, 0, 2);
            x.barrier().unwrap();
            let error = x.with_timeout(slower(20.0)).barrier().unwrap_err();
            assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error}");
            assert!(error.to_string().contains("rank 1 was killed by a test"), "{error}");
            assert_eq!(x.survivors().unwrap().size(), 1);
        });
        let mut child = spawn("holder", ("TCP", &address), 1, 2);
        let holds: i32 = line(&mut child).parse().unwrap();
        kill(&mut child);
        std::thread::sleep(Duration::from_millis(500));
        assert!(!first.is_finished() && server.connected() == 2, "the connection is closed");
        // Of another job, and of another rank: nobody is concerned.
        server.rank_ended("another", 1, "was killed by a test");
        server.rank_ended("", 7, "was killed by a test");
        std::thread::sleep(Duration::from_millis(50));
        assert!(!first.is_finished());
        let start = Instant::now();
        server.rank_ended("", 1, "was killed by a test");
        first.join().unwrap();
        assert!(start.elapsed() < slower(2.0), "{:?}", start.elapsed());
        // SAFETY: it ends the process that the rank has forked.
        unsafe { libc::kill(holds, libc::SIGKILL) };
    });
}
