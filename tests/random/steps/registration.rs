//! Memory is registered, and is not any more.

use gpucomm::Result;

use crate::generator::{Generator, SLOTS};
use crate::model::{Model, Origin};
use crate::number::{Number, typed};
use crate::rank::Rank;
use crate::step::Step;

/// All ranks register the same buffer; whether NCCL takes it.
#[derive(Debug)]
struct Register {
    slot: usize,
    takes: bool,
}

pub fn register(g: &mut Generator) -> Option<Box<dyn Step>> {
    let slot = g.live()?;
    let contents = g.model.contents(slot);
    let bytes = contents.len() * contents.kind.size();
    let takes = match contents.origin {
        Origin::Local => bytes > 0,
        // What is no communicator's has to be whole pages.
        Origin::Nccl | Origin::Mapped => bytes > 0 && bytes.is_multiple_of(4096),
        _ => false,
    };
    (contents.known() == (false, false)).then(|| -> Box<dyn Step> { Box::new(Register { slot, takes }) })
}

impl Step for Register {
    fn apply(&self, model: &mut Model) {
        if let Some(contents) = &mut model.slots[self.slot] {
            contents.registered = self.takes;
        }
    }

    fn slots(&self) -> Vec<usize> {
        vec![self.slot]
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (comm, memory) = (rank.comm, rank.memory(self.slot));
        let registration = typed!(memory.kind(), T => comm.register(T::of(memory).slice(0..memory.len()))?);
        assert_eq!(registration.without_effect().is_none(), self.takes, "{registration:?}");
        rank.registrations[self.slot] = Some(registration);
        Ok(())
    }
}

/// Each rank drops some registrations, in an order of its own, and all take them away together.
#[derive(Debug)]
struct Deregister(Vec<Vec<usize>>);

pub fn deregister(g: &mut Generator) -> Option<Box<dyn Step>> {
    let registered = |slot: &usize| g.model.slots[*slot].as_ref().is_some_and(|contents| contents.registered);
    let mut slots: Vec<_> = (0..SLOTS).filter(registered).collect();
    if slots.is_empty() {
        return None;
    }
    g.rng.shuffle(&mut slots);
    slots.truncate(g.rng.usize(1..=slots.len()));
    let orders = g.each(|g| {
        let mut order = slots.clone();
        g.rng.shuffle(&mut order);
        order
    });
    Some(Box::new(Deregister(orders)))
}

impl Step for Deregister {
    fn apply(&self, model: &mut Model) {
        for slot in &self.0[0] {
            if let Some(contents) = &mut model.slots[*slot] {
                contents.registered = false;
            }
        }
    }

    fn slots(&self) -> Vec<usize> {
        self.0[0].clone()
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        for slot in &self.0[rank.number()] {
            rank.registrations[*slot] = None;
        }
        rank.comm.reclaim()
    }
}
