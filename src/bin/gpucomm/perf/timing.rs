//! The timed loop.

use std::time::{Duration, Instant};

use gpucomm::{Backend, Error};

use super::buffers::Rank;
use super::enqueue::{Call, enqueue};
use super::number::Number;
use crate::failure::Result;

/// How far apart successive calls are, so that they do not all find the same memory in the caches: as nccl-tests does
/// it.
#[derive(Debug, Clone, Copy)]
pub struct Stride {
    extent: usize,
    places: usize,
}

impl Stride {
    /// For calls that use `extent` elements of buffers that hold `capacity`.
    pub fn new(extent: usize, capacity: usize) -> Self {
        Self { extent, places: capacity.checked_div(extent).map_or(1, |places| places.max(1)) }
    }
}

/// Enqueues `call` `times` times without waiting in between, then waits once.
pub fn repeat<T: Number>(ranks: &mut [Rank<'_, T>], call: &Call, times: usize, stride: Stride) -> Result<()> {
    let mut place = 0;
    for _ in 0..times {
        enqueue(ranks, call, place * stride.extent)?;
        place += 1;
        if place == stride.places {
            place = 0;
        }
    }
    wait(ranks)
}

/// Seconds that a call takes on this thread's ranks, of `times` enqueued back to back.
pub fn time<T: Number>(ranks: &mut [Rank<'_, T>], call: &Call, times: usize, stride: Stride) -> Result<f64> {
    let start = Instant::now();
    repeat(ranks, call, times, stride)?;
    Ok(start.elapsed().as_secs_f64() / times as f64)
}

/// Waits until all streams have done all that was enqueued.
///
/// Asks without a pause, since a sleep would be seen in the times, and for errors only while there is something to wait
/// for, since the time is taken when the last stream is done; on the emulator, which needs the processor for the
/// work itself, it does sleep.
pub fn wait<T: Number>(ranks: &[Rank<'_, T>]) -> Result<()> {
    let start = Instant::now();
    let sleepy = gpucomm::backend() == Backend::Emulator;
    for rank in ranks {
        let mut round = 0u32;
        while !rank.stream.query()? {
            round = round.wrapping_add(1);
            if round.is_multiple_of(if sleepy { 32 } else { 1024 }) {
                rank.comm.async_error()?;
                let timeout = rank.comm.timeout();
                if start.elapsed() >= timeout {
                    let detail = format!("rank {} has not finished what was enqueued", rank.comm.rank());
                    return Err(Error::Timeout { operation: "perf", timeout, detail }.into());
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
