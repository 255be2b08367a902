//! Ways to a checked communicator: the environment, a split, a recovery; and stores that fail meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Directory, Exchange, Store};
use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, Device, Error, Result, Stream};

use crate::checked::{CASE, CASES, Job, PATIENT, begin, check, end_of, exchange, place};
use crate::split::{gathered, sum};
use crate::support::hooked_store::{HookedStore, Hooks};
use crate::support::no_threads::forbid_threads;
use crate::support::process::{Finished, Role};
use crate::support::{assert_names, rank_counts, skip, slower, watched};

const FAULTS: &str = "GPUCOMM_EMULATOR_FAULTS";

/// How ranks come to the communicator on which one differs.
const WAY: &str = "GPUCOMM_TEST_WAY";

/// What the environment says of a way.
pub type Way = [(&'static str, &'static str)];

pub const ASKED: &Way = &[];
const SAID: &Way = &[("GPUCOMM_CHECKED", "1"), (WAY, "said")];
const PART: &Way = &[(WAY, "part")];
const RECOVERED: &Way = &[(WAY, "recovered")];

/// The communicator, and the exchange that is its ranks'.
pub fn by_way(role: &Role) -> (Communicator, Exchange) {
    let (exchange, way) = (exchange(role), std::env::var(WAY).unwrap_or_default());
    let comm = begin(role, &exchange, way != "said").unwrap();
    match &*way {
        "part" => (comm.split(Some(3), 0).unwrap().unwrap(), exchange),
        "recovered" => {
            let recovered = comm.recover(&exchange).unwrap();
            assert_eq!(recovered.survivors, (0..role.size).collect::<Vec<_>>());
            (recovered.comm, recovered.exchange)
        }
        _ => (comm, exchange),
    }
}

#[test]
fn all_are_told_whatever_the_way() {
    watched(120.0, || {
        for ranks in rank_counts(&[3]) {
            for way in [SAID, PART, RECOVERED] {
                check(&CASES[0], ranks, "", way);
            }
        }
    });
}

/// A store that fails where `fails` says so, of who asks for these keys; and what it does when it is asked who has ended, after all have gathered.
struct Failing<F>(Directory, F, Option<(fn(), AtomicBool)>);

impl<F: Fn(&[&str]) -> bool + Send + Sync> Hooks for Failing<F> {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    fn get(&self, keys: &[&str], within: Duration) -> Result<Vec<Option<Vec<u8>>>> {
        if (self.1)(keys) {
            let reason = "the test wants it".to_owned();
            return Err(Error::Exchange { operation: "get", key: keys[0].to_owned(), reason });
        }
        let values = self.0.get(keys, within)?;
        if let Some((_, gathered)) = &self.2
            && keys.iter().any(|key| key.contains("/c/1/"))
            && values.iter().all(Option::is_some)
        {
            gathered.store(true, Ordering::Release);
        }
        Ok(values)
    }

    fn ended(&self, ids: &[u64], within: Duration) -> Result<Vec<Option<String>>> {
        if let Some((asked, gathered)) = &self.2
            && gathered.load(Ordering::Acquire)
        {
            asked();
        }
        self.0.ended(ids, within)
    }
}

fn failing(role: &Role, fails: impl Fn(&[&str]) -> bool + Send + Sync + 'static) -> Exchange {
    let directory = Directory::open(place(), role.rank, role.size).unwrap();
    Exchange::join(HookedStore(Failing(directory, fails, None))).unwrap()
}

/// All but rank 0 cannot read the id of the first start that a recovery tries: all try again, and meet.
pub fn recovers(role: Role) {
    gpucomm::set_default_timeout(slower(10.0));
    let failures = Arc::new(AtomicUsize::new(0));
    let (count, is_first) = (Arc::clone(&failures), role.rank == 0);
    let exchange = failing(&role, move |keys| {
        let fails = !is_first && keys.iter().any(|key| key.contains("/s/v/0/c/1/"));
        fails && count.fetch_add(1, Ordering::Relaxed) == 0
    });
    let comm = begin(&role, &exchange, true).unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    sum(&comm, &stream).unwrap();
    exchange.barrier().unwrap();
    // What rank 0 waits for in vain is not to outlast the vote.
    comm.set_timeout(slower(2.0));
    let recovered = comm.recover(&exchange).unwrap();
    let all: Vec<_> = (0..role.size).collect();
    assert_eq!(recovered.survivors, all);
    assert_eq!(failures.load(Ordering::Relaxed), usize::from(!is_first));
    let (comm, exchange) = (recovered.comm, recovered.exchange);
    comm.set_timeout(slower(10.0));
    assert_eq!(gathered(&comm, &stream, role.rank).unwrap(), all);
    // An abort is one of all ranks.
    exchange.barrier().unwrap();
    let again = comm.recover(&exchange).unwrap();
    assert_eq!(gathered(&again.comm, &stream, role.rank).unwrap(), all);
}

