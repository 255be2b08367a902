//! The functions of NVSHMEM that move data between PEs: transfers, single elements, signals, and waits for values.

use std::ffi::{c_int, c_void};
use std::ptr::null;

use super::super::calls::rma::{self, Single, Transfer, Way};
use super::super::calls::signals::{self, Signal, Waiting, Wanted};
use super::{Answer, Class, frame_of};
use crate::nvshmem::basics::Failed;
use crate::sys::cudaStream_t;
use crate::table::exports;

type Error = Failed;

/// The remote end, and the local one.
fn ends(way: Way, dest: *mut c_void, source: *const c_void) -> (*mut c_void, *mut c_void) {
    match way {
        Way::Put => (dest, source.cast_mut()),
        Way::Get => (source.cast_mut(), dest),
    }
}

macro_rules! dense {
    ($($name:ident $on_stream:ident: $way:ident $blocks:literal $class:ident;)*) => {
        exports! { DENSE: abi; $(
            $class fn $name(dest: *mut c_void, source: *const c_void, bytes: usize, pe: c_int) -> () {
                rma::now(Transfer::bytes(Way::$way, $blocks, ends(Way::$way, dest, source), bytes, pe))
            }

            Enqueues fn $on_stream(
                dest: *mut c_void,
                source: *const c_void,
                bytes: usize,
                pe: c_int,
                stream: cudaStream_t,
            ) -> () {
                let ends = ends(Way::$way, dest, source);
                rma::on_stream(Transfer::bytes(Way::$way, $blocks, ends, bytes, pe), stream)
            }
        )* }
    };
}

dense! {
    nvshmem_putmem nvshmemx_putmem_on_stream: Put true Waits;
    nvshmem_putmem_nbi nvshmemx_putmem_nbi_on_stream: Put false Enqueues;
    nvshmem_getmem nvshmemx_getmem_on_stream: Get true Waits;
    nvshmem_getmem_nbi nvshmemx_getmem_nbi_on_stream: Get false Enqueues;
}

macro_rules! strided {
    ($($bytes:literal $way:ident: $name:ident $on_stream:ident;)*) => {
        exports! { STRIDED: abi; $(
            Waits fn $name(
                dest: *mut c_void,
                source: *const c_void,
                dst: isize,
                sst: isize,
                nelems: usize,
                pe: c_int,
            ) -> () {
                rma::now(apart(Way::$way, (dest, source), (dst, sst), ($bytes, nelems), pe))
            }

            Enqueues fn $on_stream(
                dest: *mut c_void,
                source: *const c_void,
                dst: isize,
                sst: isize,
                nelems: usize,
                pe: c_int,
                stream: cudaStream_t,
            ) -> () {
                rma::on_stream(apart(Way::$way, (dest, source), (dst, sst), ($bytes, nelems), pe), stream)
            }
        )* }
    };
}

/// A transfer of elements that lie apart.
fn apart(
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
    1 Put: nvshmem_iput8 nvshmemx_iput8_on_stream;
    1 Get: nvshmem_iget8 nvshmemx_iget8_on_stream;
    2 Put: nvshmem_iput16 nvshmemx_iput16_on_stream;
    2 Get: nvshmem_iget16 nvshmemx_iget16_on_stream;
    4 Put: nvshmem_iput32 nvshmemx_iput32_on_stream;
    4 Get: nvshmem_iget32 nvshmemx_iget32_on_stream;
    8 Put: nvshmem_iput64 nvshmemx_iput64_on_stream;
    8 Get: nvshmem_iget64 nvshmemx_iget64_on_stream;
    16 Put: nvshmem_iput128 nvshmemx_iput128_on_stream;
    16 Get: nvshmem_iget128 nvshmemx_iget128_on_stream;
}

/// A put of one element.
fn single<T>(remote: *mut T, value: &[u8], pe: c_int) -> Single {
    let mut bytes = [0; 8];
    bytes[..value.len()].copy_from_slice(value);
    Single { remote: remote.cast(), value: bytes, bytes: value.len(), pe }
}

macro_rules! elements {
    ($($type:ty: $put:ident $put_on_stream:ident $get:ident;)*) => {
        exports! { ELEMENTS: abi; $(
            Waits fn $put(dest: *mut $type, value: $type, pe: c_int) -> () {
                rma::put_single(single(dest, &value.to_ne_bytes(), pe))
            }

            Enqueues fn $put_on_stream(dest: *mut $type, value: $type, pe: c_int, stream: cudaStream_t) -> () {
                rma::put_single_on_stream(single(dest, &value.to_ne_bytes(), pe), stream)
            }

            Waits fn $get(src: *const $type, pe: c_int) -> $type { rma::get_single(src, pe) }
        )* }
    };
}

