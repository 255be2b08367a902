//! Every host function of NVSHMEM 3.8.0 and older, and how it is reached.

use super::family::Reach::{Directly, Not, Otherwise};
use super::family::{Compared, Family, Row, Seen, one, row};
use super::moves;
use super::together;

/// What every program starts with.
const START: &[Row] = &[
    one("nvshmemx_hostlib_init_attr", Directly(&["Context::init", "Context::init_with_attr"])),
    one("nvshmemx_hostlib_finalize", Directly(&["Context::close"])),
    one("nvshmemx_init_status", Directly(&["Context::status"])),
    one("nvshmemx_get_uniqueid", Directly(&["ContextUniqueId::new"])),
    one(
        "nvshmemx_set_attr_uniqueid_args",
        Directly(&["ContextOptions::with_unique_id", "ContextOptions::with_exchange", "ContextOptions::with_session"]),
    ),
    one(
        "nvshmemx_set_attr_mpi_comm_args",
        Otherwise(
            &["ContextOptions::with_mpi", "ContextOptions::with_environment"],
            "the unique id goes over the communicator, whatever MPI that is; `NVSHMEM_BOOTSTRAP=MPI` in the environment starts by the plug-in",
        ),
    ),
    one(
        "nvshmem_query_thread",
        Not(
            "the answer is always `NVSHMEM_THREAD_SERIALIZED`, which the type of `Context` says: `Send`, and not `Sync`",
        ),
    ),
    one(
        "nvshmem_global_exit",
        Not("it ends nothing where PEs started from a unique id; the watchdog ends the process itself"),
    ),
    one("nvshmemid_hostlib_init_attr", Not(ARCHIVE)),
    one("nvshmemid_hostlib_finalize", Not(ARCHIVE)),
    one("nvshmemid_init_status", Not(ARCHIVE)),
];

const ARCHIVE: &str = "for the device archive, whose own functions call it";

const INFO: &[Row] = &[
    one("nvshmem_my_pe", Directly(&["Context::pe"])),
    one("nvshmem_n_pes", Directly(&["Context::n_pes"])),
    one("nvshmemx_vendor_get_version_info", Directly(&["running_nvshmem"])),
    one("nvshmem_info_get_version", Not("the version of OpenSHMEM, 1.3 in all of these")),
    one("nvshmem_info_get_name", Not("the name is NVSHMEM, whatever the version")),
    one("nvshmem_debug_log", Not("no header declares it")),
];

const HEAP: &[Row] = &[
    one("nvshmem_malloc", Directly(&["Context::alloc", "Context::alloc_uninit"])),
    one(
        "nvshmem_calloc",
        Otherwise(
            &["Context::alloc"],
            "`nvshmem_malloc`, zeroes on a stream, and a barrier: no PE writes before another has its zeroes. The start takes its own memory by it",
        ),
    ),
    one("nvshmem_align", Directly(&["Context::alloc_aligned"])),
    one("nvshmem_free", Directly(&["Context::reclaim", "Context::close"])),
    one("nvshmem_ptr", Directly(&["Context::is_near", "SymmetricBuffer::peer"])),
    one("nvshmemx_mc_ptr", Directly(&["SymmetricBuffer::multicast"])),
];

const REGISTRATION: &[Row] = &[
    one("nvshmemx_buffer_register", Directly(&["Context::register"])),
    one("nvshmemx_buffer_unregister", Directly(&["Registered::unregister"])),
    one("nvshmemx_buffer_unregister_all", Not("it takes away what borrows rest on; each registration ends by itself")),
    one("nvshmemx_buffer_register_symmetric", Not(UNMAPS)),
    one("nvshmemx_buffer_unregister_symmetric", Not("nothing is registered so")),
    one("nvshmemx_buffer_register_symmetric_at_preferred_address", Not(NEWER)),
];

