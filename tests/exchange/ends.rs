//! Ranks that end while others wait for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use gpucomm::exchange::{C10dPlace, Directory, Exchange, Store, TcpPlace, ThreadStore, Threads};
use gpucomm::{Error, Result};

use crate::hooked_store::{HookedStore, Hooks};
use crate::mine::Mine;
use crate::support::{everywhere, free_address, new_path, slower, where_ends_are_known};

#[test]
fn who_leaves_is_told_at_once() {
    where_ends_are_known(&[3], |x| {
        x.barrier().unwrap();
        x.set(&format!("last/{}", x.rank()), b"words").unwrap();
        if x.rank() == 1 {
            return;
        }
        let start = Instant::now();
        let error = x.barrier().unwrap_err();
        assert!(matches!(error, Error::Departed { operation: "Exchange::barrier", rank: 1, .. }), "{error}");
        assert!(error.to_string().contains("rank 1 has left"), "{error}");
        assert!(start.elapsed() < slower(3.0), "{:?}", start.elapsed());
        // What it has set stays.
        assert_eq!(x.get_from(1, "last/1").unwrap(), b"words");
        assert!(matches!(x.get_from(1, "never").unwrap_err(), Error::Departed { rank: 1, .. }));
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
    where_ends_are_known(&[3], |x| {
        x.barrier().unwrap();
        if x.rank() > 0 {
            std::thread::sleep(Duration::from_millis(50 * x.rank() as u64));
            return;
        }
        let start = Instant::now();
        let error = x.get("nothing").unwrap_err();
        assert!(matches!(error, Error::Departed { operation: "Exchange::get", .. }), "{error}");
        assert!(start.elapsed() < slower(3.0), "{:?}", start.elapsed());
    });
}

#[test]
fn who_comes_too_late_is_told_so() {
    let (both, all) = (Barrier::new(2), Barrier::new(3));
    everywhere(&[3], |x| {
        if x.rank() == 0 {
            all.wait();
        } else {
            both.wait();
        }
        let short = x.with_timeout(slower(2.0));
        match short.survivors() {
            Ok(rest) => {
                assert_ne!(x.rank(), 0);
                all.wait();
                assert_eq!(rest.store_ranks(), [1, 2]);
                rest.with_timeout(slower(10.0)).barrier().unwrap();
            }
            Err(error) => {
                assert_eq!(x.rank(), 0);
                assert!(matches!(error, Error::Departed { rank: 0, .. }), "{error}");
                assert!(error.to_string().contains("ranks [1, 2] went on without it"), "{error}");
            }
        }
        let _ = x.with_timeout(slower(10.0)).barrier();
    });
}

/// Nobody waits for who lives, and cannot go on.
#[test]
fn one_that_withdraws() {
    everywhere(&[3], |x| {
        let x = x.with_timeout(slower(60.0));
        let start = Instant::now();
        if x.rank() == 1 {
            x.withdraw().unwrap();
            let error = x.survivors().expect_err("it has withdrawn");
            assert!(matches!(error, Error::Departed { rank: 1, .. }), "{error}");
            // It stays for the others: none of this is known of its end.
            assert_eq!(x.get("done").unwrap(), b"1");
        } else {
            let left = x.survivors().unwrap();
            assert_eq!((left.store_ranks(), left.size()), (vec![0, 2], 2));
            left.barrier().unwrap();
            assert!(start.elapsed() < slower(20.0), "{:?}", start.elapsed());
            if x.rank() == 0 {
                x.set("done", b"1").unwrap();
            }
            left.barrier().unwrap();
        }
        x.barrier().unwrap();
    });
}

/// A rank that others have counted already may still withdraw.
#[test]
fn one_that_withdraws_late() {
    // A store that counts the reads of a rank.
    struct Counted(ThreadStore, Arc<AtomicUsize>);
    impl Hooks for Counted {
        fn store(&self) -> &dyn Store {
            &self.0
        }

        fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
            let got = self.0.get(keys, within);
            self.1.fetch_add(1, Ordering::Relaxed);
            got
        }
    }
    let (place, reads) = (Threads::new(3), <[Arc<AtomicUsize>; 3]>::default());
    let join = |rank: usize| {
        let store = Counted(place.store(rank).unwrap(), Arc::clone(&reads[rank]));
        Exchange::join_timeout(HookedStore(store), slower(60.0)).unwrap()
    };
    let [zero, one, two] = std::thread::scope(|scope| {
        let join = &join;
        [0, 1, 2].map(|rank| scope.spawn(move || join(rank))).map(|rank| rank.join().unwrap())
    });
    std::thread::scope(|scope| {
        let waiting = [&zero, &one].map(|x| scope.spawn(|| x.survivors()));
        for (rank, reads) in reads.iter().enumerate().take(2) {
            // The verdict, the keys, and both again.
            let enough = reads.load(Ordering::Relaxed) + 6;
            let start = Instant::now();
            while reads.load(Ordering::Relaxed) < enough {
                assert!(start.elapsed() < slower(60.0), "rank {rank} does not read");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        zero.withdraw().unwrap();
        assert_eq!(two.survivors().unwrap().store_ranks(), [1, 2]);
        let [zero, one] = waiting.map(|rank| rank.join().unwrap());
        assert_eq!(one.unwrap().store_ranks(), [1, 2]);
        assert!(matches!(zero, Err(Error::Departed { rank: 0, .. })));
    });
}

#[test]
fn a_store_of_ones_own() {
    let place = Threads::new(3);
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let place = &place;
            scope.spawn(move || {
                let store = Mine::new(place.store(rank).unwrap());
                // No time is too long.
                let x = Exchange::join_timeout(store, Duration::MAX).unwrap();
                x.barrier().unwrap();
                let x = x.next_generation().unwrap();
                assert_eq!(x.all_gather(&[rank as u8]).unwrap(), [[0], [1], [2]]);
                if rank == 1 {
                    return;
                }
                let error = x.with_timeout(Duration::from_millis(100)).barrier().unwrap_err();
                assert!(matches!(error, Error::Timeout { .. }), "{error}");
                let rest = x.with_timeout(Duration::from_millis(300)).survivors().unwrap();
                assert_eq!(rest.store_ranks(), [0, 2]);
                rest.with_timeout(slower(10.0)).barrier().unwrap();
            });
        }
    });
}

