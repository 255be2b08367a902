//! Programs in which one rank does one thing otherwise: all ranks end with an error in time, and no wrong answer is given.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucomm::{Backend, Error};

use crate::cliques;
use crate::deviation::{Deviant, Deviation};
use crate::outcome::{self, Outcome};
use crate::program::Program;
use crate::settings::{Batch, Run, rng, slower};
use crate::watch::{self, say};

/// How long an abort may take after the timeout.
const ABORT: Duration = Duration::from_secs(10);

/// What calls of such a program may take.
fn timeout() -> Duration {
    Duration::from_millis(if gpucomm::backend() == Backend::Nvidia { 3000 } else { 1000 })
}

pub fn run() {
    let mut run = Run::begin("disagree", 20, 1, timeout());
    let (mut told, mut ways) = ([0; 3], BTreeMap::<&str, u64>::new());
    while let Some(batch) = run.batch(1) {
        // A rank alone agrees with itself.
        if batch.ranks > 1 {
            let (way, counts) = clique(&batch);
            *ways.entry(way).or_default() += 1;
            told.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
            cliques::still_works(&batch, batch.first);
        }
    }
    let [disagreements, timeouts, aborts] = told;
    say(&format!("disagree: one rank differed in {ways:?}"));
    say(&format!("disagree: ranks ended with {disagreements} disagreements, {timeouts} timeouts, {aborts} aborts"));
}

/// Runs one program: in what a rank differed, and how many ended with a disagreement, a timeout, an abort.
fn clique(batch: &Batch) -> (&'static str, [usize; 3]) {
    let program = Arc::new(Program::draw(batch, batch.first, true));
    let deviant = draw(&program, batch);
    let repeat = batch.repeat(batch.first);
    let clique = cliques::start_to_end(batch, timeout());
    watch::begin(&repeat, &program);
    let begin = Instant::now();
    let outcomes = outcome::of_ranks(&clique, |comm| program.run_deviating(comm, &deviant));
    let (took, mut counts) = (begin.elapsed(), [0; 3]);
    for outcome in &outcomes.ranks {
        let kind = match outcome {
            Outcome::Error { error: Error::Disagreement { .. }, .. } => 0,
            Outcome::Error { error: Error::Timeout { .. }, .. } => 1,
            Outcome::Error { error: Error::Aborted { .. }, .. } => 2,
            _ => {
                outcomes.tell(&program);
                panic!("not what may come of {deviant:?}: {:?}: {repeat}", outcomes.ranks);
            }
        };
        counts[kind] += 1;
    }
    assert!(took < slower(2 * timeout() + ABORT), "{took:?} to the end of {deviant:?}: {repeat}");
    (deviant.deviation.name, counts)
}

/// One of the ways in which one rank may deviate: each that was found in some attempts is as likely.
pub fn draw(program: &Program, batch: &Batch) -> Deviant {
    let mut rng = rng(batch.first, "deviation");
    let mut ways: BTreeMap<&str, Deviant> = BTreeMap::new();
    for _ in 0..200 {
        let (rank, step) = (rng.usize(..batch.ranks), rng.usize(..program.steps.len()));
        if let Some(deviation) = program.steps[step].deviate(&mut rng, rank) {
            ways.insert(deviation.name, Deviant { rank, step, deviation });
        }
    }
    for sends in [false, true] {
        let (rank, step) = (rng.usize(..batch.ranks), rng.usize(..program.steps.len()));
        let deviation = Deviation::unmatched(&mut rng, rank, batch.ranks, sends);
        ways.insert(deviation.name, Deviant { rank, step, deviation });
    }
    let chosen = rng.usize(..ways.len());
    ways.into_values().nth(chosen).expect("one of them")
}
