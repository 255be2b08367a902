//! Ranks in processes.

use std::time::{Duration, Instant};

use gpucomm::nccl::InitOptions;
use gpucomm::world::{Lane, Members, Rebuild, World, WorldOptions, health::Phase, requests};
use gpucomm::{Device, DeviceBuffer, Error, InPlace, Launch, ReduceOp, Stream};

use super::support::{Killed, child, eventually, number, on, slower, until_rebuilt, values};
use super::trap::Trap;

const ROLE: &str = "GPUCOMM_TEST_WORLD";

/// The ranks of a program, each a process.
fn spawn(role: &str, size: usize) -> Vec<Killed> {
    spawn_with(role, size, &[])
}

fn spawn_with(role: &str, size: usize, more: &[(&str, &str)]) -> Vec<Killed> {
    let directory = std::env::temp_dir().join(format!("gpucomm-world-{}-{:x}", std::process::id(), fastrand::u64(..)));
    let store = format!("file://{}", directory.display());
    let of = |rank: usize| {
        let (rank, size) = (rank.to_string(), size.to_string());
        let set = [
            ("GPUCOMM_RANK", &*rank),
            ("GPUCOMM_SIZE", &*size),
            ("GPUCOMM_LOCAL_RANK", &*rank),
            ("GPUCOMM_LOCAL_SIZE", &*size),
            ("GPUCOMM_STORE", &*store),
            (ROLE, role),
        ];
        child("processes::rank", &[&set, more].concat())
    };
    (0..size).map(of).collect()
}

/// So many ranks, where there are as many devices.
fn at_most(size: usize) -> usize {
    size.min(Device::count().unwrap())
}

fn run(role: &str, size: usize) -> Vec<String> {
    let ranks = spawn(role, size);
    ranks.into_iter().enumerate().map(|(rank, one)| one.succeeds(&format!("{role}: rank {rank}"))).collect()
}

#[test]
fn together() {
    run("together", at_most(2));
}

#[test]
fn in_lanes() {
    run("lanes", at_most(3));
}

#[test]
fn an_end_behind_a_request_that_was_submitted_in_order() {
    run("in order", at_most(2));
}

/// 16 tasks of each of four processes.
#[test]
fn many_requests() {
    let said = run("load", at_most(4));
    said.iter()
        .flat_map(|said| said.lines())
        .filter(|line| line.contains("a second"))
        .for_each(|line| println!("{line}"));
}

#[test]
fn what_does_not_agree_is_told_by_name() {
    run("mismatch", 2);
}

/// How often ranks are killed: `GPUCOMM_WORLD_KILLS`. Rank 0 is no better than the others, as the store is not its.
#[test]
fn a_rank_that_is_killed() {
    let times = number("GPUCOMM_WORLD_KILLS").unwrap_or(2);
    (0..times).for_each(|time| kill(if time % 2 == 0 { "killed" } else { "killed in lanes" }));
}

fn kill(role: &str) {
    let size = at_most(4);
    let (victim, mut ranks) = (fastrand::usize(..size), spawn(role, size));
    // Under load by then.
    ranks[victim].says("at it");
    std::thread::sleep(Duration::from_millis(fastrand::u64(..500)));
    ranks[victim].kill();
    for (rank, one) in ranks.into_iter().enumerate() {
        if rank != victim {
            one.succeeds(&format!("{role}: rank {rank}, of which {victim} was killed"));
        }
    }
}

const VICTIM: &str = "GPUCOMM_TEST_VICTIM";

/// One of them loses its device, and no other rank comes to harm.
#[test]
fn a_rank_whose_device_is_lost() {
    let size = at_most(4);
    if size < 2 || !Trap::SOME {
        return;
    }
    let times = number("GPUCOMM_WORLD_KILLS").unwrap_or(1);
    for _ in 0..times {
        let victim = fastrand::usize(..size);
        let fault = format!("lose=device{victim}@op{}", fastrand::u32(10..60));
        let set =
            [(VICTIM, &*victim.to_string()), ("GPUCOMM_EMULATOR_FAULTS", &*fault), ("GPUCOMM_EMULATOR_STRICT", "0")];
        for (rank, one) in spawn_with("lost", size, &set).into_iter().enumerate() {
            println!("{}", one.succeeds(&format!("rank {rank}, of which {victim} has lost its device")));
        }
    }
}

