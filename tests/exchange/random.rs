//! Random programs against a model.

use std::collections::BTreeMap;
use std::sync::Mutex;

use gpucomm::exchange::{Exchange, Swap};

use crate::support::{everywhere, seed};

/// A value of a random length, mostly short.
fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = [0, 1, 5, 100, 5000][random.usize(..5)];
    (0..len).map(|_| random.u8(..)).collect()
}

/// Each rank changes keys of its own at random, which others read, and a counter of all; in between all do something together.
fn program(x: &Exchange, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ (x.rank() as u64) << 32);
    // The same on all ranks.
    let mut common = fastrand::Rng::with_seed(seed);
    let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut added = 0;
    for round in 0..6_u8 {
        for _ in 0..random.usize(..12) {
            let key = format!("r{}/{}", x.rank(), random.u8(..4));
            match random.u8(..6) {
                0 | 1 => {
                    let value = value(&mut random);
                    x.set(&key, &value).unwrap();
                    model.insert(key, value);
                }
                2 => assert_eq!(x.delete(&key).unwrap(), model.remove(&key).is_some()),
                3 => assert_eq!(x.try_get(&key).unwrap().as_ref(), model.get(&key)),
                4 => {
                    let expected = if random.bool() { model.get(&key).cloned() } else { Some(value(&mut random)) };
                    let new = value(&mut random);
                    let found = model.get(&key).cloned();
                    let swap = x.compare_and_set(&key, expected.as_deref(), &new).unwrap();
                    if found == expected {
                        assert_eq!(swap, Swap::Done);
                        model.insert(key, new);
                    } else {
                        assert_eq!(swap, Swap::Found(found));
                    }
                }
                _ => {
                    let by = random.i64(-9..10);
                    x.add("sum", by).unwrap();
                    added += by;
                }
            }
        }
        // What all do together, and what each then finds of the others' keys.
        let mine: Vec<u8> = vec![x.rank() as u8; common.usize(..40) * x.rank()];
        let len = mine.len().checked_div(x.rank()).unwrap_or(0);
        match common.u8(..4) {
            0 => drop(
                x.all_gather(&mine)
                    .unwrap()
                    .iter()
                    .enumerate()
                    .map(|(rank, all)| {
                        assert!(
                            all.iter().all(|byte| *byte == rank as u8) && (x.rank() == 0 || all.len() == len * rank)
                        );
                    })
                    .collect::<Vec<()>>(),
            ),
            1 => {
                let root = common.usize(..x.size());
                assert_eq!(x.broadcast(&[x.rank() as u8, round], root).unwrap(), [root as u8, round]);
            }
            2 => {
                let no = common.usize(..x.size());
                let vote = x.vote(if no == x.rank() { Err(format!("round {round}")) } else { Ok(()) }).unwrap();
                assert_eq!(vote.no, [(no, format!("round {round}"))]);
            }
            _ => x.barrier().unwrap(),
        }
        let sum = x.all_gather(&added.to_le_bytes()).unwrap();
        let sum: i64 = sum.iter().map(|bytes| i64::from_le_bytes(bytes[..].try_into().unwrap())).sum();
        assert_eq!(x.add("sum", 0).unwrap(), sum);
        let models = x.all_gather(format!("{model:?}").as_bytes()).unwrap();
        let peer = random.usize(..x.size());
        let theirs: BTreeMap<String, Vec<u8>> = (0..4)
            .filter_map(|at| {
                let key = format!("r{peer}/{at}");
                let value = x.try_get(&key).unwrap()?;
                Some((key, value))
            })
            .collect();
        assert_eq!(format!("{theirs:?}").into_bytes(), models[peer], "the keys of rank {peer}");
        x.barrier().unwrap();
    }
}

#[test]
fn programs() {
    let seed = seed();
    let generations = Mutex::new(0);
    everywhere(&[1, 3, 8], |first| {
        let mut x = first;
        for at in 0..2 {
            program(&x, seed.wrapping_add(at));
            x = x.next_generation().unwrap();
            *generations.lock().unwrap() += 1;
        }
        x.barrier().unwrap();
    });
    println!("{} generations", generations.lock().unwrap());
}
