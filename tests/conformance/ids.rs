//! Unique ids that are used as they must not be: whoever has one of those is told, by the deadline, and the process goes on.

use std::time::{Duration, Instant};

use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, Error, Result, Stream, UniqueId};

use crate::split::sum;
use crate::support::process::{Role, spawn};
use crate::support::{assert_names, places, rank_counts, slower, still_works, watched};

const CHILD: &str = "ids::child";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    if Role::of_this_process("makes an id").is_some() {
        let hex: Vec<_> = UniqueId::new().unwrap().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        println!("id: {}", hex.concat());
    }
}

fn limit() -> Duration {
    slower(0.7)
}

/// A rank on the device of its number.
fn init(id: &UniqueId, rank: usize, timeout: Duration) -> Result<Communicator> {
    let options = InitOptions::new().with_timeout(timeout);
    // SAFETY: ranks that come together do the same.
    unsafe { Communicator::init_rank_with(places()[rank], 2, id, rank, &options) }
}

/// Two ranks that start at once, each with its id.
fn start(ids: [UniqueId; 2], timeout: Duration) -> Vec<Result<Communicator>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            ids.iter().enumerate().map(|(rank, id)| scope.spawn(move || init(id, rank, timeout))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Two ranks that start, which goes well.
fn pair(id: UniqueId) -> Vec<Communicator> {
    start([id; 2], slower(30.0)).into_iter().map(Result::unwrap).collect()
}

fn all_work(ranks: &[Communicator]) {
    std::thread::scope(|scope| {
        for comm in ranks {
            scope.spawn(|| sum(comm, &Stream::new(comm.device()).unwrap()).unwrap());
        }
    });
}

/// Who has come in vain is told so, in time.
fn all_are_told(what: &str, begin: Instant, results: Vec<Result<Communicator>>) {
    let took = begin.elapsed();
    for result in results {
        let error = result.map(drop).expect_err(what);
        println!("{what}: {took:?}: {error}");
        assert!(
            matches!(
                error,
                Error::Timeout { .. } | Error::Nccl { .. } | Error::InvalidArgument { .. } | Error::InvalidUsage { .. }
            ),
            "{what}: {error:?}"
        );
        let text = error.to_string();
        assert!(text.contains("init_rank") || text.contains("ncclCommInitRank"), "{what}: {text}");
    }
    assert!(took < limit() + slower(4.0), "{what}: {took:?}");
    still_works(2);
}

/// An id serves for one communicator, and for no other after that one.
#[test]
fn one_that_was_used() {
    watched(60.0, || {
        for _ in rank_counts(&[2]) {
            let id = UniqueId::new().unwrap();
            let first = pair(id);
            all_work(&first);
            gpucomm::nccl::close_all_timeout(first, slower(10.0)).into_iter().for_each(|end| end.unwrap());
            let begin = Instant::now();
            all_are_told("ended", begin, start([id; 2], limit()));
        }
    });
}

/// The process that has made an id has ended: there is nobody at whom ranks could meet.
#[test]
fn one_of_a_process_that_has_ended() {
    watched(60.0, || {
        for _ in rank_counts(&[2]) {
            let end = spawn(CHILD, "makes an id", (0, 1), &UniqueId::new().unwrap(), &[]).finish(slower(30.0));
            end.assert_success();
            let hex = end.text.lines().find_map(|line| Some(line.split_once("id: ")?.1)).expect("an id").to_owned();
            let bytes: Vec<_> = (0..128).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
            let id = UniqueId::from_bytes(bytes.try_into().unwrap());
            let begin = Instant::now();
            all_are_told("of another process", begin, start([id; 2], limit()));
        }
    });
}

/// Two ranks start two communicators, each in another order, and wait for each other. Afterwards they may start in one.
#[test]
fn opposite_orders() {
    watched(60.0, || {
        for _ in rank_counts(&[2]) {
            let ids = [(); 2].map(|()| UniqueId::new().unwrap());
            let begin = Instant::now();
            let told = start(ids, limit());
            for (rank, result) in told.iter().enumerate() {
                let error = result.as_ref().map(drop).expect_err("nobody else comes");
                assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                assert_names(error, &[&format!("not all of the 2 ranks have come to rank {rank}")]);
            }
            all_are_told("opposite orders", begin, told);
            let together = pair(UniqueId::new().unwrap());
            all_work(&together);
        }
    });
}
