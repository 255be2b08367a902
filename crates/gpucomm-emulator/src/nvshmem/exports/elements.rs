//! Single elements, by their width.

use std::ffi::c_int;

use super::super::basics::entry::{Class, entry};
use super::super::calls::rma::{self, Single};
use super::done;
use crate::sys::cudaStream_t;

macro_rules! elements {
    ($($type:ty: $put:ident $put_on_stream:ident $get:ident;)*) => {$(
        pub unsafe extern "C" fn $put(dest: *mut $type, value: $type, pe: c_int) {
            done(stringify!($put), Class::Waits, || rma::put_single(single(dest, &value.to_ne_bytes(), pe)));
        }

        pub unsafe extern "C" fn $put_on_stream(dest: *mut $type, value: $type, pe: c_int, stream: cudaStream_t) {
            done(stringify!($put_on_stream), Class::Enqueues, || {
                rma::put_single_on_stream(single(dest, &value.to_ne_bytes(), pe), stream)
            });
        }

        pub unsafe extern "C" fn $get(src: *const $type, pe: c_int) -> $type {
            entry(stringify!($get), Class::Waits, |_| 0, || rma::get_single(src, pe))
        }
    )*};
}

fn single<T>(remote: *mut T, value: &[u8], pe: c_int) -> Single {
    let mut bytes = [0; 8];
    bytes[..value.len()].copy_from_slice(value);
    Single { remote: remote.cast(), value: bytes, bytes: value.len(), pe }
}

elements! {
    u8: nvshmem_uint8_p nvshmemx_uint8_p_on_stream nvshmem_uint8_g;
    u16: nvshmem_uint16_p nvshmemx_uint16_p_on_stream nvshmem_uint16_g;
    u32: nvshmem_uint32_p nvshmemx_uint32_p_on_stream nvshmem_uint32_g;
    u64: nvshmem_uint64_p nvshmemx_uint64_p_on_stream nvshmem_uint64_g;
}
