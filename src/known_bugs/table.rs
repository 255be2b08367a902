//! The bugs that are known.

use super::bug::{BugStatus, EVER, KnownBug, Library};
use super::nvshmem;
use crate::version::Version;

/// The kernels for small messages between windows read beside an address that is no multiple of four bytes.
pub(crate) const MISALIGNED_WINDOWS: KnownBug = KnownBug {
    name: "misaligned-windows",
    library: Library::Nccl,
    first: Version::new(2, 27, 3),
    last: Some(Version::new(2, 29, 7)),
    compute_capability: None,
    what: "between symmetric windows, all_gather of any type and all_reduce and reduce_scatter of sums of f16, bf16, f8e4m3 and f8e5m2 \
           give wrong data when what is sent lies at an address that is no multiple of 4; from 2.29.2 on also where one of the two buffers is a window",
    status: BugStatus::WorkedAround,
    how: "such a call is made so that NCCL does not take those kernels: as broadcasts in one group, or as a pre-multiplied sum with \
          factor 1. It is slower; align what is sent to 4 bytes to keep the speed of windows",
    place: "src/nccl/c_calls/detour.rs",
};

/// The first version of [`MISALIGNED_WINDOWS`] in which one window is enough.
pub(crate) const MISALIGNED_WITH_ONE_WINDOW: Version = Version::new(2, 29, 2);

/// NCCL looks for a kernel for averages between windows that it does not have.
pub(crate) const WINDOW_AVERAGES: KnownBug = KnownBug {
    name: "window-averages",
    library: Library::Nccl,
    first: Version::new(2, 30, 3),
    last: None,
    compute_capability: None,
    what: "all_reduce of averages of f16, bf16, f32, f8e4m3 or f8e5m2 where one of the buffers lies in a symmetric window fails with \
           \"invalid device function\": the kernel that is looked for does not exist",
    status: BugStatus::WorkedAround,
    how: "such a call is made as a pre-multiplied sum whose factor is one part in as many as there are ranks, which is what NCCL does \
          outside of windows",
    place: "src/nccl/c_calls/detour.rs",
};

/// The kernel for pre-multiplied sums of one rank leaves elements out.
pub(crate) const ONE_RANK_PREMULSUM: KnownBug = KnownBug {
    name: "one-rank-premulsum",
    library: Library::Nccl,
    first: Version::new(2, 19, 1),
    last: Some(Version::new(2, 29, 6)),
    compute_capability: None,
    what: "a pre-multiplied sum in a communicator of one rank leaves up to 31 elements at the end unwritten",
    status: BugStatus::WorkedAround,
    how: "the elements are given to NCCL in pieces that its kernel does whole",
    place: "src/nccl/c_calls/one_rank.rs",
};

/// There is no way to the kernel for pre-multiplied sums of one rank of numbers of eight bits.
pub(crate) const ONE_RANK_FLOAT8: KnownBug = KnownBug {
    name: "one-rank-float8",
    library: Library::Nccl,
    first: Version::new(2, 24, 3),
    last: None,
    compute_capability: None,
    what: "a pre-multiplied sum of f8e4m3 or f8e5m2 in a communicator of one rank fails with \"invalid argument\": the library has the kernel, \
           and the code of the host that chooses one leaves it out",
    status: BugStatus::Refused,
    how: "such an operation is an error; an average of one rank is made as a sum",
    place: "src/nccl/calls/float8.rs",
};

/// Windows that are left over are not taken apart.
pub(crate) const ABORT_KEEPS_WINDOWS: KnownBug = KnownBug {
    name: "abort-keeps-windows",
    library: Library::Nccl,
    first: Version::new(2, 27, 3),
    last: Some(Version::new(2, 29, 6)),
    compute_capability: None,
    what: "aborting a communicator that has windows loses their device memory until the process ends",
    status: BugStatus::WorkedAround,
    how: "from 2.28.7 on, the communicator is revoked and its windows are taken away before it is aborted; before, the memory is lost",
    place: "src/nccl/lifecycle/release.rs",
};

