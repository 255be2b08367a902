//! Standard output, where a reader that went away is no panic, and standard error.

use std::io::Write;

use crate::failure::{Failure, Result};

/// Says something on standard error, in one piece: the processes of a launch share it. Nowhere to write to is no reason to fail.
pub fn note(text: &str) {
    let _ = std::io::stderr().write_all(format!("gpucomm: {text}\n").as_bytes());
}

/// Prints one line and flushes it, so that a table can be watched as it grows.
pub fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::run(format!("cannot write to standard output: {error}")),
    })
}
