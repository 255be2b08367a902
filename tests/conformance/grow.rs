//! Communicators to which ranks are added: by one thread, by threads, and by processes.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gpucomm::exchange::{Directory, Exchange, Store};
use gpucomm::nccl::{InitOptions, Invitation};
use gpucomm::{
    Backend, Clique, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, Version,
};

use crate::split::{gathered, sum};
use crate::support::hooked_store::{HookedStore, Hooks};
use crate::support::newer::since;
use crate::support::no_threads::forbid_threads;
use crate::support::process::{Child, Role, all_succeed, spawn};
use crate::support::random::rng;
use crate::support::{assert_argument, assert_names, places, rank_counts, skip, slower, still_works, watched};

/// The first version that can.
pub const FIRST: Version = Version::new(2, 29, 2);

/// All ranks of a communicator do this.
pub fn use_it(comm: &Communicator) -> Result<()> {
    let stream = &Stream::new(comm.device())?;
    sum(comm, stream)?;
    assert_eq!(gathered(comm, stream, comm.rank() * 7)?, (0..comm.size()).map(|rank| rank * 7).collect::<Vec<_>>());
    let mut window = comm.alloc::<f32>(stream, 1021)?;
    window.fill(stream, 0.5)?;
    comm.all_reduce(InPlace(&mut window), ReduceOp::Sum, stream)?;
    assert_eq!(window.to_vec(stream)?, vec![0.5 * comm.size() as f32; 1021]);
    Ok(())
}

pub fn clique(devices: &[Device]) -> Clique {
    Clique::init_all(devices).unwrap()
}

#[test]
fn one_thread_grows_a_clique() {
    since(FIRST, 120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let devices = Device::all().unwrap();
            for before in 1..ranks {
                let old = clique(&devices[..before]);
                old.spmd(use_it).unwrap();
                let grown = old.grow(&devices[before..ranks]).unwrap();
                assert_eq!(grown.size(), ranks);
                for (rank, comm) in grown.ranks().iter().enumerate() {
                    assert_eq!(
                        (comm.rank(), comm.device(), comm.timeout()),
                        (rank, devices[rank], old.rank(0).timeout())
                    );
                }
                grown.spmd(use_it).unwrap();
                // What it comes from goes on, and may grow again.
                old.spmd(use_it).unwrap();
                let again = old.grow(&devices[before..=before]).unwrap();
                again.spmd(use_it).unwrap();
                old.close_timeout(slower(10.0)).unwrap();
                grown.spmd(use_it).unwrap();
                let part = grown.split(|rank| Some((rank % 2, 0))).unwrap();
                part.values().for_each(|part| part.spmd(use_it).map(drop).unwrap());
                let rest = grown.shrink(&[0]).unwrap();
                drop((grown, again));
                rest.spmd(use_it).unwrap();
                rest.close_timeout(slower(10.0)).unwrap();
            }
            still_works(ranks);
        }
    });
}

/// Step by step, from one rank to all.
#[test]
fn what_has_grown_grows() {
    since(FIRST, 90.0, || {
        for ranks in rank_counts(&[3, 4]) {
            let devices = Device::all().unwrap();
            let mut clique = clique(&devices[..1]);
            for device in &devices[1..ranks] {
                let grown = clique.grow(std::slice::from_ref(device)).unwrap();
                std::mem::replace(&mut clique, grown).close_timeout(slower(10.0)).unwrap();
                clique.spmd(use_it).unwrap();
            }
            assert_eq!(clique.size(), ranks);
            clique.close_timeout(slower(10.0)).unwrap();
        }
    });
}