#[test]
fn no_time_is_too_long() {
    everywhere(&[2], |x| {
        let x = x.with_timeout(Duration::MAX);
        x.set(&format!("k{}", x.rank()), b"v").unwrap();
        assert_eq!(x.get_from(1 - x.rank(), &format!("k{}", 1 - x.rank())).unwrap(), b"v");
        x.add("n", 1).unwrap();
        assert!(x.vote(Ok(())).unwrap().unanimous());
        x.survivors().unwrap().barrier().unwrap();
        x.next_generation().unwrap().barrier().unwrap();
    });
}

/// Who comes to a directory of another number of ranks is told at once; when all of those have left, their number does not matter.
#[test]
fn a_directory_of_another_size() {
    let path = new_path();
    let first = Directory::open(&path, 0, 2).unwrap();
    let error = Directory::open(&path, 1, 3).expect_err("two sizes");
    let Error::InvalidArgument { operation, what, expected, got } = &error else { panic!("{error:?}") };
    assert_eq!((*operation, &**what, got.as_str()), ("Directory::open", "size", "3"));
    assert_eq!(expected, "2, as another rank says");
    let second = Directory::open(&path, 1, 2).unwrap();
    drop((first, second));
    drop(Directory::open(&path, 2, 3).unwrap());
    assert!(!path.join("gpucomm-exchange").exists());
    std::fs::remove_dir(&path).unwrap();
}

/// The server of one run stays for its ranks; those of the next one, at the same address, wait until it has ended.
#[test]
fn the_next_run_waits_for_the_server_of_the_last_one() {
    let place = TcpPlace::new(free_address()).with_timeout(slower(20.0));
    let (server, other) = (place.serve(2).unwrap(), place.connect(1, 2).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| drop(server));
        std::thread::sleep(Duration::from_millis(100));
        let next = |rank| {
            let place = &place;
            move || {
                let x = Exchange::join_timeout(place.store(rank, 2).unwrap(), slower(20.0)).unwrap();
                x.all_gather(&[x.rank() as u8]).unwrap()
            }
        };
        let ranks = [1, 0].map(|rank| scope.spawn(next(rank)));
        // Its rank is at its last words, which it may still say.
        std::thread::sleep(Duration::from_millis(200));
        other.set("last", b"words", slower(5.0)).unwrap();
        drop(other);
        for rank in ranks {
            assert_eq!(rank.join().unwrap(), [[0], [1]]);
        }
    });
    let place = C10dPlace::new(free_address()).with_timeout(slower(20.0));
    let (server, other) = (place.serve(2).unwrap(), place.connect(1, 2).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| drop(server));
        std::thread::sleep(Duration::from_millis(50));
        let next = scope.spawn(|| place.serve(1).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        drop(other);
        next.join().unwrap().unwrap();
    });
}

/// Ranks that are destroyed and made again, each as soon as it has left: one may come back while the server of the last round still lingers.
#[test]
fn rounds_at_one_address_with_nothing_in_between() {
    let address = || free_address().to_string();
    let (tcp, c10d) =
        (TcpPlace::new(address()).with_timeout(slower(20.0)), C10dPlace::new(address()).with_timeout(slower(20.0)));
    let places: [&(dyn Fn(usize) -> gpucomm::Result<Exchange> + Sync); 2] =
        [&|rank| tcp.store(rank, 2).and_then(|store| Exchange::join_timeout(store, slower(20.0))), &|rank| {
            c10d.store(rank, 2).and_then(|store| Exchange::join_timeout(store, slower(20.0)))
        }];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (join, rank) in places.into_iter().flat_map(|join| [(join, 0), (join, 1)]) {
            scope.spawn(move || {
                for round in 0..6u8 {
                    let x = join(rank).unwrap();
                    let all = x.all_gather(&[round, rank as u8]).unwrap();
                    assert_eq!(all, [[round, 0], [round, 1]]);
                    x.barrier().unwrap();
                }
            });
        }
    });
    println!("{:?}", start.elapsed());
    assert!(start.elapsed() < slower(20.0), "{:?}", start.elapsed());
}

/// It has the connections of its parent, which would take its answers for its own.
#[test]
fn a_forked_child_is_refused() {
    everywhere(&[2], |x| {
        x.barrier().unwrap();
        // SAFETY: the child makes calls that are refused before they take a lock, and ends without running anything else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_refused = |result: gpucomm::Result<()>| matches!(result, Err(Error::InvalidUsage { .. }));
            let refused = is_refused(x.set("word", b"of the child")) && is_refused(x.get("word").map(drop));
            // SAFETY: it ends the child, whatever else is there.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let own = format!("of {}", x.rank());
        x.set(&own, b"of the parent").unwrap();
        let mut status = -1;
        // SAFETY: the status is valid for a write.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child was not refused");
        assert_eq!(x.get(&format!("of {}", 1 - x.rank())).unwrap(), b"of the parent");
        x.barrier().unwrap();
    });
}
