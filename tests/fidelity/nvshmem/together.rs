//! What the PEs of a team do together.

use super::family::Reach::{As, Directly, Otherwise};
use super::family::{Reach, Row, one, row};
use super::moves::TYPES;

/// Types that are reduced by this crate: numbers, and those of which the bits are.
const NUMBERS: &[&str] =
    &["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "half", "bfloat16", "float", "double"];
const INTEGERS: &[&str] = &["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"];
/// The same types by other names.
const NUMBERS_AS: &[&str] =
    &["char", "schar", "short", "int", "long", "longlong", "uchar", "ushort", "uint", "ulong", "ulonglong", "size"];
const INTEGERS_AS: &[&str] = &["uchar", "ushort", "uint", "ulong", "ulonglong", "size"];

const NUMERIC: &[&str] = &["sum", "prod", "min", "max"];
const BITWISE: &[&str] = &["and", "or", "xor"];

const fn reduced(
    pattern: &'static str,
    types: &'static [&'static str],
    ops: &'static [&'static str],
    reach: Reach,
) -> Row {
    Row { pattern, types, ops, reach }
}

const REDUCE: Reach = Directly(&["TeamOnStream::reduce"]);
const SCATTER: Reach = Directly(&["TeamOnStream::reduce_scatter"]);
const REDUCE_AS: Reach = As("nvshmemx_SAME_OP_reduce_on_stream", "the same type by another name");
const SCATTER_AS: Reach = As("nvshmemx_SAME_OP_reducescatter_on_stream", "the same type by another name");
const WAITS: &str =
    "and a wait: the library does the same, on a stream of its own. `Team::reduce` and `Team::reduce_scatter` do it";
const REDUCE_HOST: Reach = As("nvshmemx_SAME_OP_reduce_on_stream", WAITS);
const SCATTER_HOST: Reach = As("nvshmemx_SAME_OP_reducescatter_on_stream", WAITS);

pub const REDUCTIONS: &[Row] = &[
    reduced("nvshmemx_TYPE_OP_reduce_on_stream", NUMBERS, NUMERIC, REDUCE),
    reduced("nvshmemx_TYPE_OP_reduce_on_stream", INTEGERS, BITWISE, REDUCE),
    reduced("nvshmemx_TYPE_OP_reducescatter_on_stream", NUMBERS, NUMERIC, SCATTER),
    reduced("nvshmemx_TYPE_OP_reducescatter_on_stream", INTEGERS, BITWISE, SCATTER),
    reduced("nvshmemx_TYPE_OP_reduce_on_stream", NUMBERS_AS, NUMERIC, REDUCE_AS),
    reduced("nvshmemx_TYPE_OP_reduce_on_stream", INTEGERS_AS, BITWISE, REDUCE_AS),
    reduced("nvshmemx_TYPE_OP_reducescatter_on_stream", NUMBERS_AS, NUMERIC, SCATTER_AS),
    reduced("nvshmemx_TYPE_OP_reducescatter_on_stream", INTEGERS_AS, BITWISE, SCATTER_AS),
    reduced("nvshmem_TYPE_OP_reduce", NUMBERS, NUMERIC, REDUCE_HOST),
    reduced("nvshmem_TYPE_OP_reduce", INTEGERS, BITWISE, REDUCE_HOST),
    reduced("nvshmem_TYPE_OP_reducescatter", NUMBERS, NUMERIC, SCATTER_HOST),
    reduced("nvshmem_TYPE_OP_reducescatter", INTEGERS, BITWISE, SCATTER_HOST),
    reduced("nvshmem_TYPE_OP_reduce", NUMBERS_AS, NUMERIC, REDUCE_HOST),
    reduced("nvshmem_TYPE_OP_reduce", INTEGERS_AS, BITWISE, REDUCE_HOST),
    reduced("nvshmem_TYPE_OP_reducescatter", NUMBERS_AS, NUMERIC, SCATTER_HOST),
    reduced("nvshmem_TYPE_OP_reducescatter", INTEGERS_AS, BITWISE, SCATTER_HOST),
];

const BYTES: &str = "in bytes: the size of an element does not matter";
const BYTES_HOST: &str = "in bytes, and a wait: the library does the same, on a stream of its own";

pub const MOVED: &[Row] = &[
    one("nvshmemx_broadcastmem_on_stream", Directly(&["TeamOnStream::broadcast", "TeamOnStream::broadcast_in_place"])),
    one("nvshmemx_fcollectmem_on_stream", Directly(&["TeamOnStream::fcollect"])),
    one("nvshmemx_alltoallmem_on_stream", Directly(&["TeamOnStream::alltoall"])),
    row("nvshmemx_TYPE_broadcast_on_stream", TYPES, As("nvshmemx_broadcastmem_on_stream", BYTES)),
    row("nvshmemx_TYPE_fcollect_on_stream", TYPES, As("nvshmemx_fcollectmem_on_stream", BYTES)),
    row("nvshmemx_TYPE_alltoall_on_stream", TYPES, As("nvshmemx_alltoallmem_on_stream", BYTES)),
    one("nvshmem_broadcastmem", Otherwise(&["Team::broadcast", "Team::broadcast_in_place"], WAITED)),
    one("nvshmem_fcollectmem", Otherwise(&["Team::fcollect"], WAITED)),
    one("nvshmem_alltoallmem", Otherwise(&["Team::alltoall"], WAITED)),
    row("nvshmem_TYPE_broadcast", TYPES, As("nvshmemx_broadcastmem_on_stream", BYTES_HOST)),
    row("nvshmem_TYPE_fcollect", TYPES, As("nvshmemx_fcollectmem_on_stream", BYTES_HOST)),
    row("nvshmem_TYPE_alltoall", TYPES, As("nvshmemx_alltoallmem_on_stream", BYTES_HOST)),
];

const WAITED: &str = "the same on a stream, and a wait, with a deadline";
