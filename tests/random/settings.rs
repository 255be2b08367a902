//! What the environment says.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::places::places;
use fastrand::Rng;

use crate::watch::{self, say};

/// Which steps programs keep.
const KEEP_VARIABLE: &str = "GPUCOMM_RANDOM_KEEP";

/// A whole number from a variable.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{name}: a whole number, not {text:?}")))
}

fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| number("GPUCOMM_RANDOM_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40)))
}

/// The most elements that a length is drawn for.
fn longest() -> usize {
    number("GPUCOMM_RANDOM_LONGEST").map_or(usize::MAX, |longest| longest as usize)
}

/// The numbers of the steps that programs keep, if not all.
fn keep() -> Option<&'static [usize]> {
    static KEEP: OnceLock<Option<Vec<usize>>> = OnceLock::new();
    let read = || {
        let text = std::env::var(KEEP_VARIABLE).ok()?;
        let numbers = text.split(',').filter(|number| !number.is_empty()).map(|number| number.trim().parse());
        Some(numbers.collect::<Result<_, _>>().unwrap_or_else(|_| panic!("{KEEP_VARIABLE}: numbers, not {text:?}")))
    };
    KEEP.get_or_init(read).as_deref()
}

/// Whether rank 1 is to leave out what has this name: a fault, to be found.
pub fn injects(what: &str) -> bool {
    static INJECTED: OnceLock<Option<String>> = OnceLock::new();
    INJECTED.get_or_init(|| std::env::var("GPUCOMM_RANDOM_INJECT").ok()).as_deref() == Some(what)
}

/// How many ranks the programs of a clique have whose first seed this is.
pub fn ranks(first: u64) -> usize {
    rng(first, "ranks").usize(1..=4)
}

/// Whether every step of every rank is printed as it begins.
pub fn traces() -> bool {
    std::env::var_os("GPUCOMM_RANDOM_TRACE").is_some()
}

/// Whether each rank waits for all of its streams after every step, so that what stands still is found at its step.
pub fn waits_after_each_step() -> bool {
    std::env::var("GPUCOMM_RANDOM_TRACE").is_ok_and(|value| value == "wait")
}

/// How many tests of this process run.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Whether the watchdog has something to watch.
pub fn is_running() -> bool {
    RUNNING.load(Ordering::Relaxed) > 0
}

/// One mode that runs: seeds to try, for so long or so many.
pub struct Run {
    mode: &'static str,
    steps: usize,
    ranks: Option<usize>,
    next: u64,
    left: u64,
    end: Instant,
    begin: Instant,
    done: u64,
    _turn: MutexGuard<'static, ()>,
}

impl Run {
    /// Waits for its turn: each mode takes all devices, and sets the timeout of the process.
    pub fn begin(mode: &'static str, steps: u64, seconds: u64, timeout: Duration) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        gpucomm::set_default_timeout(slower(timeout));
        let count = number("GPUCOMM_RANDOM_COUNT");
        let seconds = number("GPUCOMM_RANDOM_SECONDS").unwrap_or(if count.is_some() { 1 << 20 } else { seconds });
        let run = Self {
            mode,
            steps: number("GPUCOMM_RANDOM_STEPS").unwrap_or(steps) as usize,
            ranks: number("GPUCOMM_RANDOM_RANKS").map(|ranks| ranks as usize),
            next: seed(),
            left: count.unwrap_or(u64::MAX),
            begin: Instant::now(),
            end: Instant::now() + Duration::from_secs(seconds),
            done: 0,
            _turn: turn,
        };
        say(&format!(
            "{mode}: GPUCOMM_RANDOM_SEED={}, {} steps, timeout {:?}",
            run.next,
            run.steps,
            gpucomm::default_timeout()
        ));
        RUNNING.fetch_add(1, Ordering::Relaxed);
        watch::moved();
        watch::start();
        run
    }

    /// Takes so many seeds from this one on, and so many steps, whatever the environment says.
    pub fn only(&mut self, (first, count): (u64, u64), steps: usize) {
        (self.next, self.left, self.steps) = (first, count, steps);
        self.end = Instant::now() + Duration::from_secs(1 << 20);
    }

    /// The first seed that is to come, how many may come, and how many steps each program has.
    pub fn to_come(&self) -> (u64, u64, usize) {
        (self.next, self.left, self.steps)
    }

    /// The next seeds, for one clique, and its number of ranks. Seeds that need more devices than there are are passed over.
    pub fn batch(&mut self, size: u64) -> Option<Batch> {
        let devices = places().len();
        while self.left > 0 && Instant::now() < self.end {
            let first = self.next;
            let seeds = size.min(self.left);
            self.next += seeds;
            self.left -= seeds;
            let ranks = self.ranks.unwrap_or_else(|| ranks(first));
            if ranks <= devices {
                self.done += seeds;
                let (steps, longest, keep, mode) = (self.steps, longest(), keep(), self.mode);
                return Some(Batch { first, seeds, ranks, steps, longest, keep, mode });
            }
        }
        None
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        say(&format!("{}: {} programs in {:.1} s", self.mode, self.done, self.begin.elapsed().as_secs_f64()));
    }
}

/// Seeds whose programs one clique runs, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    pub first: u64,
    pub seeds: u64,
    pub ranks: usize,
    pub steps: usize,
    pub longest: usize,
    pub keep: Option<&'static [usize]>,
    pub mode: &'static str,
}

impl Batch {
    pub fn seeds(&self) -> impl Iterator<Item = u64> {
        self.first..self.first + self.seeds
    }

    /// What a process needs to run the same programs, up to that of a seed.
    pub fn environment(&self, last: u64) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("GPUCOMM_RANDOM_SEED", self.first.to_string()),
            ("GPUCOMM_RANDOM_COUNT", (last - self.first + 1).to_string()),
            ("GPUCOMM_RANDOM_RANKS", self.ranks.to_string()),
            ("GPUCOMM_RANDOM_STEPS", self.steps.to_string()),
        ];
        if self.longest < usize::MAX {
            all.push(("GPUCOMM_RANDOM_LONGEST", self.longest.to_string()));
        }
        if let Some(keep) = self.keep {
            all.push((KEEP_VARIABLE, keep.iter().map(usize::to_string).collect::<Vec<_>>().join(",")));
        }
        all
    }

    /// The command that runs this clique again, up to a program.
    pub fn repeat(&self, seed: u64) -> String {
        let program = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
        let variables: String = self.environment(seed).iter().map(|(name, value)| format!("{name}={value} ")).collect();
        format!("seed {seed}, {} ranks: {variables}{program} --exact {} --nocapture", self.ranks, self.mode)
    }
}

/// Random numbers of a seed, other ones for each purpose.
pub fn rng(seed: u64, purpose: &str) -> Rng {
    // FNV-1a, so that it is the same with every version of Rust.
    let bytes = seed.to_le_bytes().into_iter().chain(purpose.bytes());
    Rng::with_seed(
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)),
    )
}

/// A time limit, multiplied by `GPUCOMM_TEST_SLOWER`.
pub fn slower(limit: Duration) -> Duration {
    crate::slower::slower(limit.as_secs_f64())
}