#[test]
#[ignore = "a rank"]
fn rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match &*role {
        "together" => together_here(),
        "lanes" => lanes(),
        "mismatch" => mismatch(),
        "killed" => killed(false),
        "killed in lanes" => killed(true),
        "load" => load(),
        "lost" => lost(),
        "in order" => in_order(),
        other => panic!("{other}"),
    }
}

fn options(checked: bool, sequenced: bool) -> WorldOptions {
    let init = InitOptions::new().with_checked(checked).with_timeout(Duration::from_secs(20));
    WorldOptions::new().with_init(init).with_sequenced(sequenced).with_timeout(slower(30.0))
}

fn start(options: WorldOptions) -> (World, gpucomm::world::Rank) {
    let launch = Launch::from_env().unwrap().with_timeout(slower(40.0));
    // SAFETY: all ranks run this program, and what does not agree is found out.
    let world = unsafe { World::from_launch(&launch, &options).unwrap() };
    let rank = world.rank(launch.rank()).unwrap();
    (world, rank)
}

fn together_here() {
    let (world, rank) = start(options(false, false));
    let size = u64::try_from(world.size()).unwrap();
    for round in 0..50u64 {
        let x = rank.all_reduce(InPlace(on(rank.device(), &[round; 7])), ReduceOp::Sum).wait().unwrap();
        assert_eq!(values(&x), [size * round; 7]);
    }
    assert!(world.rank((rank.rank() + 1) % world.size()).is_err());
    world.close_timeout(slower(20.0)).unwrap();
}

/// Rank 0 has a request enqueued that nobody else makes, which is answered then, and ends: it waits for the request in vain, and the
/// others are told.
fn in_order() {
    let (world, rank) = start(options(false, false));
    if world.size() == 1 {
        return;
    }
    rank.submit(requests::barrier()).wait().unwrap();
    if rank.rank() == 0 {
        let x = InPlace(on(rank.device(), &[1u32; 7]));
        rank.submit_in_order(requests::all_reduce(x, ReduceOp::Sum)).wait().unwrap();
        let error = world.close_timeout(slower(1.0)).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }) && error.to_string().contains("in order"), "{error}");
    } else {
        eventually("the world of the others has failed", || world.health().phase == Phase::Down);
        let cause = world.health().cause.unwrap().to_string();
        assert!(cause.contains("rank 0") && cause.contains("in order"), "{cause}");
    }
}

/// Tasks come in another order in each process.
fn lanes() {
    let (world, rank) = start(options(false, true));
    let size = u32::try_from(world.size()).unwrap();
    std::thread::scope(|scope| {
        for task in 0..8u32 {
            let rank = rank.clone().with_lane(&Lane::new(format!("{task}")));
            scope.spawn(move || {
                for round in 0..25u32 {
                    std::thread::sleep(Duration::from_micros(fastrand::u64(..300)));
                    let len = usize::try_from(task + 1).unwrap();
                    let x = InPlace(on(rank.device(), &vec![task * round; len]));
                    let x = rank.all_reduce(x, ReduceOp::Sum).wait().unwrap();
                    assert!(values(&x).iter().all(|value| *value == size * task * round));
                }
            });
        }
    });
    world.close_timeout(slower(20.0)).unwrap();
}

fn load() {
    let (world, rank) = start(options(false, true));
    let total = number("GPUCOMM_WORLD_REQUESTS").unwrap_or(2000);
    let (rounds, start) = (total / 16 / world.size(), std::time::Instant::now());
    std::thread::scope(|scope| {
        for task in 0..16 {
            let rank = rank.clone().with_lane(&Lane::new(format!("{task}")));
            scope.spawn(move || {
                let mut x = on(rank.device(), &[1u64; 16]);
                for _ in 0..rounds {
                    x = rank.all_reduce(InPlace(x), ReduceOp::Max).wait().unwrap();
                }
                assert_eq!(values(&x), [1; 16]);
            });
        }
    });
    let (done, seconds) = (world.metrics().done, start.elapsed().as_secs_f64());
    assert_eq!(done, u64::try_from(16 * rounds).unwrap());
    println!("rank {}: {done} requests, {:.0} a second", rank.rank(), done as f64 / seconds);
    world.close_timeout(slower(20.0)).unwrap();
}

