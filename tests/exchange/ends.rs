//! Ranks that end while others wait for them.

use std::time::{Duration, Instant};

use gpucomm::Error;

use crate::support::{everywhere, slower};

#[test]
fn who_leaves_is_told_at_once() {
    everywhere(&[3], |x| {
        x.barrier().unwrap();
        x.set(&format!("last/{}", x.rank()), b"words").unwrap();
        if x.rank() == 1 {
            return;
        }
        let start = Instant::now();
        let error = x.barrier().unwrap_err();
        assert!(matches!(error, Error::Gone { operation: "Exchange::barrier", rank: 1, .. }), "{error}");
        assert!(error.to_string().contains("rank 1 has left"), "{error}");
        assert!(start.elapsed() < slower(3.0), "{:?}", start.elapsed());
        // What it has set stays.
        assert_eq!(x.get_from(1, "last/1").unwrap(), b"words");
        assert!(matches!(x.get_from(1, "never").unwrap_err(), Error::Gone { rank: 1, .. }));
        // The others can go on without it.
        let vote = x.vote(Ok(())).unwrap();
        assert_eq!(vote.missing, [(1, "has left".to_owned())]);
        let rest = x.survivors().unwrap();
        assert_eq!((rest.size(), rest.store_ranks()), (2, vec![0, 2]));
        assert_eq!(rest.all_gather(&[x.rank() as u8]).unwrap(), [[0], [2]]);
        assert_eq!(x.survivors().unwrap().all_gather(&[7]).unwrap(), [[7], [7]]);
        let next = rest.next_generation().unwrap();
        assert_eq!(next.all_gather(&[1]).unwrap(), [[1], [1]]);
        next.barrier().unwrap();
    });
}

#[test]
fn when_all_others_have_ended_nobody_waits() {
    everywhere(&[3], |x| {
        x.barrier().unwrap();
        if x.rank() > 0 {
            std::thread::sleep(Duration::from_millis(50 * x.rank() as u64));
            return;
        }
        let start = Instant::now();
        let error = x.get("nothing").unwrap_err();
        assert!(matches!(error, Error::Gone { operation: "Exchange::get", .. }), "{error}");
        assert!(start.elapsed() < slower(3.0), "{:?}", start.elapsed());
    });
}

#[test]
fn who_comes_too_late_is_told_so() {
    everywhere(&[3], |x| {
        if x.rank() == 0 {
            std::thread::sleep(slower(0.8));
        }
        let short = x.within(Duration::from_millis(250));
        match short.survivors() {
            Ok(rest) => {
                assert_ne!(x.rank(), 0);
                assert_eq!(rest.store_ranks(), [1, 2]);
                rest.within(slower(10.0)).barrier().unwrap();
            }
            Err(error) => {
                assert_eq!(x.rank(), 0);
                assert!(matches!(error, Error::Gone { rank: 0, .. }), "{error}");
                assert!(error.to_string().contains("ranks [1, 2] went on without it"), "{error}");
            }
        }
        let _ = x.within(slower(10.0)).barrier();
    });
}
