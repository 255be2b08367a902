//! What errors must say.

use gpucomm::{Error, Result};

/// Panics unless the text of `error` holds each of `parts`.
#[track_caller]
pub fn names(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "the error does not name {part:?}: {text}\n{error:?}");
    }
}

/// Panics unless `result` is an [`Error::InvalidArgument`] of `operation` that says what was expected
/// and what came.
#[track_caller]
pub fn argument<T>(result: Result<T>, operation: &str, expected: &str, got: &str) {
    let Err(error) = result else { panic!("{operation}: bad input was accepted; expected {expected}, got {got}") };
    let Error::InvalidArgument { expected: says, got: came, .. } = &error else {
        panic!("not an InvalidArgument: {error:?}");
    };
    names(&error, &[operation]);
    assert!(says.contains(expected), "expected: {expected:?} is not in {says:?}: {error}");
    assert!(came.contains(got), "got: {got:?} is not in {came:?}: {error}");
}