/// Any rank invites; the others do not wait for that to happen.
#[test]
fn threads_grow_and_accept() {
    since(FIRST, 120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let mut rng = rng(&format!("growing {ranks}"));
            let devices = &places()[..ranks];
            for before in 1..ranks {
                for _ in 0..4 {
                    let (host, order) = (rng.usize(..before), rng.bool());
                    let old = clique(&devices[..before]);
                    let invitations = Mutex::new(Vec::new());
                    std::thread::scope(|scope| {
                        for comm in old.ranks() {
                            let invitations = &invitations;
                            scope.spawn(move || {
                                use_it(comm).unwrap();
                                if comm.rank() == host {
                                    *invitations.lock().unwrap() = comm.invite(ranks - before).unwrap();
                                }
                                let grown = comm.grow(ranks - before).unwrap();
                                assert_eq!((grown.rank(), grown.size()), (comm.rank(), ranks));
                                use_it(&grown).unwrap();
                                use_it(comm).unwrap();
                            });
                        }
                        for _ in before..ranks {
                            let invitations = &invitations;
                            scope.spawn(move || {
                                let invitation = loop {
                                    let mut all = invitations.lock().unwrap();
                                    let one = if order { all.pop() } else { (!all.is_empty()).then(|| all.remove(0)) };
                                    if let Some(one) = one {
                                        break one;
                                    }
                                    drop(all);
                                    std::thread::sleep(Duration::from_millis(1));
                                };
                                let (rank, size) = (invitation.rank(), invitation.size());
                                let comm = invitation.accept(devices[rank]).unwrap();
                                assert_eq!((comm.rank(), comm.size(), size), (rank, ranks, ranks));
                                use_it(&comm).unwrap();
                            });
                        }
                    });
                }
            }
            still_works(ranks);
        }
    });
}

/// Ranks that were added compare as well.
#[test]
fn new_ranks_that_disagree_are_told() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let devices = &places()[..ranks];
            let grown = clique(&devices[..1]).grow(&devices[1..]).unwrap();
            let error = grown
                .spmd(|comm| {
                    let stream = &Stream::new(comm.device())?;
                    let mut x = DeviceBuffer::from_slice(stream, &vec![1f32; 10 + comm.rank() / (ranks - 1)])?;
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
                })
                .unwrap_err();
            assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
            drop(grown);
            still_works(ranks);
        }
    });
}

#[test]
fn what_is_refused() {
    since(FIRST, 90.0, || {
        for ranks in rank_counts(&[3]) {
            let devices = &places()[..ranks];
            let old = clique(&devices[..2]);
            assert_argument(old.grow(&[]), "Clique::grow", "at least one device", "none");
            assert_argument(old.grow(&[devices[2], devices[2]]), "Clique::grow", "each device once", "twice");
            assert_argument(old.grow(&devices[1..]), "Clique::grow", "other devices", "which rank 1 has");
            let comm = old.rank(0);
            assert_argument(comm.invite(0), "invite", "1 to", "0");
            assert_argument(comm.grow(0), "grow", "1 to", "0");
            let mut invitations = comm.invite(1).unwrap();
            let open = |error: Error| {
                assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                assert_names(&error, &["rank 0 has invited 1 more"]);
            };
            open(comm.invite(1).map(drop).unwrap_err());
            open(old.rank(1).invite(1).map(drop).unwrap_err());
            open(comm.split(Some(0), 0).map(drop).unwrap_err());
            open(comm.shrink(&[1]).map(drop).unwrap_err());
            assert_argument(comm.grow(2), "grow", "1, as were invited", "2");
            let invitation = invitations.pop().unwrap();
            assert_names(&invitation.into_bytes().unwrap_err(), &["of a clique"]);
            let stranger = Invitation::from_bytes([7; Invitation::BYTES]);
            assert_names(&stranger.accept(devices[2]).unwrap_err(), &["Communicator::join"]);
            // Operations go on meanwhile.
            old.spmd(use_it).unwrap();
            old.close_timeout(slower(10.0)).unwrap();
            still_works(ranks);
        }
    });
}

/// An invitation that is dropped stays open. The communicator goes on, and grows after a recovery.
#[test]
fn a_dropped_invitation() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[3]) {
            let devices = &places()[..ranks];
            let old = clique(&devices[..2]);
            drop(old.rank(1).invite(1).unwrap());
            let refused = old.spmd(|comm| {
                for refused in [
                    comm.split(Some(0), 0).map(drop),
                    comm.shrink(&[1 - comm.rank()]).map(drop),
                    comm.invite(1).map(drop),
                ] {
                    let error = refused.expect_err("an invitation is open");
                    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
                    assert_names(&error, &["rank 1 has invited 1 more", "grow", "to recover from that"]);
                }
                use_it(comm)
            });
            refused.unwrap();
            let (again, survivors) = old.recover(&[]).unwrap();
            assert_eq!(survivors, [0, 1]);
            let grown = again.grow(&devices[2..]).unwrap();
            grown.spmd(use_it).unwrap();
            again.spmd(use_it).unwrap();
            still_works(ranks);
        }
    });
}

