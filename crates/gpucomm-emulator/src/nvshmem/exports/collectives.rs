//! The functions of NVSHMEM for collectives of teams.

use std::ffi::{c_int, c_void};

use super::super::calls::collectives::{self, Collective};
use super::{Class, frame};
use crate::nvshmem::basics::Failed;
use crate::nvshmem::basics::Kind;
use crate::nvshmem::calls::collectives::{Operator, Reduction, Type};
use crate::sys::*;
use crate::table::exports;

type Error = Failed;
type Status = c_int;

/// A collective that moves bytes.
fn bytes(kind: Kind, (dest, source): (*mut c_void, *const c_void), count: usize, root: c_int) -> Collective {
    Collective { kind, dest, source, count, element: 1, root, reduction: None }
}

exports! { MOVING: abi;
    Waits fn nvshmem_alltoallmem(team: nvshmem_team_t, dest: *mut c_void, src: *const c_void, nelems: usize) {
        collectives::now(team, bytes(Kind::AllToAll, (dest, src), nelems, 0))
    }

    Enqueues fn nvshmemx_alltoallmem_on_stream(
        team: nvshmem_team_t,
        dest: *mut c_void,
        src: *const c_void,
        nelem: usize,
        stream: cudaStream_t,
    ) {
        collectives::on_stream(team, bytes(Kind::AllToAll, (dest, src), nelem, 0), stream)
    }

    Waits fn nvshmem_fcollectmem(team: nvshmem_team_t, dest: *mut c_void, src: *const c_void, nelems: usize) {
        collectives::now(team, bytes(Kind::Fcollect, (dest, src), nelems, 0))
    }

    Enqueues fn nvshmemx_fcollectmem_on_stream(
        team: nvshmem_team_t,
        dest: *mut c_void,
        src: *const c_void,
        nelem: usize,
        stream: cudaStream_t,
    ) {
        collectives::on_stream(team, bytes(Kind::Fcollect, (dest, src), nelem, 0), stream)
    }

    Waits fn nvshmem_broadcastmem(
        team: nvshmem_team_t,
        dest: *mut c_void,
        src: *const c_void,
        nelems: usize,
        root: c_int,
    ) {
        collectives::now(team, bytes(Kind::Broadcast, (dest, src), nelems, root))
    }

    Enqueues fn nvshmemx_broadcastmem_on_stream(
        team: nvshmem_team_t,
        dest: *mut c_void,
        src: *const c_void,
        nelem: usize,
        root: c_int,
        stream: cudaStream_t,
    ) {
        collectives::on_stream(team, bytes(Kind::Broadcast, (dest, src), nelem, root), stream)
    }
}

/// A reduction of elements of type `T`.
fn reduction<T>(
    kind: Kind,
    (of, operator): (Type, Operator),
    (dest, source): (*mut T, *const T),
    count: usize,
) -> Collective {
    let reduction = Some(Reduction { operator, of });
    Collective { kind, dest: dest.cast(), source: source.cast(), count, element: size_of::<T>(), root: 0, reduction }
}

macro_rules! reductions {
    ($($type:ty: $of:ident $operator:ident $reduce:ident $scatter:ident;)*) => {
        exports! { REDUCTIONS: abi; $(
            Enqueues fn $reduce(
                team: nvshmem_team_t,
                dest: *mut $type,
                src: *const $type,
                nreduce: usize,
                stream: cudaStream_t,
            ) {
                let how = (Type::$of, Operator::$operator);
                collectives::on_stream(team, reduction(Kind::Reduce, how, (dest, src), nreduce), stream)
            }

            Enqueues fn $scatter(
                team: nvshmem_team_t,
                dest: *mut $type,
                src: *const $type,
                nreduce: usize,
                stream: cudaStream_t,
            ) {
                let how = (Type::$of, Operator::$operator);
                collectives::on_stream(team, reduction(Kind::ReduceScatter, how, (dest, src), nreduce), stream)
            }
        )* }
    };
}

