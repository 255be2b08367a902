//! Starts by several ids: ranks as threads and as processes, which all pass the same.

use gpucomm::nccl::InitOptions;
use gpucomm::{Backend, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId};

use crate::support::process::{Role, all_succeed, spawn};
use crate::support::{assert_argument, assert_names, quick, rank_counts, skip, slower, watched};

const CHILD: &str = "scalable::child";
/// The ids of a child, in hex.
const IDS: &str = "GPUCOMM_TEST_IDS";

#[test]
#[ignore = "the body of child processes"]
fn child() {
    let roles: [(&str, fn(Role)); 3] = [("rank", rank), ("others", others), ("variable", variable)];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role);
            println!("finished");
        }
    }
}

fn options(seconds: f64) -> InitOptions {
    InitOptions::new().with_timeout(slower(seconds))
}

fn join(size: usize, ids: &[UniqueId], rank: usize, seconds: f64) -> Result<Communicator> {
    let count = Device::count()?;
    let device = Device::new(if count == 1 { 0 } else { rank % count })?;
    // SAFETY: all ranks of a test do the same.
    unsafe { Communicator::init_rank_scalable(device, size, ids, rank, &options(seconds)) }
}

/// A sum that says who is there.
fn adds_up(comm: &Communicator) {
    let stream = Stream::new(comm.device()).unwrap();
    let mut sum = DeviceBuffer::from_slice(&stream, &[1u64 << comm.rank(); 777]).unwrap();
    comm.all_reduce(InPlace(&mut sum), ReduceOp::Sum, &stream).unwrap();
    assert_eq!(sum.to_vec(&stream).unwrap(), [(1u64 << comm.size()) - 1; 777]);
}

fn new_ids(count: usize) -> Vec<UniqueId> {
    (0..count).map(|_| UniqueId::new().unwrap()).collect()
}

#[test]
fn threads_meet_by_all_ids() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            for count in 1..=ranks {
                let ids = &new_ids(count);
                std::thread::scope(|scope| {
                    for rank in 0..ranks {
                        scope.spawn(move || adds_up(&join(ranks, ids, rank, 30.0).unwrap()));
                    }
                });
            }
        }
    });
}

fn of_environment() -> Vec<UniqueId> {
    let hex = std::env::var(IDS).expect(IDS);
    let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex");
    (0..hex.len() / 256).map(|id| UniqueId::from_bytes(std::array::from_fn(|at| byte(128 * id + at)))).collect()
}

fn in_hex(ids: &[UniqueId]) -> String {
    ids.iter().flat_map(|id| id.as_bytes()).map(|byte| format!("{byte:02x}")).collect()
}

fn rank(role: Role) {
    adds_up(&join(role.size, &of_environment(), role.rank, 30.0).unwrap());
}

#[test]
fn processes_meet_by_all_ids() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let ids = new_ids(ranks);
            let spawned = (0..ranks).map(|at| spawn(CHILD, "rank", (at, ranks), &ids[0], &[(IDS, &in_hex(&ids))]));
            all_succeed(spawned.collect(), slower(60.0));
        }
    });
}

#[test]
fn nonsense_is_refused() {
    watched(60.0, || {
        let ids = new_ids(2);
        let operation = "Communicator::init_rank_scalable";
        assert_argument(join(2, &[], 0, 5.0).map(drop), operation, "1 to 2", "0");
        assert_argument(join(1, &ids, 0, 5.0).map(drop), operation, "1 to 1", "2");
        assert_argument(join(2, &[ids[0], ids[0]], 0, 5.0).map(drop), operation, "each id once", "at 1");
        assert_argument(join(2, &ids, 2, 5.0).map(drop), operation, "a rank below 2", "2");
        let end = spawn(CHILD, "variable", (0, 1), &ids[0], &[("NCCL_COMM_ID", "127.0.0.1:23456")]);
        end.finish(slower(30.0)).assert_success();
    });
}

/// NCCL takes the first of several ids where rank 0 is, and all elsewhere.
fn variable(_: Role) {
    let ids = [7, 8].map(|byte| UniqueId::from_bytes([byte; 128]));
    let error = join(2, &ids, 0, 5.0).map(drop).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    assert_names(&error, &["NCCL_COMM_ID", "127.0.0.1:23456"]);
}

#[test]
fn a_rank_that_does_not_come_is_told() {
    watched(60.0, || {
        let ids = new_ids(2);
        let error = quick(slower(2.0), || join(2, &ids, 0, 2.0)).map(drop).expect_err("there is one rank");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    });
}

#[test]
fn other_ids_are_a_violation() {
    watched(60.0, || {
        if gpucomm::backend() != Backend::Emulator || Device::count().unwrap() < 2 {
            return skip("NCCL waits for ever");
        }
        let ids = new_ids(1);
        let env = [("GPUCOMM_EMULATOR_STRICT", "0")];
        spawn(CHILD, "others", (0, 2), &ids[0], &env).finish(slower(30.0)).assert_success();
    });
}

/// Two ranks with one id in common, and one that is not.
fn others(_: Role) {
    let [common, one, other] = [(); 3].map(|()| UniqueId::new().unwrap());
    let errors = std::thread::scope(|scope| {
        let ranks: Vec<_> = [one, other]
            .into_iter()
            .enumerate()
            .map(|(rank, own)| scope.spawn(move || join(2, &[common, own], rank, 10.0).map(drop).unwrap_err()))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(errors.iter().all(|error| matches!(error, Error::Nccl { .. })), "{errors:?}");
    assert!(
        gpucomm::emulator_violations() > 0 && errors.iter().any(|error| error.to_string().contains("other ids")),
        "{errors:?}"
    );
}
