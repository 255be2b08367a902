//! Makes a program that fails smaller while it still fails in the same way: with fewer ranks, shorter lengths, and fewer steps.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUCOMM_RANDOM_SHRINK` | the mode whose program it is: `programs`, `differential`, `disagree`, `abort` or `processes` |
//! | `GPUCOMM_RANDOM_SEED` | its seed |
//! | `GPUCOMM_RANDOM_RANKS`, `GPUCOMM_RANDOM_STEPS` | as with that mode |
//! | `GPUCOMM_RANDOM_TRIES` | how often a candidate runs, for what fails now and then; 1 |
//! | `GPUCOMM_RANDOM_LIMIT` | seconds that a candidate may take, after which it counts as one that hangs; 60 |
//! | `GPUCOMM_RANDOM_SECONDS` | how long it goes on; 600 |
//!
//! Each candidate is a process of its own, so what ends a process is made smaller as well. Steps are left out of the program of a seed;
//! those that need what was left out go with them, and what buffers must hold is reckoned anew. With fewer ranks or shorter lengths a seed
//! has another program, which is taken if it fails.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::start;
use crate::settings::{self, Batch, slower};
use crate::watch::say;

/// The mode whose programs are made smaller.
const MODE: &str = "GPUCOMM_RANDOM_SHRINK";

/// What a program says in front of how it failed.
pub const CLASS: &str = "class: ";

/// How many steps the modes' programs have.
const STEPS: u64 = 60;

/// The lengths that are tried, from the shortest on.
const LENGTHS: [usize; 5] = [8, 64, 512, 4096, 1 << 15];

/// A program, as far as it is smaller than that of its seed.
#[derive(Debug, Clone)]
pub struct Candidate {
    seed: u64,
    ranks: usize,
    steps: usize,
    longest: usize,
    keep: Vec<usize>,
}

