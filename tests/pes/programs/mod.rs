//! Random programs of all PEs against a model on the host.
//!
//! A program is a list of steps that a seed draws, the same on all PEs: each does its part, and computes what every PE must have. Within a
//! step nobody writes where another one reads or writes; between steps all come together.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUCOMM_RANDOM_COUNT` | how many programs each number of PEs runs |
//! | `GPUCOMM_RANDOM_STEPS` | how many steps a program has |
//! | `GPUCOMM_RANDOM_TRACE` | prints every step as it begins |

mod buffers;
mod collectives;
mod ends;
mod generator;
mod machine;
mod model;
mod moves;
mod step;
mod teams;

use crate::support::{Here, random, with_context};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.trim().parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

fn run(here: &Here<'_>, program: u64, steps: usize) {
    let seed = format!("program {program} of {} PEs", here.n_pes());
    let mut rng = here.rng(&seed);
    let steps = generator::draw(&mut rng, here.n_pes(), here.is_whole(), steps);
    let trace = std::env::var_os("GPUCOMM_RANDOM_TRACE").is_some();
    let mut machine = machine::Machine::new(here, &seed);
    for (at, step) in steps.iter().enumerate() {
        let what = format!("{seed}, step {at}, PE {}, {step:?} (GPUCOMM_TEST_SEED={})", here.pe(), random::seed());
        if trace {
            println!("{what}");
        }
        machine.begin(what);
        machine.step(step).unwrap_or_else(|error| panic!("{}: {error}", machine.what()));
        machine.check();
    }
}

#[test]
fn against_a_model() {
    let (count, steps) = (number("GPUCOMM_RANDOM_COUNT", 8), number("GPUCOMM_RANDOM_STEPS", 60));
    with_context(|here| {
        for program in 0..count {
            run(here, program, steps as usize);
        }
    });
}
