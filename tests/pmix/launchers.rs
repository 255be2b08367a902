//! Programs that start ranks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::child::{Finished, start};
use crate::ranks::ROLE;
use crate::slower::slower;

/// This program, as a rank of any role.
pub fn rank() -> Vec<String> {
    let program = std::env::current_exe().expect("the path of this program").display().to_string();
    [&program, "ranks::rank", "--exact", "--ignored", "--nocapture", "--test-threads=1"].map(String::from).into()
}

/// Runs `command`, which starts ranks of `role`, for `seconds` at most.
pub fn run(mut command: Command, role: &str, seconds: f64) -> Finished {
    command.env(ROLE, role);
    start(format!("{role}: {command:?}"), command).finish(slower(seconds))
}

/// The launcher of these tests.
fn server() -> &'static Path {
    static SERVER: OnceLock<PathBuf> = OnceLock::new();
    SERVER.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pmix-server");
        // Beside it first: another run of these tests may have started it.
        let fresh = program.with_extension(std::process::id().to_string());
        let lib = Path::new(env!("GPUCOMM_PMIX_LIBRARY")).parent().expect("a library lies in a directory");
        let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
        cc.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pmix/server.c")).arg("-o").arg(&fresh);
        cc.args(["-Wall", "-Wextra", "-Werror", "-isystem", env!("GPUCOMM_PMIX_INCLUDE_DIR")]);
        cc.arg(env!("GPUCOMM_PMIX_LIBRARY")).arg(format!("-Wl,-rpath,{}", lib.display()));
        assert!(cc.status().expect("a C compiler").success(), "{cc:?}");
        std::fs::rename(&fresh, &program).expect("a file beside it");
        program
    })
}

/// Four ranks of `role` under the launcher of these tests.
pub fn serve(role: &str, seconds: f64) -> Finished {
    let mut command = Command::new(server());
    command.arg("4").args(rank());
    let finished = run(command, role, seconds);
    assert!(finished.status.code().is_some_and(|code| code < 100), "{}: {}", finished.status, finished.text);
    finished
}
