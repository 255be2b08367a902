//! Tests that need a process of their own: for its environment, or because it ends in a way that others must not.

use std::process::{Command, ExitStatus};

/// How a child process ended, and all that it printed.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub text: String,
}

/// Runs `body` in a process of its own with `environment`, and gives back how that ended; in that process, does not return.
///
/// `name` is the path of the calling test within this program.
pub fn child(name: &str, environment: &[(&str, &str)], body: impl FnOnce()) -> Ended {
    const INSIDE: &str = "GPUCOMM_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        body();
        std::process::exit(0);
    }
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, name);
    let output = command.envs(environment.iter().copied()).output().expect("start this program again");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ended { status: output.status, text }
}

impl Ended {
    #[track_caller]
    pub fn assert_success(&self) {
        assert!(self.status.success(), "{}\n{}", self.status, self.text);
    }
}
