//! What errors must say, when they must come, and that they leave nothing broken.

use std::time::{Duration, Instant};

use gpucomm::{DeviceBuffer, Error, InPlace, ReduceOp, Result};

use super::errors::names;
use super::harness::Rig;
use super::slower::slower;

/// Panics unless `result` is an [`Error::InvalidUsage`] whose text holds each of `words`.
#[track_caller]
pub fn assert_usage<T>(result: Result<T>, words: &[&str]) {
    let error = result.map(drop).expect_err("it is refused");
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
    names(&error, words);
}

/// Runs `body` and panics if it took longer than `limit` and some slack for a loaded machine.
#[track_caller]
pub fn quick<R>(limit: Duration, body: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = body();
    let took = start.elapsed();
    let allowed = limit + slower(5.0);
    assert!(took <= allowed, "took {took:?}, more than {allowed:?}");
    result
}

/// A new clique on this thread works: what went before has corrupted nothing.
#[track_caller]
pub fn still_works(ranks: usize) {
    let rig = Rig::new(ranks);
    let sums = rig.run(|comm, stream| {
        let mut values = DeviceBuffer::from_slice(stream, &[comm.rank() as f32 + 1.0; 33])?;
        comm.all_reduce(InPlace(&mut values), ReduceOp::Sum, stream)?;
        values.to_vec(stream)
    });
    let want = (ranks * (ranks + 1) / 2) as f32;
    assert!(sums.iter().flatten().all(|sum| *sum == want), "a new clique computes nonsense: {sums:?}");
    rig.close();
}
