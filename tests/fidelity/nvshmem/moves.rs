//! What one PE does with the memory of another: puts, gets, and waits for what comes.

use super::family::Reach::{As, Directly};
use super::family::{Row, one, row};

/// All types that elements have.
pub const TYPES: &[&str] = &[
    "bfloat16",
    "half",
    "float",
    "double",
    "char",
    "short",
    "schar",
    "int",
    "long",
    "longlong",
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "ulonglong",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "size",
    "ptrdiff",
];
/// Those of single elements that this crate calls, and the others.
const BITS: &[&str] = &["uint8", "uint16", "uint32", "uint64"];
const NO_BITS: &[&str] = &[
    "bfloat16",
    "half",
    "float",
    "double",
    "char",
    "short",
    "schar",
    "int",
    "long",
    "longlong",
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "ulonglong",
    "int8",
    "int16",
    "int32",
    "int64",
    "size",
    "ptrdiff",
];
const SIZES: &[&str] = &["8", "16", "32", "64", "128"];
/// Types of values that are waited for, by whether this crate calls them.
const WAITED: &[&str] = &["int32", "int64", "uint32", "uint64"];
const WAITED_AS: &[&str] = &["int", "long", "longlong", "uint", "ulong", "ulonglong", "size", "ptrdiff"];
const SHORTS: &[&str] = &["short", "ushort"];

/// In bytes.
const BYTES: &str = "in bytes: the size of an element does not matter";

pub const WHOLE: &[Row] = &[
    one("nvshmem_putmem", Directly(&["Context::put"])),
    one("nvshmem_getmem", Directly(&["Context::get"])),
    one("nvshmem_putmem_nbi", Directly(&["NonblockingScope::put"])),
    one("nvshmem_getmem_nbi", Directly(&["NonblockingScope::get"])),
    one("nvshmemx_putmem_on_stream", Directly(&["OnStream::put"])),
    one("nvshmemx_getmem_on_stream", Directly(&["OnStream::get"])),
    one("nvshmemx_putmem_nbi_on_stream", Directly(&["StreamScope::put"])),
    one("nvshmemx_getmem_nbi_on_stream", Directly(&["StreamScope::get"])),
    row("nvshmem_TYPE_put", TYPES, As("nvshmem_putmem", BYTES)),
    row("nvshmem_TYPE_get", TYPES, As("nvshmem_getmem", BYTES)),
    row("nvshmem_TYPE_put_nbi", TYPES, As("nvshmem_putmem_nbi", BYTES)),
    row("nvshmem_TYPE_get_nbi", TYPES, As("nvshmem_getmem_nbi", BYTES)),
    row("nvshmemx_TYPE_put_on_stream", TYPES, As("nvshmemx_putmem_on_stream", BYTES)),
    row("nvshmemx_TYPE_get_on_stream", TYPES, As("nvshmemx_getmem_on_stream", BYTES)),
    row("nvshmemx_TYPE_put_nbi_on_stream", TYPES, As("nvshmemx_putmem_nbi_on_stream", BYTES)),
    row("nvshmemx_TYPE_get_nbi_on_stream", TYPES, As("nvshmemx_getmem_nbi_on_stream", BYTES)),
    row("nvshmem_putTYPE", SIZES, As("nvshmem_putmem", BYTES)),
    row("nvshmem_getTYPE", SIZES, As("nvshmem_getmem", BYTES)),
    row("nvshmem_putTYPE_nbi", SIZES, As("nvshmem_putmem_nbi", BYTES)),
    row("nvshmem_getTYPE_nbi", SIZES, As("nvshmem_getmem_nbi", BYTES)),
    row("nvshmemx_putTYPE_on_stream", SIZES, As("nvshmemx_putmem_on_stream", BYTES)),
    row("nvshmemx_getTYPE_on_stream", SIZES, As("nvshmemx_getmem_on_stream", BYTES)),
    row("nvshmemx_putTYPE_nbi_on_stream", SIZES, As("nvshmemx_putmem_nbi_on_stream", BYTES)),
    row("nvshmemx_getTYPE_nbi_on_stream", SIZES, As("nvshmemx_getmem_nbi_on_stream", BYTES)),
];

const SAME_BITS: &str = "of the same bits";

