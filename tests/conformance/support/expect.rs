//! What errors must say, when they must come, and that they leave nothing broken.

use std::time::{Duration, Instant};

use gpucomm::{DeviceBuffer, Error, InPlace, ReduceOp};

use super::harness::{Rig, slower};

/// Panics unless the text of `error` holds each of `parts`.
#[track_caller]
pub fn assert_names(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "the error does not name {part:?}: {text}\n{error:?}");
    }
}

/// Panics unless `result` is an [`Error::InvalidArgument`] of `operation` that says what was expected and what came.
#[track_caller]
pub fn assert_argument<T: std::fmt::Debug>(result: gpucomm::Result<T>, operation: &str, expected: &str, got: &str) {
    let error = result.expect_err("bad input was accepted");
    let Error::InvalidArgument { expected: says, got: came, .. } = &error else {
        panic!("not an InvalidArgument: {error:?}");
    };
    assert_names(&error, &[operation]);
    assert!(says.contains(expected), "expected: {expected:?} is not in {says:?}: {error}");
    assert!(came.contains(got), "got: {got:?} is not in {came:?}: {error}");
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
