//! Tests that need a process of their own: for its environment, or because it ends in a way that others must not.

use std::process::{Command, ExitStatus};

use gpucomm::Device;

/// How a child process ended, and all that it printed.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub text: String,
}

const INSIDE: &str = "GPUCOMM_TEST_INSIDE";

/// Whether this is the process that [`command`] starts for the test `name`.
pub fn is_child(name: &str) -> bool {
    std::env::var_os(INSIDE).is_some_and(|inside| inside == name)
}

/// The test `name` in a process of its own.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, name);
    command
}

/// Runs `body` in a process of its own with `environment`, and gives back how that ended; in that process, does not return.
///
/// `name` is the path of the calling test within this program.
pub fn child(name: &str, environment: &[(&str, &str)], body: impl FnOnce()) -> Ended {
    if is_child(name) {
        body();
        std::process::exit(0);
    }
    let output = command(name).envs(environment.iter().copied()).output().expect("start this program again");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ended { status: output.status, text }
}

/// Runs `body` in a process of its own: what waits for a whole device there, such as `cudaFree`, does not wait for what other tests hold up,
/// nor hold up those.
pub fn alone(name: &str, body: impl FnOnce()) {
    child(name, &[], body).assert_success();
}

impl Ended {
    #[track_caller]
    pub fn assert_success(&self) {
        assert!(self.status.success(), "{}\n{}", self.status, self.text);
    }
}

/// Whether in a child process of the test `name`, with this variable, every way to a device is refused in one line that has
/// all `parts`. How the child ended.
pub fn refuses_devices(name: &str, variable: (&str, &str), parts: &[&str]) -> Ended {
    let end = child(name, &[variable], || {
        let errors = [Device::count().map(drop), Device::all().map(drop), Device::new(0).map(drop)];
        for error in errors {
            println!("told: {}", error.expect_err("taken for something else"));
        }
    });
    end.assert_success();
    let told = end.text.lines().filter(|line| line.contains("told: ")).collect::<Vec<_>>();
    assert_eq!(told.len(), 3, "{}", end.text);
    for line in told {
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
    end
}
