//! Barriers.

use gpucomm::Result;

use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::step::Step;

/// A point that no rank passes before all have come to it.
#[derive(Debug)]
struct Barrier {
    streams: Vec<usize>,
    /// Whether the host waits as well.
    host: Vec<bool>,
}

pub fn barrier(g: &mut Generator) -> Option<Box<dyn Step>> {
    let host = g.each(|g| g.chance(3));
    Some(Box::new(Barrier { streams: g.streams(), host }))
}

/// One for which no host waits.
pub fn on_devices(g: &mut Generator) -> Option<Box<dyn Step>> {
    let host = vec![false; g.ranks()];
    Some(Box::new(Barrier { streams: g.streams(), host }))
}

impl Step for Barrier {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let stream = rank.stream(&self.streams);
        if self.host[rank.number()] { rank.comm.barrier(stream) } else { rank.comm.barrier_on_stream(stream) }
    }
}
