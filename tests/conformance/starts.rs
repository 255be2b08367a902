//! Starts that fail half-way: those of the other ranks end at once, and nothing is left behind.
//!
//! The emulator has a fault for it; real GPUs skip most of these tests.

use std::time::{Duration, Instant};

use gpucomm::nccl::InitOptions;
use gpucomm::{Backend, Clique, Communicator, Device, Error, UniqueId};

use crate::support::process::{Role, all_succeed, spawn, spawn_all};
use crate::support::{assert_names, places, quick, rank_counts, skip, slower, still_works, watched};

const CHILD: &str = "starts::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn(Role)); 3] =
        [("fails", |role| fails(role.size)), ("alone", |role| alone(role.size)), ("late", late)];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role);
            println!("finished");
        }
    }
}

/// Files and threads of this process, once they stay the same, and are `few`: what has ended may take a while to go.
pub fn holdings(few: impl Fn((usize, usize)) -> bool) -> (usize, usize) {
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).expect(what).count();
    let start = Instant::now();
    let mut last = (0, 0);
    loop {
        std::thread::sleep(slower(0.2));
        let now = (count("fd"), count("task"));
        if now == last && few(now) || start.elapsed() > slower(10.0) {
            return now;
        }
        last = now;
    }
}

/// Odd starts fail at one rank or another.
fn fails(ranks: usize) {
    let devices = &places()[..ranks];
    let mut before = None;
    for attempt in 0..12usize {
        if attempt % 2 == 0 {
            still_works(ranks);
        } else {
            let error = quick(slower(1.0), || Clique::init_all(devices)).expect_err("the start of a rank failed");
            assert!(matches!(error, Error::Nccl { .. }), "{error:?}");
            assert_names(&error, &[&format!("(of one of {ranks} ranks that start together)")]);
        }
        // What is made once for a process is there after the first attempts. An id that not all ranks have come to keeps the
        // place where they would have met, as NCCL's do.
        let kept = attempt.div_ceil(2);
        let few = |(files, threads), before: Option<(usize, usize)>| {
            before.is_none_or(|before| files - kept <= before.0 && threads <= before.1)
        };
        let now = holdings(|now| few(now, before));
        if attempt >= 3 {
            assert!(few(now, before), "attempt {attempt}: {now:?}, {kept} of them kept; before: {before:?}");
            before.get_or_insert((now.0 - kept, now.1));
        }
    }
}

/// The start of the last rank fails, which a thread makes for itself.
fn alone(ranks: usize) {
    let (id, rank) = (UniqueId::new().unwrap(), ranks - 1);
    // SAFETY: no rank comes to any operation.
    let started = unsafe { Communicator::init_rank(Device::all().unwrap()[rank], ranks, &id, rank) };
    let error = started.map(drop).expect_err("the start of a rank failed");
    assert!(matches!(error, Error::Nccl { .. }), "{error:?}");
    assert_names(&error, &[&format!("(of rank {rank})")]);
}

/// Rank 0 gives up before the other one comes.
fn late(role: Role) {
    if role.rank > 0 {
        std::thread::sleep(slower(0.8));
        let started = role.join();
        assert!(started.is_ok() || gpucomm::backend() != Backend::Emulator, "{started:?}");
        return;
    }
    let options = InitOptions::new().with_timeout(Duration::from_millis(200));
    // SAFETY: no rank comes to any operation.
    let started =
        unsafe { Communicator::init_rank_with(role.device().unwrap(), role.size, &role.id, role.rank, &options) };
    assert!(matches!(started.map(drop), Err(Error::Timeout { .. })));
}

/// A process that ends while NCCL is still starting a rank of it does so in good order: NCCL is given some time before CUDA goes.
#[test]
fn a_process_that_ends_before_its_start() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let start = Instant::now();
            let mut all = spawn_all(CHILD, "late", ranks, &[]);
            let others = all.split_off(1);
            all_succeed(all, slower(30.0));
            // Not before the other one has come, which ends the start.
            assert!(start.elapsed() > slower(0.7), "after {:?}", start.elapsed());
            all_succeed(others, slower(30.0));
            assert!(start.elapsed() < slower(15.0), "after {:?}", start.elapsed());
            // One that waits for ranks which never come ends, too.
            let start = Instant::now();
            spawn(CHILD, "late", (0, 2), &UniqueId::new().unwrap(), &[]).finish(slower(30.0)).assert_success();
            assert!(start.elapsed() < slower(10.0), "after {:?}", start.elapsed());
        }
    });
}

#[test]
fn of_one_rank() {
    watched(60.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("faults are injected by the emulator only");
        }
        for ranks in rank_counts(&[2, 4]) {
            let faults = format!("start=rank{}@1", ranks - 1);
            let env = [("GPUCOMM_EMULATOR_FAULTS", faults.as_str())];
            let end = spawn(CHILD, "alone", (0, ranks), &UniqueId::new().unwrap(), &env).finish(slower(30.0));
            end.assert_success();
            assert!(end.text.contains("finished"), "{}", end.text);
        }
    });
}

#[test]
fn of_a_rank_of_a_clique() {
    watched(120.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("faults are injected by the emulator only");
        }
        for ranks in rank_counts(&[2, 4]) {
            let rules: Vec<_> =
                (1..=6).map(|attempt| format!("start=rank{}@{}", attempt % ranks, 2 * attempt)).collect();
            let env = [("GPUCOMM_EMULATOR_FAULTS", rules.join(";"))];
            let env: Vec<_> = env.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let end = spawn(CHILD, "fails", (0, ranks), &UniqueId::new().unwrap(), &env).finish(slower(60.0));
            end.assert_success();
            assert!(end.text.contains("finished"), "{}", end.text);
        }
    });
}
