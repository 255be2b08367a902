//! Checked communicators of which others are made: shrunk, grown, revoked, suspended; and messages that nobody answers.

use std::time::Instant;

use gpucomm::nccl::Config;
#[cfg(nccl_ge_2_29_7)]
use gpucomm::nccl::Suspend;
use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};

use crate::checked::{CASE, Case, Job, PATIENT, begin, end_of, exchange, said};
#[cfg(nccl_ge_2_29)]
use crate::grow;
use crate::split::{gathered, sum};
#[cfg(nccl_ge_2_29)]
use crate::support::newer::since;
use crate::support::process::{Finished, Role, all_succeed};
use crate::support::{rank_counts, skip, slower, watched};
#[cfg(nccl_ge_2_29_7)]
use crate::suspend;

/// What the last rank does in place of what the others do; rank 0 is left out of shrinks.
fn differ(case: &str, comm: &Communicator, stream: &Stream) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let odd = rank == size - 1;
    let revoked = || comm.revoke("the test revokes");
    match case {
        "part" if odd => revoked()?.split(Some(0), 0).map(drop),
        "part" | "ranks" | "ended" if rank == 0 => wait_for_end(comm),
        "part" => revoked()?.shrink(&[0]).map(drop),
        "ranks" => revoked()?.shrink(if odd { &[1] } else { &[0] }).map(drop),
        "colours" => revoked()?.split_with(Some(0), 0, &Config::new().with_min_ctas(1 + i32::from(odd))).map(drop),
        "ended" => revoked()?.shrink(&[0]).map(drop),
        // It may have heard of the end before.
        "closed" => comm.revoked().map_or_else(|| comm.async_error(), |revoked| revoked.split(Some(0), 0).map(drop)),
        "collective" if rank == 0 => Ok(()),
        "collective" if odd => {
            let mut x = DeviceBuffer::<f32>::zeroed(stream, 12)?;
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
        }
        "collective" => comm.shrink(&[0]).map(drop),
        "configuration" if rank == 0 => Ok(()),
        "configuration" => comm.shrink_with(&[0], &Config::new().with_min_ctas(1 + i32::from(odd))).map(drop),
        #[cfg(nccl_ge_2_29)]
        "grow" if odd => sum(comm, stream),
        #[cfg(nccl_ge_2_29)]
        "grow" => {
            let _invitations = if rank == 0 { comm.invite(1)? } else { Vec::new() };
            comm.grow(1).map(drop)
        }
        #[cfg(nccl_ge_2_29_7)]
        "resume" => {
            let suspended = comm.suspend(Suspend::MEMORY, "the test suspends")?;
            if odd {
                let _ = comm.aborter().abort("the test wants it");
            }
            suspended.resume().map(drop)
        }
        // The others close before, or after.
        "message" | "late message" if rank == 0 => {
            std::thread::sleep(slower(if case == "message" { 0.0 } else { 0.5 }));
            let x = DeviceBuffer::<f32>::zeroed(stream, 12)?;
            comm.send(&x, size - 1, stream)
        }
        _ => Ok(()),
    }
}

/// Rank 0 takes no part, and is told nothing where the others were revoked.
fn wait_for_end(comm: &Communicator) -> Result<()> {
    let _ = comm.revoke("the test revokes")?;
    Err(Error::InvalidUsage { operation: "test", reason: "it is left out".to_owned() })
}

/// A case, and what its error must hold.
const CASES: &[Case] = &[
    ("part", &["a shrink without [0]", "a split"]),
    ("ranks", &["a shrink without [0]", "a shrink without [1]"]),
    ("colours", &["a configuration with min_ctas 1", "a configuration with min_ctas 2"]),
    ("ended", &["the test wants it"]),
    ("closed", &["rank 3", "it was revoked, and closed or dropped then"]),
    ("collective", &["a shrink without [0]", "all_reduce of 12 f32"]),
    ("configuration", &["a configuration with min_ctas 1", "a configuration with min_ctas 2"]),
    ("message", &["recv of 12 f32 from rank 0", "has closed its communicator"]),
    ("late message", &["recv of 12 f32 from rank 0", "has closed its communicator"]),
];

pub fn one_differs(role: Role) {
    let case = std::env::var(CASE).unwrap();
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, true).unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    sum(&comm, &stream).unwrap();
    if case == "closed" {
        let _ = comm.revoke("the test revokes").unwrap();
    }
    exchange.barrier().unwrap();
    let start = Instant::now();
    if case.ends_with("message") && role.rank > 0 {
        std::thread::sleep(slower(if case == "message" { 0.5 } else { 0.0 }));
        // NCCL waits for the others, which abort.
        let _ = comm.close_timeout(slower(5.0));
    } else if case == "ended" && role.rank == role.size - 1 {
        let _ = comm.abort("the test wants it");
    } else if case == "closed" && role.rank == role.size - 1 {
        let _ = comm.close_timeout(slower(5.0));
    } else {
        let error = match differ(&case, &comm, &stream) {
            Err(error) => error,
            issued => end_of(&comm, &stream, issued),
        };
        println!("told: {}", error.to_string().split_once(": ").unwrap().1);
        assert!(start.elapsed() < slower(PATIENT / 4.0), "not at once: {:?}", start.elapsed());
    }
    exchange.barrier().unwrap();
}

#[cfg(nccl_ge_2_29)]
const GROW: &[Case] = &[("grow", &["expected grow by 1", "got all_reduce"])];

