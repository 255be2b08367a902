//! `gpucomm diagnose` names the culprit, in processes that have gone wrong in random places.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use gpucomm::nccl::Suspend;
use gpucomm::{Clique, Communicator, Device, DeviceBuffer, InPlace, ReduceOp, Result, Stream, UniqueId};

use crate::harness;
use crate::place::in_one_line;
use crate::slower::slower;

const CHILD: &str = "GPUCOMM_TEST_DIAGNOSE";

/// Set where all ranks are threads of one process.
const THREADS: &str = "GPUCOMM_TEST_DIAGNOSE_THREADS";

/// What a rank does wrong.
const FAULTS: [&str; 11] =
    ["skips", "counts", "crosses", "sleeps", "dies", "deaf", "points", "graphs", "suspends", "shrinks", "never"];

/// So long a rank waits for others that go wrong: more than others are late on a busy machine.
fn patience() -> Duration {
    slower(2.0)
}

/// One program, the same for all ranks but for what the culprit does wrong.
struct Program {
    fault: &'static str,
    seed: u64,
    size: usize,
    culprit: usize,
    /// The step in which it does.
    at: usize,
    steps: usize,
}

impl Program {
    fn new(fault: &'static str, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Beside those that have a graph, there is one that has none; of those that shrink one is left out, and one waits.
        let size = rng.usize(if matches!(fault, "graphs" | "shrinks") { 3 } else { 2 }..=4);
        // More points than are kept.
        let steps = if fault == "points" { rng.usize(100..300) } else { rng.usize(2..12) };
        let at = rng.usize(if fault == "points" { 80 } else { 1 }..steps);
        Self { fault, seed, size, culprit: rng.usize(..size), at, steps }
    }

    /// What one rank does in a process of its own, until it waits in vain.
    fn run(&self, rank: usize, id: &UniqueId) -> Result<()> {
        if self.fault == "never" && rank == self.culprit {
            return Ok(());
        }
        // SAFETY: all ranks run this; where one goes wrong, nobody looks at what comes of it.
        let comm = unsafe { Communicator::init_rank(Device::new(rank)?, self.size, id, rank) }?;
        self.steps(&comm)?;
        // Who is through stays: it is not what is looked for.
        std::thread::sleep(2 * patience());
        gpucomm::nccl::dump_all(std::env::var("GPUCOMM_DUMP").expect("a directory")).map(drop)
    }

    /// The same of all ranks, as threads of this process.
    fn run_all(&self) -> Result<()> {
        if self.fault == "never" {
            // Each starts by itself.
            let id = UniqueId::new()?;
            std::thread::scope(|scope| {
                (0..self.size).for_each(|rank| drop(scope.spawn(move || self.run(rank, &id))));
            });
            return Ok(());
        }
        let clique = Clique::init_all(&Device::all()?[..self.size])?;
        clique.spmd(|comm| {
            let done = self.steps(comm);
            if done.is_ok() {
                std::thread::sleep(2 * patience());
            }
            done
        })?;
        Ok(())
    }

