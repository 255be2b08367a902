//! The process that starts the PEs of a test, and watches them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpucomm::Backend;

use super::child::{Child, Finished, start};
use super::places::places_by;
use super::random::seed;
use super::seat::{DIRECTORY, RANK, SIZE, Seat};
use super::slower::slower;

/// How long the others may go on where one PE has failed: what they say helps.
const GRACE: Duration = Duration::from_secs(3);

/// Says on stdout that something cannot be tested here. Not `println!`, which is hidden while a test passes.
pub fn skip(test: &str, what: &str) {
    let _ = writeln!(std::io::stdout(), "pes: {test}: skipped: {what}");
}

/// Runs `body` as each PE of each of these numbers of PEs, every one a process. To be called by a test, with a closure of its own: the
/// processes run the test of that name.
pub fn as_pes<F: Fn(&Seat)>(sizes: &[usize], body: F) {
    as_pes_with(sizes, &[], body);
}

/// The same, with more in the environment, where `{pe}` stands for the number of the PE, `{n_pes}` for how many there are, and `{job}` for a name that no other
/// run has.
pub fn as_pes_with<F: Fn(&Seat)>(sizes: &[usize], environment: &[(&str, &str)], body: F) {
    as_pes_of::<F>(sizes, environment, body);
}

/// The same for the test that `F`, a closure, is of.
pub fn as_pes_of<F>(sizes: &[usize], environment: &[(&str, &str)], body: impl Fn(&Seat)) {
    match Seat::of_this_process() {
        Some(seat) => body(&seat),
        None => start_all(name_of::<F>(), sizes, environment),
    }
}

/// The name of the test that a closure is of.
pub(super) fn name_of<F>() -> &'static str {
    let path = std::any::type_name::<F>();
    let path = path.split("::{{closure}}").next().expect("a path");
    path.split_once("::").expect("a path within this program").1
}

fn start_all(test: &'static str, sizes: &[usize], environment: &[(&str, &str)]) {
    each_size(test, sizes, |size| {
        let meeting = Meeting::new();
        let children = (0..size).map(|rank| start_one(test, (rank, size), &meeting, environment)).collect();
        judge(finish(children, slower(90.0)));
    });
}

/// Calls `run` for those numbers of PEs that this machine has places for.
pub(super) fn each_size(test: &str, sizes: &[usize], run: impl Fn(usize)) {
    // On GPUs the tests take turns: what one leaves hanging on a device, others would feel.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = (gpucomm::backend() == Backend::Nvidia).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    let places = places_by("GPUCOMM_TEST_PES_PER_DEVICE").len();
    for &size in sizes {
        if size > places {
            skip(test, &format!("{size} PEs: this machine has places for {places}"));
            continue;
        }
        run(size);
    }
}

fn start_one(test: &str, (rank, size): (usize, usize), meeting: &Meeting, environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    run_as(&mut command, test, meeting);
    command.env(RANK, rank.to_string()).env(SIZE, size.to_string());
    for (name, value) in environment {
        let value = value.replace("{pe}", &rank.to_string()).replace("{n_pes}", &size.to_string());
        command.env(name, value.replace("{job}", &meeting.0.display().to_string()));
    }
    start(format!("{test}: PE {rank} of {size}"), command)
}

/// What this program is told that is to be a PE of a test.
pub(super) fn run_as(command: &mut Command, test: &str, meeting: &Meeting) {
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, &meeting.0).env("GPUCOMM_TEST_SEED", seed().to_string());
    // There is one host here: the library need not look for others.
    command.env("NVSHMEM_REMOTE_TRANSPORT", "none");
}

/// How a PE has ended, and what it has printed.
#[derive(Debug)]
pub struct End {
    /// How; where it was killed by this process, as nothing else has ended it, it says so.
    pub how: String,
    /// Its code, where it has ended by itself.
    pub code: Option<i32>,
    pub text: String,
}

/// Runs `body` as each PE of each of these numbers, not all of which end well: `check` looks at how, with the number of them.
pub fn as_pes_that_end<F: Fn(&Seat)>(sizes: &[usize], body: F, check: impl Fn(&[End])) {
    as_pes_that_end_with(sizes, &[], body, check);
}

/// The same, with more in the environment, as for [`as_pes_with`].
pub fn as_pes_that_end_with<F: Fn(&Seat)>(
    sizes: &[usize],
    environment: &[(&str, &str)],
    body: F,
    check: impl Fn(&[End]),
) {
    if let Some(seat) = Seat::of_this_process() {
        return body(&seat);
    }
    let test = name_of::<F>();
    each_size(test, sizes, |size| {
        let meeting = Meeting::new();
        let children = (0..size).map(|rank| start_one(test, (rank, size), &meeting, environment)).collect();
        check(&wait_for(children, slower(90.0), |_| false));
    });
}

/// Waits for all; where one fails, or not all end in time, they are ended.
fn finish(children: Vec<Child>, within: Duration) -> Vec<End> {
    wait_for(children, within, |status| !status.success())
}

pub(super) fn wait_for(mut children: Vec<Child>, within: Duration, hurries: impl Fn(&ExitStatus) -> bool) -> Vec<End> {
    let mut deadline = Instant::now() + within;
    let mut failed = false;
    loop {
        let ends: Vec<_> = children.iter_mut().map(Child::ended).collect();
        if ends.iter().all(Option::is_some) || Instant::now() >= deadline {
            break;
        }
        if !failed && ends.iter().flatten().any(&hurries) {
            failed = true;
            deadline = deadline.min(Instant::now() + GRACE);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let end = |(pe, child): (usize, Child)| match child.end(Duration::ZERO) {
        Ok(Finished { what, status, text }) => End { how: format!("{what}: {status}"), code: status.code(), text },
        Err(text) => {
            End { how: format!("PE {pe}: killed, as it was not done, or another one had failed"), code: None, text }
        }
    };
    children.into_iter().enumerate().map(end).collect()
}

/// Fails where one has, and shows what all have printed.
fn judge(ends: Vec<End>) {
    let well = ends.iter().all(|end| end.code == Some(0) && end.text.contains("1 passed"));
    assert!(well, "GPUCOMM_TEST_SEED={}\n{}", seed(), report(&ends));
}

/// What all have printed.
pub fn report(ends: &[End]) -> String {
    ends.iter().map(|End { how, text, .. }| format!("--- {how}\n{text}")).collect()
}

/// A directory in which the processes of one run find each other.
pub(super) struct Meeting(pub(super) PathBuf);

impl Meeting {
    pub(super) fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gpucomm-pes-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the meeting");
        Self(path)
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