reductions! {
    i8: I8 Sum nvshmemx_int8_sum_reduce_on_stream nvshmemx_int8_sum_reducescatter_on_stream;
    i8: I8 Prod nvshmemx_int8_prod_reduce_on_stream nvshmemx_int8_prod_reducescatter_on_stream;
    i8: I8 Min nvshmemx_int8_min_reduce_on_stream nvshmemx_int8_min_reducescatter_on_stream;
    i8: I8 Max nvshmemx_int8_max_reduce_on_stream nvshmemx_int8_max_reducescatter_on_stream;
    i8: I8 And nvshmemx_int8_and_reduce_on_stream nvshmemx_int8_and_reducescatter_on_stream;
    i8: I8 Or nvshmemx_int8_or_reduce_on_stream nvshmemx_int8_or_reducescatter_on_stream;
    i8: I8 Xor nvshmemx_int8_xor_reduce_on_stream nvshmemx_int8_xor_reducescatter_on_stream;
    i16: I16 Sum nvshmemx_int16_sum_reduce_on_stream nvshmemx_int16_sum_reducescatter_on_stream;
    i16: I16 Prod nvshmemx_int16_prod_reduce_on_stream nvshmemx_int16_prod_reducescatter_on_stream;
    i16: I16 Min nvshmemx_int16_min_reduce_on_stream nvshmemx_int16_min_reducescatter_on_stream;
    i16: I16 Max nvshmemx_int16_max_reduce_on_stream nvshmemx_int16_max_reducescatter_on_stream;
    i16: I16 And nvshmemx_int16_and_reduce_on_stream nvshmemx_int16_and_reducescatter_on_stream;
    i16: I16 Or nvshmemx_int16_or_reduce_on_stream nvshmemx_int16_or_reducescatter_on_stream;
    i16: I16 Xor nvshmemx_int16_xor_reduce_on_stream nvshmemx_int16_xor_reducescatter_on_stream;
    i32: I32 Sum nvshmemx_int32_sum_reduce_on_stream nvshmemx_int32_sum_reducescatter_on_stream;
    i32: I32 Prod nvshmemx_int32_prod_reduce_on_stream nvshmemx_int32_prod_reducescatter_on_stream;
    i32: I32 Min nvshmemx_int32_min_reduce_on_stream nvshmemx_int32_min_reducescatter_on_stream;
    i32: I32 Max nvshmemx_int32_max_reduce_on_stream nvshmemx_int32_max_reducescatter_on_stream;
    i32: I32 And nvshmemx_int32_and_reduce_on_stream nvshmemx_int32_and_reducescatter_on_stream;
    i32: I32 Or nvshmemx_int32_or_reduce_on_stream nvshmemx_int32_or_reducescatter_on_stream;
    i32: I32 Xor nvshmemx_int32_xor_reduce_on_stream nvshmemx_int32_xor_reducescatter_on_stream;
    i64: I64 Sum nvshmemx_int64_sum_reduce_on_stream nvshmemx_int64_sum_reducescatter_on_stream;
    i64: I64 Prod nvshmemx_int64_prod_reduce_on_stream nvshmemx_int64_prod_reducescatter_on_stream;
    i64: I64 Min nvshmemx_int64_min_reduce_on_stream nvshmemx_int64_min_reducescatter_on_stream;
    i64: I64 Max nvshmemx_int64_max_reduce_on_stream nvshmemx_int64_max_reducescatter_on_stream;
    i64: I64 And nvshmemx_int64_and_reduce_on_stream nvshmemx_int64_and_reducescatter_on_stream;
    i64: I64 Or nvshmemx_int64_or_reduce_on_stream nvshmemx_int64_or_reducescatter_on_stream;
    i64: I64 Xor nvshmemx_int64_xor_reduce_on_stream nvshmemx_int64_xor_reducescatter_on_stream;
    u8: U8 Sum nvshmemx_uint8_sum_reduce_on_stream nvshmemx_uint8_sum_reducescatter_on_stream;
    u8: U8 Prod nvshmemx_uint8_prod_reduce_on_stream nvshmemx_uint8_prod_reducescatter_on_stream;
    u8: U8 Min nvshmemx_uint8_min_reduce_on_stream nvshmemx_uint8_min_reducescatter_on_stream;
    u8: U8 Max nvshmemx_uint8_max_reduce_on_stream nvshmemx_uint8_max_reducescatter_on_stream;
    u8: U8 And nvshmemx_uint8_and_reduce_on_stream nvshmemx_uint8_and_reducescatter_on_stream;
    u8: U8 Or nvshmemx_uint8_or_reduce_on_stream nvshmemx_uint8_or_reducescatter_on_stream;
    u8: U8 Xor nvshmemx_uint8_xor_reduce_on_stream nvshmemx_uint8_xor_reducescatter_on_stream;
    u16: U16 Sum nvshmemx_uint16_sum_reduce_on_stream nvshmemx_uint16_sum_reducescatter_on_stream;
    u16: U16 Prod nvshmemx_uint16_prod_reduce_on_stream nvshmemx_uint16_prod_reducescatter_on_stream;
    u16: U16 Min nvshmemx_uint16_min_reduce_on_stream nvshmemx_uint16_min_reducescatter_on_stream;
    u16: U16 Max nvshmemx_uint16_max_reduce_on_stream nvshmemx_uint16_max_reducescatter_on_stream;
    u16: U16 And nvshmemx_uint16_and_reduce_on_stream nvshmemx_uint16_and_reducescatter_on_stream;
    u16: U16 Or nvshmemx_uint16_or_reduce_on_stream nvshmemx_uint16_or_reducescatter_on_stream;
    u16: U16 Xor nvshmemx_uint16_xor_reduce_on_stream nvshmemx_uint16_xor_reducescatter_on_stream;
    u32: U32 Sum nvshmemx_uint32_sum_reduce_on_stream nvshmemx_uint32_sum_reducescatter_on_stream;
    u32: U32 Prod nvshmemx_uint32_prod_reduce_on_stream nvshmemx_uint32_prod_reducescatter_on_stream;
    u32: U32 Min nvshmemx_uint32_min_reduce_on_stream nvshmemx_uint32_min_reducescatter_on_stream;
    u32: U32 Max nvshmemx_uint32_max_reduce_on_stream nvshmemx_uint32_max_reducescatter_on_stream;
    u32: U32 And nvshmemx_uint32_and_reduce_on_stream nvshmemx_uint32_and_reducescatter_on_stream;
    u32: U32 Or nvshmemx_uint32_or_reduce_on_stream nvshmemx_uint32_or_reducescatter_on_stream;
    u32: U32 Xor nvshmemx_uint32_xor_reduce_on_stream nvshmemx_uint32_xor_reducescatter_on_stream;
    u64: U64 Sum nvshmemx_uint64_sum_reduce_on_stream nvshmemx_uint64_sum_reducescatter_on_stream;
    u64: U64 Prod nvshmemx_uint64_prod_reduce_on_stream nvshmemx_uint64_prod_reducescatter_on_stream;
    u64: U64 Min nvshmemx_uint64_min_reduce_on_stream nvshmemx_uint64_min_reducescatter_on_stream;
    u64: U64 Max nvshmemx_uint64_max_reduce_on_stream nvshmemx_uint64_max_reducescatter_on_stream;
    u64: U64 And nvshmemx_uint64_and_reduce_on_stream nvshmemx_uint64_and_reducescatter_on_stream;
    u64: U64 Or nvshmemx_uint64_or_reduce_on_stream nvshmemx_uint64_or_reducescatter_on_stream;
    u64: U64 Xor nvshmemx_uint64_xor_reduce_on_stream nvshmemx_uint64_xor_reducescatter_on_stream;
    half: Half Sum nvshmemx_half_sum_reduce_on_stream nvshmemx_half_sum_reducescatter_on_stream;
    half: Half Prod nvshmemx_half_prod_reduce_on_stream nvshmemx_half_prod_reducescatter_on_stream;
    half: Half Min nvshmemx_half_min_reduce_on_stream nvshmemx_half_min_reducescatter_on_stream;
    half: Half Max nvshmemx_half_max_reduce_on_stream nvshmemx_half_max_reducescatter_on_stream;
    __nv_bfloat16: Bfloat16 Sum nvshmemx_bfloat16_sum_reduce_on_stream nvshmemx_bfloat16_sum_reducescatter_on_stream;
    __nv_bfloat16: Bfloat16 Prod nvshmemx_bfloat16_prod_reduce_on_stream nvshmemx_bfloat16_prod_reducescatter_on_stream;
    __nv_bfloat16: Bfloat16 Min nvshmemx_bfloat16_min_reduce_on_stream nvshmemx_bfloat16_min_reducescatter_on_stream;
    __nv_bfloat16: Bfloat16 Max nvshmemx_bfloat16_max_reduce_on_stream nvshmemx_bfloat16_max_reducescatter_on_stream;
    f32: Float Sum nvshmemx_float_sum_reduce_on_stream nvshmemx_float_sum_reducescatter_on_stream;
    f32: Float Prod nvshmemx_float_prod_reduce_on_stream nvshmemx_float_prod_reducescatter_on_stream;
    f32: Float Min nvshmemx_float_min_reduce_on_stream nvshmemx_float_min_reducescatter_on_stream;
    f32: Float Max nvshmemx_float_max_reduce_on_stream nvshmemx_float_max_reducescatter_on_stream;
    f64: Double Sum nvshmemx_double_sum_reduce_on_stream nvshmemx_double_sum_reducescatter_on_stream;
    f64: Double Prod nvshmemx_double_prod_reduce_on_stream nvshmemx_double_prod_reducescatter_on_stream;
    f64: Double Min nvshmemx_double_min_reduce_on_stream nvshmemx_double_min_reducescatter_on_stream;
    f64: Double Max nvshmemx_double_max_reduce_on_stream nvshmemx_double_max_reducescatter_on_stream;
}
