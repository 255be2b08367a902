//! The timed loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucomm::nccl::Communicator;
use gpucomm::{Backend, Error, Graph, Stream};

use super::enqueue::Call;
use super::ranks::Ranks;
use crate::failure::Result;

/// How far apart successive calls are, so that they do not all find the same memory in the caches: as nccl-tests does
/// it.
#[derive(Debug, Clone, Copy)]
pub struct Stride {
    extent: usize,
    places: usize,
}

impl Stride {
    /// Always the same memory.
    pub const NONE: Self = Self { extent: 0, places: 1 };

    /// For calls that use `extent` elements of buffers that hold `capacity`.
    pub fn new(extent: usize, capacity: usize) -> Self {
        Self { extent, places: capacity.checked_div(extent).map_or(1, |places| places.max(1)) }
    }
}

/// `call`, `times` times.
#[derive(Debug, Clone, Copy)]
pub struct Loop<'a> {
    pub call: &'a Call,
    pub times: usize,
    pub stride: Stride,
}

impl Loop<'_> {
    /// Enqueues it without waiting in between.
    fn enqueue(self, ranks: &mut dyn Ranks<'_>, streams: &[&Stream]) -> gpucomm::Result<()> {
        let mut place = 0;
        for _ in 0..self.times {
            ranks.enqueue(streams, self.call, place * self.stride.extent)?;
            place += 1;
            if place == self.stride.places {
                place = 0;
            }
        }
        Ok(())
    }

    /// Runs it: straight away if `launches` is 0, else captured once and launched so often. Says how many seconds a call took on this
    /// thread's ranks, from the moment when `ready` has returned.
    pub fn run(self, ranks: &mut dyn Ranks<'_>, launches: usize, ready: impl FnOnce() -> Result<()>) -> Result<f64> {
        let own = ranks.each();
        let streams: Vec<&Stream> = own.iter().map(|(_, stream)| &**stream).collect();
        let graph = match launches {
            0 => None,
            _ => Some(capture(&streams, |lent| self.enqueue(ranks, lent))?),
        };
        ready()?;
        let start = Instant::now();
        match &graph {
            None => self.enqueue(ranks, &streams)?,
            Some(graph) => (0..launches).try_for_each(|_| graph.launch(streams[0]))?,
        }
        wait(&own)?;
        Ok(start.elapsed().as_secs_f64() / (self.times * launches.max(1)) as f64)
    }
}

/// What `work` enqueues, as one graph for all ranks of this thread, to be launched on the first of `streams`. It is lent a stream
/// in place of each.
fn capture(streams: &[&Stream], work: impl FnOnce(&[&Stream]) -> gpucomm::Result<()>) -> gpucomm::Result<Graph> {
    streams[0].capture(|stream| {
        let others = streams[1..].iter().map(|other| stream.fork(other.device()));
        let others = others.collect::<gpucomm::Result<Vec<_>>>()?;
        work(&std::iter::once(stream).chain(&others).collect::<Vec<_>>())
    })
}

/// Waits until all streams have done all that was enqueued.
///
/// Asks without a pause, since a sleep would be seen in the times, and for errors only while there is something to wait
/// for, since the time is taken when the last stream is done; on the emulator, which needs the processor for the
/// work itself, it does sleep.
fn wait(ranks: &[(&Communicator, Arc<Stream>)]) -> Result<()> {
    let start = Instant::now();
    let sleepy = gpucomm::backend() == Backend::Emulator;
    for (comm, stream) in ranks {
        let mut round = 0u32;
        while !stream.query()? {
            round = round.wrapping_add(1);
            if round.is_multiple_of(if sleepy { 32 } else { 1024 }) {
                comm.async_error()?;
                let timeout = comm.timeout();
                if start.elapsed() >= timeout {
                    let detail = format!("rank {} has not finished what was enqueued", comm.rank());
                    return Err(Error::Timeout { operation: "perf", timeout, detail, rank: None, peer: None }.into());
                }
            }
            if sleepy && round > 16 {
                std::thread::sleep(Duration::from_micros(20));
            } else {
                std::thread::yield_now();
            }
        }
    }
    Ok(())
}