pub const SINGLE: &[Row] = &[
    row("nvshmem_TYPE_p", BITS, Directly(&["Context::put_value"])),
    row("nvshmem_TYPE_g", BITS, Directly(&["Context::get_value"])),
    row("nvshmemx_TYPE_p_on_stream", BITS, Directly(&["OnStream::put_value"])),
    row("nvshmem_TYPE_p", NO_BITS, As("nvshmem_BITS_p", SAME_BITS)),
    row("nvshmem_TYPE_g", NO_BITS, As("nvshmem_BITS_g", SAME_BITS)),
    row("nvshmemx_TYPE_p_on_stream", NO_BITS, As("nvshmemx_BITS_p_on_stream", SAME_BITS)),
    row(
        "nvshmemx_TYPE_g_on_stream",
        TYPES,
        As(
            "nvshmemx_getmem_on_stream",
            "of one element, into memory that lives until it has come; this one returns a value",
        ),
    ),
];

const SAME_SIZE: &str = "of the same size";

pub const STRIDED: &[Row] = &[
    row("nvshmem_iputTYPE", SIZES, Directly(&["Context::iput"])),
    row("nvshmem_igetTYPE", SIZES, Directly(&["Context::iget"])),
    row("nvshmemx_iputTYPE_on_stream", SIZES, Directly(&["OnStream::iput"])),
    row("nvshmemx_igetTYPE_on_stream", SIZES, Directly(&["OnStream::iget"])),
    row("nvshmem_TYPE_iput", TYPES, As("nvshmem_iputSIZE", SAME_SIZE)),
    row("nvshmem_TYPE_iget", TYPES, As("nvshmem_igetSIZE", SAME_SIZE)),
    row("nvshmemx_TYPE_iput_on_stream", TYPES, As("nvshmemx_iputSIZE_on_stream", SAME_SIZE)),
    row("nvshmemx_TYPE_iget_on_stream", TYPES, As("nvshmemx_igetSIZE_on_stream", SAME_SIZE)),
];

pub const SIGNALLED: &[Row] = &[
    one("nvshmemx_putmem_signal_on_stream", Directly(&["OnStream::put_signal", "Context::put_signal"])),
    one("nvshmemx_putmem_signal_nbi_on_stream", Directly(&["StreamScope::put_signal", "NonblockingScope::put_signal"])),
    row("nvshmemx_TYPE_put_signal_on_stream", TYPES, As("nvshmemx_putmem_signal_on_stream", BYTES)),
    row("nvshmemx_TYPE_put_signal_nbi_on_stream", TYPES, As("nvshmemx_putmem_signal_nbi_on_stream", BYTES)),
    row("nvshmemx_putTYPE_signal_on_stream", SIZES, As("nvshmemx_putmem_signal_on_stream", BYTES)),
    row("nvshmemx_putTYPE_signal_nbi_on_stream", SIZES, As("nvshmemx_putmem_signal_nbi_on_stream", BYTES)),
];

const SAME_TYPE: &str = "the same type by another name";
const NOT_SHORT: super::family::Reach =
    super::family::Reach::Not("values of 16 bits are not waited for: take one of 32 or 64");

pub const WAITS: &[Row] = &[
    row("nvshmemx_TYPE_wait_until_on_stream", WAITED, Directly(&["OnStream::wait_until"])),
    row("nvshmemx_TYPE_wait_until_all_on_stream", WAITED, Directly(&["OnStream::wait_until_all"])),
    row("nvshmemx_TYPE_wait_until_all_vector_on_stream", WAITED, Directly(&["OnStream::wait_until_all_vector"])),
    row("nvshmemx_TYPE_wait_until_on_stream", WAITED_AS, As("nvshmemx_SAME_wait_until_on_stream", SAME_TYPE)),
    row("nvshmemx_TYPE_wait_until_all_on_stream", WAITED_AS, As("nvshmemx_SAME_wait_until_all_on_stream", SAME_TYPE)),
    row(
        "nvshmemx_TYPE_wait_until_all_vector_on_stream",
        WAITED_AS,
        As("nvshmemx_SAME_wait_until_all_vector_on_stream", SAME_TYPE),
    ),
    row("nvshmemx_TYPE_wait_until_on_stream", SHORTS, NOT_SHORT),
    row("nvshmemx_TYPE_wait_until_all_on_stream", SHORTS, NOT_SHORT),
    row("nvshmemx_TYPE_wait_until_all_vector_on_stream", SHORTS, NOT_SHORT),
];
