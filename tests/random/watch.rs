//! Who is where, and the end of a process in which nothing moves.

use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::program::Program;
use crate::settings;

/// The most ranks that a program may have.
const RANKS: usize = 64;

static STEPS: [AtomicUsize; RANKS] = [const { AtomicUsize::new(0) }; RANKS];
static MOVES: AtomicU64 = AtomicU64::new(0);
static PROGRAM: Mutex<Option<(String, Arc<Program>)>> = Mutex::new(None);

/// A program begins; the text says how to repeat it.
pub fn begin(repeat: &str, program: &Arc<Program>) {
    *PROGRAM.lock().unwrap_or_else(PoisonError::into_inner) = Some((repeat.to_owned(), Arc::clone(program)));
    for rank in 0..RANKS {
        step(rank, 0);
    }
}

/// A rank begins a step.
pub fn step(rank: usize, at: usize) {
    STEPS[rank].store(at, Ordering::Relaxed);
    moved();
}

/// Something was done.
pub fn moved() {
    MOVES.fetch_add(1, Ordering::Relaxed);
}

/// What is called that is no step of a program, by any number of threads.
static CALLS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A call begins, or ends.
pub fn calls(what: &str, begins: bool) {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    match calls.iter().position(|call| call == what) {
        Some(at) if !begins => drop(calls.swap_remove(at)),
        _ => calls.push(what.to_owned()),
    }
    moved();
}

/// The step that a rank is in.
pub fn step_of(rank: usize) -> usize {
    STEPS[rank].load(Ordering::Relaxed)
}

/// Says something on stdout, also where the test harness hides what tests print.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "random: {text}");
}

/// How long the end of a communicator may take, whatever the timeout.
const END: Duration = Duration::from_secs(20);

/// Starts the watchdog: when nothing has moved for three times the timeout, and as long as an end may take, it says where every rank
/// is and ends the process.
pub fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(watch);
    });
}

fn watch() {
    let (mut seen, mut since) = (MOVES.load(Ordering::Relaxed), Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let moves = MOVES.load(Ordering::Relaxed);
        if moves != seen {
            (seen, since) = (moves, Instant::now());
        }
        let limit = 3 * gpucomm::default_timeout() + END;
        if settings::is_running() && since.elapsed() > limit {
            say(&format!("nothing has moved for {limit:?}"));
            report();
            std::process::abort();
        }
    }
}

/// What runs, where each rank is, what else is called, and what every thread of this process is called and waits in, as the kernel says. The emulator's
/// streams are left out.
fn report() {
    if let Some((repeat, program)) = &*PROGRAM.lock().unwrap_or_else(PoisonError::into_inner) {
        say(repeat);
        for rank in 0..program.ranks {
            let at = step_of(rank);
            say(&format!("rank {rank}, step {at}: {}", program.doing(at)));
        }
    }
    for call in CALLS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        say(&format!("in a call: {call}"));
    }
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default().trim().to_owned();
        let (name, waits) = (read("comm"), read("wchan"));
        if !name.starts_with("gpucomm-dev") {
            say(&format!("thread {} {name}: {waits}", task.file_name().display()));
        }
    }
}
