//! Ends of checked communicators: a rank that does not come, dies, aborts, or is not checked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, Store, Threads};
use gpucomm::nccl::{Config, InitOptions};
use gpucomm::{
    Backend, Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, backend, group,
};

use crate::checked::{CASE, Job, PATIENT, address, begin, end_of, exchange, said};
use crate::split::sum;
use crate::support::alone::{alone_with, is_alone};
use crate::support::hooked_store::{HookedStore, Hooks};
#[cfg(nccl_ge_2_29)]
use crate::support::newer::since;
use crate::support::process::{Finished, Role, all_succeed};
use crate::support::{assert_names, places, rank_counts, skip, slower, still_works, watched};

/// The last rank does nothing, or is killed.
pub fn one_is_missing(role: Role) {
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, true).unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, 12).unwrap();
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
    stream.synchronize_timeout(slower(PATIENT)).unwrap();
    exchange.barrier().unwrap();
    let dies = std::env::var(CASE).unwrap() == "dies";
    if role.rank == role.size - 1 {
        println!("here");
        std::thread::sleep(slower(if dies { PATIENT } else { 4.0 }));
        // It comes, too late.
        let error = comm
            .all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)
            .and_then(|()| stream.synchronize_timeout(slower(5.0)));
        println!("late: {}", error.expect_err("nobody else is there"));
        return;
    }
    let (start, limit) = (Instant::now(), slower(if dies { PATIENT } else { 1.0 }));
    comm.set_timeout(limit);
    let error = comm.reduce(InPlace(&mut x), ReduceOp::Sum, 0, &stream);
    let error = error.expect_err("a rank is missing");
    match (&error, dies) {
        (Error::Departed { rank, .. }, true) => assert_eq!(*rank, role.size - 1),
        (Error::Timeout { .. }, false) => {
            assert!(start.elapsed() >= limit);
            let who = format!("waits for rank {} to come to reduce of 12 f32, sum, root 0", role.size - 1);
            assert!(error.to_string().contains(&who), "{error}");
            assert!(
                error.to_string().contains("has come to 1 collective, the last was all_reduce of 12 f32"),
                "{error}"
            );
            let dump = comm.dump().to_string();
            assert!(dump.contains(&format!("\"comparison\": \"rank {} {who}", role.rank)), "{dump}");
        }
        // Whoever is first tells the others.
        (Error::Aborted { .. }, true) => assert_eq!(error.rank(), Some(role.size - 1), "{error}"),
        (Error::Aborted { reason, .. }, false) => assert!(reason.contains("of another process"), "{error}"),
        _ => panic!("{error:?}"),
    }
    println!("told: {error}");
    assert!(start.elapsed() < slower(PATIENT / 2.0), "{:?}", start.elapsed());
    still_works(1);
}

#[test]
fn who_does_not_come_is_named() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let ends = Job::start("one is missing", ranks, "", &[(CASE, "is late")]).ends();
            ends.iter().for_each(Finished::assert_success);
            assert!(ends.iter().any(|end| end.text.contains("has come to 1 collective, the last was")), "{ends:?}");
            let late = said(ends.last().unwrap(), "late: ").unwrap();
            assert!(late.contains("of another process: reduce: not done within"), "{late}");
        }
    });
}

/// A rank has sent what another one receives, and dies: the last one, or rank 0, which holds the store. Who waits for the device for more of it does
/// not wait for the timeout, and neither does the drop.
pub fn one_dies_behind_a_message(role: Role) {
    gpucomm::set_default_timeout(slower(PATIENT));
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, true).unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, 12).unwrap();
    let last = role.size - 1;
    let (dead, waits, how) = match &*std::env::var(CASE).unwrap() {
        "the store dies" => (0, last, "held the store and has exited"),
        _ => (last, 0, "has died"),
    };
    match role.rank {
        rank if rank == dead => comm.send(&x, waits, &stream).unwrap(),
        rank if rank == waits => comm.recv(&mut x, dead, &stream).unwrap(),
        _ => {}
    }
    stream.synchronize().unwrap();
    exchange.barrier().unwrap();
    if role.rank == dead {
        exchange.get("waits").unwrap();
        std::process::abort();
    }
    if role.rank == waits {
        comm.recv(&mut x, dead, &stream).unwrap();
        // The other one may have died before it is answered.
        let _ = exchange.set("waits", &[]);
    }
    let start = Instant::now();
    if role.rank == waits {
        let error = stream.synchronize().expect_err("a rank has died");
        assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
        assert_names(&error, &[&format!("rank {dead} {how}")]);
        drop(comm);
    } else {
        // It waits for the others: the end of the one that waits is its own.
        let error = comm.barrier(&stream).expect_err("a rank has died");
        assert!(matches!(error, Error::Departed { .. } | Error::Aborted { .. }), "{error:?}");
    }
    assert!(start.elapsed() < slower(PATIENT / 4.0), "{:?}", start.elapsed());
    println!("told");
}

