//! Communicators that are given away, and come back.

use gpucomm::nccl::{CommState, Config, InitOptions};
use gpucomm::{Clique, Communicator, Error, InPlace, ReduceOp, Result, Stream, sys};

use crate::support::{places, quick, rank_counts, slower, still_works, watched};

fn ranks_with(ranks: usize, config: Config) -> Vec<Communicator> {
    let options = InitOptions::new().with_config(config);
    Clique::init_all_with(&places()[..ranks], &options).unwrap().into_ranks()
}

fn ranks_of(ranks: usize) -> Vec<Communicator> {
    ranks_with(ranks, Config::new())
}

/// What `body` gives for each rank, all at the same time.
fn on_all<R: Send>(comms: Vec<Communicator>, body: impl Fn(Communicator) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(move || body(comm))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A handle on its way through a thread.
struct Raw(sys::ncclComm_t);

// SAFETY: NCCL takes communicators from any thread.
unsafe impl Send for Raw {}

fn given(comms: Vec<Communicator>) -> Vec<sys::ncclComm_t> {
    on_all(comms, |comm| Raw(comm.into_raw().unwrap())).into_iter().map(|raw| raw.0).collect()
}

fn taken(raw: &[sys::ncclComm_t]) -> Vec<Communicator> {
    // SAFETY: they were given away, with nothing registered, and these are all that the process has; nobody else uses them.
    unsafe { Communicator::from_raw_all(raw) }.unwrap()
}

fn sum(comm: &Communicator) -> Result<Vec<i64>> {
    let stream = Stream::new(comm.device())?;
    let mut x = comm.alloc_local::<i64>(&stream, 1001)?;
    x.fill(&stream, comm.rank() as i64 + 1)?;
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    x.to_vec(&stream)
}

#[test]
fn they_work_there_and_here() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            // A name, which NCCL goes on pointing to.
            let config = Config::new().with_name("given away").unwrap();
            let comms = ranks_with(ranks, config);
            let expected = vec![(1..=ranks as i64).sum::<i64>(); 1001];
            let aborter = comms[0].aborter();
            let (results, comms): (Vec<_>, Vec<_>) =
                on_all(comms, |comm| (sum(&comm).unwrap(), comm)).into_iter().unzip();
            assert!(results.iter().all(|result| *result == expected));
            let raw = given(comms);
            // Nobody here has it any more.
            assert!(matches!(aborter.state(), None | Some(CommState::Closed)), "{:?}", aborter.state());
            let _ = aborter.abort("without effect");
            for (rank, &raw) in raw.iter().enumerate() {
                let (mut number, mut count) = (-1, -1);
                // SAFETY: they live, and there are places for the answers.
                let codes = unsafe { (sys::ncclCommUserRank(raw, &mut number), sys::ncclCommCount(raw, &mut count)) };
                assert_eq!(codes, (sys::ncclResult_t::ncclSuccess, sys::ncclResult_t::ncclSuccess));
                assert_eq!((number, count), (rank as i32, ranks as i32));
            }
            let comms = taken(&raw);
            assert!(comms.iter().all(|comm| comm.name() == "raw"), "{comms:?}");
            let results = on_all(comms, |comm| (sum(&comm).unwrap(), comm.close_timeout(slower(10.0))));
            for (result, closed) in results {
                assert_eq!(result, expected);
                closed.unwrap();
            }
            still_works(ranks);
        }
    });
}

/// What was enqueued is done before, and its results are right.
#[test]
fn their_work_is_waited_for() {
    watched(90.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let results = on_all(ranks_of(ranks), |comm| {
                let stream = Stream::new(comm.device()).unwrap();
                let mut x = gpucomm::DeviceBuffer::from_slice(&stream, &[comm.rank() as i32; 7]).unwrap();
                let late = slower(if comm.rank() == 0 { 0.05 } else { 0.0 });
                stream.launch_host(move || std::thread::sleep(late)).unwrap();
                comm.all_reduce(InPlace(&mut x), ReduceOp::Max, &stream).unwrap();
                let raw = Raw(comm.into_raw().unwrap());
                assert!(stream.query().unwrap());
                (raw, x.to_vec(&stream).unwrap())
            });
            assert!(results.iter().all(|(_, x)| *x == [ranks as i32 - 1; 7]));
            let raw: Vec<_> = results.into_iter().map(|(raw, _)| raw.0).collect();
            drop(taken(&raw));
            still_works(ranks);
        }
    });
}

#[track_caller]
fn refused(result: Result<sys::ncclComm_t>, words: &str) {
    let error = result.map(drop).expect_err("given away");
    assert!(matches!(error, Error::InvalidUsage { operation: "Communicator::into_raw", .. }), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn what_is_not_given_away() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2]) {
            on_all(ranks_with(ranks, Config::new().with_split_share(true)), |comm| {
                refused(comm.into_raw(), "shares its resources");
            });
            let register = |comm: &Communicator| {
                let stream = Stream::new(comm.device()).unwrap();
                let x = gpucomm::nccl::alloc::<f32>(&stream, 1 << 20).unwrap();
                comm.register(&x).unwrap().without_effect().is_none()
            };
            // What was registered, and dropped, NCCL has still.
            on_all(ranks_of(ranks), |comm| match register(&comm) {
                true => refused(comm.into_raw(), "take it away by reclaim"),
                false => drop(comm),
            });
            let raw = given(on_all(ranks_of(ranks), |comm| {
                register(&comm);
                comm.reclaim().unwrap();
                comm
            }));
            drop(taken(&raw));
            // What has ended is not there to be given.
            for comm in ranks_of(ranks) {
                let _ = comm.aborter().abort("gone");
                let error = comm.into_raw().map(drop).expect_err("given away");
                assert!(matches!(error, Error::Aborted { .. }), "{error:?}");
            }
            still_works(ranks);
        }
    });
}

/// Work that is not done in time is an error, and the communicator ends.
#[test]
fn what_hangs_is_not_given_away() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let mut comms = ranks_of(ranks);
            // Connected before, so that the call of one rank returns.
            comms = on_all(comms, |comm| {
                sum(&comm).unwrap();
                comm
            });
            let (last, first) = (comms.pop().unwrap(), comms.pop().unwrap());
            let stream = Stream::new(first.device()).unwrap();
            let mut x = first.alloc_local::<i64>(&stream, 1001).unwrap();
            first.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
            drop(x);
            first.set_timeout(slower(0.5));
            let error = quick(slower(30.0), || first.into_raw().map(drop)).expect_err("given away");
            assert!(matches!(error, Error::Timeout { operation: "Communicator::into_raw", .. }), "{error:?}");
            assert!(!last.is_active());
            drop(last);
            still_works(ranks);
        }
    });
}
