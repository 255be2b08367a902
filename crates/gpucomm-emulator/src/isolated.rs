//! Unit tests in processes of their own, for what would spoil those of others.

use std::process::{Command, Output};

/// Runs `body` in a process of its own, in which only the test at `path` runs: the path of the calling test in this crate. What that
/// process printed; nothing in itself.
pub(crate) fn isolated(path: &str, environment: &[(&str, &str)], body: impl FnOnce()) -> Option<Output> {
    const INSIDE: &str = "GPUCOMM_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == path) {
        body();
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([path, "--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(INSIDE, path).envs(environment.iter().copied()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    Some(output)
}
