//! The functions of NVSHMEM for one element type or size, by their names.
//!
//! gpucomm calls none of them, and no bindings declare them. So they are found at run time, as by `dlsym`. Each passes on to
//! the function for bytes, or is that of another type of the same width.

use std::ffi::{c_int, c_void};

use super::super::calls::collectives::{self as calls, Collective};
use super::{Class, collectives, frame, transfers};
use crate::nvshmem::basics::Kind;
use crate::nvshmem::calls::collectives::{Operator, Reduction, Type};
use crate::sys::*;
use crate::table::{self, Function};

/// Types, their bytes, and the name of the one that is the same to reductions and waits.
const TYPES: [(&str, usize, &str); 25] = [
    ("bfloat16", 2, "bfloat16"),
    ("half", 2, "half"),
    ("float", 4, "float"),
    ("double", 8, "double"),
    ("char", 1, "int8"),
    ("short", 2, "int16"),
    ("schar", 1, "int8"),
    ("int", 4, "int32"),
    ("long", 8, "int64"),
    ("longlong", 8, "int64"),
    ("uchar", 1, "uint8"),
    ("ushort", 2, "uint16"),
    ("uint", 4, "uint32"),
    ("ulong", 8, "uint64"),
    ("ulonglong", 8, "uint64"),
    ("int8", 1, "int8"),
    ("int16", 2, "int16"),
    ("int32", 4, "int32"),
    ("int64", 8, "int64"),
    ("uint8", 1, "uint8"),
    ("uint16", 2, "uint16"),
    ("uint32", 4, "uint32"),
    ("uint64", 8, "uint64"),
    ("size", 8, "uint64"),
    ("ptrdiff", 8, "int64"),
];

/// The address of a function.
macro_rules! address {
    ($function:expr) => {
        Some(($function as *const ()).cast_mut().cast::<c_void>())
    };
}

/// The same of one for each size of an element.
macro_rules! by_size {
    ($bytes:expr, $function:ident) => {
        match $bytes {
            1 => address!($function::<1>),
            2 => address!($function::<2>),
            4 => address!($function::<4>),
            8 => address!($function::<8>),
            16 => address!($function::<16>),
            _ => None,
        }
    };
}

/// The function of that name, if it is one of a type or of a size.
pub fn nvshmem_by_type(name: &str) -> Option<*mut c_void> {
    let (rest, extension) = match name.strip_prefix("nvshmemx_") {
        Some(rest) => (rest, true),
        None => (name.strip_prefix("nvshmem_")?, false),
    };
    let (rest, on_stream) = rest.strip_suffix("_on_stream").map_or((rest, false), |rest| (rest, true));
    if extension != on_stream {
        return None;
    }
    if let Some((what, bytes)) = sized(rest) {
        return moves(what, bytes, on_stream);
    }
    let (of, what) = rest.split_once('_')?;
    let (of, bytes, same) = TYPES.into_iter().find(|(of_type, ..)| *of_type == of)?;
    let moved = moves(what, bytes, on_stream).or_else(|| element(what, of, bytes, on_stream));
    let shared =
        || if on_stream { declared(&format!("nvshmemx_{same}_{what}_on_stream")) } else { reduced(what, same) };
    moved.or_else(|| together(what, bytes, on_stream)).or_else(shared)
}

/// A function that is declared for one type, and serves others of its width.
fn declared(name: &str) -> Option<*mut c_void> {
    use transfers::{ELEMENTS, STRIDED, WAITS};
    table::address(&[ELEMENTS, STRIDED, WAITS, collectives::REDUCTIONS], name)
}

/// `put32_nbi`: what is done, and the bytes of an element.
fn sized(rest: &str) -> Option<(&'static str, usize)> {
    let all = ["put", "get", "put_nbi", "get_nbi", "iput", "iget", "put_signal", "put_signal_nbi"];
    all.into_iter().find_map(|what| {
        let (front, behind) = what.split_once('_').unwrap_or((what, ""));
        let bits = rest.strip_prefix(front)?.strip_suffix(behind)?;
        let bits = if behind.is_empty() { bits } else { bits.strip_suffix('_')? };
        Some((what, bits.parse::<usize>().ok().filter(|bits| [8, 16, 32, 64, 128].contains(bits))? / 8))
    })
}

macro_rules! dense {
    ($($name:ident $on_stream:ident: $bytes:ident $bytes_on_stream:ident;)*) => {$(
        unsafe extern "C" fn $name<const N: usize>(dest: *mut c_void, source: *const c_void, nelems: usize, pe: c_int) {
            // SAFETY: as the caller promises.
            unsafe { $bytes(dest, source, nelems * N, pe) }
        }

        unsafe extern "C" fn $on_stream<const N: usize>(
            dest: *mut c_void,
            source: *const c_void,
            nelems: usize,
            pe: c_int,
            stream: cudaStream_t,
        ) {
            // SAFETY: as the caller promises.
            unsafe { $bytes_on_stream(dest, source, nelems * N, pe, stream) }
        }
    )*};
}