/// Registrations that are left over are taken apart with what was freed before.
pub(crate) const REGISTRATIONS_LEFT: KnownBug = KnownBug {
    name: "registrations-left",
    library: Library::Nccl,
    first: EVER,
    last: None,
    compute_capability: None,
    what: "destroying or aborting a communicator with memory that is still registered, and was used, reads and writes what NCCL has freed \
           just before: connections and the state of its threads",
    status: BugStatus::WorkedAround,
    how: "what is registered is taken away first, before an abort once the communicator was revoked; the other ranks keep such memory \
          mapped then until their processes end, as revoking ends the threads that would let go of it. What NCCL has registered for graphs \
          goes with them: they end before a revoke. If a launch of one hangs, the communicator is never freed. Before 2.28.7, which cannot \
          revoke, nothing is registered",
    place: "src/nccl/lifecycle/release.rs",
};

/// What windows do before the first version that has none of this.
pub(crate) const ENDLESS_WINDOWS: KnownBug = KnownBug {
    name: "endless-windows",
    library: Library::Nccl,
    first: Version::new(2, 27, 3),
    last: Some(Version::new(2, 29, 6)),
    compute_capability: None,
    what: "kernels between symmetric windows do not look whether their communicator is aborted: where a rank never comes, the device \
           spins until the process ends; up to 2.28.9, messages between windows and later collectives in them hang or fail with an \
           illegal address (NVIDIA/nccl#1859)",
    status: BugStatus::WorkedAround,
    how: "`alloc` gives memory of NCCL that is no window, and `window` makes none, unless `Config::with_force_windows` asks for windows all the \
          same; use 2.29.7 or newer to have them",
    place: "src/nccl/memory/publish.rs",
};

/// NCCL keeps why a split has failed in a communicator that a rank without a color does not have.
pub(crate) const SPLIT_WITHOUT_PART: KnownBug = KnownBug {
    name: "split-without-part",
    library: Library::Nccl,
    first: EVER,
    last: None,
    compute_capability: None,
    what: "a rank that passes no color to a split that fails, because another process ends or is late, writes through a null pointer: \
           its process ends too",
    status: BugStatus::WorkedAround,
    how: "such a rank passes a color that no other has, and drops the communicator that it gets; so the largest colors, one for each \
          rank, are refused",
    place: "src/nccl/children/split.rs",
};

/// A least number of thread blocks is compared with a most that is not set.
pub(crate) const MIN_CTAS_ALONE: KnownBug = KnownBug {
    name: "min-ctas-alone",
    library: Library::Nccl,
    first: EVER,
    last: Some(Version::new(2, 30, 7)),
    compute_capability: None,
    what: "a configuration with minCTAs and without maxCTAs is refused as an invalid argument",
    status: BugStatus::WorkedAround,
    how: "maxCTAs is set to 64 then, which is NCCL's own default",
    place: "src/nccl/setup/config.rs",
};

/// A bug of all versions of NCCL, of which nothing more is known.
const OF_NCCL: KnownBug = KnownBug {
    name: "",
    library: Library::Nccl,
    first: EVER,
    last: None,
    compute_capability: None,
    what: "",
    status: BugStatus::Documented,
    how: "",
    place: "",
};