/// One invites one rank, another grows by two; or nobody has invited.
#[test]
fn others_than_were_invited() {
    since(FIRST, 60.0, || {
        for ranks in rank_counts(&[2]) {
            for invites in [true, false] {
                let old = clique(&places()[..ranks]);
                let errors = std::thread::scope(|scope| {
                    let threads: Vec<_> = old
                        .ranks()
                        .iter()
                        .map(|comm| {
                            scope.spawn(move || {
                                if invites && comm.rank() == 0 {
                                    drop(comm.invite(1).unwrap());
                                }
                                comm.grow(if invites { comm.rank() + 1 } else { 1 }).map(drop).unwrap_err()
                            })
                        })
                        .collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
                });
                for error in &errors {
                    let told = matches!(
                        error,
                        Error::Disagreement { .. } | Error::InvalidArgument { .. } | Error::Aborted { .. }
                    );
                    assert!(told, "{error:?}");
                }
                drop(old);
                still_works(ranks);
            }
        }
    });
}

const CHILD: &str = "grow::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    gpucomm::set_default_timeout(slower(20.0));
    let roles: [(&str, fn(Role) -> Result<()>); 12] = [
        ("grows", grows),
        ("grows checked", grows_checked),
        ("dies", dies),
        ("aborted", aborted),
        ("first refused", |role| refused(role, false)),
        ("last refused", |role| refused(role, true)),
        ("swapped", swapped),
        ("joins", joins),
        ("no threads, old", |role| no_threads(role, 1)),
        ("no threads, new", |role| no_threads(role, 2)),
        ("leaves late", leaves_late),
        ("older", older),
    ];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role).unwrap();
            println!("finished");
        }
    }
}

const DIRECTORY: &str = "GPUCOMM_TEST_DIRECTORY";
const BEFORE: &str = "GPUCOMM_TEST_BEFORE";

fn start(role: &str, ranks: usize, before: usize) -> Vec<Child> {
    start_with(role, ranks, before, "")
}

