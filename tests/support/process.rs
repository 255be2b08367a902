//! Ranks as processes: the test program starts itself again with a role.

use std::process::Command;
use std::time::{Duration, Instant};

use gpucomm::nccl::InitOptions;
use gpucomm::{Communicator, Device, UniqueId};

#[path = "child.rs"]
mod child;

pub use child::{Child, Finished, start};

/// In the environment of a rank.
pub const ROLE: &str = "GPUCOMM_TEST_ROLE";
const RANK: &str = "GPUCOMM_TEST_RANK";
const SIZE: &str = "GPUCOMM_TEST_SIZE";
const ID: &str = "GPUCOMM_TEST_ID";

/// What a child process was started as.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    pub rank: usize,
    pub size: usize,
    pub id: UniqueId,
}

impl Role {
    /// The role of this process, if it is a child and its role is called `name`.
    pub fn of_this_process(name: &str) -> Option<Self> {
        let role = std::env::var(ROLE).ok()?;
        if role != name {
            return None;
        }
        let number = |key: &str| -> usize { std::env::var(key).expect(key).parse().expect(key) };
        let hex = std::env::var(ID).expect(ID);
        let bytes: Vec<u8> =
            (0..128).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("an id in hex")).collect();
        let id = UniqueId::from_bytes(bytes.try_into().expect("128 bytes"));
        Some(Self { rank: number(RANK), size: number(SIZE), id })
    }

    /// The one that this process sees, or that of its rank where it sees several.
    pub fn device(&self) -> gpucomm::Result<Device> {
        Device::new(if Device::count()? == 1 { 0 } else { self.rank })
    }

    /// The communicator of this rank.
    #[allow(dead_code, reason = "some tests have options")]
    pub fn join(&self) -> gpucomm::Result<Communicator> {
        self.join_with(&InitOptions::default())
    }

    /// The communicator of this rank, with options, which are the same on all.
    pub fn join_with(&self, options: &InitOptions) -> gpucomm::Result<Communicator> {
        // SAFETY: all processes of one test run the same role and issue the same operations in the same order, except in
        // tests of ranks that die or stay away, where no rank issues an operation that another contradicts.
        unsafe { Communicator::init_rank_with(self.device()?, self.size, &self.id, self.rank, options) }
    }
}

/// Starts the hidden test `test` (its full path) of this program as one rank, in the role `role`.
pub fn spawn(test: &str, role: &str, (rank, size): (usize, usize), id: &UniqueId, env: &[(&str, &str)]) -> Child {
    let hex: String = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(RANK, rank.to_string()).env(SIZE, size.to_string()).env(ID, hex);
    command.envs(super::environment());
    command.envs(env.iter().copied());
    start(format!("{role}, rank {rank} of {size}"), command)
}

/// Starts all ranks of a role.
pub fn spawn_all(test: &str, role: &str, size: usize, env: &[(&str, &str)]) -> Vec<Child> {
    let id = UniqueId::new().expect("a unique id");
    (0..size).map(|rank| spawn(test, role, (rank, size), &id, env)).collect()
}

/// Waits for all. Panics with the output of each that fails or takes too long, as the first one is not always the cause.
pub fn all_succeed(children: Vec<Child>, within: Duration) {
    let deadline = Instant::now() + within;
    let end = |child: Child| {
        let what = child.what.clone();
        let end = child.end(deadline.saturating_duration_since(Instant::now()));
        end.map_err(|text| format!("{what}: not done within {within:?}; it printed:\n{text}"))
    };
    let failures: Vec<_> = children.into_iter().filter_map(|child| end(child).map_or_else(Some, failure)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// How a child has failed, if it has.
fn failure(end: Finished) -> Option<String> {
    (!end.status.success()).then(|| format!("{}: {}\n{}", end.what, end.status, end.text))
}