    fn steps(&self, comm: &Communicator) -> Result<()> {
        let rank = comm.rank();
        let part = comm.split(Some(0), rank)?.expect("all are in it");
        [comm, &part].into_iter().for_each(|comm| comm.set_timeout(patience()));
        let stream = Stream::new(comm.device())?;
        let mut rng = Rng::with_seed(self.seed);
        let mut message = DeviceBuffer::from_slice(&stream, &[rank as i32; 10])?;
        let graph = (self.fault == "graphs" && rank < 2).then(|| {
            stream.capture(|stream| match rank {
                0 => comm.send(&message, 1, stream),
                _ => comm.recv(&mut message, 0, stream),
            })
        });
        let graph = graph.transpose()?;
        for step in 0..self.steps {
            let wrong = rank == self.culprit && step == self.at;
            let (len, kind, root) = (rng.usize(1..1000), rng.usize(..4), rng.usize(..self.size));
            let mut x = DeviceBuffer::from_slice(&stream, &vec![1i32; 2000])?;
            match (wrong, self.fault) {
                (true, "skips" | "points" | "graphs") => break,
                (true, "sleeps") => {
                    std::thread::sleep(4 * patience());
                    break;
                }
                // As a thread it leaves, with a result.
                (true, "dies") if std::env::var_os(THREADS).is_some() => return Ok(()),
                (true, "dies") => std::process::exit(0),
                (true, "suspends" | "shrinks") => break,
                _ => {}
            }
            if step == self.at && self.fault == "suspends" {
                return comm.suspend(Suspend::MEMORY, "somebody else has the device").map(drop);
            }
            if step == self.at && self.fault == "shrinks" {
                let left_out = (self.culprit + 1) % self.size;
                if rank == left_out {
                    break;
                }
                // Before, all have done what they have begun.
                stream.synchronize_timeout(patience())?;
                return comm.shrink(&[left_out]).map(drop);
            }
            let len = if wrong && self.fault == "counts" { len + 1 } else { len };
            if step == self.at && self.fault == "crosses" {
                let order = if wrong { [&part, comm] } else { [comm, &part] };
                for comm in order {
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                    stream.synchronize_timeout(patience())?;
                }
                continue;
            }
            if self.fault == "deaf" && step == self.at {
                let peer = (self.culprit + 1) % self.size;
                if rank == peer {
                    comm.send(x.slice(..len), self.culprit, &stream)?;
                }
                continue;
            }
            if self.fault == "points" {
                let mut window = comm.alloc::<i32>(&stream, len)?;
                comm.all_reduce(InPlace(&mut window), ReduceOp::Sum, &stream)?;
                continue;
            }
            graph.iter().try_for_each(|graph| graph.launch(&stream))?;
            let part = x.slice_mut(..len);
            match kind {
                0 | 1 => comm.all_reduce(InPlace(part), ReduceOp::Sum, &stream)?,
                2 => comm.broadcast(InPlace(part), root, &stream)?,
                _ => comm.all_reduce(InPlace(part), ReduceOp::Max, &stream)?,
            }
        }
        stream.synchronize_timeout(patience())
    }
}

/// Not a test by itself: a rank of one.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = what.split(' ').collect();
    let fault = FAULTS.iter().find(|fault| **fault == words[0]).expect("a fault");
    let program = Program::new(fault, words[1].parse().expect("a seed"));
    if std::env::var_os(THREADS).is_some() {
        println!("{:?}", program.run_all());
        std::process::exit(0);
    }
    let rank: usize = words[2].parse().expect("a rank");
    let id: Vec<u8> = words[3]
        .as_bytes()
        .chunks(2)
        .map(|hex| u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap())
        .collect();
    let outcome = program.run(rank, &UniqueId::from_bytes(id.try_into().expect("an id")));
    println!("rank {rank}: {outcome:?}");
    if outcome.is_err() {
        gpucomm::nccl::dump_all(std::env::var("GPUCOMM_DUMP").expect("a directory")).expect("dumps");
    }
    std::process::exit(0);
}

/// Runs all ranks of a program; what `diagnose` says of their dumps.
fn diagnose(program: &Program, threads: bool, directory: &Path) -> String {
    let id: String = UniqueId::new().expect("an id").as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        if threads {
            command.env(THREADS, "1");
        }
        command
            .args(["--exact", "diagnose::child", "--nocapture"])
            .env(CHILD, format!("{} {} {rank} {id}", program.fault, program.seed))
            .env("GPUCOMM_DUMP", directory)
            // Who starts is not late.
            .env(
                "GPUCOMM_TIMEOUT",
                if program.fault == "never" { patience() } else { slower(30.0) }.as_secs().to_string(),
            )
            // Since when there is a suspend.
            .env("GPUCOMM_EMULATOR_NCCL", if program.fault == "suspends" { "2.32.3" } else { "2.28.9" })
            // What goes wrong here is what NCCL leaves undefined.
            .env("GPUCOMM_EMULATOR_STRICT", "0")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process")
    };
    let ranks: Vec<_> = (0..if threads { 1 } else { program.size }).map(start).collect();
    for child in ranks {
        let done = child.wait_with_output().expect("its end");
        assert!(
            done.status.success(),
            "{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
    }
    let output = harness::command(&["diagnose", directory.to_str().expect("a path")]).output().expect("diagnose");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "no culprit was found: {text}{error}");
    assert!(!error.contains(".json"), "{error}");
    in_one_line(&text)
}

