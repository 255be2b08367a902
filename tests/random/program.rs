//! Programs, drawn from a seed.

use gpucomm::{Communicator, Result};

use crate::deviation::{Deviant, all_here};
use crate::generator::{Generator, SLOTS};
use crate::model::{Contents, Model};
use crate::rank::Rank;
use crate::settings::{self, Batch};
use crate::step::{self, Step};
use crate::steps::check;
use crate::watch;

pub struct Program {
    pub seed: u64,
    pub ranks: usize,
    pub steps: Vec<Box<dyn Step>>,
}

impl Program {
    /// The program of a seed: so many steps, those of them that are kept, and a check of every buffer. `forget`: whether it may leak
    /// memory.
    pub fn draw(batch: &Batch, seed: u64, forget: bool) -> Self {
        let mut g = Generator::new(seed, batch.ranks, forget, batch.longest);
        let mut program = Self { seed, ranks: batch.ranks, steps: Vec::new() };
        let (mut makers, mut kept) = ([None; SLOTS], batch.keep.map(|keep| Kept::new(keep, batch.ranks)));
        for at in 0..batch.steps {
            g.begin(at);
            let mut step = step::draw(&mut g);
            let keeps = kept.as_ref().is_none_or(|kept| kept.takes(at, &*step, &g.model, &makers));
            step.apply(&mut g.model);
            step.makes().into_iter().for_each(|slot| makers[slot] = Some(at));
            if keeps {
                kept.iter_mut().for_each(|kept| kept.take(at, &mut *step));
                program.steps.push(step);
            }
        }
        if let Some(kept) = kept {
            g.model = kept.model;
        }
        g.begin(batch.steps);
        for slot in (0..SLOTS).filter(|&slot| g.model.slots[slot].is_some()).collect::<Vec<_>>() {
            program.steps.push(check::of(&mut g, slot));
        }
        program
    }

    /// A step in words.
    pub fn doing(&self, at: usize) -> String {
        self.steps.get(at).map_or("the end".to_owned(), |step| format!("{step:?}"))
    }

    /// Whether it makes graphs with operations of the communicator.
    pub fn captures(&self) -> bool {
        self.steps.iter().any(|step| step.captures())
    }

    /// Runs it as one rank.
    pub fn run(&self, comm: &Communicator) -> Result<()> {
        self.run_as(&mut Rank::new(comm)?)
    }

    /// Runs it as a rank that goes on afterwards.
    pub fn run_as(&self, rank: &mut Rank<'_>) -> Result<()> {
        self.run_steps(rank, |_, step, rank| step.run(rank))
    }

    /// Runs it as one rank, one of which deviates; returns when all ranks have come to the end.
    pub fn run_deviating(&self, comm: &Communicator, deviant: &Deviant) -> Result<()> {
        let mut rank = Rank::new(comm)?;
        self.run_steps(&mut rank, |at, step, rank| deviant.run(at, step, rank))?;
        all_here(&rank, 5)
    }

    /// Runs it as one rank, by `run` for each step.
    pub fn run_steps(
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
            rank.sees(|| "ok".to_owned());
            if settings::waits_after_each_step() {
                rank.finish()?;
            }
        }
        watch::step(rank.number(), self.steps.len());
        rank.finish()
    }
}

/// The memory as it is where only some of the steps are done.
struct Kept {
    keep: &'static [usize],
    model: Model,
    /// Which step has made the buffer of a slot.
    makers: [Option<usize>; SLOTS],
}

impl Kept {
    fn new(keep: &'static [usize], ranks: usize) -> Self {
        Self { keep, model: Model::new(ranks, SLOTS), makers: [None; SLOTS] }
    }

    /// Whether a step is kept: it is if it is asked for, and finds the buffers that it was drawn for.
    fn takes(&self, at: usize, step: &dyn Step, all: &Model, makers: &[Option<usize>; SLOTS]) -> bool {
        let known = |model: &Model, slot: usize| model.slots[slot].as_ref().map(Contents::known);
        self.keep.contains(&at)
            && step.makes().is_none_or(|slot| self.model.slots[slot].is_none())
            && step
                .slots()
                .into_iter()
                .all(|slot| self.makers[slot] == makers[slot] && known(&self.model, slot) == known(all, slot))
    }

    fn take(&mut self, at: usize, step: &mut dyn Step) {
        step.rebase(&self.model);
        step.apply(&mut self.model);
        step.makes().into_iter().for_each(|slot| self.makers[slot] = Some(at));
    }
}