const UNMAPS: &str = "3.4.5 forgets what its checks of the memory have found (size, device, handle types), and where mapping fails on one PE that unmaps its whole heap, \
    goes on to a barrier on it, and leaves the others waiting; a size that is no multiple of `NVSHMEM_CUMEM_GRANULARITY`, 512 MiB if not set, is mapped beyond \
    its end; the place that a freed registration leaves can be given to two later ones; over a network offsets are looked up in the table of other memory. \
    `Context::alloc` is symmetric memory";

const NEWER: &str = "newer than any version that ran: of 3.8";

const SIGNALS: &[Row] = &[
    one("nvshmem_signal_fetch", Directly(&["Context::signal_fetch"])),
    one("nvshmemx_signal_op_on_stream", Directly(&["OnStream::signal_op", "Context::signal_op"])),
    one("nvshmemx_signal_wait_until_on_stream", Directly(&["OnStream::signal_wait_until"])),
    one(
        "nvshmemx_signal_counted_reset",
        Otherwise(
            &["SymmetricSignals::reset"],
            "a zero in the order of a stream; the library's own is in the order of none, and ends the process where CUDA refuses",
        ),
    ),
];

const TEAMS: &[Row] = &[
    one("nvshmem_team_my_pe", Directly(&["Team::pe"])),
    one("nvshmem_team_n_pes", Directly(&["Team::n_pes"])),
    one("nvshmem_team_get_config", Directly(&["Team::config"])),
    one("nvshmem_team_translate_pe", Directly(&["Team::translate"])),
    one("nvshmem_team_split_strided", Directly(&["Team::split_strided"])),
    one("nvshmem_team_split_2d", Directly(&["Team::split_2d"])),
    one("nvshmem_team_destroy", Directly(&["Context::reclaim", "Context::close"])),
    one("nvshmemx_team_get_uniqueid", Directly(&["Context::team_unique_id"])),
    one("nvshmemx_team_init", Directly(&["Context::team"])),
];

const ORDER: &[Row] = &[
    one("nvshmem_barrier_all", Directly(&["Context::barrier_all"])),
    one("nvshmem_sync_all", Directly(&["Context::sync_all"])),
    one("nvshmem_barrier", Directly(&["Team::barrier"])),
    one("nvshmem_team_sync", Directly(&["Team::sync"])),
    one("nvshmemx_barrier_all_on_stream", Directly(&["OnStream::barrier_all"])),
    one("nvshmemx_sync_all_on_stream", Directly(&["OnStream::sync_all"])),
    one("nvshmemx_barrier_on_stream", Directly(&["TeamOnStream::barrier"])),
    one("nvshmemx_team_sync_on_stream", Directly(&["TeamOnStream::sync"])),
    one("nvshmem_fence", Directly(&["Context::fence"])),
    one("nvshmem_quiet", Directly(&["Context::quiet"])),
    one("nvshmemx_quiet_on_stream", Directly(&["OnStream::quiet"])),
    one("nvshmemx_flush", Directly(&["Context::flush"])),
    one("nvshmemx_flush_on_stream", Directly(&["OnStream::flush"])),
];

const DEVICE: &[Row] = &[
    one("nvshmemx_cumodule_init", Directly(&["Context::init_cumodule"])),
    one("nvshmemx_culibrary_init", Directly(&["Context::init_culibrary"])),
    one("nvshmemx_cumodule_finalize", Directly(&["Context::finalize_cumodule"])),
    one("nvshmemx_culibrary_finalize", Directly(&["Context::finalize_culibrary"])),
    one("nvshmemx_collective_launch", Directly(&["Context::collective_launch"])),
    one("nvshmemx_collective_launch_attr", Directly(&["Context::collective_launch_config"])),
    one("nvshmemx_collective_launch_query_gridsize", Directly(&["Context::collective_launch_grid"])),
    one("nvshmemx_qp_create", Directly(&["Context::create_queue_pairs"])),
    row("nvshmemx_region_TYPE", &["start", "stop"], Directly(&["NonblockingScope::batched"])),
    one(
        "nvshmemx_region_is_active",
        Not("what is called in the closure of `NonblockingScope::batched` is in a region"),
    ),
];