#[test]
fn the_culprit_is_named_among_processes() {
    cases(false, &FAULTS);
}

/// In a clique ranks compare what they do, and hear of it at once; so do the dumps.
#[test]
fn the_culprit_is_named_among_threads() {
    cases(true, &FAULTS);
}

fn cases(threads: bool, faults: &[&'static str]) {
    let seed = std::env::var("GPUCOMM_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..1 << 40));
    let cases: u64 = std::env::var("GPUCOMM_RANDOM_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1);
    let how = if threads { "threads" } else { "processes" };
    println!("seed {seed}, {cases} cases of each, in {how}");
    // They sleep more than they work.
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(fault) = faults.get((number / cases) as usize) else { break };
                    one(fault, threads, seed + number % cases);
                }
            });
        }
    });
}

/// One program that goes wrong, and what is said of it.
fn one(fault: &'static str, threads: bool, seed: u64) {
    let program = Program::new(fault, seed);
    let directory =
        std::env::temp_dir().join(format!("gpucomm-diagnose-{}-{threads}-{fault}-{seed}", std::process::id()));
    let told = diagnose(&program, threads, &directory);
    let Program { culprit, size, at, .. } = program;
    let name = format!("rank {culprit}");
    let behind = format!("{name} has not come to collective");
    let said = match fault {
        // Ranks of a clique compare what they do, and the dumps say what they have heard. Of two, who came first is right.
        "counts" if threads => {
            let differs =
                |one: usize, other: usize| format!("have found: all_reduce: rank {one} disagrees with rank {other}: ");
            let found = |one, other| {
                told.contains(&differs(one, other))
                    || told.contains(&differs(one, other).replace("all_reduce", "broadcast"))
            };
            (0..size)
                .filter(|other| *other != culprit)
                .any(|other| found(culprit, other) || size == 2 && found(other, culprit))
        }
        "points" | "suspends" if threads => {
            told.contains(&behind) || told.contains(&format!("to which {name} has not come"))
        }
        "shrinks" if threads => told.contains(&format!("{name} has not come to a shrink without [")),
        "shrinks" => told.contains("inside NCCL in shrink, since") && told.contains(&format!("{name} has issued")),
        // As a thread it leaves, with a result.
        "dies" if threads => told.contains(&behind),
        "dies" => told.contains(&format!("{name} has left no dump")),
        "counts" => told.contains(&format!("{name} called")),
        "crosses" => crosses(&told, culprit, size),
        "never" => told.contains(&format!("{name} has not started, for which")),
        "deaf" => told.contains("has called send") && told.contains(&format!("{name} has not made the other end")),
        _ => told.contains(&behind),
    };
    assert!(said, "seed {}, {fault}, {name} of {size} in step {at}:\n{told}", program.seed);
    println!("{fault}: {}", told.trim());
    std::fs::remove_dir_all(directory).expect("a directory");
}

/// Whether it says that the culprit waits in the part, and another rank in what that was split off from.
fn crosses(told: &str, culprit: usize, size: usize) -> bool {
    let line = told.lines().find(|line| line.starts_with("two communicators are used in opposite orders: "));
    let waits = |rank: usize, in_part: bool| {
        let text = format!("rank {rank} of communicator ");
        line.and_then(|line| line.split_once(&text)).is_some_and(|(_, after)| {
            let (name, _) = after.split_once(" there, before").unwrap_or_default();
            name.contains("the part of color 0)") == in_part
        })
    };
    waits(culprit, true) && (0..size).any(|other| other != culprit && waits(other, false))
}
