//! Steps that are captured into a graph, which is launched some times.

use gpucomm::{Graph, Result, Stream};

use crate::generator::{Generator, STREAMS};
use crate::model::Model;
use crate::rank::Rank;
use crate::step::{Draw, Step};
use crate::steps::{barrier, copy, exchange};

/// What is work of devices alone, and how often it comes.
const PARTS: [Draw; 10] = [
    copy::fill,
    copy::write,
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
    /// What it is, and what it becomes by an update.
    forms: Vec<Form>,
    /// Which of the streams of the capture stands for each stream, on each rank.
    lanes: Vec<Vec<usize>>,
    /// Whether the graph goes at once.
    drops: Vec<bool>,
}

#[derive(Debug)]
struct Form {
    parts: Vec<Box<dyn Step>>,
    /// For each launch its streams.
    launches: Vec<Vec<usize>>,
}

impl Form {
    fn draw(g: &mut Generator) -> Self {
        g.captures = true;
        let parts = (0..g.rng.usize(1..6)).filter_map(|_| g.choose(&PARTS)(g)).collect();
        g.captures = false;
        Self { parts, launches: (0..g.rng.usize(..4)).map(|_| g.streams()).collect() }
    }
}

pub fn capture(g: &mut Generator) -> Option<Box<dyn Step>> {
    let forms: Vec<_> = (0..if g.chance(3) { 2 } else { 1 }).map(|_| Form::draw(g)).collect();
    let lanes = g.each(|g| (0..STREAMS).map(|_| g.rng.usize(..LANES)).collect());
    let drops = g.each(|g| g.rng.bool());
    let whole = forms.iter().all(|form| !form.parts.is_empty());
    whole.then(|| Box::new(Captured { forms, lanes, drops }) as Box<dyn Step>)
}

impl Captured {
    fn parts(&self) -> impl Iterator<Item = &dyn Step> {
        self.forms.iter().flat_map(|form| form.parts.iter().map(|part| &**part))
    }

    /// The closure of a capture of these.
    fn record(&self, form: &Form, rank: &mut Rank<'_>, lent: &Stream) -> Result<()> {
        let device = rank.comm.device();
        let forks = (1..LANES).map(|_| lent.fork(device)).collect::<Result<Vec<_>>>()?;
        let lanes =
            self.lanes[rank.number()].iter().map(|lane| if *lane == 0 { lent } else { &forks[lane - 1] }.clone());
        let plain = std::mem::replace(&mut rank.streams, lanes.collect());
        rank.captures = true;
        let done = form.parts.iter().try_for_each(|part| part.run(rank));
        rank.captures = false;
        rank.streams = plain;
        done
    }
}

impl Step for Captured {
    fn captures(&self) -> bool {
        true
    }

    fn apply(&self, model: &mut Model) {
        for form in &self.forms {
            for _ in &form.launches {
                form.parts.iter().for_each(|part| part.apply(model));
            }
        }
    }

    fn slots(&self) -> Vec<usize> {
        self.parts().flat_map(Step::slots).collect()
    }

    fn rebase(&mut self, model: &Model) {
        self.forms.iter_mut().flat_map(|form| &mut form.parts).for_each(|part| part.rebase(model));
    }

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let mut made: Option<Graph> = None;
        for form in &self.forms {
            let graph = match made.take() {
                None => rank.streams[0].clone().capture(|lent| self.record(form, rank, lent))?,
                Some(mut graph) => {
                    graph.update(|lent| self.record(form, rank, lent))?;
                    graph
                }
            };
            for streams in &form.launches {
                graph.launch(rank.stream(streams))?;
            }
            made = Some(graph);
        }
        if !self.drops[rank.number()] {
            rank.graphs.extend(made);
        }
        Ok(())
    }
}
