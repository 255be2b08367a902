//! Starts that are asked how they stand, waited for, awaited and given up.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use gpucomm::nccl::{InitOptions, PendingCommunicator};
use gpucomm::{Clique, Communicator, Device, Error, Result, Stream, UniqueId};

use crate::split::sum;
use crate::starts::holdings;
use crate::support::block_on::block_on;
use crate::support::process::{Role, all_succeed, spawn};
use crate::support::{assert_argument, assert_names, places, quick, rank_counts, slower, still_works, watched};

const CHILD: &str = "pending::child";

#[test]
#[ignore = "the body of child processes"]
fn child() {
    if let Some(role) = Role::of_this_process("rank") {
        let comm = begin(role.rank, role.size, &role.id, 30.0).unwrap().wait().unwrap();
        works(&comm);
        comm.close_timeout(slower(10.0)).unwrap();
    }
}

fn begin(rank: usize, size: usize, id: &UniqueId, seconds: f64) -> Result<PendingCommunicator> {
    let count = Device::count()?;
    let device = Device::new(if count == 1 { 0 } else { rank % count })?;
    let options = InitOptions::new().with_timeout(slower(seconds));
    // SAFETY: all ranks of a test do the same.
    unsafe { Communicator::begin_rank(device, size, id, rank, &options) }
}

fn works(comm: &Communicator) {
    sum(comm, &Stream::new(comm.device()).unwrap()).unwrap();
}

/// Each rank of `comms`, which one thread has, on a thread of its own.
fn all_work(comms: &[Communicator]) {
    std::thread::scope(|scope| comms.iter().for_each(|comm| drop(scope.spawn(|| works(comm)))));
}

/// Whether a start ends soon, well or not.
fn comes_to_an_end(start: &PendingCommunicator) -> bool {
    let begin = Instant::now();
    while !start.is_ready() && begin.elapsed() < slower(20.0) {
        std::thread::sleep(Duration::from_millis(1));
    }
    start.is_ready()
}

/// A host function waits for nobody: the start is given up.
#[test]
fn nobody_is_waited_for_in_a_host_function() {
    watched(60.0, || {
        let stream = Stream::new(Device::new(0).unwrap()).unwrap();
        let pending = begin(0, 2, &UniqueId::new().unwrap(), 30.0).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        stream.launch_host(move || tell.send(pending.wait().map(drop)).unwrap()).unwrap();
        let refused = told.recv_timeout(slower(10.0)).expect("an answer");
        assert_names(&refused.expect_err("it waits"), &["PendingCommunicator::wait", "host function"]);
        stream.synchronize().unwrap();
    });
}

#[test]
fn one_thread_begins_all_ranks() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let id = UniqueId::new().unwrap();
            let mut starts: Vec<_> = (0..ranks - 1).map(|rank| begin(rank, ranks, &id, 30.0).unwrap()).collect();
            std::thread::sleep(Duration::from_millis(100));
            assert!(starts.iter().all(|start| !start.is_ready()), "a rank is missing");
            starts.push(begin(ranks - 1, ranks, &id, 30.0).unwrap());
            assert!(starts.iter().all(comes_to_an_end));
            let comms: Vec<_> = starts
                .into_iter()
                .rev()
                .map(|start| quick(Duration::from_millis(100), || start.wait().unwrap()))
                .collect();
            assert!(comms.iter().rev().map(Communicator::rank).eq(0..ranks));
            assert!(comms.iter().all(|comm| comm.timeout() == slower(30.0)));
            all_work(&comms);
            gpucomm::nccl::close_all_timeout(comms, slower(10.0)).into_iter().for_each(|end| end.unwrap());
        }
    });
}