#[test]
fn who_waits_for_a_dead_one_on_the_device_is_told_at_once() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            for (case, place, dead) in [("one dies", String::new(), ranks - 1), ("the store dies", address(), 0)] {
                let mut job = Job::start("one dies behind a message", ranks, &place, &[(CASE, case)]);
                job.children.remove(dead).finish(slower(60.0));
                all_succeed(std::mem::take(&mut job.children), slower(60.0));
            }
        }
    });
}

/// Rank 1 waits for a message of rank 2. On another stream it waits for one of rank 0, which dies: NCCL does that one first.
pub fn one_dies_on_another_stream(role: Role) {
    gpucomm::set_default_timeout(slower(PATIENT));
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, true).unwrap();
    let streams = [0, 1, 2].map(|_| Stream::new(comm.device()).unwrap());
    let mut x = [0, 1, 2].map(|at| DeviceBuffer::<f32>::zeroed(&streams[at], 12).unwrap());
    // Connected in the first round, so that nobody waits inside NCCL.
    for round in 0..2 {
        match role.rank {
            1 => {
                comm.recv(&mut x[0], 0, &streams[0]).unwrap();
                comm.recv(&mut x[1 + round], 2, &streams[1 + round]).unwrap();
            }
            rank if (rank, round) != (0, 1) => comm.send(&x[0], 1, &streams[0]).unwrap(),
            _ => {}
        }
        if round == 0 {
            streams.iter().for_each(|stream| stream.synchronize().unwrap());
        }
        exchange.barrier().unwrap();
    }
    if role.rank == 0 {
        std::process::abort();
    }
    let (start, waited) = (Instant::now(), streams[if role.rank == 1 { 2 } else { 0 }].synchronize());
    assert!(matches!(waited, Err(Error::Aborted { .. })), "{waited:?}");
    assert_names(&waited.unwrap_err(), &["rank 0 has died"]);
    assert!(start.elapsed() < slower(PATIENT / 4.0), "{:?}", start.elapsed());
}

#[test]
fn who_waits_on_another_stream_than_for_a_dead_one_is_told_at_once() {
    watched(90.0, || {
        for ranks in rank_counts(&[3]) {
            let mut job = Job::start("one dies on another stream", ranks, "", &[]);
            job.children.remove(0).finish(slower(60.0));
            all_succeed(std::mem::take(&mut job.children), slower(60.0));
        }
    });
}

/// The last rank dies. Messages between the others go on, long after all know of that: while they wait inside NCCL, then for the device.
pub fn others_go_on(role: Role) {
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, true).unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    let mut x = DeviceBuffer::from_slice(&stream, &[role.rank as i32; 12]).unwrap();
    exchange.barrier().unwrap();
    if role.rank == role.size - 1 {
        std::process::abort();
    }
    for round in 0..2 {
        match role.rank {
            0 => {
                std::thread::sleep(slower(3.0));
                comm.send(&x, 1, &stream).unwrap();
            }
            _ => comm.recv(&mut x, 0, &stream).unwrap(),
        }
        let got = x.to_vec(&stream);
        assert!(matches!(&got, Ok(got) if *got == [0; 12]), "round {round}: {got:?}");
    }
}

#[test]
fn a_death_matters_to_those_who_wait_for_the_dead_one() {
    watched(90.0, || {
        for ranks in rank_counts(&[3]) {
            let mut job = Job::start("others go on", ranks, "", &[]);
            job.children.pop().unwrap().finish(slower(60.0));
            all_succeed(std::mem::take(&mut job.children), slower(60.0));
        }
    });
}