elements! {
    u8: nvshmem_uint8_p nvshmemx_uint8_p_on_stream nvshmem_uint8_g;
    u16: nvshmem_uint16_p nvshmemx_uint16_p_on_stream nvshmem_uint16_g;
    u32: nvshmem_uint32_p nvshmemx_uint32_p_on_stream nvshmem_uint32_g;
    u64: nvshmem_uint64_p nvshmemx_uint64_p_on_stream nvshmem_uint64_g;
}

macro_rules! with_signal {
    ($($name:ident: $blocks:literal;)*) => {
        exports! { WITH_SIGNAL: abi; $(
            Enqueues fn $name(
                dest: *mut c_void,
                source: *const c_void,
                bytes: usize,
                sig_addr: *mut u64,
                signal: u64,
                sig_op: c_int,
                pe: c_int,
                stream: cudaStream_t,
            ) -> () {
                let signal = Signal { address: sig_addr, value: signal, operation: sig_op };
                let bare = Transfer::bytes(Way::Put, $blocks, ends(Way::Put, dest, source), bytes, pe);
                rma::on_stream(Transfer { signal: Some(signal), ..bare }, stream)
            }
        )* }
    };
}

with_signal! {
    nvshmemx_putmem_signal_on_stream: true;
    nvshmemx_putmem_signal_nbi_on_stream: false;
}

exports! { SIGNALS: abi;
    Waits fn nvshmem_signal_fetch(sig_addr: *mut u64) -> u64 { signals::fetch(sig_addr) }

    Enqueues fn nvshmemx_signal_op_on_stream(
        sig_addr: *mut u64,
        signal: u64,
        sig_op: c_int,
        pe: c_int,
        stream: cudaStream_t,
    ) -> () {
        signals::on_stream(Signal { address: sig_addr, value: signal, operation: sig_op }, pe, stream)
    }

    Enqueues fn nvshmemx_signal_wait_until_on_stream(
        sig_addr: *mut u64,
        cmp: c_int,
        cmp_value: u64,
        stream: cudaStream_t,
    ) -> () {
        let waiting = Waiting { values: sig_addr, count: 1, skip: null(), cmp, wanted: Wanted::One(cmp_value) };
        signals::wait_on_stream(waiting, stream)
    }
}

macro_rules! waits {
    ($($type:ty: $one:ident $all:ident $each:ident;)*) => {
        exports! { WAITS: abi; $(
            Enqueues fn $one(ivar: *mut $type, cmp: c_int, cmp_value: $type, stream: cudaStream_t) -> () {
                let wanted = Wanted::One(cmp_value);
                signals::wait_on_stream(Waiting { values: ivar, count: 1, skip: null(), cmp, wanted }, stream)
            }

            Enqueues fn $all(
                ivars: *mut $type,
                nelems: usize,
                status: *const c_int,
                cmp: c_int,
                cmp_value: $type,
                stream: cudaStream_t,
            ) -> () {
                let wanted = Wanted::One(cmp_value);
                signals::wait_on_stream(Waiting { values: ivars, count: nelems, skip: status, cmp, wanted }, stream)
            }

            Enqueues fn $each(
                ivars: *mut $type,
                nelems: usize,
                status: *const c_int,
                cmp: c_int,
                cmp_value: *mut $type,
                stream: cudaStream_t,
            ) -> () {
                let wanted = Wanted::Each(cmp_value.cast_const());
                signals::wait_on_stream(Waiting { values: ivars, count: nelems, skip: status, cmp, wanted }, stream)
            }
        )* }
    };
}

waits! {
    i32: nvshmemx_int32_wait_until_on_stream nvshmemx_int32_wait_until_all_on_stream
        nvshmemx_int32_wait_until_all_vector_on_stream;
    i64: nvshmemx_int64_wait_until_on_stream nvshmemx_int64_wait_until_all_on_stream
        nvshmemx_int64_wait_until_all_vector_on_stream;
    u32: nvshmemx_uint32_wait_until_on_stream nvshmemx_uint32_wait_until_all_on_stream
        nvshmemx_uint32_wait_until_all_vector_on_stream;
    u64: nvshmemx_uint64_wait_until_on_stream nvshmemx_uint64_wait_until_all_on_stream
        nvshmemx_uint64_wait_until_all_vector_on_stream;
}
