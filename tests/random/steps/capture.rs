//! Steps that are captured into a graph, which is launched some times.

use gpucomm::Result;

use crate::generator::{Generator, STREAMS};
use crate::model::Model;
use crate::rank::Rank;
use crate::step::{Draw, Step};
use crate::steps::{barrier, copy, exchange};

/// What is work of devices alone, and how often it comes.
const PARTS: [Draw; 9] = [
    copy::fill,
    copy::between,
    copy::between,
    copy::within,
    exchange::collective,
    exchange::collective,
    exchange::group,
    exchange::messages,
    barrier::on_devices,
];

/// Streams of a capture.
const LANES: usize = 3;

#[derive(Debug)]
struct Captured {
    parts: Vec<Box<dyn Step>>,
    /// For each launch its streams.
    launches: Vec<Vec<usize>>,
    /// Which of the streams of the capture stands for each stream, on each rank.
    lanes: Vec<Vec<usize>>,
    /// Whether the graph goes at once.
    drops: Vec<bool>,
}

pub fn capture(g: &mut Generator) -> Option<Box<dyn Step>> {
    let parts: Vec<_> = (0..g.rng.usize(1..6)).filter_map(|_| g.choose(&PARTS)(g)).collect();
    let launches = (0..g.rng.usize(..4)).map(|_| g.streams()).collect();
    let lanes = g.each(|g| (0..STREAMS).map(|_| g.rng.usize(..LANES)).collect());
    let drops = g.each(|g| g.rng.bool());
    (!parts.is_empty()).then(|| Box::new(Captured { parts, launches, lanes, drops }) as Box<dyn Step>)
}

impl Step for Captured {
    fn apply(&self, model: &mut Model) {
        for _ in &self.launches {
            self.parts.iter().for_each(|part| part.apply(model));
        }
    }

    fn slots(&self) -> Vec<usize> {
        self.parts.iter().flat_map(|part| part.slots()).collect()
    }

    fn rebase(&mut self, model: &Model) {
        self.parts.iter_mut().for_each(|part| part.rebase(model));
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (me, stream) = (rank.number(), rank.streams[0].clone());
        let device = rank.comm.device();
        let graph = stream.capture(|lent| {
            let forks = (1..LANES).map(|_| lent.fork(device)).collect::<Result<Vec<_>>>()?;
            let lanes = self.lanes[me].iter().map(|lane| if *lane == 0 { lent } else { &forks[lane - 1] }.clone());
            let plain = std::mem::replace(&mut rank.streams, lanes.collect());
            rank.captures = true;
            let done = self.parts.iter().try_for_each(|part| part.run(rank));
            rank.captures = false;
            rank.streams = plain;
            done
        })?;
        for streams in &self.launches {
            graph.launch(rank.stream(streams))?;
        }
        if !self.drops[me] {
            rank.graphs.push(graph);
        }
        Ok(())
    }
}