/// The last rank has died before the other one comes to their first message, which NCCL would wait for.
pub fn a_dead_one_is_sent_to(role: Role) {
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, true).unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, 12).unwrap();
    exchange.barrier().unwrap();
    if role.rank == 1 {
        std::process::abort();
    }
    let died = exchange.barrier();
    assert!(matches!(died, Err(Error::Departed { rank: 1, .. })), "{died:?}");
    let start = Instant::now();
    let message = match &*std::env::var(CASE).unwrap() {
        "send" => comm.send(&x, 1, &stream),
        _ => comm.recv(&mut x, 1, &stream),
    };
    assert!(matches!(message, Err(Error::Departed { rank: 1, .. })), "{message:?}");
    drop(comm);
    assert!(start.elapsed() < slower(2.0), "{:?}", start.elapsed());
}

#[test]
fn a_message_to_a_dead_one() {
    watched(90.0, || {
        for (ranks, case) in rank_counts(&[2, 2]).into_iter().zip(["send", "recv"]) {
            let mut job = Job::start("a dead one is sent to", ranks, "", &[(CASE, case)]);
            job.children.pop().unwrap().finish(slower(60.0));
            all_succeed(std::mem::take(&mut job.children), slower(60.0));
        }
    });
}

#[test]
fn who_dies_is_named_at_once() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            let mut job = Job::start("one is missing", ranks, "", &[(CASE, "dies")]);
            let mut last = job.children.pop().unwrap();
            last.wait_for("here", slower(40.0));
            last.kill();
            let ends = std::mem::take(&mut job.children);
            all_succeed(ends, slower(40.0));
        }
    });
}

/// The last rank wants a communicator that is not checked, of another configuration, or nothing that there is.
pub fn one_is_not_checked(role: Role) {
    let exchange = exchange(&role);
    let last = role.rank == role.size - 1;
    let error = begin(&role, &exchange, !last).expect_err("they start with different things");
    let text = error.to_string();
    assert!(matches!(error, Error::Disagreement { peer: 0, rank, .. } if rank == role.size - 1), "{error:?}");
    assert!(text.ends_with("expected a checked communicator, got a communicator that is not checked"), "{text}");
    let options = InitOptions::new().with_config(Config::new().with_min_ctas(1 + i32::from(last)));
    // SAFETY: nothing is done with it.
    let made = unsafe { Communicator::init_rank_over(role.device().unwrap(), &exchange, &options) };
    let error = made.expect_err("they start with different things").to_string();
    assert!(
        error.ends_with("expected a configuration with min_ctas 1, got a configuration with min_ctas 2"),
        "{error}"
    );
    let comm = begin(&role, &exchange, true).unwrap();
    comm.close_timeout(slower(PATIENT)).unwrap();
    exchange.barrier().unwrap();
}

#[test]
fn all_are_checked_or_none() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            Job::start("one is not checked", ranks, "", &[]).succeed();
        }
        // There is nothing to compare over.
        let options = InitOptions::new().with_checked(true);
        // SAFETY: there is one rank.
        let alone = unsafe {
            Communicator::init_rank_with(gpucomm::Device::new(0).unwrap(), 1, &UniqueId::new().unwrap(), 0, &options)
        };
        assert!(matches!(alone, Err(Error::InvalidArgument { what: "checked", .. })), "{alone:?}");
        still_works(1);
    });
}

/// Ranks that start by an id, which have nothing to compare over, though the environment wants them to.
pub fn not_over_an_exchange(_: Role) {
    for _ in 0..2 {
        let (device, id) = (gpucomm::Device::new(0).unwrap(), UniqueId::new().unwrap());
        // SAFETY: there is one rank.
        let alone = unsafe { Communicator::init_rank(device, 1, &id, 0) }.unwrap();
        assert!(!alone.is_checked());
    }
}

#[test]
fn who_cannot_be_checked_says_so_once() {
    watched(60.0, || {
        for (value, times) in [("1", 1), ("0", 0)] {
            let ends = Job::start("by an id", 1, "", &[("GPUCOMM_CHECKED", value)]).ends();
            ends.iter().for_each(Finished::assert_success);
            let said = ends[0].text.matches("have no exchange to compare over").count();
            assert_eq!(said, times, "{ends:?}");
        }
    });
}

