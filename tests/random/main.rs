//! Random programs against a model on the host, on the emulator and on real GPUs.
//!
//! A program is a list of steps that a seed draws for 1 to 4 ranks. The host keeps what every buffer of every rank must hold, and
//! ranks compare. Floats that were reduced may be off by a stated bound where a step of it may be rounded, see `reduce.rs`; all else
//! is exact.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUCOMM_RANDOM_SEED` | the first seed; printed at the start, drawn otherwise |
//! | `GPUCOMM_RANDOM_SECONDS` | how long each mode goes on |
//! | `GPUCOMM_RANDOM_COUNT` | how many programs each mode runs |
//! | `GPUCOMM_RANDOM_RANKS` | the number of ranks; drawn otherwise. Programs for more than there are devices are left out |
//! | `GPUCOMM_RANDOM_STEPS` | how many steps a program has |
//! | `GPUCOMM_RANDOM_LONGEST`, `GPUCOMM_RANDOM_KEEP` | the most elements that a length is drawn for; the numbers of the steps that are kept, with commas between |
//! | `GPUCOMM_RANDOM_TRANSCRIPT` | the file to which `differential` writes what all ranks saw |
//! | `GPUCOMM_RANDOM_COMPARE` | a file that it wrote, here or elsewhere: the same programs run again, and what differs is printed |
//! | `GPUCOMM_RANDOM_INJECT` | a fault to be found: `fill` leaves out the last element of fills on rank 1 |
//! | `GPUCOMM_RANDOM_TRACE` | prints every step of every rank; `wait`: each rank also waits for its streams after each step |
//! | `GPUCOMM_TEST_SLOWER` | multiplies every time limit |
//!
//! `ends` is about what programs leave behind: forgotten values, drops in odd places, work that is stuck; see `ends/`.
//!
//! `shrink` makes a program that fails smaller: `shrink.rs`.
//!
//! What fails prints the seed, the rank, the step and the command that repeats it. Where nothing moves for three times the timeout
//! and some seconds, the process says where each rank is, and ends.

mod abort;
mod alteration;
mod carried;
mod cell;
mod checked;
mod cliques;
mod collective;
mod configs;
mod cuts;
mod deviation;
mod differential;
mod disagree;
mod ends;
mod exact;
#[path = "../support/farewell.rs"]
mod farewell;
mod fault;
#[path = "../support/gate.rs"]
mod gate;
mod generator;
mod issue;
mod layout;
mod lost;
mod meet;
mod message;
mod model;
mod number;
mod operation;
mod outcome;
#[path = "../support/places.rs"]
mod places;
#[path = "../support/process.rs"]
mod process;
mod processes;
mod program;
mod programs;
mod rank;
mod record;
mod reduce;
mod settings;
mod shrink;
#[path = "../support/slower.rs"]
mod slower;
mod step;
mod steps;
mod streams;
mod transcript;
mod watch;

/// What child processes have in their environment beside what they inherit and are given.
fn environment() -> [(&'static str, String); 0] {
    []
}

#[test]
fn programs() {
    programs::run();
}

#[test]
fn abort() {
    abort::run();
}

#[test]
fn ends() {
    ends::run();
}

#[test]
fn checked() {
    checked::run();
}

#[test]
fn disagree() {
    disagree::run();
}

#[test]
fn differential() {
    differential::run();
}

#[test]
fn processes() {
    processes::run();
}

#[test]
#[ignore = "for a program that fails: see shrink.rs"]
fn shrink() {
    shrink::run();
}

#[test]
#[ignore = "a rank of `processes`, `checked` or `differential`"]
fn child() {
    processes::child();
    checked::child();
    differential::child();
}
