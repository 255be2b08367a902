//! Bytes from one PE to another.

use std::ffi::{c_int, c_void};

use super::super::basics::entry::Class;
use super::super::calls::rma::{self, Transfer, Way};
use super::super::calls::signals::Signal;
use super::done;
use crate::sys::cudaStream_t;

/// The remote end, and the local one.
fn ends(way: Way, dest: *mut c_void, source: *const c_void) -> (*mut c_void, *mut c_void) {
    match way {
        Way::Put => (dest, source.cast_mut()),
        Way::Get => (source.cast_mut(), dest),
    }
}

macro_rules! transfers {
    ($($name:ident $on_stream:ident: $way:ident $blocks:literal $class:ident;)*) => {$(
        pub unsafe extern "C" fn $name(dest: *mut c_void, source: *const c_void, bytes: usize, pe: c_int) {
            done(stringify!($name), Class::$class, || {
                rma::now(Transfer::bytes(Way::$way, $blocks, ends(Way::$way, dest, source), bytes, pe))
            });
        }

        pub unsafe extern "C" fn $on_stream(
            dest: *mut c_void,
            source: *const c_void,
            bytes: usize,
            pe: c_int,
            stream: cudaStream_t,
        ) {
            done(stringify!($on_stream), Class::Enqueues, || {
                let ends = ends(Way::$way, dest, source);
                rma::on_stream(Transfer::bytes(Way::$way, $blocks, ends, bytes, pe), stream)
            });
        }
    )*};
}

transfers! {
    nvshmem_putmem nvshmemx_putmem_on_stream: Put true Waits;
    nvshmem_putmem_nbi nvshmemx_putmem_nbi_on_stream: Put false Enqueues;
    nvshmem_getmem nvshmemx_getmem_on_stream: Get true Waits;
    nvshmem_getmem_nbi nvshmemx_getmem_nbi_on_stream: Get false Enqueues;
}

macro_rules! with_signal {
    ($($name:ident: $blocks:literal;)*) => {$(
        pub unsafe extern "C" fn $name(
            dest: *mut c_void,
            source: *const c_void,
            bytes: usize,
            sig_addr: *mut u64,
            signal: u64,
            sig_op: c_int,
            pe: c_int,
            stream: cudaStream_t,
        ) {
            done(stringify!($name), Class::Enqueues, || {
                let signal = Signal { address: sig_addr, value: signal, operation: sig_op };
                let bare = Transfer::bytes(Way::Put, $blocks, ends(Way::Put, dest, source), bytes, pe);
                rma::on_stream(Transfer { signal: Some(signal), ..bare }, stream)
            });
        }
    )*};
}

with_signal! {
    nvshmemx_putmem_signal_on_stream: true;
    nvshmemx_putmem_signal_nbi_on_stream: false;
}

macro_rules! strided {
    ($($bytes:literal: $put:ident $put_on_stream:ident $get:ident $get_on_stream:ident;)*) => {$(
        strided!(one $put $put_on_stream Put $bytes);
        strided!(one $get $get_on_stream Get $bytes);
    )*};
    (one $name:ident $on_stream:ident $way:ident $bytes:literal) => {
        pub unsafe extern "C" fn $name(
            dest: *mut c_void,
            source: *const c_void,
            dst: isize,
            sst: isize,
            nelems: usize,
            pe: c_int,
        ) {
            done(stringify!($name), Class::Waits, || {
                rma::now(elements(Way::$way, (dest, source), (dst, sst), ($bytes, nelems), pe))
            });
        }

        pub unsafe extern "C" fn $on_stream(
            dest: *mut c_void,
            source: *const c_void,
            dst: isize,
            sst: isize,
            nelems: usize,
            pe: c_int,
            stream: cudaStream_t,
        ) {
            done(stringify!($on_stream), Class::Enqueues, || {
                rma::on_stream(elements(Way::$way, (dest, source), (dst, sst), ($bytes, nelems), pe), stream)
            });
        }
    };
}

/// Elements that are apart.
fn elements(
    way: Way,
    (dest, source): (*mut c_void, *const c_void),
    (dst, sst): (isize, isize),
    (element, count): (usize, usize),
    pe: c_int,
) -> Transfer {
    let (remote, local) = ends(way, dest, source);
    let strides = if way == Way::Put { (dst, sst) } else { (sst, dst) };
    Transfer { way, blocks: true, remote, local, element, count, strides, pe, signal: None }
}

strided! {
    1: nvshmem_iput8 nvshmemx_iput8_on_stream nvshmem_iget8 nvshmemx_iget8_on_stream;
    2: nvshmem_iput16 nvshmemx_iput16_on_stream nvshmem_iget16 nvshmemx_iget16_on_stream;
    4: nvshmem_iput32 nvshmemx_iput32_on_stream nvshmem_iget32 nvshmemx_iget32_on_stream;
    8: nvshmem_iput64 nvshmemx_iput64_on_stream nvshmem_iget64 nvshmemx_iget64_on_stream;
    16: nvshmem_iput128 nvshmemx_iput128_on_stream nvshmem_iget128 nvshmemx_iget128_on_stream;
}
