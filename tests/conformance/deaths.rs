//! A rank that dies, or stops, at its nth use of the store while all ranks start, recover, shrink or grow: the others do not wait longer
//! than they have to, and go on together without it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Directory, Exchange, Store};
use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, Error, Result, Stream, UniqueId};

use crate::split::{gathered, sum};
use crate::support::hooked_store::{HookedStore, Hooks};
use crate::support::process::{Child, Role, spawn};
use crate::support::random::rng;
use crate::support::{is_thorough, rank_counts, slower, watched};

const CHILD: &str = "deaths::child";

/// Where the ranks meet.
const PLACE: &str = "GPUCOMM_TEST_PLACE";
/// What they do meanwhile, which rank it is, how it ends, and at which use: separated by spaces. A test that finds this in its
/// environment takes that case alone.
const CASE: &str = "GPUCOMM_TEST_CASE";

/// What the victim does at that use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// It ends, which the store tells.
    Dies,
    /// It stops, and is alive as far as the store knows.
    Stops,
}

impl How {
    /// How long ranks wait for each other in the exchange, which tells deaths long before.
    fn patience(self) -> Duration {
        slower(if self == Self::Dies { 60.0 } else { 6.0 })
    }

    /// How long calls of a communicator take.
    fn timeout(self) -> Duration {
        slower(if self == Self::Dies { 60.0 } else { 1.5 })
    }

    /// How long the others take at most: a few timeouts one after the other where nobody tells them.
    fn limit(self) -> Duration {
        slower(if self == Self::Dies { 15.0 } else { 40.0 })
    }
}

#[derive(Debug, Clone)]
struct Case {
    scenario: String,
    victim: usize,
    how: How,
    nth: usize,
}

impl Case {
    fn of_this_process() -> Self {
        let text = std::env::var(CASE).expect(CASE);
        let words: Vec<_> = text.split(' ').collect();
        let [scenario, victim, how, nth] = words[..] else { panic!("{text}") };
        let how = if how == "Dies" { How::Dies } else { How::Stops };
        Self { scenario: scenario.to_owned(), victim: victim.parse().unwrap(), how, nth: nth.parse().unwrap() }
    }

    fn text(&self) -> String {
        format!("{} {} {:?} {}", self.scenario, self.victim, self.how, self.nth)
    }
}

/// A store whose user ends at a use of it, once it is armed.
struct Deadly {
    store: Directory,
    how: How,
    /// How many uses are left; none where it is not armed.
    left: Arc<AtomicUsize>,
    /// Held by whoever uses it: a process that stops is in the middle of no other use, and holds no lock of the directory.
    uses: RwLock<()>,
}

impl Deadly {
    fn begin_use(&self) -> RwLockReadGuard<'_, ()> {
        let last = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)) == Ok(1);
        match self.how {
            _ if !last => {}
            // SAFETY: ends this process at once.
            How::Dies => unsafe { libc::_exit(7) },
            How::Stops => {
                let _alone = self.uses.write().unwrap();
                // SAFETY: stops this process, until it is killed.
                unsafe { libc::raise(libc::SIGSTOP) };
            }
        }
        self.uses.read().unwrap()
    }
}

impl Hooks for Deadly {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn around<R>(
        &self,
        method: &'static str,
        _keys: &[&str],
        _within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let _use = (method != "ended").then(|| self.begin_use());
        call()
    }
}

/// One rank of a case.
struct Rank {
    role: Role,
    case: Case,
    left: Arc<AtomicUsize>,
    exchange: Exchange,
}

impl Rank {
    fn begin(role: Role) -> Result<Self> {
        let (case, left) = (Case::of_this_process(), Arc::new(AtomicUsize::new(0)));
        gpucomm::set_default_timeout(case.how.timeout());
        let store = Directory::open(std::env::var(PLACE).expect(PLACE), role.rank, role.size)?;
        let store = Deadly { store, how: case.how, left: Arc::clone(&left), uses: RwLock::default() };
        let exchange = Exchange::join_timeout(HookedStore(store), slower(40.0))?.with_timeout(case.how.patience());
        exchange.barrier()?;
        Ok(Self { role, case, left, exchange })
    }