dense! {
    put put_on_stream: nvshmem_putmem nvshmemx_putmem_on_stream;
    get get_on_stream: nvshmem_getmem nvshmemx_getmem_on_stream;
    put_nbi put_nbi_on_stream: nvshmem_putmem_nbi nvshmemx_putmem_nbi_on_stream;
    get_nbi get_nbi_on_stream: nvshmem_getmem_nbi nvshmemx_getmem_nbi_on_stream;
}

macro_rules! signalled {
    ($($name:ident: $bytes:ident;)*) => {$(
        unsafe extern "C" fn $name<const N: usize>(
            dest: *mut c_void,
            source: *const c_void,
            nelems: usize,
            sig_addr: *mut u64,
            signal: u64,
            sig_op: c_int,
            pe: c_int,
            stream: cudaStream_t,
        ) {
            // SAFETY: as the caller promises.
            unsafe { $bytes(dest, source, nelems * N, sig_addr, signal, sig_op, pe, stream) }
        }
    )*};
}

signalled! {
    put_signal: nvshmemx_putmem_signal_on_stream;
    put_signal_nbi: nvshmemx_putmem_signal_nbi_on_stream;
}

/// Puts and gets of elements of so many bytes.
fn moves(what: &str, bytes: usize, on_stream: bool) -> Option<*mut c_void> {
    match (what, on_stream) {
        ("put", false) => by_size!(bytes, put),
        ("put", true) => by_size!(bytes, put_on_stream),
        ("get", false) => by_size!(bytes, get),
        ("get", true) => by_size!(bytes, get_on_stream),
        ("put_nbi", false) => by_size!(bytes, put_nbi),
        ("put_nbi", true) => by_size!(bytes, put_nbi_on_stream),
        ("get_nbi", false) => by_size!(bytes, get_nbi),
        ("get_nbi", true) => by_size!(bytes, get_nbi_on_stream),
        ("put_signal", true) => by_size!(bytes, put_signal),
        ("put_signal_nbi", true) => by_size!(bytes, put_signal_nbi),
        ("iput" | "iget", _) => strided(what, bytes, on_stream),
        _ => None,
    }
}

fn strided(what: &str, bytes: usize, on_stream: bool) -> Option<*mut c_void> {
    let bits = bytes * 8;
    declared(&if on_stream { format!("nvshmemx_{what}{bits}_on_stream") } else { format!("nvshmem_{what}{bits}") })
}

macro_rules! floats {
    ($($type:ty: $put:ident $put_on_stream:ident $get:ident of $bits_put:ident $bits_put_on_stream:ident $bits_get:ident;)*) => {$(
        unsafe extern "C" fn $put(dest: *mut $type, value: $type, pe: c_int) {
            // SAFETY: as the caller promises.
            unsafe { $bits_put(dest.cast(), value.to_bits(), pe) }
        }

        unsafe extern "C" fn $put_on_stream(dest: *mut $type, value: $type, pe: c_int, stream: cudaStream_t) {
            // SAFETY: as the caller promises.
            unsafe { $bits_put_on_stream(dest.cast(), value.to_bits(), pe, stream) }
        }

        unsafe extern "C" fn $get(source: *const $type, pe: c_int) -> $type {
            // SAFETY: as the caller promises.
            <$type>::from_bits(unsafe { $bits_get(source.cast(), pe) })
        }
    )*};
}

floats! {
    f32: float_p float_p_on_stream float_g of nvshmem_uint32_p nvshmemx_uint32_p_on_stream nvshmem_uint32_g;
    f64: double_p double_p_on_stream double_g of nvshmem_uint64_p nvshmemx_uint64_p_on_stream nvshmem_uint64_g;
}

/// Single elements. Types that C passes like an integer of their width share its function.
fn element(what: &str, of: &str, bytes: usize, on_stream: bool) -> Option<*mut c_void> {
    match (what, of, on_stream) {
        ("p", "float", false) => address!(float_p),
        ("p", "float", true) => address!(float_p_on_stream),
        ("g", "float", false) => address!(float_g),
        ("p", "double", false) => address!(double_p),
        ("p", "double", true) => address!(double_p_on_stream),
        ("g", "double", false) => address!(double_g),
        ("p", _, true) => declared(&format!("nvshmemx_uint{}_p_on_stream", bytes * 8)),
        ("p" | "g", _, false) => declared(&format!("nvshmem_uint{}_{what}", bytes * 8)),
        _ => None,
    }
}

macro_rules! shared {
    ($($name:ident $on_stream:ident: $bytes:ident $bytes_on_stream:ident;)*) => {$(
        unsafe extern "C" fn $name<const N: usize>(
            team: nvshmem_team_t,
            dest: *mut c_void,
            source: *const c_void,
            nelems: usize,
        ) -> c_int {
            // SAFETY: as the caller promises.
            unsafe { $bytes(team, dest, source, nelems * N) }
        }

        unsafe extern "C" fn $on_stream<const N: usize>(
            team: nvshmem_team_t,
            dest: *mut c_void,
            source: *const c_void,
            nelems: usize,
            stream: cudaStream_t,
        ) -> c_int {
            // SAFETY: as the caller promises.
            unsafe { $bytes_on_stream(team, dest, source, nelems * N, stream) }
        }
    )*};
}