#[test]
fn who_could_not_start_meets_the_others() {
    watched(90.0, || {
        for ranks in rank_counts(&[3, 4]) {
            Job::start("recovers", ranks, "", &[]).succeed();
        }
    });
}

/// The last rank aborts; the others, which listen, cannot read for a while.
pub fn one_aborts(role: Role) {
    let failures = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failures);
    let exchange = failing(&role, move |_| {
        let listens = std::thread::current().name() == Some("gpucomm-checked");
        listens && count.fetch_add(1, Ordering::Relaxed) < 3
    });
    let comm = begin(&role, &exchange, true).unwrap();
    while failures.load(Ordering::Relaxed) < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    exchange.barrier().unwrap();
    if role.rank == role.size - 1 {
        let _ = comm.abort("the test wants it");
        return;
    }
    let (start, stream) = (Instant::now(), Stream::new(comm.device()).unwrap());
    let error = end_of(&comm, &stream, Ok(()));
    assert!(start.elapsed() < slower(PATIENT / 4.0), "not at once: {:?}", start.elapsed());
    assert!(matches!(&error, Error::Aborted { reason, .. } if reason.contains("the test wants it")), "{error:?}");
}

#[test]
fn who_cannot_read_for_a_while_hears_of_an_abort() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3]) {
            Job::start("one aborts, stores fail", ranks, "", &[]).succeed();
        }
    });
}

/// The last rank can start no threads: all are told at once.
pub fn one_has_no_threads(role: Role) {
    let (exchange, last) = (exchange(&role), role.size - 1);
    // The kernel may not let it.
    // The driver starts threads of its own when it is first asked.
    Device::all().unwrap();
    let forbidden = role.rank != last || forbid_threads();
    if exchange.all_gather(&[u8::from(forbidden)]).unwrap().contains(&vec![0]) {
        return skip("this kernel does not let a process forbid its own threads");
    }
    for checked in [false, true] {
        let start = Instant::now();
        let error = begin(&role, &exchange, checked).expect_err("a rank has no threads");
        match &error {
            Error::InvalidUsage { .. } => assert_eq!(role.rank, last),
            Error::Exchange { .. } => assert_names(&error, &[&format!("rank {last}"), "it cannot go on"]),
            other => panic!("{other:?}"),
        }
        assert_names(&error, &["a thread cannot be started"]);
        assert!(start.elapsed() < slower(PATIENT / 4.0), "not at once: {:?}", start.elapsed());
    }
    exchange.barrier().unwrap();
}

#[test]
fn all_are_told_that_one_has_no_threads() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 3]) {
            Job::start("one has no threads", ranks, "", &[]).succeed();
        }
    });
}

/// While ranks start, their store panics, or never answers.
pub fn stores_go_bad(role: Role) {
    let asked = match &*std::env::var(CASE).unwrap() {
        "panics" => || panic!("the test wants it"),
        _ => || std::thread::sleep(Duration::from_secs(3600)),
    };
    let directory = Directory::open(place(), role.rank, role.size).unwrap();
    let store = Failing(directory, |_: &[&str]| false, Some((asked, AtomicBool::new(false))));
    let exchange = Exchange::join(HookedStore(store)).unwrap();
    let comm = begin(&role, &exchange, false).unwrap();
    sum(&comm, &Stream::new(comm.device()).unwrap()).unwrap();
    println!("started");
    // What sleeps for ever holds the store.
    std::process::exit(0);
}

#[test]
fn a_store_that_panics_or_blocks_ends_no_start() {
    watched(90.0, || {
        if gpucomm::backend() != gpucomm::Backend::Emulator {
            return skip("starts are slowed down by the emulator only");
        }
        for ranks in rank_counts(&[2]) {
            for case in ["panics", "blocks"] {
                let faults = format!("late_start=rank1@1:{:?}", slower(1.0));
                let ends = Job::start("stores go bad", ranks, "", &[(CASE, case), (FAULTS, &faults)]).ends();
                ends.iter().for_each(Finished::assert_success);
                assert!(ends.iter().all(|end| end.text.contains("started")), "{ends:?}");
            }
        }
    });
}

/// Rank 1 leaves NCCL later than the others have started, and left the exchange: which is no death.
pub fn one_starts_late(role: Role) {
    let exchange = exchange(&role);
    let options = InitOptions::new().with_timeout(slower(PATIENT));
    // SAFETY: all processes of one test run the same role.
    let comm = unsafe { Communicator::init_rank_over(role.device().unwrap(), &exchange, &options) };
    drop(exchange);
    let comm = comm.unwrap();
    sum(&comm, &Stream::new(comm.device()).unwrap()).unwrap();
}

#[test]
fn who_has_started_may_leave_the_exchange() {
    watched(90.0, || {
        if gpucomm::backend() != gpucomm::Backend::Emulator {
            return skip("starts are slowed down by the emulator only");
        }
        for ranks in rank_counts(&[2, 3]) {
            let faults = format!("late_start=rank1@1:{:?}", slower(3.0));
            Job::start("one starts late", ranks, "", &[(FAULTS, &faults)]).succeed();
        }
    });
}
