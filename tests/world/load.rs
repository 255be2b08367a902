//! Many requests from many tasks: nothing is lost, and memory does not grow.

use std::time::Instant;

use gpucomm::world::{Lane, Members, WorldOptions};
use gpucomm::{Backend, Clique, Device, InPlace, ReduceOp};

use super::support::{child, eventually, number, on, values, world};

/// How many requests, over all ranks: `GPUCOMM_WORLD_REQUESTS`.
fn requests() -> usize {
    number("GPUCOMM_WORLD_REQUESTS").unwrap_or(8000)
}

const TASKS: usize = 16;

/// Kilobytes of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

#[test]
fn one_process() {
    let world = world(4, WorldOptions::new().with_sequenced(true));
    let size = world.size();
    let rounds = requests() / TASKS / size;
    let (start, mut first) = (Instant::now(), 0);
    for part in 0..2 {
        std::thread::scope(|scope| {
            for task in 0..TASKS {
                let world = &world;
                scope.spawn(move || {
                    let lane = Lane::new(format!("{task}"));
                    let ranks: Vec<_> = world.ranks().into_iter().map(|rank| rank.with_lane(&lane)).collect();
                    let mut buffers: Vec<_> = ranks.iter().map(|rank| on(rank.device(), &[1u64; 16])).collect();
                    for round in 0..rounds / 2 {
                        let ask = |(rank, x): (&gpucomm::world::Rank, _)| rank.all_reduce(InPlace(x), ReduceOp::Max);
                        let answers: Vec<_> = ranks.iter().zip(buffers.drain(..)).map(ask).collect();
                        let back = answers.into_iter().map(|answer| answer.wait().unwrap());
                        buffers.extend(back);
                        if round % 64 == 0 {
                            buffers.iter().for_each(|x| assert_eq!(values(x), [1; 16]));
                        }
                    }
                });
            }
        });
        if part == 0 {
            first = resident();
        }
    }
    let done = world.metrics().done;
    let grown = resident().saturating_sub(first);
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{done} requests of {TASKS} tasks on {size} ranks: {:.0} a second, {grown} KiB more at the end than in the middle",
        done as f64 / seconds
    );
    assert_eq!(done, u64::try_from(2 * (rounds / 2) * TASKS * size).unwrap());
    assert!(grown < 16 << 10, "{grown} KiB");
}

/// Files, threads and kilobytes that this process has.
fn held() -> (usize, usize, u64) {
    let entries = |of: &str| std::fs::read_dir(format!("/proc/self/{of}")).map_or(0, Iterator::count);
    (entries("fd"), entries("task"), resident())
}

/// Worlds come and go, with answers that nobody wants, with a rebuild, and beside cliques that are split.
#[test]
fn worlds_leave_nothing() {
    child("load::rounds", &[]).succeeds("rounds");
}

#[test]
#[ignore = "the body of a child process"]
fn rounds() {
    let devices = Device::all().unwrap();
    let devices = &devices[..devices.len().min(2)];
    let round = || {
        let world = world(2, WorldOptions::default());
        let forms = || world.devices().into_iter().map(|device| InPlace(on(device, &[1u32; 100]))).collect::<Vec<_>>();
        drop(world.all_reduce(forms(), ReduceOp::Sum));
        world.all_reduce(forms(), ReduceOp::Sum).wait().unwrap();
        world.fail("a test");
        world.rebuild(Members::Same).unwrap();
        drop(world.all_reduce(forms(), ReduceOp::Sum).into_answers().unwrap());
        drop(world);
        let clique = Clique::init_all(devices).unwrap();
        drop(clique.split(|rank| Some((0, rank))).unwrap());
    };
    // Threads and buffers that are kept for the next world come with the first ones.
    let (mut files, mut threads) = (0, 0);
    for _ in 0..10 {
        round();
        let now = held();
        (files, threads) = (files.max(now.0), threads.max(now.1));
    }
    let before = held().2;
    (0..40).for_each(|_| round());
    eventually("there are no more files and threads than before", || {
        let now = held();
        now.0 <= files && now.1 <= threads
    });
    let grown = held().2.saturating_sub(before);
    println!("{files} files, {threads} threads, {grown} KiB more");
    assert!(gpucomm::backend() != Backend::Emulator || grown < 2 << 10, "{grown} KiB");
}
