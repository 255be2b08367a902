//! Streams, events, host functions and waits.

use std::time::Duration;

use gpucomm::cuda::StreamOptions;
use gpucomm::{Event, Result, Stream};

use crate::generator::{Generator, STREAMS};
use crate::model::Model;
use crate::rank::Rank;
use crate::step::Step;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Plain,
    /// Takes turns with the default stream, at the highest priority.
    Special,
    /// Another handle of the next stream.
    Clone,
    /// The old handle is forgotten.
    Forget,
}

/// Each rank replaces one of its streams.
#[derive(Debug)]
struct NewStream {
    which: Vec<usize>,
    kinds: Vec<Kind>,
}

pub fn new_stream(g: &mut Generator) -> Option<Box<dyn Step>> {
    let kinds = g.each(|g| match g.rng.u32(..8) {
        0 if g.forget => Kind::Forget,
        1 => Kind::Clone,
        2..=3 => Kind::Special,
        _ => Kind::Plain,
    });
    Some(Box::new(NewStream { which: g.streams(), kinds }))
}

impl Step for NewStream {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (device, which, kind) = (rank.comm.device(), self.which[rank.number()], self.kinds[rank.number()]);
        let new = match kind {
            Kind::Special => {
                Stream::new_with(device, &StreamOptions::new().with_non_blocking(false).with_priority(-3))?
            }
            Kind::Clone => rank.streams[(which + 1) % STREAMS].clone(),
            Kind::Plain | Kind::Forget => Stream::new(device)?,
        };
        let old = std::mem::replace(&mut rank.streams[which], new);
        if matches!(kind, Kind::Forget) {
            std::mem::forget(old);
        }
        Ok(())
    }
}

/// One stream waits for another.
#[derive(Debug)]
struct Wait {
    streams: Vec<usize>,
    after: Vec<usize>,
    timing: Vec<bool>,
    /// Whether the host waits as well.
    host: Vec<bool>,
}

pub fn event(g: &mut Generator) -> Option<Box<dyn Step>> {
    let (timing, host) = (g.each(|g| g.rng.bool()), g.each(|g| g.chance(7)));
    Some(Box::new(Wait { streams: g.streams(), after: g.streams(), timing, host }))
}

impl Step for Wait {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let (me, device) = (rank.number(), rank.comm.device());
        let event = if self.timing[me] { Event::timing(device)? } else { Event::new(device)? };
        event.record(rank.stream(&self.after))?;
        rank.stream(&self.streams).wait_event(&event)?;
        if self.host[me] { event.synchronize() } else { Ok(()) }
    }
}

/// A host function on each rank.
#[derive(Debug)]
struct Host {
    streams: Vec<usize>,
    delays: Vec<Duration>,
}

pub fn host(g: &mut Generator) -> Option<Box<dyn Step>> {
    let delays = g.each(|g| Duration::from_micros(g.rng.u64(..400)));
    Some(Box::new(Host { streams: g.streams(), delays }))
}

impl Step for Host {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        rank.launch_host(self.streams[rank.number()], self.delays[rank.number()])
    }
}

#[derive(Debug)]
struct Synchronize(Vec<usize>);

pub fn synchronize(g: &mut Generator) -> Option<Box<dyn Step>> {
    Some(Box::new(Synchronize(g.streams())))
}

impl Step for Synchronize {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        rank.stream(&self.0).synchronize()
    }
}
