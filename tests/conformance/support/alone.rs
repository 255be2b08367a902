//! A process for one test.

use std::process::Command;

use super::process::{Child, ROLE, start};

const ALONE: &str = "GPUCOMM_TEST_ALONE";

/// Starts this program again for the test of this name, and that alone.
pub fn alone(test: &str) -> Child {
    alone_with(test, &[])
}

/// The same, with more in its environment.
pub fn alone_with(test: &str, environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ALONE, "1").envs(super::environment()).envs(environment.iter().copied());
    start(test.to_owned(), command)
}

/// Whether this process was started for one test, or as one rank of a test.
pub fn is_alone() -> bool {
    [ALONE, ROLE].into_iter().any(|key| std::env::var_os(key).is_some())
}