/// Types that atomics of integers are for, those of bits, and those that only move.
const COUNTED: &[&str] =
    &["int", "int32", "int64", "long", "longlong", "ptrdiff", "size", "uint", "uint32", "uint64", "ulong", "ulonglong"];
const BITWISE: &[&str] = &["uint", "uint32", "uint64", "ulong", "ulonglong", "int32", "int64"];
const FLOATS: &[&str] = &["float", "double"];

const fn atomics(types: &'static [&'static str], ops: &'static [&'static str]) -> Row {
    Row { pattern: "nvshmem_TYPE_atomic_OP", types, ops, reach: Not(STUBS) }
}

/// The title of what does nothing.
pub const ATOMICS: &str = "Atomics on the host";
const STUBS: &str = "a stub: it says \"not implemented\" on stderr, and does nothing";

const STUBBED: &[Row] = &[
    atomics(COUNTED, &["add", "fetch_add", "inc", "fetch_inc", "compare_swap", "fetch", "set", "swap"]),
    atomics(FLOATS, &["fetch", "set", "swap"]),
    atomics(BITWISE, &["and", "or", "xor", "fetch_and", "fetch_or", "fetch_xor"]),
    Row {
        pattern: "nvshmemx_TYPE_atomic_OP",
        types: &["half", "float", "double"],
        ops: &["add", "fetch_add"],
        reach: Not(STUBS),
    },
];

const fn family(title: &'static str, rows: &'static [Row]) -> Family {
    Family { title, rows, compared: Compared::No, seen: Seen::No }
}

/// What docs/measurements/2026-11-23-h200-nvshmem.md and 2026-11-24-h200.md have gone through on one GPU, and 2026-11-26-h200-four.md on several.
const fn seen(title: &'static str, rows: &'static [Row]) -> Family {
    Family { seen: Seen::Yes, ..family(title, rows) }
}

/// The same, with one PE alone.
const fn alone(title: &'static str, rows: &'static [Row]) -> Family {
    Family { seen: Seen::Alone, ..family(title, rows) }
}

/// The same, and a test has compared equivalents there.
const fn compared(title: &'static str, rows: &'static [Row]) -> Family {
    Family { compared: Compared::Yes, ..seen(title, rows) }
}

/// A test compares them on the emulator.
const fn emulated(family: Family) -> Family {
    Family { compared: Compared::Emulator, ..family }
}

/// Equivalents that no test compares.
pub const NOT_COMPARED: &[&str] = &["nvshmemx_TYPE_g_on_stream"];

/// What is reached by other means, and is compared all the same, on the emulator.
pub const OTHERWISE: &[&str] =
    &["nvshmem_calloc", "nvshmem_broadcastmem", "nvshmem_fcollectmem", "nvshmem_alltoallmem"];

/// All of them.
pub const ALL: &[Family] = &[
    seen("Start and end", START),
    seen("What is said of the library", INFO),
    seen("Symmetric memory", HEAP),
    seen("Registration", REGISTRATION),
    compared("Puts and gets", moves::WHOLE),
    emulated(seen("Single elements", moves::SINGLE)),
    compared("Strides", moves::STRIDED),
    emulated(seen("Puts with a signal", moves::SIGNALLED)),
    seen("Signals", SIGNALS),
    emulated(alone("Waits for values", moves::WAITS)),
    seen("Barriers and order", ORDER),
    seen("Teams", TEAMS),
    emulated(seen("Reductions", together::REDUCTIONS)),
    emulated(seen("Broadcast, all-gather and all-to-all", together::MOVED)),
    family("Modules, kernels, queue pairs and regions", DEVICE),
    family(ATOMICS, STUBBED),
];