#[test]
fn several_at_once_waited_for_in_any_order() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let ids: Vec<_> = (0..3).map(|_| UniqueId::new().unwrap()).collect();
            let ids = &ids;
            std::thread::scope(|scope| {
                for rank in 0..ranks {
                    scope.spawn(move || {
                        let starts: Vec<_> = ids.iter().map(|id| begin(rank, ranks, id, 30.0).unwrap()).collect();
                        let mut starts: Vec<_> = starts.into_iter().map(Some).collect();
                        let order = (0..3).map(|at| (at + rank) % 3);
                        let comms: Vec<_> = order.map(|at| (at, starts[at].take().unwrap().wait().unwrap())).collect();
                        for which in 0..3 {
                            works(&comms.iter().find(|(at, _)| *at == which).unwrap().1);
                        }
                        let comms = comms.into_iter().map(|(_, comm)| comm);
                        gpucomm::nccl::close_all_timeout(comms, slower(10.0)).into_iter().for_each(|end| end.unwrap());
                    });
                }
            });
        }
        for ranks in rank_counts(&[2, 4]) {
            let id = UniqueId::new().unwrap();
            let children = (0..ranks).map(|rank| spawn(CHILD, "rank", (rank, ranks), &id, &[]));
            all_succeed(children.collect(), slower(60.0));
        }
    });
}

#[test]
fn awaited() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3]) {
            let id = &UniqueId::new().unwrap();
            std::thread::scope(|scope| {
                for rank in 0..ranks {
                    scope.spawn(move || {
                        std::thread::sleep(Duration::from_millis(20 * rank as u64));
                        works(&block_on(begin(rank, ranks, id, 30.0).unwrap()).unwrap());
                    });
                }
            });
        }
        let id = UniqueId::new().unwrap();
        let (start, pending) = (Instant::now(), begin(0, 2, &id, 1.0).unwrap());
        let error = block_on(pending).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        assert_names(&error, &["begin_rank", "not all of the 2 ranks have come to rank 0"]);
        assert!(start.elapsed() >= slower(1.0) && start.elapsed() < slower(6.0));
    });
}

#[test]
fn a_rank_that_never_comes_is_missed_at_the_deadline() {
    watched(60.0, || {
        let id = UniqueId::new().unwrap();
        let start = Instant::now();
        let pending = begin(1, 2, &id, 2.0).unwrap();
        let pending =
            quick(Duration::from_millis(200), || pending.wait_timeout(Duration::from_millis(100)).unwrap_err());
        assert!(!pending.is_ready() && comes_to_an_end(&pending));
        assert!(start.elapsed() >= slower(2.0) && start.elapsed() < slower(7.0));
        let error = quick(Duration::from_millis(10), || pending.wait_timeout(Duration::ZERO).unwrap().unwrap_err());
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        assert_names(&error, &["begin_rank", "not all of the 2 ranks have come to rank 1"]);
        // The same, waited for.
        let error = quick(slower(2.0), || begin(0, 2, &UniqueId::new().unwrap(), 1.0).unwrap().wait().unwrap_err());
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        still_works(rank_counts(&[1, 2]).pop().unwrap());
    });
}

#[test]
fn given_up_before_and_after_the_others_come() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3]) {
            // Nobody comes to those.
            for _ in 0..5 {
                let id = UniqueId::new().unwrap();
                quick(Duration::from_millis(500), || drop(begin(0, ranks, &id, 30.0).unwrap()));
            }
            // The others come later: whether they are told then, or have a communicator that is aborted, they are not kept.
            let id = UniqueId::new().unwrap();
            drop(begin(0, ranks, &id, 30.0).unwrap());
            let others: Vec<_> = (1..ranks).map(|rank| begin(rank, ranks, &id, 30.0).unwrap()).collect();
            quick(Duration::from_secs(10), || {
                for other in others {
                    let alone = |comm: Communicator| comm.barrier(&Stream::new(comm.device()).unwrap());
                    assert_names(&other.wait().and_then(alone).unwrap_err(), &["rank 0 was given up"]);
                }
            });
            // All have come, and nobody takes them, or one does not.
            for taken in [0, 1] {
                let id = UniqueId::new().unwrap();
                let mut starts: Vec<_> = (0..ranks).map(|rank| begin(rank, ranks, &id, 30.0).unwrap()).collect();
                assert!(starts.iter().all(comes_to_an_end));
                let comm = (taken > 0).then(|| starts.remove(0).wait().unwrap());
                quick(Duration::from_secs(1), || drop(starts));
                if let Some(comm) = comm {
                    let error = comm.barrier(&Stream::new(comm.device()).unwrap()).unwrap_err();
                    assert_names(&error, &["was given up before it was used"]);
                }
            }
            let forgotten = begin(0, ranks, &UniqueId::new().unwrap(), 30.0).unwrap();
            std::mem::forget(forgotten);
            still_works(ranks);
        }
    });
}

