//! Programs, drawn from a seed.

use gpucomm::{Communicator, Result};

use crate::generator::{Generator, SLOTS};
use crate::rank::Rank;
use crate::step::{self, Step};
use crate::steps::check;
use crate::watch;

pub struct Program {
    pub seed: u64,
    pub steps: Vec<Box<dyn Step>>,
}

impl Program {
    /// The program of a seed: so many steps, and a check of every buffer. `forget`: whether it may leak memory.
    pub fn draw(seed: u64, ranks: usize, steps: usize, forget: bool) -> Self {
        let mut g = Generator::new(seed, ranks, forget);
        let mut program = Self { seed, steps: Vec::new() };
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
        let mut rank = Rank::new(comm, SLOTS)?;
        for (at, step) in self.steps.iter().enumerate() {
            watch::step(comm.rank(), at);
            step.run(&mut rank)?;
        }
        watch::step(comm.rank(), self.steps.len());
        rank.finish()
    }
}
