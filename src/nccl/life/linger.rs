//! Memory that NCCL may have registered for a graph, which stays when the graph is gone.
//!
//! NCCL finds what it has registered by addresses, and forgets what it has registered for a graph some time after that: the end of a graph
//! says so to a queue of the communicator, and NCCL looks there in groups of that communicator, in each of them or (since 2.27.3) in every eleventh
//! one; not where graphs are launched. What lies at the same addresses before that, it takes for the memory that was there: other ranks
//! write to that, by the ways that they have to it, and what is there now stays as it was. So such memory is not freed before NCCL has looked:
//! until so many groups were made, or the communicator has ended.

use std::time::{Duration, Instant};

use crate::nccl::state::inner::Inner;
use crate::version::{Version, running_nccl};

/// Three times as many groups as NCCL lets pass.
const GROUPS: u64 = 33;

/// Within which time CUDA has told NCCL of the end of a graph: it does so on a thread of its own, and does not say when.
const TOLD: Duration = Duration::from_secs(2);

/// Of what comes from here on it is not known when NCCL looks.
const UNKNOWN: Version = Version::new(2, 31, 0);

/// How far it is until NCCL knows memory no more, of which no use is left.
#[derive(Debug, Default)]
pub(super) struct Linger(Option<(Instant, u64)>);

impl Linger {
    /// Whether NCCL has forgotten it. Asked for the first time when all uses are done, also those by the graphs.
    pub(super) fn is_over(&mut self, inner: &Inner) -> bool {
        let groups = inner.graphs.groups();
        let (since, before) = *self.0.get_or_insert_with(|| (Instant::now(), groups));
        since.elapsed() >= TOLD && groups - before >= GROUPS && running_nccl().is_ok_and(|version| version < UNKNOWN)
    }

    /// Another graph has come and gone.
    pub(super) fn begin_anew(&mut self) {
        self.0 = None;
    }
}
