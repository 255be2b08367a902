//! One PE of a test, with NVSHMEM started.

use fastrand::Rng;
use gpucomm::Stream;
use gpucomm::nvshmem::{Context, Pe, Status};

use super::SIZES;
use super::parent::as_pes_of;
use super::random;
use super::seat::Seat;

/// A PE whose context has started.
#[derive(Debug)]
pub struct Here<'c> {
    pub seat: &'c Seat,
    pub ctx: &'c Context,
    pub stream: &'c Stream,
}

/// Runs `body` as each PE of 1, 2, 3 and 4, between the start of a context and its end, after which nothing may be left.
pub fn with_context<F: Fn(&Here<'_>)>(body: F) {
    with_contexts(&SIZES, body);
}

/// The same for these numbers of PEs.
pub fn with_contexts<F: Fn(&Here<'_>)>(sizes: &[usize], body: F) {
    as_pes_of::<F>(sizes, &[], |seat| {
        let ctx = seat.start().expect("a context");
        let stream = Stream::new(seat.device).expect("a stream");
        body(&Here { seat, ctx: &ctx, stream: &stream });
        let leaks = ctx.close().expect("the end");
        assert!(leaks.is_empty(), "{leaks:?}");
    });
}

impl Here<'_> {
    pub fn pe(&self) -> usize {
        self.seat.pe
    }

    pub fn n_pes(&self) -> usize {
        self.seat.n_pes
    }

    /// The PE that comes so many behind this one, in a circle.
    pub fn next(&self, by: usize) -> Pe {
        Pe((self.pe() + by) % self.n_pes())
    }

    /// The number of the PE that comes so many before this one.
    pub fn before(&self, by: usize) -> usize {
        (self.pe() + self.n_pes() - by % self.n_pes()) % self.n_pes()
    }

    /// Whether there are collectives: not where PEs share devices.
    pub fn is_whole(&self) -> bool {
        self.ctx.status() != Status::LimitedMpg
    }

    /// Random numbers of `pe`, the same wherever they are asked for.
    pub fn rng_of(&self, what: &str, pe: usize) -> Rng {
        random::rng(&format!("{what} {pe} of {}", self.n_pes()))
    }

    /// Random numbers that all PEs have in common.
    pub fn rng(&self, what: &str) -> Rng {
        self.rng_of(what, usize::MAX)
    }

    /// Waits for all PEs, without NVSHMEM, after all work of the stream.
    pub fn settle(&self) {
        self.stream.synchronize().expect("the stream");
        self.seat.meet();
    }
}
