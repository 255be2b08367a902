//! Unit tests in processes of their own: what a test does to a device, the others would feel. Some wait for whole devices, as `cudaFree`
//! does, while others hold one up.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
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

/// Runs only the test at `path`, in another process with these variables: what that printed. Nothing if this is that process.
pub(crate) fn elsewhere(path: &str, environment: &[(&str, &str)]) -> Option<Output> {
    let has = |name: &str, value: &str| std::env::var_os(name).is_some_and(|found| found == value);
    if has(INSIDE, path) && environment.iter().all(|(name, value)| has(name, value)) {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([path, "--exact", "--nocapture", "--test-threads=1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.env(INSIDE, path).envs(environment.iter().copied()).spawn().unwrap();
    let (stdout, stderr) = (all_of(child.stdout.take().unwrap()), all_of(child.stderr.take().unwrap()));
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() && begin.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let late = child.try_wait().unwrap().is_none();
    if late {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    let output = Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() };
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!late, "{path}: it took longer than {LIMIT:?}\n{text}");
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    Some(output)
}

/// Reads a pipe to its end, on a thread.
fn all_of(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}
