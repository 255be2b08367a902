//! Ranks as processes: this program, started again with the variables of a launcher.

use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

#[path = "../support/slower.rs"]
mod slower;

pub use slower::slower;

/// What a child does.
pub const ROLE: &str = "GPUCOMM_TEST_LAUNCH";

/// All that a launcher may have set: a test may itself be run by one.
const OF_LAUNCHERS: &[&str] =
    &["GPUCOMM_", "OMPI_", "PMIX_", "PMI_", "MPI_", "SLURM_", "PALS_", "TORCHELASTIC_", "MASTER_"];
const NAMES: &[&str] = &["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"];

/// A port that nobody has.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A path that nobody has.
pub fn new_path() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("gpucomm-launch-{}-{:x}", std::process::id(), fastrand::u64(..)))
}

/// A program without what launchers have set, but with how the emulator is.
pub fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let of_launcher = OF_LAUNCHERS.iter().any(|prefix| text.starts_with(prefix)) || NAMES.contains(&&*text);
        if of_launcher && !text.starts_with("GPUCOMM_EMULATOR") && !text.starts_with("GPUCOMM_TEST") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// This program as a rank, with variables as `NAME=value`.
pub fn spawn(role: &str, set: &str) -> Ended {
    let mut command = clean(std::env::current_exe().unwrap());
    command.args(["meeting::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env("GPUCOMM_TIMEOUT", format!("{}s", slower(40.0).as_secs()));
    for pair in set.split_whitespace() {
        let (name, value) = pair.split_once('=').unwrap();
        command.env(name, value);
    }
    Ended(Some(command.spawn().unwrap()))
}

/// A process that ends with the test.
pub struct Ended(pub Option<Child>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ended {
    /// What it has said, once it has ended by itself.
    pub fn output(mut self) -> Output {
        let limit = Instant::now() + slower(90.0);
        let child = self.0.as_mut().unwrap();
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < limit, "a process hangs");
            std::thread::sleep(Duration::from_millis(2));
        }
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    /// What it has said, where it has succeeded.
    pub fn succeeds(self) -> String {
        let output = self.output();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}: {}{}", output.status, text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }
}

/// What follows `name` in what was said, to the end of its line.
pub fn said<'a>(text: &'a str, name: &str) -> &'a str {
    let at = text.find(name).unwrap_or_else(|| panic!("nothing of {name:?} in {text}"));
    text[at + name.len()..].lines().next().unwrap_or_default()
}
