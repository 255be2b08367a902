//! What all ranks do together.

use std::time::{Duration, Instant};

use gpucomm::Error;

use crate::support::{everywhere, slower};

#[test]
fn gather_broadcast_barrier() {
    everywhere(&[1, 2, 5], |x| {
        for round in 0..10_usize {
            // Lengths differ, and some are 0.
            let of = |rank: usize| vec![(rank + round) as u8; (rank * 7 + round) % 5 * rank];
            let all = x.all_gather(&of(x.rank())).unwrap();
            assert_eq!(all, (0..x.size()).map(of).collect::<Vec<_>>());
            let root = round % x.size();
            assert_eq!(x.broadcast(&[x.rank() as u8, 9], root).unwrap(), [root as u8, 9]);
        }
        // Past the rounds in which broadcasts meet.
        for round in 0..150_u32 {
            assert_eq!(x.broadcast(&round.to_le_bytes(), 0).unwrap(), round.to_le_bytes());
        }
        x.barrier().unwrap();
        assert!(x.broadcast(b"", x.size()).is_err());
    });
}

#[test]
fn a_barrier_holds_all() {
    everywhere(&[4], |x| {
        for round in 1..=20 {
            std::thread::sleep(Duration::from_micros(fastrand::u64(..300)));
            x.add("came", 1).unwrap();
            x.barrier().unwrap();
            let came: i64 = String::from_utf8(x.get("came").unwrap()).unwrap().parse().unwrap();
            assert!(came >= round * 4, "{came} in round {round}");
            x.barrier().unwrap();
        }
    });
}

#[test]
fn votes() {
    everywhere(&[1, 2, 5], |x| {
        let vote = x.vote(Ok(())).unwrap();
        assert!(vote.unanimous(), "{vote}");
        assert_eq!(vote.to_string(), "unanimous");
        let last = x.size() - 1;
        let ballot = if x.rank() == last { Err("no memory".to_owned()) } else { Ok(()) };
        let vote = x.vote(ballot).unwrap();
        assert_eq!((vote.no.as_slice(), vote.missing.len()), (&[(last, "no memory".to_owned())][..], 0));
        assert_eq!(vote.to_string(), format!("rank {last} says no: no memory"));
        let vote = x.vote(Err("ü".repeat(2000))).unwrap();
        assert_eq!(vote.no.len(), x.size());
        assert_eq!(vote.no[0].1, "ü".repeat(512));
        assert!(x.vote(Ok(())).unwrap().unanimous());
    });
}

/// One that waits for all, beside one that waits for the root alone, who may be the one or the other.
#[test]
fn who_does_something_else_is_named_at_once() {
    everywhere(&[3], |x| {
        for root in [0, 1] {
            let start = Instant::now();
            let result = if x.rank() == 0 { x.barrier() } else { x.broadcast(b"v", root).map(drop) };
            // A root waits for nobody.
            if x.rank() != 0 && x.rank() == root {
                result.unwrap();
            } else if x.rank() == 0 || root == 0 {
                let error = result.unwrap_err();
                let Error::Disagreement { got, .. } = &error else { panic!("{error}") };
                assert_eq!(&**got, ["broadcast", "barrier"][usize::from(x.rank() != 0)], "{error}");
            } else {
                result.unwrap();
            }
            assert!(start.elapsed() < slower(5.0), "after {:?}", start.elapsed());
            x.barrier().unwrap();
        }
    });
}

#[test]
fn who_does_something_else_is_named() {
    everywhere(&[2], |x| {
        let error = match x.rank() {
            0 => x.barrier().unwrap_err(),
            _ => x.all_gather(b"x").unwrap_err(),
        };
        let Error::Disagreement { rank, expected, got, .. } = &error else { panic!("{error}") };
        let names = ["barrier", "all_gather"];
        assert_eq!((*rank, &**got), (1 - x.rank(), names[1 - x.rank()]), "{error}");
        assert_eq!(*expected, format!("{} as round 1", names[x.rank()]));
        // They are in step again.
        x.barrier().unwrap();
        let vote = if x.rank() == 0 {
            x.vote(Ok(()))
        } else {
            x.barrier().unwrap_err();
            return;
        };
        let vote = vote.unwrap();
        assert_eq!(vote.no, [(1, "expected vote as round 3, got barrier".to_owned())]);
    });
}
