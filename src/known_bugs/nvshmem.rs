//! Bugs of NVSHMEM that this crate does something about.

use super::bug::{BugStatus, EVER, KnownBug, Library};
use crate::version::Version;

/// A bug of all versions of NVSHMEM, of which nothing more is known.
const OF_NVSHMEM: KnownBug = KnownBug {
    name: "",
    library: Library::Nvshmem,
    first: EVER,
    last: None,
    compute_capability: None,
    what: "",
    status: BugStatus::Documented,
    how: "",
    place: "",
};

pub(super) const HEAP_GROWTH: KnownBug = KnownBug {
    name: "heap-growth",
    library: Library::Nvshmem,
    first: EVER,
    last: Some(Version::new(3, 7, 2)),
    compute_capability: None,
    what: "where the symmetric heap cannot grow, NVSHMEM unmaps all of it, with the memory that is in use there, and other PEs wait for \
           ever",
    status: BugStatus::Refused,
    how: "PEs compare first whether all have a gap, or memory for a step: where one may not have, all get an OutOfMemory",
    place: "src/nvshmem/memory/room.rs",
};

pub(super) const SWITCHED_INTEGERS: KnownBug = KnownBug {
    name: "switched-integers",
    what: "with NVLS, reducescatter adds integers of 4 and 8 bytes as if they were f32, or two of them as one, takes two of 4 bytes for one \
           where it looks for the least or the greatest, and says that all is well",
    status: BugStatus::Refused,
    how: "such sums, minima and maxima are errors for teams for which switches work",
    place: "src/nvshmem/collectives/words.rs",
    ..OF_NVSHMEM
};

pub(super) const SWITCHED_WORDS: KnownBug = KnownBug {
    name: "switched-words",
    what: "with NVLS, sums of f16 and bf16, and fcollect, do nothing where what a switch does at once does not begin at a multiple of 4 \
           bytes; several blocks of a reducescatter that no switch does all begin with the first elements",
    status: BugStatus::Refused,
    how: "such operands are errors; a reducescatter of a MiB or more that no switch does, too",
    place: "src/nvshmem/collectives/words.rs",
    ..OF_NVSHMEM
};

pub(super) const EARLY_SWITCHES: KnownBug = KnownBug {
    name: "early-switches",
    what: "with NVLS, reduce and reducescatter read what other members have before those have come to it",
    status: BugStatus::WorkedAround,
    how: "a barrier of the team comes first, on the same stream",
    place: "src/nvshmem/collectives/work.rs",
    ..OF_NVSHMEM
};

pub(super) const TEAM_COPIES: KnownBug = KnownBug {
    name: "team-copies",
    first: Version::new(3, 5, 0),
    what: "with NVLS, each split or start of a team makes 15 others beside it; where there is no room for them the process ends. Before 3.8 \
           they are not known to go with the team",
    status: BugStatus::Refused,
    how: "members compare first whether all have room, and count teams that may be left over",
    place: "src/nvshmem/state/slots.rs",
    ..OF_NVSHMEM
};

pub(super) const COPY_ENGINE_GRAPHS: KnownBug = KnownBug {
    name: "copy-engine-graphs",
    first: Version::new(3, 5, 0),
    what: "with NVLS and NVSHMEM_DISABLE_CE_COLLECTIVES=0, collectives of a graph do not wait for other members from its second launch on, \
           and the root of a broadcast waits for ever where there is no NCCL",
    status: BugStatus::Refused,
    how: "such captures and broadcasts are errors; without that variable, kernels do it",
    place: "src/nvshmem/collectives/limits.rs",
    ..OF_NVSHMEM
};

pub(super) const HOST_TRANSFERS: KnownBug = KnownBug {
    name: "host-transfers",
    what: "where a PE is reached by IBGDA, puts and gets of the host end the process",
    status: BugStatus::WorkedAround,
    how: "to PEs whose memory this one does not get at directly, they go by a stream that is waited for",
    place: "src/nvshmem/rma/transfer.rs",
    ..OF_NVSHMEM
};

pub(super) const HANDLE_TABLE: KnownBug = KnownBug {
    name: "handle-table",
    what: "over a network, the table of a heap's memory handles shrinks where it is to grow: with a symmetric heap of more than 1000 \
           granules, NVSHMEM writes beyond it",
    status: BugStatus::Documented,
    how: "leave NVSHMEM_CUMEM_GRANULARITY as it is (512 MiB), or so large that the heap has at most 1000 granules",
    ..OF_NVSHMEM
};
