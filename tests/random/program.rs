//! Programs, drawn from a seed.

use gpucomm::{Communicator, Result};

use crate::deviation::{Deviant, all_here};
use crate::generator::{Generator, SLOTS};
use crate::rank::Rank;
use crate::settings;
use crate::step::{self, Step};
use crate::steps::check;
use crate::watch;

pub struct Program {
    pub seed: u64,
    pub ranks: usize,
    pub steps: Vec<Box<dyn Step>>,
}

impl Program {
    /// The program of a seed: so many steps, and a check of every buffer. `forget`: whether it may leak memory.
    pub fn draw(seed: u64, ranks: usize, steps: usize, forget: bool) -> Self {
        let mut g = Generator::new(seed, ranks, forget);
        let mut program = Self { seed, ranks, steps: Vec::new() };
        while program.steps.len() < steps {
            let step = step::draw(&mut g);
            step.apply(&mut g.model);
            program.steps.push(step);
        }
        for slot in (0..SLOTS).filter(|&slot| g.model.slots[slot].is_some()).collect::<Vec<_>>() {
            program.steps.push(check::of(&mut g, slot));
        }
        program
    }

    /// A step in words.
    pub fn doing(&self, at: usize) -> String {
        self.steps.get(at).map_or("the end".to_owned(), |step| format!("{step:?}"))
    }

    /// Runs it as one rank.
    pub fn run(&self, comm: &Communicator) -> Result<()> {
        self.run_steps(&mut Rank::new(comm)?, |_, step, rank| step.run(rank))
    }

    /// Runs it as one rank, one of which deviates; returns when all ranks have come to the end.
    pub fn run_deviating(&self, comm: &Communicator, deviant: &Deviant) -> Result<()> {
        let mut rank = Rank::new(comm)?;
        self.run_steps(&mut rank, |at, step, rank| deviant.run(at, step, rank))?;
        all_here(&rank, 5)
    }

    fn run_steps(
        &self,
        rank: &mut Rank<'_>,
        run: impl Fn(usize, &dyn Step, &mut Rank<'_>) -> Result<()>,
    ) -> Result<()> {
        for (at, step) in self.steps.iter().enumerate() {
            watch::step(rank.number(), at);
            if settings::traces() {
                watch::say(&format!("rank {}, step {at}: {step:?}", rank.number()));
            }
            run(at, &**step, rank)?;
            if settings::waits_after_each_step() {
                rank.finish()?;
            }
        }
        watch::step(rank.number(), self.steps.len());
        rank.finish()
    }
}