#[test]
fn a_program_that_fails_takes_its_starts_along() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let clique = Clique::init_all(&places()[..ranks]).unwrap();
            let (begun, error) =
                (Barrier::new(ranks), Error::Unsupported { operation: "a test", needs: "nothing".into() });
            let result = quick(Duration::from_secs(5), || {
                clique.spmd(|comm| -> Result<()> {
                    if comm.rank() > 0 {
                        begun.wait();
                        return Err(error.clone());
                    }
                    let pending = begin(0, 2, &UniqueId::new()?, 30.0)?;
                    begun.wait();
                    let told = pending.wait().unwrap_err();
                    assert!(matches!(told, Error::Aborted { .. }), "{told:?}");
                    Err(told)
                })
            });
            assert!(matches!(result, Err(Error::Unsupported { .. })), "{result:?}");
        }
    });
}

#[test]
fn nonsense_is_refused_at_once() {
    watched(30.0, || {
        let id = UniqueId::new().unwrap();
        assert_argument(begin(2, 2, &id, 1.0), "begin_rank", "a rank below 2", "2");
        assert_argument(begin(0, 0, &id, 1.0), "begin_rank", "1 to", "0");
    });
}

/// The thread of a start that was given up stays inside NCCL until the other ranks have come, and goes then.
#[test]
fn starts_that_are_dropped_leave_no_threads() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let give_up = || {
                let id = UniqueId::new().unwrap();
                (0..ranks).for_each(|rank| drop(begin(rank, ranks, &id, 3600.0).unwrap()));
            };
            give_up();
            let (_, before) = holdings(|_| true);
            (0..30).for_each(|_| give_up());
            let (_, after) = holdings(|(_, threads)| threads <= before);
            assert!(after <= before, "{before} threads, then {after}");
            still_works(ranks);
        }
    });
}

/// Counts how often it was woken.
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The last waker is woken, and no other; what has been told once is not told again.
#[test]
fn polled_with_one_waker_and_then_another() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let id = UniqueId::new().unwrap();
            let mut pending = begin(0, ranks, &id, 30.0).unwrap();
            let counts = [(); 2].map(|()| Arc::new(Count(AtomicUsize::new(0))));
            for count in &counts {
                let waker = Waker::from(Arc::clone(count));
                assert!(Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)).is_pending());
            }
            let other = begin(1, ranks, &id, 30.0).unwrap().wait().unwrap();
            let start = Instant::now();
            while counts[1].0.load(Ordering::SeqCst) == 0 {
                assert!(start.elapsed() < slower(10.0), "nobody is woken");
                std::thread::yield_now();
            }
            assert_eq!(counts[0].0.load(Ordering::SeqCst), 0);
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(first) = Pin::new(&mut pending).poll(&mut context) else { panic!("it is not over") };
            let comms = [first.unwrap(), other];
            let Poll::Ready(again) = Pin::new(&mut pending).poll(&mut context) else { panic!("it waits") };
            assert_names(&again.map(drop).unwrap_err(), &["begin_rank", "was told already"]);
            assert!(pending.is_ready());
            assert_names(&pending.wait().map(drop).unwrap_err(), &["begin_rank", "was told already"]);
            all_work(&comms);
            gpucomm::nccl::close_all_timeout(comms, slower(10.0)).into_iter().for_each(|end| end.unwrap());
        }
    });
}