    /// From now on the uses of the store count.
    fn arm(&self) {
        if self.role.rank == self.case.victim {
            self.left.store(self.case.nth, Ordering::Release);
        }
    }

    fn start(&self, exchange: &Exchange, checked: bool) -> Result<Communicator> {
        let options = InitOptions::new().with_checked(checked).with_timeout(self.case.how.timeout());
        // SAFETY: all ranks run this program.
        unsafe { Communicator::init_rank_over(self.role.device()?, exchange, &options) }
    }

    /// What happens while the victim ends: the communicator with which the others go on, if there is one, and its exchange.
    fn act(&self) -> Result<(Communicator, Exchange)> {
        let (exchange, stream) = (&self.exchange, Stream::new(self.role.device()?)?);
        match &*self.case.scenario {
            "init" => {
                self.arm();
                Ok((self.start(exchange, false)?, exchange.clone()))
            }
            "recover" => {
                let comm = self.start(exchange, false)?;
                sum(&comm, &stream)?;
                self.arm();
                let recovered = comm.recover(exchange).expect("the others recover");
                Ok((recovered.comm, recovered.exchange))
            }
            #[cfg(nccl_ge_2_28_7)]
            "shrink" => {
                let comm = self.start(exchange, true)?;
                sum(&comm, &stream)?;
                exchange.barrier()?;
                self.arm();
                if self.role.rank > 0 {
                    comm.shrink(&[0])?.close_timeout(self.case.how.timeout())?;
                }
                sum(&comm, &stream)?;
                Ok((comm, exchange.clone()))
            }
            #[cfg(nccl_ge_2_29)]
            "grow" => {
                let before: Vec<_> = (0..self.role.size - 1).collect();
                let old = match self.role.rank {
                    rank if rank < before.len() => Some(self.start(&exchange.subset(&before)?, false)?),
                    _ => None,
                };
                exchange.barrier()?;
                self.arm();
                let options = InitOptions::new().with_timeout(self.case.how.timeout());
                let grown = match &old {
                    Some(old) => old.grow_over(exchange)?,
                    // SAFETY: all ranks run this program.
                    None => unsafe { Communicator::join_over(self.role.device()?, exchange, &options)? },
                };
                Ok((grown, exchange.clone()))
            }
            other => panic!("{other}"),
        }
    }

    /// Which ranks are together: all that have computed something with each other.
    fn together(&self, comm: &Communicator, exchange: &Exchange) -> Result<Vec<usize>> {
        // Nobody tells of a death in the middle of operations.
        comm.set_timeout(slower(1.5));
        let ranks = gathered(comm, &Stream::new(comm.device())?, self.role.rank)?;
        exchange.barrier()?;
        Ok(ranks)
    }

    /// What those that are left go on with: by a recovery where all have recovered before, else by a start of their own.
    fn go_on(&self, made: Option<Communicator>, exchange: &Exchange) -> (Result<Communicator>, Exchange) {
        if self.case.scenario == "recover" {
            let recovered = made.expect("what was recovered").recover(exchange).expect("the others recover");
            return (Ok(recovered.comm), recovered.exchange);
        }
        drop(made);
        let rest = exchange.survivors().expect("those that are left");
        let options = InitOptions::new().with_timeout(self.case.how.timeout());
        let start = |id: UniqueId| {
            // SAFETY: all ranks run this program.
            unsafe { Communicator::init_rank_with(self.role.device()?, rest.size(), &id, rest.rank(), &options) }
        };
        (UniqueId::shared(&rest).and_then(start), rest)
    }
}