#[cfg(nccl_ge_2_29_7)]
const RESUME: &[Case] = &[("resume", &["the test wants it"])];

fn check_all(cases: &[Case]) {
    for ranks in rank_counts(&[4]) {
        cases.iter().for_each(|case| check(ranks, case));
    }
}

fn check(ranks: usize, (name, holds): &Case) {
    let ends = Job::start("one differs, made", ranks, "", &[(CASE, *name)]).ends();
    ends.iter().for_each(Finished::assert_success);
    let told: Vec<_> = ends.iter().filter_map(|end| said(end, "told: ")).collect();
    let right: Vec<_> = told.iter().filter(|line| !line.contains("it is left out")).collect();
    let many = match *name {
        // Rank 0 may learn of it before it has revoked.
        "part" | "ranks" => ranks - 1..=ranks,
        // The rank that is left out may learn first that another rank has aborted.
        "ended" => ranks - 2..=ranks - 1,
        "message" | "late message" => 1..=1,
        "closed" => ranks - 1..=ranks - 1,
        _ => ranks..=ranks,
    };
    assert!(many.contains(&right.len()), "{name}: {told:#?}");
    // A rank that has ended is found by those who compare with it, or by its word to all, which may be there first.
    let alike = match *name {
        "ended" | "closed" => right.iter().all(|line| told_in_comparison(line) || line.contains("was aborted: rank ")),
        "resume" => true,
        _ => right.iter().all(|line| *line == right[0]),
    };
    assert!(alike, "{name}: {told:#?}");
    assert!(holds.iter().all(|text| right.iter().all(|line| line.contains(text))), "{name}: {told:#?}");
}

/// Whether who was about to shrink or to split is told that another rank has ended.
fn told_in_comparison(line: &str) -> bool {
    let plans = ["expected a shrink without [0]", "expected a split"];
    plans.iter().any(|plan| line.contains(plan)) && line.contains("it has ended there")
}

#[test]
fn all_are_told_how_one_differs() {
    watched(240.0, || check_all(CASES));
}

#[cfg(nccl_ge_2_29)]
#[test]
fn all_are_told_how_one_differs_from_a_grow() {
    since(grow::FIRST, 60.0, || check_all(GROW));
}

#[cfg(nccl_ge_2_29_7)]
#[test]
fn all_are_told_how_one_differs_from_a_resume() {
    since(suspend::FIRST, 60.0, || check_all(RESUME));
}

/// What is made of others is checked, and one that came too late comes again.
pub fn alike(role: Role) {
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, true).unwrap();
    let (rank, size, stream) = (role.rank, role.size, &Stream::new(comm.device()).unwrap());
    let last = rank == size - 1;
    assert!(comm.is_checked());
    for round in 0..2 {
        if rank > 0 {
            let rest = comm.shrink(&[0]).unwrap();
            assert!(rest.is_checked());
            assert_eq!(gathered(&rest, stream, rank).unwrap(), (1..size).collect::<Vec<_>>(), "round {round}");
        }
        sum(&comm, stream).unwrap();
    }
    exchange.barrier().unwrap();
    let revoked = comm.revoke("the test revokes").unwrap();
    comm.set_timeout(slower(1.0));
    if !last {
        let late = revoked.split(Some(rank % 2), 0).map(drop);
        let error = late.expect_err("a rank is missing");
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        let who = format!("rank {} has not come to a split", size - 1);
        assert!(error.to_string().contains(&who), "{error}");
    }
    exchange.barrier().unwrap();
    comm.set_timeout(slower(PATIENT));
    let part = revoked.split(Some(rank % 2), size - rank).unwrap().unwrap();
    assert!(part.is_checked());
    let mine: Vec<_> = (0..size).rev().filter(|other| other % 2 == rank % 2).collect();
    assert_eq!(gathered(&part, stream, rank).unwrap(), mine);
    exchange.barrier().unwrap();
    if part.size() > 1 {
        let mut x = DeviceBuffer::<f32>::zeroed(stream, 12 + usize::from(part.rank() == 0)).unwrap();
        let issued = part.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream);
        let error = end_of(&part, stream, issued);
        assert!(matches!(error, Error::Disagreement { .. }), "{error}");
    }
    exchange.barrier().unwrap();
}

#[test]
fn what_is_made_is_checked() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            Job::start("alike, made", ranks, "", &[]).succeed();
        }
    });
}

/// The last rank dies. The others go on without it, which takes NCCL longer than it takes them to know of the death.
pub fn one_dies(role: Role) {
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, true).unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    exchange.barrier().unwrap();
    let last = role.size - 1;
    if role.rank == last {
        std::process::abort();
    }
    let rest = comm.shrink(&[last]).unwrap();
    assert_eq!(gathered(&rest, &stream, role.rank).unwrap(), (0..last).collect::<Vec<_>>());
    assert!(comm.is_active());
}

#[test]
fn a_shrink_without_the_dead_takes_its_time() {
    watched(90.0, || {
        if gpucomm::backend() != gpucomm::Backend::Emulator {
            return skip("shrinks are slowed down by the emulator only");
        }
        for ranks in rank_counts(&[2, 3]) {
            let faults = format!("late_start=rank0@2:{:?}", slower(4.0));
            let mut job = Job::start("one dies, made", ranks, "", &[("GPUCOMM_EMULATOR_FAULTS", &faults)]);
            job.children.pop().unwrap().finish(slower(60.0));
            all_succeed(std::mem::take(&mut job.children), slower(60.0));
        }
    });
}
