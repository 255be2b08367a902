//! The functions of a type or of a size, by their names: each passes on to the one of bytes, of its width or of its type that comes to the same.
//!
//! Programs of this crate call none of them, and no bindings have them. So they are found at run time, as with `dlsym`: some are one function for all
//! types of a size, and others, whose types have several names, are one that is there anyway.

use std::ffi::{c_int, c_void};

use super::reduced::reduced;
use crate::sys::*;

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
    let strided = moves(what, bytes, on_stream).or_else(|| element(what, of, bytes, on_stream));
    let together = || moved(what, bytes, on_stream).or_else(|| reduced(what, same, on_stream));
    strided.or_else(together).or_else(|| waits(what, same, on_stream))
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
    match (what, bytes, on_stream) {
        ("iput", 1, false) => address!(nvshmem_iput8),
        ("iput", 2, false) => address!(nvshmem_iput16),
        ("iput", 4, false) => address!(nvshmem_iput32),
        ("iput", 8, false) => address!(nvshmem_iput64),
        ("iput", 16, false) => address!(nvshmem_iput128),
        ("iput", 1, true) => address!(nvshmemx_iput8_on_stream),
        ("iput", 2, true) => address!(nvshmemx_iput16_on_stream),
        ("iput", 4, true) => address!(nvshmemx_iput32_on_stream),
        ("iput", 8, true) => address!(nvshmemx_iput64_on_stream),
        ("iput", 16, true) => address!(nvshmemx_iput128_on_stream),
        ("iget", 1, false) => address!(nvshmem_iget8),
        ("iget", 2, false) => address!(nvshmem_iget16),
        ("iget", 4, false) => address!(nvshmem_iget32),
        ("iget", 8, false) => address!(nvshmem_iget64),
        ("iget", 16, false) => address!(nvshmem_iget128),
        ("iget", 1, true) => address!(nvshmemx_iget8_on_stream),
        ("iget", 2, true) => address!(nvshmemx_iget16_on_stream),
        ("iget", 4, true) => address!(nvshmemx_iget32_on_stream),
        ("iget", 8, true) => address!(nvshmemx_iget64_on_stream),
        ("iget", 16, true) => address!(nvshmemx_iget128_on_stream),
        _ => None,
    }
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

/// Single elements. Where a type is passed as an integer of its width is, it is one function for both.
fn element(what: &str, of: &str, bytes: usize, on_stream: bool) -> Option<*mut c_void> {
    match (what, of, bytes, on_stream) {
        ("p", "float", _, false) => address!(float_p),
        ("p", "float", _, true) => address!(float_p_on_stream),
        ("g", "float", _, false) => address!(float_g),
        ("p", "double", _, false) => address!(double_p),
        ("p", "double", _, true) => address!(double_p_on_stream),
        ("g", "double", _, false) => address!(double_g),
        ("p", _, 1, false) => address!(nvshmem_uint8_p),
        ("p", _, 2, false) => address!(nvshmem_uint16_p),
        ("p", _, 4, false) => address!(nvshmem_uint32_p),
        ("p", _, 8, false) => address!(nvshmem_uint64_p),
        ("p", _, 1, true) => address!(nvshmemx_uint8_p_on_stream),
        ("p", _, 2, true) => address!(nvshmemx_uint16_p_on_stream),
        ("p", _, 4, true) => address!(nvshmemx_uint32_p_on_stream),
        ("p", _, 8, true) => address!(nvshmemx_uint64_p_on_stream),
        ("g", _, 1, false) => address!(nvshmem_uint8_g),
        ("g", _, 2, false) => address!(nvshmem_uint16_g),
        ("g", _, 4, false) => address!(nvshmem_uint32_g),
        ("g", _, 8, false) => address!(nvshmem_uint64_g),
        _ => None,
    }
}

/// Waits of a stream, by the name of the type that is called.
fn waits(what: &str, same: &str, on_stream: bool) -> Option<*mut c_void> {
    match (same, what, on_stream) {
        ("int32", "wait_until", true) => address!(nvshmemx_int32_wait_until_on_stream),
        ("int32", "wait_until_all", true) => address!(nvshmemx_int32_wait_until_all_on_stream),
        ("int32", "wait_until_all_vector", true) => address!(nvshmemx_int32_wait_until_all_vector_on_stream),
        ("int64", "wait_until", true) => address!(nvshmemx_int64_wait_until_on_stream),
        ("int64", "wait_until_all", true) => address!(nvshmemx_int64_wait_until_all_on_stream),
        ("int64", "wait_until_all_vector", true) => address!(nvshmemx_int64_wait_until_all_vector_on_stream),
        ("uint32", "wait_until", true) => address!(nvshmemx_uint32_wait_until_on_stream),
        ("uint32", "wait_until_all", true) => address!(nvshmemx_uint32_wait_until_all_on_stream),
        ("uint32", "wait_until_all_vector", true) => address!(nvshmemx_uint32_wait_until_all_vector_on_stream),
        ("uint64", "wait_until", true) => address!(nvshmemx_uint64_wait_until_on_stream),
        ("uint64", "wait_until_all", true) => address!(nvshmemx_uint64_wait_until_all_on_stream),
        ("uint64", "wait_until_all_vector", true) => address!(nvshmemx_uint64_wait_until_all_vector_on_stream),
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

fn moved(what: &str, bytes: usize, on_stream: bool) -> Option<*mut c_void> {
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
