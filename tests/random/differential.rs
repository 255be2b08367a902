//! Programs whose transcript is the same wherever they run: right programs among threads or processes, some of which end with a fault.
//!
//! Every answer is held against the model as well, so a transcript with no line that says `wrong` is right; one that was recorded on GPUs
//! shows beside that what the model does not know: which error a fault brings, and where it is met.

use std::sync::Arc;

use crate::cliques::{self, PATIENT, shares};
use crate::fault::{Fault, Kind};
use crate::meet::Meet;
use crate::outcome::{self, Outcome};
use crate::process::{Role, spawn_all};
use crate::processes::joined;
use crate::program::Program;
use crate::rank::Rank;
use crate::record::{Record, kind_of, outcome};
use crate::settings::{Batch, Run, rng, slower};
use crate::shrink::CLASS;
use crate::transcript;
use crate::watch::{self, say};

/// The role of a rank that is a process.
const ROLE: &str = "differential";

/// What a line of a child process begins with that belongs to its record.
const LINE: &str = "record ";

/// How many programs a clique runs; the last may end with a fault.
const PROGRAMS: u64 = 5;

/// A file to be written, and one to be compared with.
const WRITE: &str = "GPUCOMM_RANDOM_TRANSCRIPT";
const COMPARE: &str = "GPUCOMM_RANDOM_COMPARE";

pub fn run() {
    let mut run = Run::begin("differential", 60, 1, PATIENT);
    let recorded = std::env::var(COMPARE).ok().map(|path| {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{COMPARE}: {path}: {error}"));
        let (seeds, steps) =
            transcript::read_title(&text).unwrap_or_else(|| panic!("{COMPARE}: {path}: no transcript"));
        run.only(seeds, steps);
        text
    });
    let mut text = transcript::title(run.to_come());
    let path = std::env::var_os(WRITE);
    let mut wrong = Vec::new();
    let mut again = recorded.is_none() && path.is_none();
    while let Some(batch) = run.batch(PROGRAMS) {
        let programs = of_batch(&batch);
        if std::mem::take(&mut again) {
            let second = transcript::compare(&programs, &of_batch(&batch));
            assert!(second.different.is_empty(), "the same seeds twice: {second:#?}: {}", batch.repeat(batch.first));
        }
        if programs.contains(WRONG) {
            say(&format!("{CLASS}wrong\n{programs}\n{}", batch.repeat(batch.first + batch.seeds - 1)));
            wrong.push(batch.first);
        }
        text.push_str(&programs);
        if let Some(path) = &path {
            // After each, so that something is left of a run that is cut short.
            std::fs::write(path, &text).unwrap_or_else(|error| panic!("{WRITE}: {error}"));
        }
    }
    if let Some(recorded) = recorded {
        let found = transcript::compare(&recorded, &text);
        found.different.iter().for_each(|difference| say(difference));
        let (same, different, alone) = (found.same, found.different.len(), found.alone);
        say(&format!(
            "differential: {same} programs are the same, {different} differ, {alone} are in one transcript only"
        ));
        assert!(different == 0 && same > 0, "not the recorded transcript");
    }
    assert!(wrong.is_empty(), "wrong programs from the seeds {wrong:?} on");
}

/// What a line says of a program that did not end as it must.
const WRONG: &str = "wrong: ";

/// The transcript of some programs that run one after the other.
fn of_batch(batch: &Batch) -> String {
    let (processes, fault) = draw(batch);
    if processes { among_processes(batch, fault) } else { among_threads(batch, fault) }
}

/// Whether ranks are processes, and the fault: drawn from the first seed, as is the number of ranks.
fn draw(batch: &Batch) -> (bool, Option<Fault>) {
    let mut rng = rng(batch.first, "differential");
    let (processes, faulty) = (batch.ranks > 1 && rng.u32(..6) == 0, rng.bool());
    let fault = Fault::draw(batch.first + batch.seeds - 1, batch.ranks, processes);
    (processes, fault.filter(|_| faulty))
}

