//! Unit tests in processes of their own: what a test does to a device, the others would feel. Some wait for whole devices, as `cudaFree`
//! does, while others hold one up.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// In which test a process is that was started for it.
const INSIDE: &str = "GPUCOMM_TEST_INSIDE";

/// No test takes as long, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The path of the test in which this stands, in this crate.
macro_rules! path_of_the_test {
    () => {{
        fn here() {}
        $crate::isolated::path_of(std::any::type_name_of_val(&here))
    }};
}

/// The first line of a test: the rest of it runs in a process of its own.
macro_rules! alone {
    () => {
        if $crate::isolated::elsewhere($crate::isolated::path_of_the_test!(), &[]).is_some() {
            return;
        }
    };
}

/// `isolated!(ENVIRONMENT, BODY)` runs the body in a process of its own, with variables of its environment. What that process printed;
/// nothing in itself.
macro_rules! isolated {
    ($environment:expr, $body:expr $(,)?) => {{
        let output = $crate::isolated::elsewhere($crate::isolated::path_of_the_test!(), $environment);
        if output.is_none() {
            ($body)();
        }
        output
    }};
}

pub(crate) use {alone, isolated, path_of_the_test};

/// `gpucomm_emulator::cuda::tests::copies::name::here` is `cuda::tests::copies::name` to the test harness.
pub(crate) fn path_of(here: &'static str) -> &'static str {
    let path = here.strip_suffix("::here").unwrap_or(here);
    path.split_once("::").map_or(path, |(_, path)| path)
}

/// Runs only the test at `path`, in another process: what that printed. Nothing if this is that process.
pub(crate) fn elsewhere(path: &str, environment: &[(&str, &str)]) -> Option<Output> {
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == path) {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([path, "--exact", "--nocapture", "--test-threads=1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.env(INSIDE, path).envs(environment.iter().copied()).spawn().unwrap();
    let pid = child.id().cast_signed();
    let watched = std::thread::spawn(move || child.wait_with_output().unwrap());
    let begin = Instant::now();
    while !watched.is_finished() && begin.elapsed() < LIMIT {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let late = !watched.is_finished();
    if late {
        // SAFETY: takes no pointers; nobody has waited for the child so far, so that its number is still its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let output = watched.join().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!late, "{path}: it took longer than {LIMIT:?}\n{text}");
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    Some(output)
}