/// Every bug that is known here.
pub const TABLE: &[KnownBug] = &[
    MISALIGNED_WINDOWS,
    WINDOW_AVERAGES,
    ENDLESS_WINDOWS,
    KnownBug {
        name: "mixed-windows",
        first: Version::new(2, 27, 3),
        what: "a large message of which one end lies in a window and the other does not arrives nowhere, or hangs, without an error",
        status: BugStatus::Refused,
        how: "both ends of a message, and all buffers of a broadcast, reduce, gather, scatter or all_to_all, are windows or none is",
        place: "src/nccl/calls/mixed.rs",
        ..OF_NCCL
    },
    ONE_RANK_PREMULSUM,
    ONE_RANK_FLOAT8,
    MIN_CTAS_ALONE,
    KnownBug {
        name: "simulated-messages",
        first: Version::new(2, 22, 3),
        what: "messages of a group that is simulated, and from 2.29.2 on broadcasts from several roots, stay in the queue of the next one",
        status: BugStatus::Refused,
        how: "nccl::simulate takes collectives that are not made of messages, and broadcasts from one root, of which all_gather_v is not made",
        place: "src/nccl/enqueue/simulate.rs",
        ..OF_NCCL
    },
    KnownBug {
        name: "window-offsets",
        first: Version::new(2, 28, 3),
        what: "each rank chooses by itself where in the common address space a window lies, so ranks that take windows away at different \
               moments can have one window at different places: with NVLS, data lands in the wrong memory",
        status: BugStatus::WorkedAround,
        how: "windows that were dropped are taken away where all ranks allocate, reclaim or close, and only those that all have dropped",
        place: "src/nccl/memory/retire.rs",
        ..OF_NCCL
    },
    KnownBug {
        name: "copy-engines",
        first: Version::new(2, 28, 3),
        what: "with the policy to do collectives by copy engines (CTAPolicy 2), scatter writes where the root alone thinks that the windows \
               of the others begin, gather hangs where a rank passes no window, and an abort does not reach what waits",
        status: BugStatus::Refused,
        how: "the policy is refused, in a configuration, in NCCL_CTA_POLICY and in a file of NCCL's",
        place: "src/nccl/setup/config.rs",
        ..OF_NCCL
    },
    KnownBug {
        name: "aborted-ranks-send",
        what: "the kernel of a rank that is aborted goes on and sends what it has not: operations of ranks in other processes that wait \
               for it end without an error, with any values",
        status: BugStatus::Documented,
        how: "ranks of one process are aborted together; where one process aborts or dies, trust nothing that others had in flight",
        place: "",
        ..OF_NCCL
    },
    ABORT_KEEPS_WINDOWS,
    REGISTRATIONS_LEFT,
    KnownBug {
        name: "revoked-graphs",
        library: Library::Nccl,
        first: Version::new(2, 28, 7),
        last: None,
        compute_capability: None,
        what: "an abort of a communicator that was revoked does not wait for graphs with its operations: when CUDA destroys one afterwards, \
               NCCL writes into the communicator, which it has freed",
        status: BugStatus::WorkedAround,
        how: "graphs end before their communicator is freed, and it is freed two seconds after the last of them was destroyed",
        place: "src/nccl/lifecycle/graph_ends.rs",
    },
    KnownBug {
        name: "no-revoke",
        library: Library::Nccl,
        first: EVER,
        last: Some(Version::new(2, 28, 6)),
        compute_capability: None,
        what: "a thread that waits inside NCCL for a peer cannot be woken: there is no ncclCommRevoke, and an abort beside it corrupts \
               the heap",
        status: BugStatus::Documented,
        how: "the thread stays, its communicator is given up, and an abort answers StillRunning; use 2.28.7 or newer",
        place: "src/nccl/lifecycle/interrupt.rs",
    },
    KnownBug {
        name: "suspended-ends",
        first: Version::new(2, 29, 7),
        what: "a communicator that ends while it is suspended loses what is left of its memory until the process ends: host memory with what \
               was in it, and addresses of the device",
        how: "resume it first; `close` says so, and a drop aborts it",
        ..OF_NCCL
    },
    KnownBug {
        name: "resume-without-peers",
        first: Version::new(2, 29, 7),
        what: "a resume that cannot map a buffer of a peer again only logs that, and answers that all is well: operations of the communicator \
               meet addresses with nothing behind them",
        how: "watch for warnings of NCCL's memory manager (NCCL_DEBUG=WARN); resume where the device has the memory that it had",
        ..OF_NCCL
    },
    KnownBug {
        name: "grow-beside-parts",
        first: Version::new(2, 29, 2),
        what: "where a communicator that shares its resources with its parts grows, the new one has the threads of the old, which know nothing of \
               the ranks that come: NCCL looks for those behind the end of its lists",
        status: BugStatus::Refused,
        how: "such a communicator does not grow; one that shares and was not split does",
        place: "src/nccl/children/regroup.rs",
        ..OF_NCCL
    },
    KnownBug {
        name: "grow-without-end",
        first: Version::new(2, 29, 2),
        what: "an abort does not reach a rank that waits in a grow for a new one that never comes: the communicator keeps its memory, and a \
               thread spins, until the process ends",
        how: "have all come that are invited; the timeout is told all the same",
        ..OF_NCCL
    },
    KnownBug {
        name: "destroy-after-error",
        what: "destroying a communicator that has an error leaves the thread within a group: its later calls are queued and never made",
        status: BugStatus::WorkedAround,
        how: "the error is asked for first, and such a communicator is aborted instead",
        place: "src/nccl/lifecycle/close.rs",
        ..OF_NCCL
    },
    SPLIT_WITHOUT_PART,
    KnownBug {
        name: "comm-blocking",
        what: "NCCL_COMM_BLOCKING=0, in the environment or in a file of NCCL's, overrides what a program asks for: operations fail \
               because the one before is not done",
        status: BugStatus::Refused,
        how: "no communicator is made; the error says where the variable is set",
        place: "src/nccl/setup/environment.rs",
        ..OF_NCCL
    },
    KnownBug {
        name: "nvls-order",
        first: Version::new(2, 26, 2),
        what: "all_gather and reduce_scatter by NVLS exchange the parts of ranks whose devices are not in the order of the bus \
               (NVIDIA/nccl#1906)",
        status: BugStatus::Documented,
        how: "number ranks in the order of Device::all, leave CUDA_VISIBLE_DEVICES in ascending order, or set NCCL_NVLS_ENABLE=0",
        place: "",
        ..OF_NCCL
    },
    KnownBug {
        name: "sm-120",
        library: Library::Nccl,
        first: EVER,
        last: Some(Version::new(2, 26, 2)),
        compute_capability: Some((12, 0)),
        what: "wrong data and illegal accesses on devices of compute capability 12.0 (NVIDIA/nccl-tests#291, NVIDIA/nccl#2418)",
        status: BugStatus::Documented,
        how: "use a newer NCCL",
        place: "",
    },
    KnownBug {
        name: "ras-json",
        library: Library::Nccl,
        first: Version::new(2, 28, 7),
        last: Some(Version::new(2, 29, 1)),
        compute_capability: None,
        what: "where a rank is missing, what the RAS service says in JSON is none: there is no comma behind `nvml_dev`",
        status: BugStatus::WorkedAround,
        how: "`nccl::ras_status` puts it there",
        place: "src/nccl/flight/ras.rs",
    },
    KnownBug {
        name: "remote-signals",
        library: Library::Nvshmem,
        first: EVER,
        last: Some(Version::new(3, 2, 5)),
        compute_capability: None,
        what: "signals to PEs that NVLink does not reach can crash (NVIDIA/cuDecomp#111)",
        status: BugStatus::Documented,
        how: "use 3.3.24 or newer, or a symmetric heap whose granularity is 2 GiB or more",
        place: "",
    },
    nvshmem::HEAP_GROWTH,
    nvshmem::SWITCHED_INTEGERS,
    nvshmem::SWITCHED_WORDS,
    nvshmem::EARLY_SWITCHES,
    nvshmem::TEAM_COPIES,
    nvshmem::COPY_ENGINE_GRAPHS,
    nvshmem::HOST_TRANSFERS,
    KnownBug {
        name: "uid-bootstrap",
        library: Library::Nvshmem,
        first: EVER,
        last: Some(Version::new(3, 7, 1)),
        compute_capability: None,
        what: "starting from a unique id can mix up messages on a loaded network: the start fails, or ends in wrong addresses \
               (NVIDIA/nvshmem#97)",
        status: BugStatus::Documented,
        how: "start again, or use a newer NVSHMEM",
        place: "",
    },
    KnownBug {
        name: "fabric-state",
        library: Library::Nvshmem,
        first: EVER,
        last: None,
        compute_capability: None,
        what: "where the driver's NVLink fabric state is out of sync, a start with NVLS fails: it maps all of the heap's addresses, 256 GB, to a \
               multicast object that has none of that memory (NVIDIA/nvshmem#40)",
        status: BugStatus::Documented,
        how: "start the fabric manager anew, or set NVSHMEM_DISABLE_NVLS=1",
        place: "",
    },
    KnownBug {
        name: "deep-ep",
        library: Library::Nvshmem,
        first: Version::new(3, 5, 19),
        last: None,
        compute_capability: None,
        what: "the layout of queue pairs on the device is another one: DeepEP without its change #564 times out (deepseek-ai/DeepEP#553, #707)",
        status: BugStatus::Documented,
        how: "of concern only where DeepEP runs beside this crate",
        place: "",
    },
    nvshmem::HANDLE_TABLE,
];
