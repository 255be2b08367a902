//! Values that a stream can wait for.

use std::ffi::c_int;

use crate::element::Element;
use crate::sys;

mod sealed {
    pub trait Sealed {}
}

/// An element that a stream waits for, by [`OnStream::wait_until`](crate::nvshmem::OnStream::wait_until) and the like: `i32`, `i64`, `u32` and `u64`.
/// Sealed.
#[diagnostic::on_unimplemented(
    message = "no stream waits for a value of type `{Self}`",
    label = "expected elements of type i32, i64, u32 or u64"
)]
pub trait Waited: sealed::Sealed + Element {
    #[doc(hidden)]
    const CALLS: Calls<Self>;
}

type One<T> = unsafe extern "C" fn(*mut T, c_int, T, sys::cudaStream_t);
type All<T> = unsafe extern "C" fn(*mut T, usize, *const c_int, c_int, T, sys::cudaStream_t);
type Vector<T> = unsafe extern "C" fn(*mut T, usize, *const c_int, c_int, *mut T, sys::cudaStream_t);

/// The functions of one type.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Calls<T> {
    pub(super) one: One<T>,
    pub(super) all: All<T>,
    pub(super) vector: Vector<T>,
}

macro_rules! waited {
    ($($type:ty => $one:ident, $all:ident, $vector:ident;)*) => {$(
        impl sealed::Sealed for $type {}

        impl Waited for $type {
            const CALLS: Calls<Self> = Calls { one: sys::$one, all: sys::$all, vector: sys::$vector };
        }
    )*};
}

waited! {
    i32 => nvshmemx_int32_wait_until_on_stream, nvshmemx_int32_wait_until_all_on_stream, nvshmemx_int32_wait_until_all_vector_on_stream;
    i64 => nvshmemx_int64_wait_until_on_stream, nvshmemx_int64_wait_until_all_on_stream, nvshmemx_int64_wait_until_all_vector_on_stream;
    u32 => nvshmemx_uint32_wait_until_on_stream, nvshmemx_uint32_wait_until_all_on_stream, nvshmemx_uint32_wait_until_all_vector_on_stream;
    u64 => nvshmemx_uint64_wait_until_on_stream, nvshmemx_uint64_wait_until_all_on_stream, nvshmemx_uint64_wait_until_all_vector_on_stream;
}