/// The last rank aborts, while the others wait for the device.
pub fn one_aborts(role: Role) {
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, true).unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, 12).unwrap();
    let last = role.size - 1;
    // Connected, so that nobody waits in NCCL.
    for round in 0..2 {
        match role.rank {
            0 => comm.send(&x, last, &stream).unwrap(),
            rank if rank == last && round == 0 => comm.recv(&mut x, 0, &stream).unwrap(),
            _ => {}
        }
        exchange.barrier().unwrap();
    }
    if role.rank == last {
        let _ = comm.aborter().abort("the test wants it");
        exchange.barrier().unwrap();
        return;
    }
    let start = Instant::now();
    let error = end_of(&comm, &stream, Ok(()));
    assert!(start.elapsed() < slower(PATIENT / 4.0), "not at once: {:?}", start.elapsed());
    let who = format!("rank {last}, of another process: the test wants it");
    assert!(matches!(&error, Error::Aborted { reason, .. } if reason.starts_with(&who)), "{error:?}");
    exchange.barrier().unwrap();
}

#[test]
fn others_are_told_of_an_abort() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            Job::start("one aborts", ranks, "", &[]).succeed();
        }
    });
}

/// More than half of a device.
const LARGE: usize = 40 << 20;

/// The last rank is short of memory: all get the error, and go on.
pub fn one_is_short(role: Role) {
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, true).unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    let last = role.size - 1;
    let hog = (role.rank == last).then(|| DeviceBuffer::<u8>::zeroed(&stream, LARGE).unwrap());
    let start = Instant::now();
    for _ in 0..3 {
        let error = comm.alloc::<u8>(&stream, LARGE).expect_err("no memory on one rank");
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
        let place = if role.rank == last { comm.device().to_string() } else { format!("the device of rank {last}") };
        assert_names(&error, &[&LARGE.to_string(), &place]);
        sum(&comm, &stream).unwrap();
    }
    assert!(start.elapsed() < slower(PATIENT / 4.0), "{:?}", start.elapsed());
    drop(hog);
    stream.synchronize().unwrap();
    let mut memory = comm.alloc::<u8>(&stream, LARGE).unwrap();
    comm.broadcast(InPlace(memory.slice_mut(LARGE - 10..)), 0, &stream).unwrap();
    drop(memory);
    exchange.barrier().unwrap();
    comm.close_timeout(slower(PATIENT)).unwrap();
}

#[test]
fn all_are_told_that_one_is_short_of_memory() {
    watched(60.0, || {
        if gpucomm::backend() != gpucomm::Backend::Emulator {
            return skip("devices with little memory: only the emulator has some");
        }
        for ranks in rank_counts(&[2, 3]) {
            Job::start("one is short", ranks, "", &[("GPUCOMM_EMULATOR_MEMORY", "64M")]).succeed();
        }
    });
}

/// A store that answers nothing in time while it stalls.
struct Stalling<S> {
    store: S,
    stalls: Arc<AtomicBool>,
}

impl<S: Store> Hooks for Stalling<S> {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn around<R>(
        &self,
        _method: &'static str,
        _keys: &[&str],
        within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        if !self.stalls.load(Ordering::Relaxed) {
            return call();
        }
        std::thread::sleep(within);
        Err(Error::Timeout {
            operation: "Stalling",
            timeout: within,
            detail: "the store stalls".into(),
            rank: None,
            peer: None,
        })
    }
}