pub struct Shrinker {
    mode: &'static str,
    tries: u64,
    limit: Duration,
    end: Instant,
    /// How the program fails.
    class: String,
    runs: u64,
    /// What its processes have in their environment beside.
    environment: Vec<(&'static str, String)>,
}

/// The modes there are.
const MODES: [&str; 5] = ["programs", "differential", "disagree", "abort", "processes"];

pub fn run() {
    let Ok(mode) = std::env::var(MODE) else {
        panic!("{MODE}: the mode whose program is to be made smaller; see tests/random/shrink.rs");
    };
    let mode = MODES.into_iter().find(|name| *name == mode).unwrap_or_else(|| panic!("{MODE}: one of {MODES:?}"));
    let seed = settings::number("GPUCOMM_RANDOM_SEED").expect("GPUCOMM_RANDOM_SEED: the seed of the program");
    let ranks = settings::number("GPUCOMM_RANDOM_RANKS");
    let ranks = ranks.map_or_else(|| settings::ranks(seed), |ranks| ranks as usize);
    let steps = settings::number("GPUCOMM_RANDOM_STEPS").unwrap_or(STEPS) as usize;
    let seconds = Duration::from_secs(settings::number("GPUCOMM_RANDOM_SECONDS").unwrap_or(600));
    let (smallest, _) = of(mode, (seed, ranks, steps), seconds, Vec::new()).expect("a program that fails");
    say(&smallest.batch(mode).repeat(seed));
}

/// The smallest that is found in so long a time, and how it fails.
pub fn of(
    mode: &'static str,
    (seed, ranks, steps): (u64, usize, usize),
    time: Duration,
    environment: Vec<(&'static str, String)>,
) -> Option<(Candidate, String)> {
    let number = |name: &str, other: u64| settings::number(name).unwrap_or(other);
    let mut shrinker = Shrinker {
        mode,
        tries: number("GPUCOMM_RANDOM_TRIES", 1),
        limit: slower(Duration::from_secs(number("GPUCOMM_RANDOM_LIMIT", 60))),
        end: Instant::now() + time,
        class: String::new(),
        runs: 0,
        environment,
    };
    let whole = Candidate { seed, ranks, steps, longest: usize::MAX, keep: (0..steps).collect() };
    shrinker.class = shrinker.failure(&whole)?;
    say(&format!("fails: {}", shrinker.class));
    let smallest = shrinker.shrink(whole);
    say(&format!(
        "{} ranks, {} steps, lengths up to {}, after {} runs: {}",
        smallest.ranks,
        smallest.keep.len(),
        smallest.longest,
        shrinker.runs,
        shrinker.class
    ));
    Some((smallest, shrinker.class))
}

impl Candidate {
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    pub fn steps(&self) -> usize {
        self.keep.len()
    }

    fn batch(&self, mode: &'static str) -> Batch {
        let Self { seed, ranks, steps, longest, .. } = *self;
        let keep = (self.keep.len() < steps).then(|| &*self.keep.clone().leak());
        Batch { first: seed, seeds: 1, ranks, steps, longest, keep, mode }
    }
}

impl Shrinker {
    /// How a candidate fails, if it does.
    fn failure(&mut self, candidate: &Candidate) -> Option<String> {
        (0..self.tries).find_map(|_| self.attempt(candidate))
    }

    fn attempt(&mut self, candidate: &Candidate) -> Option<String> {
        if Instant::now() > self.end {
            return None;
        }
        self.runs += 1;
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command.args(["--exact", self.mode, "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
        command.env_remove(MODE).env_remove("GPUCOMM_RANDOM_SECONDS");
        command.envs(candidate.batch(self.mode).environment(candidate.seed)).envs(self.environment.iter().cloned());
        let end = start("a candidate".to_owned(), command).end(self.limit);
        match end {
            Err(_) => Some("it hangs".to_owned()),
            Ok(end) if end.status.success() => None,
            Ok(end) => {
                let said = end.text.lines().find_map(|line| line.split_once(CLASS));
                Some(said.map_or_else(|| format!("{}", end.status), |(_, class)| class.to_owned()))
            }
        }
    }

    fn still_fails(&mut self, candidate: &Candidate) -> bool {
        self.failure(candidate).is_some_and(|class| class == self.class)
    }

    fn shrink(&mut self, mut least: Candidate) -> Candidate {
        for ranks in 1..least.ranks {
            let fewer = Candidate { ranks, ..least.clone() };
            if self.still_fails(&fewer) {
                least = fewer;
                break;
            }
        }
        least = self.shorten(least);
        let mut size = least.keep.len().div_ceil(2);
        loop {
            let before = least.keep.len();
            let mut at = 0;
            while at < least.keep.len() {
                let mut fewer = least.clone();
                fewer.keep.drain(at..(at + size).min(least.keep.len()));
                if self.still_fails(&fewer) {
                    least = fewer;
                } else {
                    at += size;
                }
            }
            // Single steps until none of them can go.
            if size == 1 && least.keep.len() == before {
                return self.shorten(least);
            }
            size = size.div_ceil(2).max(1);
        }
    }

    /// The shortest lengths with which it fails.
    fn shorten(&mut self, least: Candidate) -> Candidate {
        for longest in LENGTHS.into_iter().filter(|longest| *longest < least.longest) {
            let shorter = Candidate { longest, ..least.clone() };
            if self.still_fails(&shorter) {
                return shorter;
            }
        }
        least
    }
}

/// A fault that is put in, on rank 1 and in one kind of step, leaves that step, those that make its buffers, and two ranks.
#[test]
fn finds_what_is_put_in() {
    let inject = vec![("GPUCOMM_RANDOM_INJECT", "fill".to_owned())];
    let time = slower(Duration::from_secs(120));
    let found = (1..40).find_map(|seed| of("programs", (seed, 4, 30), time, inject.clone()));
    let (smallest, class) = found.expect("a program that fails");
    assert_eq!((smallest.ranks(), class.as_str()), (2, "wrong data"));
    assert!(smallest.steps() <= 3, "{smallest:?}");
}
