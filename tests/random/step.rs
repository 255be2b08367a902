//! What a program is made of.

use fastrand::Rng;
use gpucomm::Result;

use crate::deviation::Deviation;
use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
#[cfg(nccl_ge_2_28_7)]
use crate::steps::rest;
#[cfg(nccl_ge_2_22)]
use crate::steps::simulation;
#[cfg(nccl_ge_2_29_7)]
use crate::steps::suspension;
use crate::steps::{
    another, bad, barrier, buckets, buffer, capture, check, copy, crowd, exchange, order, part, registration, scalar,
    shortage,
};
#[cfg(nccl_ge_2_29)]
use crate::steps::{growth, put};

/// One step of all ranks.
///
/// A new kind of step is a file in `steps/` with a function that draws it, given the memory before it, and a line in [`KINDS`].
pub trait Step: std::fmt::Debug + Send + Sync {
    /// What it does to the memory of all ranks.
    fn apply(&self, model: &mut Model);

    /// The same as one rank. Panics on a wrong answer.
    fn run(&self, rank: &mut Rank<'_>) -> Result<()>;

    /// What it is called in transcripts.
    fn name(&self) -> String {
        let text = format!("{self:?}");
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    }

    /// The slots of the buffers that it needs, as they were when it was drawn.
    fn slots(&self) -> Vec<usize> {
        Vec::new()
    }

    /// The slot that it fills.
    fn makes(&self) -> Option<usize> {
        None
    }

    /// Makes it that of other buffers, of the same lengths and types: steps before it are left out.
    fn rebase(&mut self, _: &Model) {}

    /// Whether it makes graphs with operations of the communicator.
    fn captures(&self) -> bool {
        false
    }

    /// Whether the death of a rank ends it, where the store knows of that.
    fn hears_of_deaths(&self) -> bool {
        true
    }

    /// Something else that rank `who` may do, so that no rank may end well.
    fn deviate(&self, _: &mut Rng, _who: usize) -> Option<Deviation> {
        None
    }
}

/// Draws a step, or nothing where the memory has no room for one.
pub type Draw = fn(&mut Generator) -> Option<Box<dyn Step>>;

/// The kinds of steps, and how often they come.
pub const KINDS: &[(u32, Draw)] = &[
    (16, buffer::make),
    (3, buffer::release),
    (8, copy::write),
    (5, copy::fill),
    (6, copy::between),
    (3, copy::within),
    (8, check::check),
    (30, exchange::collective),
    (12, exchange::group),
    (9, exchange::messages),
    (1, crowd::crowd),
    (3, barrier::barrier),
    (4, capture::capture),
    (2, scalar::scalar),
    (2, buckets::buckets),
    (1, part::split),
    #[cfg(nccl_ge_2_22)]
    (1, simulation::simulate),
    (1, another::another),
    #[cfg(nccl_ge_2_29)]
    (1, put::puts),
    #[cfg(nccl_ge_2_28_7)]
    (1, rest::shrink),
    #[cfg(nccl_ge_2_29)]
    (1, growth::grow),
    #[cfg(nccl_ge_2_29_7)]
    (1, suspension::suspend),
    (4, registration::register),
    (2, registration::deregister),
    (4, order::new_stream),
    (4, order::event),
    (4, order::host),
    (2, order::synchronize),
    (4, bad::argument),
    (2, bad::group),
    (2, shortage::shortage),
];

/// The next step of a program.
pub fn draw(g: &mut Generator) -> Box<dyn Step> {
    let total: u32 = KINDS.iter().map(|(weight, _)| weight).sum();
    loop {
        let mut at = g.rng.u32(..total);
        let kind = KINDS.iter().find(|(weight, _)| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        if let Some(step) = kind.and_then(|(_, draw)| draw(g)) {
            return step;
        }
    }
}