shared! {
    fcollect fcollect_on_stream: nvshmem_fcollectmem nvshmemx_fcollectmem_on_stream;
    alltoall alltoall_on_stream: nvshmem_alltoallmem nvshmemx_alltoallmem_on_stream;
}

unsafe extern "C" fn broadcast<const N: usize>(
    team: nvshmem_team_t,
    dest: *mut c_void,
    source: *const c_void,
    nelems: usize,
    root: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { nvshmem_broadcastmem(team, dest, source, nelems * N, root) }
}

unsafe extern "C" fn broadcast_on_stream<const N: usize>(
    team: nvshmem_team_t,
    dest: *mut c_void,
    source: *const c_void,
    nelems: usize,
    root: c_int,
    stream: cudaStream_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { nvshmemx_broadcastmem_on_stream(team, dest, source, nelems * N, root, stream) }
}

fn together(what: &str, bytes: usize, on_stream: bool) -> Option<*mut c_void> {
    match (what, on_stream) {
        ("broadcast", false) => by_size!(bytes, broadcast),
        ("broadcast", true) => by_size!(bytes, broadcast_on_stream),
        ("fcollect", false) => by_size!(bytes, fcollect),
        ("fcollect", true) => by_size!(bytes, fcollect_on_stream),
        ("alltoall", false) => by_size!(bytes, alltoall),
        ("alltoall", true) => by_size!(bytes, alltoall_on_stream),
        _ => None,
    }
}

/// `sum_reduce` and its like, for which the host waits.
fn reduced(what: &str, same: &str) -> Option<*mut c_void> {
    let (op, what) = what.split_once('_')?;
    let scatters = match what {
        "reduce" => false,
        "reducescatter" => true,
        _ => return None,
    };
    if matches!(op, "and" | "or" | "xor") && !same.contains("int") {
        return None;
    }
    macro_rules! by_type {
        ($($name:literal $of:literal,)*) => {
            match same {
                $($name if scatters => by_operator!($of true),)*
                $($name => by_operator!($of false),)*
                _ => None,
            }
        };
    }
    macro_rules! by_operator {
        ($of:literal $scatters:literal) => {
            match op {
                "sum" => address!(reduce::<$of, 0, $scatters>),
                "prod" => address!(reduce::<$of, 1, $scatters>),
                "min" => address!(reduce::<$of, 2, $scatters>),
                "max" => address!(reduce::<$of, 3, $scatters>),
                "and" => address!(reduce::<$of, 4, $scatters>),
                "or" => address!(reduce::<$of, 5, $scatters>),
                "xor" => address!(reduce::<$of, 6, $scatters>),
                _ => None,
            }
        };
    }
    by_type! {
        "int8" 0, "int16" 1, "int32" 2, "int64" 3, "uint8" 4, "uint16" 5, "uint32" 6, "uint64" 7, "half" 8, "bfloat16" 9,
        "float" 10, "double" 11,
    }
}

/// A reduction that the host waits for: its type, its operation, and whether the result is scattered.
unsafe extern "C" fn reduce<const OF: usize, const OP: usize, const SCATTERS: bool>(
    team: nvshmem_team_t,
    dest: *mut c_void,
    source: *const c_void,
    nreduce: usize,
) -> c_int {
    on_host(team, (dest, source), nreduce, (OF, OP), SCATTERS)
}

fn on_host(
    team: nvshmem_team_t,
    (dest, source): (*mut c_void, *const c_void),
    count: usize,
    (of, op): (usize, usize),
    scatters: bool,
) -> c_int {
    use Operator::{And, Max, Min, Or, Prod, Sum, Xor};
    use Type::{Bfloat16, Double, Float, Half, I8, I16, I32, I64, U8, U16, U32, U64};
    let (element, of) = [
        (1, I8),
        (2, I16),
        (4, I32),
        (8, I64),
        (1, U8),
        (2, U16),
        (4, U32),
        (8, U64),
        (2, Half),
        (2, Bfloat16),
        (4, Float),
        (8, Double),
    ][of];
    let reduction = Some(Reduction { operator: [Sum, Prod, Min, Max, And, Or, Xor][op], of });
    let (kind, name) = match scatters {
        true => (Kind::ReduceScatter, "nvshmem_TYPE_OP_reducescatter"),
        false => (Kind::Reduce, "nvshmem_TYPE_OP_reduce"),
    };
    frame(Function { name, class: Class::Waits, first: 0 }, || {
        calls::now(team, Collective { kind, dest, source, count, element, root: 0, reduction })
    })
}