#[test]
#[ignore = "the body of child processes"]
fn child() {
    let Some(role) = Role::of_this_process("dies") else { return };
    let rank = Rank::begin(role).unwrap();
    let (mut made, mut exchange) = match rank.act() {
        Ok((comm, exchange)) => (Ok(comm), exchange),
        Err(error) => (Err(error), rank.exchange.clone()),
    };
    for attempt in 0.. {
        let (comm, error) = match made {
            Ok(comm) => match rank.together(&comm, &exchange) {
                Ok(ranks) => {
                    println!("together: {ranks:?}");
                    let _ = comm.close_timeout(slower(1.0));
                    return;
                }
                Err(error) => (Some(comm), error),
            },
            Err(error) => (None, error),
        };
        println!("attempt {attempt}: {error}");
        let is_known = matches!(
            error,
            // Another rank that has given up has left.
            Error::Disagreement { departed: true, .. }
                | Error::Departed { .. }
                | Error::Timeout { .. }
                | Error::Aborted { .. }
                | Error::Exchange { .. }
                | Error::Nccl { .. }
        );
        assert!(is_known && attempt < 3, "{error:?}");
        (made, exchange) = rank.go_on(comm, &exchange);
    }
}

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn check(case: &Case, size: usize) {
    let name = format!("gpucomm-deaths-{}-{:x}", std::process::id(), fastrand::u64(..));
    let place = Place(std::env::temp_dir().join(name));
    let (text, id) = (case.text(), UniqueId::from_bytes([0; UniqueId::BYTES]));
    let env = [(PLACE, place.0.to_str().expect("a path in UTF-8")), (CASE, &*text)];
    let start = Instant::now();
    let mut others: Vec<_> = (0..size).map(|rank| spawn(CHILD, "dies", (rank, size), &id, &env)).collect();
    // It goes when the others are done: a stopped one, too.
    let victim: Child = others.remove(case.victim);
    let together: Vec<_> = others
        .into_iter()
        .map(|child| {
            let end = child.finish(case.how.limit().saturating_sub(start.elapsed()));
            assert!(end.status.success(), "{case:?}: {}: {}\n{}", end.what, end.status, end.text);
            let told = end.text.lines().find_map(|line| Some(line.split_once("together: ")?.1.to_owned()));
            told.unwrap_or_else(|| panic!("{case:?}: {}", end.text))
        })
        .collect();
    drop(victim);
    let all: Vec<_> = (0..size).collect();
    let rest: Vec<_> = (0..size).filter(|rank| *rank != case.victim).collect();
    let is_right = |told: &String| *told == format!("{rest:?}") || *told == format!("{all:?}");
    assert!(together.iter().all(|told| is_right(told) && *told == together[0]), "{case:?}: {together:?}");
    println!("{case:?}: {:?}: {}", start.elapsed(), together[0]);
}

/// More uses than any of this takes.
const USES: usize = 30;

/// One case that is drawn from the seed, or all of them. A stop costs the patience of the others, so none is drawn.
fn sweep(scenario: &str, how: How) {
    let scenario = scenario.to_owned();
    watched(USES as f64 * 3.0 * 30.0, move || {
        for size in rank_counts(&[3]) {
            let mut rng = rng(&format!("{scenario} {how:?}"));
            let cases = match (is_thorough(), how) {
                _ if std::env::var_os(CASE).is_some() => {
                    let case = Case::of_this_process();
                    let is_this = case.scenario == scenario && case.how == how;
                    if is_this { vec![(case.victim, case.nth)] } else { Vec::new() }
                }
                (true, _) => (0..size).flat_map(|victim| (1..=USES).map(move |nth| (victim, nth))).collect(),
                (false, How::Dies) => vec![(rng.usize(..size), rng.usize(1..=USES / 2))],
                (false, How::Stops) => Vec::new(),
            };
            for (victim, nth) in cases {
                check(&Case { scenario: scenario.clone(), victim, how, nth }, size);
            }
        }
    });
}

#[test]
fn a_death_in_a_start() {
    sweep("init", How::Dies);
}

#[test]
fn a_death_in_a_recovery() {
    sweep("recover", How::Dies);
}

#[cfg(nccl_ge_2_28_7)]
#[test]
fn a_death_in_a_shrink() {
    sweep("shrink", How::Dies);
}

#[cfg(nccl_ge_2_29)]
#[test]
fn a_death_in_a_grow() {
    crate::support::newer::since(crate::grow::FIRST, 2700.0, || sweep("grow", How::Dies));
}

#[test]
fn a_stop_in_a_start() {
    sweep("init", How::Stops);
}

#[test]
fn a_stop_in_a_recovery() {
    sweep("recover", How::Stops);
}

#[cfg(nccl_ge_2_28_7)]
#[test]
fn a_stop_in_a_shrink() {
    sweep("shrink", How::Stops);
}