/// Ends of one rank beside a store that stalls take hardly longer, and the other rank is told once the
/// store answers.
#[test]
fn an_end_is_told_by_a_store_that_has_stalled() {
    const MANY: usize = 4;
    watched(120.0, || {
        for _ in rank_counts(&[2]) {
            for aborted in [false, true] {
                let (place, stalls) = (Threads::new(2), Arc::new(AtomicBool::new(false)));
                let dropped = Barrier::new(2);
                let (place, stalls, dropped) = (&place, &stalls, &dropped);
                let rank = |rank: usize| -> Result<()> {
                    let own = if rank == 0 { Arc::clone(stalls) } else { Arc::default() };
                    let store = HookedStore(Stalling { store: place.store(rank)?, stalls: own });
                    let exchange = Exchange::join(store)?.with_timeout(slower(40.0));
                    let options = InitOptions::new().with_timeout(slower(60.0)).with_checked(true);
                    let start = || {
                        // SAFETY: where ranks differ they are checked, and nothing of it comes to the others.
                        let comm = unsafe { Communicator::init_rank_over(places()[rank], &exchange, &options) }?;
                        sum(&comm, &Stream::new(comm.device())?)?;
                        Ok(comm)
                    };
                    let timed = |comms: Vec<Communicator>| {
                        let begin = Instant::now();
                        for comm in comms {
                            if aborted {
                                let _ = comm.aborter().abort("the test ends it");
                            }
                            drop(comm);
                        }
                        begin.elapsed()
                    };
                    let all = || (0..MANY).map(|_| start()).collect::<Result<Vec<_>>>();
                    let comms = all()?;
                    // The other rank ends its own after that: so it is below, too.
                    let (before, comms) = if rank == 0 { (timed(comms), Vec::new()) } else { (Duration::ZERO, comms) };
                    exchange.barrier()?;
                    timed(comms);
                    exchange.barrier()?;
                    let comms = all()?;
                    exchange.barrier()?;
                    if rank == 0 {
                        stalls.store(true, Ordering::Relaxed);
                        let after = timed(comms);
                        stalls.store(false, Ordering::Relaxed);
                        dropped.wait();
                        assert!(after < before + slower(3.5), "{before:?}, and {after:?} beside a store that stalls");
                        exchange.barrier()
                    } else {
                        // Work of this rank would hold up the ends.
                        dropped.wait();
                        for comm in &comms {
                            let error = sum(comm, &Stream::new(comm.device())?).expect_err("rank 0 has ended");
                            assert!(!matches!(error, Error::Timeout { .. }), "{error}");
                        }
                        exchange.barrier()
                    }
                };
                std::thread::scope(|scope| {
                    let rank = &rank;
                    let ranks = [0, 1].map(|one| scope.spawn(move || rank(one)));
                    ranks.into_iter().for_each(|rank| rank.join().expect("no panic").expect("no error"));
                });
            }
        }
    });
}

/// A store that takes a while for each answer, but is never late.
struct Slow<S> {
    store: S,
    is_slow: Arc<AtomicBool>,
}

impl<S: Store> Hooks for Slow<S> {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn around<R>(
        &self,
        _method: &'static str,
        _keys: &[&str],
        _within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        if self.is_slow.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(300));
        }
        call()
    }
}

/// The ends of many communicators of one rank share the time for a store that answers slowly, whether
/// they are dropped, closed or aborted.
#[test]
fn ends_over_a_slow_store_share_their_time() {
    const MANY: usize = 16;
    watched(180.0, || {
        for _ in rank_counts(&[2]) {
            for end in ["drop", "close", "abort"] {
                let (place, is_slow, ended) = (Threads::new(2), Arc::new(AtomicBool::new(false)), Barrier::new(2));
                let (place, is_slow, ended) = (&place, &is_slow, &ended);
                let rank = |rank: usize| -> Result<Duration> {
                    let own = if rank == 0 { Arc::clone(is_slow) } else { Arc::default() };
                    let store = HookedStore(Slow { store: place.store(rank)?, is_slow: own });
                    let exchange = Exchange::join(store)?.with_timeout(slower(60.0));
                    let options = InitOptions::new().with_timeout(slower(60.0)).with_checked(true);
                    let start = || {
                        // SAFETY: where ranks differ they are checked, and nothing of it comes to the others.
                        let comm = unsafe { Communicator::init_rank_over(places()[rank], &exchange, &options) }?;
                        sum(&comm, &Stream::new(comm.device())?)?;
                        Ok(comm)
                    };
                    let comms = (0..MANY).map(|_| start()).collect::<Result<Vec<_>>>()?;
                    exchange.barrier()?;
                    if rank == 1 {
                        ended.wait();
                        return Ok(Duration::ZERO);
                    }
                    is_slow.store(true, Ordering::Relaxed);
                    let begin = Instant::now();
                    for comm in comms {
                        match end {
                            "drop" => drop(comm),
                            // Rank 1 has not closed, and NCCL may wait for it.
                            "close" => _ = comm.close_timeout(slower(5.0)),
                            _ => _ = comm.abort("the test ends it"),
                        }
                    }
                    let took = begin.elapsed();
                    is_slow.store(false, Ordering::Relaxed);
                    ended.wait();
                    Ok(took)
                };
                let took = std::thread::scope(|scope| {
                    let rank = &rank;
                    let ranks = [0, 1].map(|one| scope.spawn(move || rank(one)));
                    ranks.map(|rank| rank.join().expect("no panic").expect("no error"))
                });
                // Each end asks the store at least once.
                assert!(took[0] < slower(10.0), "{end}: {MANY} ends took {:?}", took[0]);
            }
        }
    });
}

