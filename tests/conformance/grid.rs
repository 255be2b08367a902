//! A grid of ranks, split into rows and columns, whose sums take turns.

use std::time::Duration;

use gpucomm::nccl::close_all_timeout;
use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, UniqueId};

use crate::split::{owners, whole};
use crate::support::process::{Role, all_succeed, spawn};
use crate::support::{quick, rank_counts, slower, watched};

const CHILD: &str = "grid::child";
const WIDTH: usize = 2;

/// How often rows and columns are summed, GPUCOMM_TEST_ROUNDS for more.
fn rounds() -> usize {
    let asked = std::env::var("GPUCOMM_TEST_ROUNDS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(300)
}

/// How long that may take.
fn patience() -> f64 {
    60.0 + rounds() as f64 / 20.0
}

#[test]
#[ignore = "the body of child processes"]
fn child() {
    if let Some(role) = Role::of_this_process("grid") {
        rows_and_columns(role.join().unwrap()).unwrap();
        println!("finished");
    }
}

#[test]
fn of_threads() {
    watched(patience(), || {
        for ranks in rank_counts(&[2, 4]) {
            owners(ranks, |comm, _| rows_and_columns(comm).unwrap());
        }
    });
}

#[test]
fn of_processes() {
    watched(patience(), || {
        for ranks in rank_counts(&[2, 4]) {
            let id = UniqueId::new().unwrap();
            let children = (0..ranks).map(|rank| spawn(CHILD, "grid", (rank, ranks), &id, &[]));
            all_succeed(children.collect(), slower(patience()));
        }
    });
}

/// What a rank brings to a round.
fn value(rank: usize, round: usize) -> u32 {
    (1 + rank as u32).wrapping_mul(0x9e37_79b9 ^ round as u32)
}

/// How many rounds are under way at a time.
const AT_ONCE: usize = 4;

/// A round sums over the row and then over the column, or the other way round, on all ranks alike, each on a stream of its own.
fn rows_and_columns(world: Communicator) -> Result<()> {
    let (rank, ranks) = (world.rank(), world.size());
    let row = world.split(Some(rank / WIDTH), rank)?.expect("a row");
    let column = world.split(Some(rank % WIDTH), rank)?.expect("a column");
    let all = whole(&world)?;
    let streams = [Stream::new(world.device())?, Stream::new(world.device())?];
    let parts = [(&row, &streams[0]), (&column, &streams[1])];
    let made = |_| DeviceBuffer::<u32>::zeroed(&streams[0], 501);
    let mut buffers = (0..AT_ONCE).map(made).collect::<Result<Vec<_>>>()?;
    for first in (0..rounds()).step_by(AT_ONCE) {
        for (at, buffer) in buffers.iter_mut().enumerate() {
            let round = first + at;
            buffer.fill(parts[round % 2].1, value(rank, round))?;
            for (comm, stream) in [parts[round % 2], parts[(round + 1) % 2]] {
                comm.all_reduce(InPlace(&mut *buffer), ReduceOp::Sum, stream)?;
            }
        }
        for (at, buffer) in buffers.iter().enumerate() {
            let round = first + at;
            let want = (0..ranks).fold(0, |sum: u32, other| sum.wrapping_add(value(other, round)));
            assert_eq!(buffer.to_vec(&streams[at % 2])?, [want; 501], "rank {rank}, round {round}");
        }
        if first % 100 == 0 {
            all.barrier(&streams[0])?;
        }
    }
    drop(buffers);
    let closed = quick(Duration::from_secs(5), || close_all_timeout([row, column, all, world], slower(20.0)));
    closed.into_iter().collect()
}
