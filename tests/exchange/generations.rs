//! Generations: a restart never reads what was there before.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gpucomm::exchange::{Exchange, Store};

use crate::mine::Mine;
use crate::support::{everywhere, sites, slower, where_keys_are_listed};

#[test]
fn within_a_run() {
    everywhere(&[1, 4], |first| {
        let mut x = first.clone();
        let start = x.generation();
        for round in 0..5_u64 {
            assert_eq!(x.generation(), start + round);
            assert_eq!(x.try_get("id").unwrap(), None);
            x.barrier().unwrap();
            if x.rank() == 0 {
                x.set("id", &round.to_le_bytes()).unwrap();
            }
            assert_eq!(x.get("id").unwrap(), round.to_le_bytes());
            x = x.next_generation().unwrap();
        }
        x.barrier().unwrap();
    });
}

#[test]
fn old_ones_are_removed() {
    where_keys_are_listed(&[3], |first| {
        if first.rank() == 0 {
            first.set("id", b"old").unwrap();
        }
        assert_eq!(first.get("id").unwrap(), b"old");
        let x = first.next_generation().unwrap();
        x.barrier().unwrap();
        // Rank 0 has removed them before it came here.
        assert_eq!(first.try_get("id").unwrap(), None);
        x.barrier().unwrap();
    });
}

/// Every run leaves an id behind, and some ranks of some runs die before they have met.
#[test]
fn fifty_restarts() {
    for site in sites(3) {
        if !site.place.outlives_rank_0() {
            continue;
        }
        for run in 0..50_u32 {
            let dies = (run % 5 == 4).then_some(run as usize % 3);
            if let Some(dies) = dies {
                let alive: Vec<usize> = (0..3).filter(|rank| *rank != dies).collect();
                site.stores(&alive, |_, store| Exchange::join_timeout(store, Duration::from_millis(20)).unwrap_err());
            }
            site.stores(&[0, 1, 2], |rank, store| {
                if fastrand::bool() {
                    std::thread::sleep(Duration::from_millis(fastrand::u64(..8)));
                }
                let x = Exchange::join_timeout(store, slower(20.0)).unwrap();
                assert_eq!(
                    x.try_get("id").unwrap().filter(|id| *id != run.to_le_bytes()),
                    None,
                    "{}: an old id",
                    site.name
                );
                if rank == 0 {
                    x.set("id", &run.to_le_bytes()).unwrap();
                }
                assert_eq!(x.get("id").unwrap(), run.to_le_bytes(), "{}: an old id", site.name);
                x.add("sum", 1).unwrap();
                x.barrier().unwrap();
                assert_eq!(x.get("sum").unwrap(), b"3");
                x.barrier().unwrap();
            });
        }
    }
}

/// A rank that dies while the others meet, and is started again, is met.
#[test]
fn a_rank_that_is_started_again_while_others_wait() {
    for site in sites(3) {
        if !site.place.outlives_rank_0() {
            continue;
        }
        let twice = Barrier::new(3);
        site.stores(&[0, 1, 2], |rank, store| {
            let mut store = Some(store);
            if rank < 2 {
                // Twice it comes and goes before rank 2 is there.
                for _ in 0..2 {
                    let first = store.take().unwrap_or_else(|| site.place.store(rank, 3).unwrap());
                    Exchange::join_timeout(first, Duration::from_millis(30 + 20 * rank as u64)).unwrap_err();
                }
            }
            twice.wait();
            if rank == 2 {
                std::thread::sleep(slower(0.1));
            }
            let store = store.unwrap_or_else(|| site.place.store(rank, 3).unwrap());
            let x = Exchange::join_timeout(store, slower(20.0)).unwrap();
            assert_eq!(x.all_gather(&[rank as u8]).unwrap(), [[0], [1], [2]]);
            x.barrier().unwrap();
        });
    }
}

/// A rank that looks late whether all have met comes to that generation, also where the others have left it by then.
#[test]
fn no_generation_is_left_out() {
    for site in sites(3) {
        site.stores(&[0, 1, 2], |rank, store| {
            let looks = AtomicU32::new(0);
            let get = move |store: &dyn Store, keys: &[&str], within: Duration| {
                if rank == 1 && keys[0].ends_with("/ok") && looks.fetch_add(1, Ordering::Relaxed) == 0 {
                    std::thread::sleep(slower(0.2));
                    return Ok(vec![None]);
                }
                store.get(keys, within)
            };
            let x = Exchange::join_timeout(Mine::getting(store, get), slower(20.0)).unwrap();
            x.set(&format!("{rank}"), b"here").unwrap();
            let next = x.next_generation().unwrap();
            assert_eq!(next.generation(), x.generation() + 1, "{}", site.name);
            assert_eq!(next.all_gather(&x.generation().to_le_bytes()).unwrap(), [x.generation().to_le_bytes(); 3]);
            next.barrier().unwrap();
        });
    }
}
