//! Signals, and waits for values.

use std::ffi::c_int;
use std::ptr::null;

use super::super::basics::entry::{Class, entry};
use super::super::calls::signals::{self, Signal};
use super::super::calls::waits::{self, Waiting, Wanted};
use super::done;
use crate::sys::cudaStream_t;

pub unsafe extern "C" fn nvshmem_signal_fetch(sig_addr: *mut u64) -> u64 {
    entry("nvshmem_signal_fetch", Class::Waits, |_| 0, || signals::fetch(sig_addr))
}

pub unsafe extern "C" fn nvshmemx_signal_op_on_stream(
    sig_addr: *mut u64,
    signal: u64,
    sig_op: c_int,
    pe: c_int,
    stream: cudaStream_t,
) {
    done("nvshmemx_signal_op_on_stream", Class::Enqueues, || {
        signals::on_stream(Signal { address: sig_addr, value: signal, operation: sig_op }, pe, stream)
    });
}

pub unsafe extern "C" fn nvshmemx_signal_wait_until_on_stream(
    sig_addr: *mut u64,
    cmp: c_int,
    cmp_value: u64,
    stream: cudaStream_t,
) {
    done("nvshmemx_signal_wait_until_on_stream", Class::Enqueues, || {
        let waiting = Waiting { values: sig_addr, count: 1, skip: null(), cmp, wanted: Wanted::One(cmp_value) };
        waits::on_stream(waiting, stream)
    });
}

macro_rules! waits {
    ($($type:ty: $one:ident $all:ident $each:ident;)*) => {$(
        pub unsafe extern "C" fn $one(ivar: *mut $type, cmp: c_int, cmp_value: $type, stream: cudaStream_t) {
            done(stringify!($one), Class::Enqueues, || {
                let wanted = Wanted::One(cmp_value);
                waits::on_stream(Waiting { values: ivar, count: 1, skip: null(), cmp, wanted }, stream)
            });
        }

        pub unsafe extern "C" fn $all(
            ivars: *mut $type,
            nelems: usize,
            status: *const c_int,
            cmp: c_int,
            cmp_value: $type,
            stream: cudaStream_t,
        ) {
            done(stringify!($all), Class::Enqueues, || {
                let wanted = Wanted::One(cmp_value);
                waits::on_stream(Waiting { values: ivars, count: nelems, skip: status, cmp, wanted }, stream)
            });
        }

        pub unsafe extern "C" fn $each(
            ivars: *mut $type,
            nelems: usize,
            status: *const c_int,
            cmp: c_int,
            cmp_value: *mut $type,
            stream: cudaStream_t,
        ) {
            done(stringify!($each), Class::Enqueues, || {
                let wanted = Wanted::Each(cmp_value.cast_const());
                waits::on_stream(Waiting { values: ivars, count: nelems, skip: status, cmp, wanted }, stream)
            });
        }
    )*};
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
