//! One PE of a run, as what it measures sees it.

use std::time::Instant;

use gpucomm::nvshmem::Context;
use gpucomm::{Event, Stream};
use serde_json::{Value, json};

use super::kind::Operation;
use super::row::{Found, Row, Times};
use crate::failure::{Failure, Result};
use crate::options::nvshmem::{Issue, NvshmemOptions};
use crate::perf::team::Peers;

/// What each part of a run needs.
pub struct Member<'a> {
    pub options: &'a NvshmemOptions,
    pub peers: &'a dyn Peers,
    pub ctx: &'a Context,
    pub stream: Stream,
    begin: Event,
    end: Event,
}

impl<'a> Member<'a> {
    pub fn new(options: &'a NvshmemOptions, peers: &'a dyn Peers, ctx: &'a Context) -> Result<Self> {
        let device = ctx.device();
        let (begin, end) = (Event::timing(device)?, Event::timing(device)?);
        Ok(Self { options, peers, ctx, stream: Stream::new(device)?, begin, end })
    }

    pub fn pe(&self) -> usize {
        self.ctx.pe().0
    }

    pub fn print(&self, line: &str) -> Result<()> {
        if self.pe() == 0 { self.peers.line(line) } else { Ok(()) }
    }

    /// Waits for all others, by other means than what is measured.
    pub fn meet(&self) -> Result<()> {
        self.peers.exchange(Value::Null).map(drop)
    }

    /// What all have found; the same on every PE.
    pub fn share(&self, found: Found) -> Result<Found> {
        let mut all = Found::default();
        for value in self.peers.exchange(json!([found.wrong, found.outside]))? {
            let number = |at: usize| value[at].as_u64().ok_or_else(|| Failure::run(format!("a PE has found {value}")));
            all += Found { wrong: number(0)?, outside: number(1)? };
        }
        Ok(all)
    }

    /// Seconds from the begin to the end of what `f` does or enqueues.
    pub fn time(&self, f: impl FnOnce() -> gpucomm::Result<()>) -> Result<f64> {
        if self.options.issue == Issue::Host {
            let start = Instant::now();
            f()?;
            return Ok(start.elapsed().as_secs_f64());
        }
        self.begin.record(&self.stream)?;
        f()?;
        self.end.record(&self.stream)?;
        self.end.synchronize()?;
        Ok(self.end.elapsed_since(&self.begin)?.as_secs_f64())
    }

    /// A row of so many bytes and elements.
    pub fn row(&self, operation: Operation, bytes: usize, count: usize, times: Times) -> Row {
        let (algbw, busbw) = operation.bandwidth(bytes, self.ctx.n_pes(), times.mean);
        Row { bytes, count, times, algbw, busbw, found: None }
    }
}

/// A value that depends on all of these, in no simple way.
pub fn draw(salt: u64, pe: usize, at: usize) -> u64 {
    let mut x = salt ^ ((pe as u64) << 48) ^ (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