fn mismatch() {
    let (world, rank) = start(options(true, false));
    rank.submit(requests::barrier()).wait().unwrap();
    let x = InPlace(on(rank.device(), &[1u8; 4]));
    let answer = if rank.rank() == 0 { rank.all_reduce(x, ReduceOp::Sum) } else { rank.all_reduce(x, ReduceOp::Max) };
    let failed = answer.wait().unwrap_err();
    assert!(failed.error.to_string().contains("max") || failed.error.to_string().contains("sum"), "{failed}");
    assert!(failed.buffers.is_some());
    drop(world);
}

fn rebuilt() -> Rebuild {
    Rebuild::Automatic {
        members: Members::Survivors,
        first: Duration::from_millis(100),
        longest: Duration::from_secs(2),
        attempts: 5,
    }
}

/// All is answered on all ranks, the others go on, and the one whose device is lost says so.
fn lost() {
    let (world, rank) = start(options(false, false).with_rebuild(rebuilt()));
    let (size, is_victim) = (world.size(), std::env::var(VICTIM).unwrap() == rank.rank().to_string());
    let mut trap = is_victim.then(|| (Trap::on(rank.device()), fastrand::u32(4..100)));
    rank.submit(requests::barrier()).wait().unwrap();
    let (mut asked, mut lost) = (0, 0);
    while world.health().generation == 1 && world.health().phase == Phase::Up {
        let Ok(x) = Stream::new(rank.device()).and_then(|stream| DeviceBuffer::from_slice(&stream, &[1u32; 7])) else {
            break;
        };
        let answer = rank.all_reduce(InPlace(x), ReduceOp::Sum);
        asked += 1;
        if let Some((trap, _)) = trap.take_if(|(_, when)| asked >= *when) {
            trap.spring();
        }
        lost += u32::from(answer.wait().is_err());
    }
    if is_victim {
        eventually("it is told", || world.health().attempt.is_some());
        println!("{lost} of {asked} have failed: {:?}", world.health());
        assert_eq!(world.metrics().pending, 0);
        // What the others do is not owed to its end.
        std::thread::sleep(slower(5.0));
        // There is no device on which it could be closed.
        std::process::exit(0);
    }
    let down = Instant::now();
    until_rebuilt(&world);
    assert!(down.elapsed() < slower(4.0), "the others have waited for it: {:?}", down.elapsed());
    assert_eq!(world.size(), size - 1, "{:?}", world.health());
    at_work(&world);
    world.close_timeout(slower(20.0)).unwrap();
}

fn killed(sequenced: bool) {
    let (world, rank) = start(options(false, sequenced).with_rebuild(rebuilt()));
    let size = world.size();
    let mut lost = 0;
    rank.submit(requests::barrier()).wait().unwrap();
    println!("at it");
    while world.health().generation == 1 && world.health().phase == Phase::Up {
        let x = InPlace(on(rank.device(), &[1u32; 7]));
        match rank.all_reduce(x, ReduceOp::Sum).wait() {
            Ok(x) => assert_eq!(values(&x).len(), 7),
            Err(failed) => {
                assert!(failed.buffers.is_some(), "{failed}");
                // The one that was killed, whoever has noticed it.
                assert!(failed.error.rank().is_some_and(|killed| killed != rank.rank()), "{:?}", failed.error);
                lost += 1;
            }
        }
    }
    until_rebuilt(&world);
    // Who was between two requests has lost none.
    assert_eq!(world.size(), size - 1, "{lost} lost, {:?}", world.health());
    at_work(&world);
    world.close_timeout(slower(20.0)).unwrap();
}

/// Those that are left do what they are asked.
fn at_work(world: &World) {
    let rank = world.ranks().remove(0);
    let left = u32::try_from(world.size()).unwrap();
    for _ in 0..20 {
        let x = rank.all_reduce(InPlace(on(rank.device(), &[1u32; 7])), ReduceOp::Sum).wait().unwrap();
        assert_eq!(values(&x), [left; 7]);
    }
}