/// A call of several communicators that is late says so of each of them. A store that stalls holds it up
/// once, and not once for each.
#[test]
fn a_late_call_beside_a_store_that_stalls() {
    watched(120.0, || {
        for _ in rank_counts(&[2]) {
            let [one, many] = [1, 6].map(beside_a_store_that_stalls);
            assert!(many < one * 2 + slower(1.0), "{one:?} with one communicator, {many:?} with six");
        }
    });
}

/// How long a group of these communicators takes whose timeout is a second.
fn beside_a_store_that_stalls(communicators: usize) -> Duration {
    let (place, stalls, given_up) = (Threads::new(2), Arc::new(AtomicBool::new(false)), Barrier::new(2));
    let (place, stalls, given_up) = (&place, &stalls, &given_up);
    let rank = |rank: usize| -> Result<Duration> {
        let own = if rank == 0 { Arc::clone(stalls) } else { Arc::default() };
        let store = HookedStore(Stalling { store: place.store(rank)?, stalls: own });
        let exchange = Exchange::join(store)?.with_timeout(slower(40.0));
        let options = InitOptions::new().with_timeout(slower(40.0)).with_checked(true);
        let stream = Stream::new(places()[rank])?;
        let start = || {
            // SAFETY: where ranks differ they are checked, and nothing of it comes to the others.
            let comm = unsafe { Communicator::init_rank_over(places()[rank], &exchange, &options) }?;
            // From the third one on, what a call says needs no store.
            (0..4).try_for_each(|_| sum(&comm, &stream))?;
            Ok(comm)
        };
        let comms = (0..communicators).map(|_| start()).collect::<Result<Vec<_>>>()?;
        exchange.barrier()?;
        if rank == 1 {
            given_up.wait();
            return Ok(Duration::ZERO);
        }
        comms.iter().for_each(|comm| comm.set_timeout(slower(1.0)));
        let zeros = |_| DeviceBuffer::<f32>::zeroed(&stream, 4);
        let mut buffers = (0..communicators).map(zeros).collect::<Result<Vec<_>>>()?;
        stalls.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        let late = group(|g| {
            let mut all = comms.iter().zip(&mut buffers);
            all.try_for_each(|(comm, x)| g.all_reduce(comm, InPlace(x), ReduceOp::Sum, &stream))
        });
        let took = begin.elapsed();
        stalls.store(false, Ordering::Relaxed);
        given_up.wait();
        assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
        Ok(took)
    };
    std::thread::scope(|scope| {
        let rank = &rank;
        let [first, second] = [0, 1].map(|one| scope.spawn(move || rank(one)));
        second.join().expect("no panic").expect("no error");
        first.join().expect("no panic").expect("no error")
    })
}

/// Ranks of a checked communicator, each on a thread of its own. What `rank` makes of it is used after it was dropped.
fn checked(ranks: usize, rank: impl Fn(&Communicator) -> Option<Communicator> + Sync) {
    let place = Threads::new(ranks);
    let start = |own: usize| {
        let exchange = Exchange::join(place.store(own).unwrap()).unwrap();
        let options = InitOptions::new().with_timeout(slower(40.0)).with_checked(true);
        // SAFETY: where ranks differ they are checked, and nothing of it comes to the others.
        let comm = unsafe { Communicator::init_rank_over(places()[own], &exchange, &options) }.unwrap();
        let made = rank(&comm);
        drop(comm);
        made.iter().for_each(|made| sum(made, &Stream::new(made.device()).unwrap()).unwrap());
    };
    std::thread::scope(|scope| {
        let start = &start;
        (0..ranks).for_each(|own| drop(scope.spawn(move || start(own))));
    });
}