fn among_threads(batch: &Batch, fault: Option<Fault>) -> String {
    let clique = cliques::start(batch, PATIENT);
    let mut text = String::new();
    for seed in batch.seeds() {
        let program = Arc::new(Program::draw(batch, seed, true));
        let fault = fault.filter(|_| seed == batch.first + batch.seeds - 1);
        watch::begin(&batch.repeat(seed), &program);
        let records: Vec<Record> = (0..batch.ranks).map(|_| Record::default()).collect();
        let meet = Meet::new(batch.ranks);
        let outcomes = outcome::of_ranks(&clique, |comm| {
            let record = &records[comm.rank()];
            let mut rank = Rank::new(comm)?;
            rank.record = Some(record.clone());
            program.run_as(&mut rank)?;
            if let Some(fault) = fault {
                let seen = fault.among_threads(&rank, &meet)?;
                seen.into_iter().for_each(|text| record.add(program.steps.len(), text));
            }
            Ok(())
        });
        outcomes.tell(&program);
        for (rank, outcome) in outcomes.ranks.iter().enumerate() {
            match outcome {
                Outcome::Right => {}
                Outcome::Error { step, error } => records[rank].add(*step, format!("{WRONG}{}", kind_of(error))),
                Outcome::Wrong { step, text } => {
                    records[rank].add(*step, format!("{WRONG}{}", text.lines().next().unwrap_or_default()));
                }
            }
        }
        text.push_str(&transcript::of(&program, &records, "threads", fault));
        if !outcomes.all_right() {
            return text;
        }
    }
    if fault.is_none() {
        let closed = clique.close_timeout(slower(PATIENT));
        text.push_str(&format!("  close: {}\n", outcome(&closed)));
        return text;
    }
    drop(clique);
    // What went wrong has broken nothing.
    cliques::still_works(batch, batch.first);
    text.push_str("  another clique works\n");
    text
}

fn among_processes(batch: &Batch, fault: Option<Fault>) -> String {
    let last = batch.first + batch.seeds - 1;
    let mut environment = batch.environment(last);
    environment.push(("NCCL_COMM_SPLIT_SHARE_RESOURCES", if shares(batch) { "1" } else { "0" }.to_owned()));
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let children = spawn_all("child", ROLE, batch.ranks, &environment);
    let records: Vec<Vec<Record>> =
        batch.seeds().map(|_| (0..batch.ranks).map(|_| Record::default()).collect()).collect();
    let mut failures = String::new();
    for (rank, child) in children.into_iter().enumerate() {
        let end = child.finish(slower(2 * PATIENT));
        let killed = fault.is_some_and(|fault| fault.kind == Kind::Killed && fault.who == rank);
        for line in end.text.lines().filter_map(|line| line.split_once(LINE).map(|(_, line)| line)) {
            let mut words = line.splitn(3, ' ');
            let mut number = || words.next().and_then(|word| word.parse::<usize>().ok()).expect("a number");
            let (program, step) = (number(), number());
            records[program][rank].add(step, words.next().unwrap_or_default().to_owned());
        }
        if !killed && !end.status.success() {
            let said = end.text.lines().find(|line| line.contains(WRONG)).unwrap_or_default();
            failures.push_str(&format!("  {WRONG}{} {} {said}\n", end.what, end.status));
            say(&end.text);
        }
    }
    watch::moved();
    let mut text = String::new();
    for (seed, records) in batch.seeds().zip(&records) {
        let program = Program::draw(batch, seed, false);
        text.push_str(&transcript::of(&program, records, "processes", fault.filter(|_| seed == last)));
    }
    text + &failures
}

/// One rank that is a process.
pub fn child() {
    let Some(role) = Role::of_this_process(ROLE) else { return };
    let mut run = Run::begin("differential", 60, 600, PATIENT);
    let batch = run.batch(u64::MAX).expect("seeds");
    let comm = joined(&role, &batch);
    let last = batch.first + batch.seeds - 1;
    let (_, fault) = draw(&batch);
    for (at, seed) in batch.seeds().enumerate() {
        let (program, record) = (Arc::new(Program::draw(&batch, seed, false)), Record::default());
        let tell = |record: &Record| {
            record.lines().into_iter().for_each(|(step, text)| say(&format!("{LINE}{at} {step} {text}")));
        };
        watch::begin(&batch.repeat(seed), &program);
        let mut rank = Rank::new(&comm).expect("streams");
        rank.record = Some(record.clone());
        if let Err(error) = program.run_as(&mut rank) {
            let step = watch::step_of(role.rank);
            tell(&record);
            panic!("{WRONG}step {step}: {} ({error})\n  in {}", kind_of(&error), program.doing(step));
        }
        tell(&record);
        if let Some(fault) = fault.filter(|_| seed == last) {
            let last = Record::default();
            let seen = fault.among_processes(&rank).expect("the last scene begins");
            seen.into_iter().for_each(|text| last.add(program.steps.len(), text));
            tell(&last);
            // The end of a communicator whose ranks are gone is not what this is about.
            std::process::exit(0);
        }
    }
    comm.close_timeout(slower(PATIENT)).expect("the end of a communicator that works");
}