fn start_with(role: &str, ranks: usize, before: usize, faults: &str) -> Vec<Child> {
    let directory = std::env::temp_dir().join(format!("gpucomm-grow-{}-{ranks}-{before}-{role}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let (directory, before) = (directory.to_str().unwrap().to_owned(), before.to_string());
    let mut env = vec![(DIRECTORY, &*directory), (BEFORE, &*before)];
    if !faults.is_empty() {
        env.push(("GPUCOMM_EMULATOR_FAULTS", faults));
    }
    if gpucomm::backend() == Backend::Emulator && gpucomm::nccl::version().unwrap() < FIRST {
        env.push(("GPUCOMM_EMULATOR_NCCL", "2.32.3"));
    }
    let id = UniqueId::new().unwrap();
    (0..ranks).map(|rank| spawn(CHILD, role, (rank, ranks), &id, &env)).collect()
}

fn exchange(role: Role) -> Result<Exchange> {
    let directory = std::env::var(DIRECTORY).expect(DIRECTORY);
    let store = Directory::open(std::path::Path::new(&directory), role.rank, role.size)?;
    Ok(Exchange::join_timeout(Arc::new(store), slower(40.0))?.with_timeout(slower(10.0)))
}

/// The communicator of those that are there from the start, if this is one of them.
fn first(role: Role) -> Result<Option<Communicator>> {
    let before: usize = std::env::var(BEFORE).expect(BEFORE).parse().expect(BEFORE);
    if role.rank >= before {
        return Ok(None);
    }
    // SAFETY: all processes of one test run the same role.
    unsafe { Communicator::init_rank(role.device()?, before, &role.id, role.rank) }.map(Some)
}

fn grows(role: Role) -> Result<()> {
    let exchange = exchange(role)?;
    let old = first(role)?;
    let comm = match &old {
        Some(old) => {
            use_it(old)?;
            old.grow_over(&exchange)?
        }
        // SAFETY: all processes of one test run the same role.
        None => unsafe { Communicator::join_over(role.device()?, &exchange, &InitOptions::default()) }?,
    };
    assert_eq!((comm.rank(), comm.size()), (role.rank, role.size));
    use_it(&comm)?;
    if let Some(old) = old {
        use_it(&old)?;
        old.close_timeout(slower(20.0))?;
    }
    use_it(&comm)?;
    comm.close_timeout(slower(20.0))
}

#[test]
fn processes_grow() {
    watched(180.0, || {
        if gpucomm::backend() != Backend::Emulator && gpucomm::nccl::version().unwrap() < FIRST {
            return skip("NCCL is older than 2.29.2");
        }
        for ranks in rank_counts(&[2, 3, 4]) {
            for before in [1, ranks - 1] {
                all_succeed(start("grows", ranks, before), slower(60.0));
            }
        }
    });
}

/// What comes of a checked communicator is checked, and the ranks that join it, too.
fn grows_checked(role: Role) -> Result<()> {
    let exchange = exchange(role)?;
    let before: usize = std::env::var(BEFORE).expect(BEFORE).parse().expect(BEFORE);
    let comm = if role.rank < before {
        let first: Vec<_> = (0..before).collect();
        let options = InitOptions::new().with_checked(true);
        // SAFETY: all processes of one test run the same role.
        let old = unsafe { Communicator::init_rank_over(role.device()?, &exchange.subset(&first)?, &options) }?;
        let grown = old.grow_over(&exchange)?;
        old.close_timeout(slower(20.0))?;
        grown
    } else {
        // SAFETY: as above.
        unsafe { Communicator::join_over(role.device()?, &exchange, &InitOptions::default()) }?
    };
    assert!(comm.is_checked());
    use_it(&comm)?;
    let stream = &Stream::new(comm.device())?;
    let mut x = DeviceBuffer::<f32>::zeroed(stream, 4 + role.rank / (role.size - 1))?;
    let error = comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream).expect_err("the last rank differs");
    assert!(matches!(error, Error::Disagreement { .. }), "{error}");
    Ok(())
}

#[test]
fn processes_of_a_checked_communicator_grow() {
    watched(120.0, || {
        if gpucomm::backend() != Backend::Emulator && gpucomm::nccl::version().unwrap() < FIRST {
            return skip("NCCL is older than 2.29.2");
        }
        for ranks in rank_counts(&[2, 4]) {
            all_succeed(start("grows checked", ranks, ranks / 2), slower(60.0));
        }
    });
}

/// How long calls may take: far longer than it takes to be told.
const PATIENT: f64 = 60.0;

/// What comes of a grow of all ranks, which fails.
fn fails(role: Role, exchange: &Exchange, old: Option<&Communicator>) -> Result<Error> {
    let (begin, timeout) = (Instant::now(), slower(PATIENT));
    let exchange = &exchange.with_timeout(timeout);
    let error = match old {
        Some(old) => {
            old.set_timeout(timeout);
            old.grow_over(exchange).map(drop).unwrap_err()
        }
        None => {
            let options = InitOptions::new().with_timeout(timeout);
            // SAFETY: all processes of one test run the same role.
            unsafe { Communicator::join_over(role.device()?, exchange, &options) }.map(drop).unwrap_err()
        }
    };
    assert!(begin.elapsed() < slower(15.0), "{:?}: {error}", begin.elapsed());
    Ok(error)
}

/// A store of a rank whose process ends once it has its invitation, if it `dies`.
struct Dying {
    store: Directory,
    rank: usize,
    dies: bool,
    /// The key of the broadcast that follows this rank's last value.
    next: Mutex<String>,
}

impl Hooks for Dying {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn around<R>(
        &self,
        method: &'static str,
        keys: &[&str],
        _within: Duration,
        call: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let result = call();
        let mut next = self.next.lock().unwrap();
        if method == "set"
            && let Some((path, rank)) = keys[0].rsplit_once('/')
            && rank.parse() == Ok(self.rank)
            && let Some((path, round)) = path.rsplit_once('/')
            && let Ok(round) = round.parse::<u64>()
        {
            *next = format!("{path}/{}/0", round + 1);
        }
        // The votes and values of all ranks come first: those rounds have a value of this rank.
        if self.dies && method == "get" && keys == [next.as_str()] {
            std::process::exit(0);
        }
        result
    }
}

/// The last rank has its invitation, and dies. The others do not wait for their timeout.
fn dies(role: Role) -> Result<()> {
    let directory = std::env::var(DIRECTORY).expect(DIRECTORY);
    let store = Directory::open(std::path::Path::new(&directory), role.rank, role.size)?;
    let dies = role.rank + 1 == role.size;
    let store = HookedStore(Dying { store, rank: role.rank, dies, next: Mutex::default() });
    let exchange = Exchange::join_timeout(Arc::new(store), slower(40.0))?.with_timeout(slower(10.0));
    let old = first(role)?;
    let error = fails(role, &exchange, old.as_ref())?;
    assert!(matches!(error, Error::Departed { .. } | Error::Aborted { .. }), "{error:?}");
    assert_names(&error, &[&format!("rank {} has died", role.size - 1)]);
    Ok(())
}

/// A rank that waits for the others to come is aborted by another thread. It ends at once, and those that come later learn
/// why.
fn aborted(role: Role) -> Result<()> {
    let exchange = exchange(role)?;
    let old = first(role)?;
    let all: Vec<_> = (0..role.size).collect();
    // The rounds of the exchange are those of the grow.
    let ended = exchange.subset(&all)?;
    let last = role.rank + 1 == role.size;
    if last {
        ended.barrier()?;
    }
    let error = thread::scope(|scope| {
        if let (0, Some(old)) = (role.rank, &old) {
            let aborter = old.aborter();
            scope.spawn(move || {
                // It may come before the call, or while that waits.
                thread::sleep(Duration::from_millis(200));
                aborter.abort("the test ends it")
            });
        }
        fails(role, &exchange, old.as_ref())
    })?;
    match (role.rank, &error) {
        (0, Error::Aborted { .. }) => {}
        (_, Error::Exchange { .. }) => assert_names(&error, &["rank 0", "it cannot go on", "the test ends it"]),
        other => panic!("{other:?}"),
    }
    if last { Ok(()) } else { ended.barrier() }
}

#[test]
fn an_abort_ends_the_wait_for_those_that_join() {
    watched(120.0, || {
        if gpucomm::backend() != Backend::Emulator && gpucomm::nccl::version().unwrap() < FIRST {
            return skip("NCCL is older than 2.29.2");
        }
        for ranks in rank_counts(&[2, 3]) {
            all_succeed(start("aborted", ranks, 1), slower(60.0));
        }
    });
}

/// One of the ranks that there are cannot grow, the first or the last: all are told at once.
fn refused(role: Role, by_last: bool) -> Result<()> {
    let exchange = exchange(role)?;
    let old = first(role)?;
    let before: usize = std::env::var(BEFORE).expect(BEFORE).parse().expect(BEFORE);
    let refused = if by_last { before - 1 } else { 0 };
    if let Some(old) = old.as_ref().filter(|_| role.rank == refused) {
        let _ = old.aborter().abort("it has failed");
    }
    exchange.barrier()?;
    match fails(role, &exchange, old.as_ref())? {
        Error::Aborted { .. } => assert_eq!(role.rank, refused),
        error @ Error::Exchange { .. } => {
            assert_names(&error, &[&format!("rank {refused}"), "it cannot go on", "it has failed"]);
        }
        other => panic!("{other:?}"),
    }
    exchange.barrier()
}

#[test]
fn all_are_told_that_one_cannot_grow() {
    watched(180.0, || {
        if gpucomm::backend() != Backend::Emulator && gpucomm::nccl::version().unwrap() < FIRST {
            return skip("NCCL is older than 2.29.2");
        }
        for (ranks, before) in [(2, 1), (3, 2), (4, 2)] {
            if rank_counts(&[ranks]).is_empty() {
                continue;
            }
            for role in ["first refused", "last refused"] {
                all_succeed(start(role, ranks, before), slower(60.0));
            }
        }
    });
}

/// The first two ranks have each other's numbers in the exchange.
fn swapped(role: Role) -> Result<()> {
    let rank = if role.rank < 2 { 1 - role.rank } else { role.rank };
    let exchange = exchange(Role { rank, ..role })?;
    let old = first(role)?;
    match fails(role, &exchange, old.as_ref())? {
        Error::InvalidArgument { what: "rank in the exchange", .. } => assert!(role.rank < 2),
        error @ Error::Exchange { .. } => assert_names(&error, &["it cannot go on", "rank in the exchange"]),
        other => panic!("{other:?}"),
    }
    exchange.barrier()
}

/// Rank 1, which is there, comes as a new one.
fn joins(role: Role) -> Result<()> {
    let exchange = exchange(role)?;
    let old = first(role)?;
    let error = fails(role, &exchange, old.as_ref().filter(|_| role.rank != 1))?;
    assert!(matches!(error, Error::Disagreement { rank: 1, peer: 0, .. }), "{error:?}");
    assert_names(&error, &["expected grow_over of a communicator of 2 ranks, got join_over"]);
    exchange.barrier()
}

/// A rank can start no threads: one that is there, or a new one.
fn no_threads(role: Role, without: usize) -> Result<()> {
    let exchange = exchange(role)?;
    let old = first(role)?;
    // The kernel may not let it.
    let forbidden = role.rank != without || forbid_threads();
    if exchange.all_gather(&[u8::from(forbidden)])?.contains(&vec![0]) {
        skip("this kernel does not let a process forbid its own threads");
        return Ok(());
    }
    let error = fails(role, &exchange, old.as_ref())?;
    match &error {
        Error::InvalidUsage { .. } => assert_eq!(role.rank, without),
        Error::Exchange { .. } => assert_names(&error, &[&format!("rank {without}"), "it cannot go on"]),
        other => panic!("{other:?}"),
    }
    assert_names(&error, &["a thread cannot be started"]);
    exchange.barrier()
}

#[test]
fn all_are_told_who_does_not_fit() {
    watched(180.0, || {
        if gpucomm::backend() != Backend::Emulator && gpucomm::nccl::version().unwrap() < FIRST {
            return skip("NCCL is older than 2.29.2");
        }
        for ranks in rank_counts(&[3]) {
            for role in ["swapped", "joins", "no threads, old", "no threads, new"] {
                all_succeed(start(role, ranks, 2), slower(60.0));
            }
        }
    });
}

/// One rank leaves NCCL later than the others have grown, and left the exchange: which is no death.
fn leaves_late(role: Role) -> Result<()> {
    let exchange = exchange(role)?;
    let comm = match &first(role)? {
        Some(old) => old.grow_over(&exchange),
        // SAFETY: all processes of one test run the same role.
        None => unsafe { Communicator::join_over(role.device()?, &exchange, &InitOptions::default()) },
    };
    drop(exchange);
    use_it(&comm?)
}

#[test]
fn who_has_grown_may_leave_the_exchange() {
    watched(120.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("starts are slowed down by the emulator only");
        }
        for ranks in rank_counts(&[2]) {
            for late in ["rank0@2", "rank1@1"] {
                let faults = format!("late_start={late}:{:?}", slower(3.0));
                all_succeed(start_with("leaves late", ranks, 1, &faults), slower(60.0));
            }
        }
    });
}