/// A grow hears of a revoke, which leaves the communicator revoked.
#[cfg(nccl_ge_2_29)]
#[test]
fn a_revoke_ends_the_wait_of_a_grow() {
    since(gpucomm::Version::new(2, 29, 2), 60.0, || {
        for _ in rank_counts(&[2]) {
            let (begin, over) = (Instant::now(), Barrier::new(2));
            checked(2, |comm| {
                sum(comm, &Stream::new(comm.device()).unwrap()).unwrap();
                if comm.rank() == 0 {
                    let _invited = comm.invite(1).unwrap();
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            std::thread::sleep(Duration::from_millis(fastrand::u64(..200)));
                            comm.revoke("a test").unwrap();
                        });
                        let grown = comm.grow(1).map(drop);
                        assert!(matches!(grown, Err(Error::Revoked { .. })), "{grown:?}");
                    });
                    assert!(comm.revoked().is_some());
                }
                over.wait();
                None
            });
            assert!(begin.elapsed() < slower(20.0), "{:?}", begin.elapsed());
        }
    });
}

/// Ranks that revoke a communicator, make another one of it and drop it do not end what a slower one still makes of it.
#[test]
fn a_slow_rank_makes_its_part_of_what_the_others_have_dropped() {
    if backend() == Backend::Nvidia {
        return skip("nothing makes a rank slow within NCCL");
    }
    if !is_alone() {
        let test = "checked_ends::a_slow_rank_makes_its_part_of_what_the_others_have_dropped";
        // Longer than the listener of a communicator takes to hear of an end.
        let late: String = (2..60).map(|start| format!("late_start=rank0@{start}:300ms;")).collect();
        let end = alone_with(test, &[("GPUCOMM_EMULATOR_FAULTS", late.trim_end_matches(';'))]).finish(slower(90.0));
        return end.assert_success();
    }
    watched(60.0, || {
        for splits in [false, true] {
            let all = Barrier::new(3);
            checked(3, |comm| {
                sum(comm, &Stream::new(comm.device()).unwrap()).unwrap();
                all.wait();
                comm.revoke("a test").unwrap();
                all.wait();
                let revoked = comm.revoked().unwrap();
                match (splits, comm.rank()) {
                    (true, _) => revoked.split(Some(0), 0).unwrap(),
                    (false, 2) => None,
                    (false, _) => Some(revoked.shrink(&[2]).unwrap()),
                }
            });
        }
    });
}

/// A rank that has revoked a communicator, and ends it, tells ranks that have not revoked it.
#[test]
fn the_end_of_a_revoked_one_is_told() {
    watched(60.0, || {
        for _ in rank_counts(&[2]) {
            for ends in ["drop", "abort", "a split"] {
                let (begin, all) = (Instant::now(), Barrier::new(2));
                checked(2, |comm| {
                    let stream = Stream::new(comm.device()).unwrap();
                    sum(comm, &stream).unwrap();
                    all.wait();
                    if comm.rank() == 1 {
                        match ends {
                            "a split" => drop(all.wait()),
                            _ => std::thread::sleep(Duration::from_millis(fastrand::u64(..300))),
                        }
                        let error = match ends {
                            "a split" => comm.split(Some(0), 0).map(drop),
                            _ => sum(comm, &stream),
                        };
                        let error = error.expect_err("rank 0 has ended it");
                        assert!(!matches!(error, Error::Timeout { .. }), "{ends}: {error}");
                        return None;
                    }
                    std::thread::scope(|scope| {
                        let splits = (ends == "a split").then(|| scope.spawn(|| comm.split(Some(0), 0).map(drop)));
                        std::thread::sleep(Duration::from_millis(100));
                        comm.revoke("a test").unwrap();
                        if let Some(splits) = splits {
                            splits.join().unwrap().expect_err("it was revoked");
                            all.wait();
                        }
                    });
                    // Longer than a listener takes to look.
                    std::thread::sleep(Duration::from_millis(200));
                    if ends == "abort" {
                        let _ = comm.aborter().abort("a test");
                    }
                    None
                });
                assert!(begin.elapsed() < slower(15.0), "{ends}: {:?}", begin.elapsed());
            }
        }
    });
}