#[test]
fn a_process_that_dies_before_it_comes() {
    watched(180.0, || {
        if gpucomm::backend() != Backend::Emulator && gpucomm::nccl::version().unwrap() < FIRST {
            return skip("NCCL is older than 2.29.2");
        }
        for ranks in rank_counts(&[2, 4]) {
            for before in [1, ranks / 2] {
                all_succeed(start("dies", ranks, before), slower(60.0));
            }
        }
    });
}

fn older(_: Role) -> Result<()> {
    let devices = Device::all()?;
    let old = clique(&devices[..1]);
    for error in
        [old.grow(&devices[1..]).unwrap_err(), old.rank(0).invite(1).unwrap_err(), old.rank(0).grow(1).unwrap_err()]
    {
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert_names(&error, &["NCCL 2.29.2"]);
    }
    old.spmd(use_it).map(drop)
}

#[test]
fn an_older_nccl_is_named() {
    watched(60.0, || {
        if gpucomm::backend() != Backend::Emulator {
            return skip("the emulator stands for an older one");
        }
        let env = &[("GPUCOMM_EMULATOR_NCCL", "2.28.9")];
        spawn(CHILD, "older", (0, 1), &UniqueId::new().unwrap(), env).finish(slower(40.0)).assert_success();
    });
}
