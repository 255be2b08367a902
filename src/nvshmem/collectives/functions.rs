//! Which function of the library reduces what.

#[cfg(feature = "half")]
use half::{bf16, f16};

use super::team_reduce::{Function, TeamReduce, sealed};
use crate::reduce_op::ReduceOp;
use crate::sys;

/// The function of that name, for any pointers.
macro_rules! function {
    ($name:ident) => {
        Function {
            name: stringify!($name),
            call: |team, dest, source, count, stream| {
                // SAFETY: as the caller promises, who has pointers to elements of this type.
                unsafe { sys::$name(team, dest.cast(), source.cast(), count, stream) }
            },
        }
    };
}

/// Both take bytes.
pub(super) const FCOLLECT: Function = function!(nvshmemx_fcollectmem_on_stream);
pub(super) const ALLTOALL: Function = function!(nvshmemx_alltoallmem_on_stream);

/// Of each type, and each operation that the library has for it: the two functions.
macro_rules! reductions {
    ($($type:ty: $($op:ident $reduce:ident $scatter:ident)*;)*) => {$(
        impl sealed::Sealed for $type {}

        impl TeamReduce for $type {
            fn functions(op: ReduceOp) -> Option<[Function; 2]> {
                match op {
                    $(ReduceOp::$op => Some([function!($reduce), function!($scatter)]),)*
                    _ => None,
                }
            }
        }
    )*};
}

reductions! {
    i8:
        Sum nvshmemx_int8_sum_reduce_on_stream nvshmemx_int8_sum_reducescatter_on_stream
        Prod nvshmemx_int8_prod_reduce_on_stream nvshmemx_int8_prod_reducescatter_on_stream
        Min nvshmemx_int8_min_reduce_on_stream nvshmemx_int8_min_reducescatter_on_stream
        Max nvshmemx_int8_max_reduce_on_stream nvshmemx_int8_max_reducescatter_on_stream
        And nvshmemx_int8_and_reduce_on_stream nvshmemx_int8_and_reducescatter_on_stream
        Or nvshmemx_int8_or_reduce_on_stream nvshmemx_int8_or_reducescatter_on_stream
        Xor nvshmemx_int8_xor_reduce_on_stream nvshmemx_int8_xor_reducescatter_on_stream;
    i16:
        Sum nvshmemx_int16_sum_reduce_on_stream nvshmemx_int16_sum_reducescatter_on_stream
        Prod nvshmemx_int16_prod_reduce_on_stream nvshmemx_int16_prod_reducescatter_on_stream
        Min nvshmemx_int16_min_reduce_on_stream nvshmemx_int16_min_reducescatter_on_stream
        Max nvshmemx_int16_max_reduce_on_stream nvshmemx_int16_max_reducescatter_on_stream
        And nvshmemx_int16_and_reduce_on_stream nvshmemx_int16_and_reducescatter_on_stream
        Or nvshmemx_int16_or_reduce_on_stream nvshmemx_int16_or_reducescatter_on_stream
        Xor nvshmemx_int16_xor_reduce_on_stream nvshmemx_int16_xor_reducescatter_on_stream;
    i32:
        Sum nvshmemx_int32_sum_reduce_on_stream nvshmemx_int32_sum_reducescatter_on_stream
        Prod nvshmemx_int32_prod_reduce_on_stream nvshmemx_int32_prod_reducescatter_on_stream
        Min nvshmemx_int32_min_reduce_on_stream nvshmemx_int32_min_reducescatter_on_stream
        Max nvshmemx_int32_max_reduce_on_stream nvshmemx_int32_max_reducescatter_on_stream
        And nvshmemx_int32_and_reduce_on_stream nvshmemx_int32_and_reducescatter_on_stream
        Or nvshmemx_int32_or_reduce_on_stream nvshmemx_int32_or_reducescatter_on_stream
        Xor nvshmemx_int32_xor_reduce_on_stream nvshmemx_int32_xor_reducescatter_on_stream;
    i64:
        Sum nvshmemx_int64_sum_reduce_on_stream nvshmemx_int64_sum_reducescatter_on_stream
        Prod nvshmemx_int64_prod_reduce_on_stream nvshmemx_int64_prod_reducescatter_on_stream
        Min nvshmemx_int64_min_reduce_on_stream nvshmemx_int64_min_reducescatter_on_stream
        Max nvshmemx_int64_max_reduce_on_stream nvshmemx_int64_max_reducescatter_on_stream
        And nvshmemx_int64_and_reduce_on_stream nvshmemx_int64_and_reducescatter_on_stream
        Or nvshmemx_int64_or_reduce_on_stream nvshmemx_int64_or_reducescatter_on_stream
        Xor nvshmemx_int64_xor_reduce_on_stream nvshmemx_int64_xor_reducescatter_on_stream;
    u8:
        Sum nvshmemx_uint8_sum_reduce_on_stream nvshmemx_uint8_sum_reducescatter_on_stream
        Prod nvshmemx_uint8_prod_reduce_on_stream nvshmemx_uint8_prod_reducescatter_on_stream
        Min nvshmemx_uint8_min_reduce_on_stream nvshmemx_uint8_min_reducescatter_on_stream
        Max nvshmemx_uint8_max_reduce_on_stream nvshmemx_uint8_max_reducescatter_on_stream
        And nvshmemx_uint8_and_reduce_on_stream nvshmemx_uint8_and_reducescatter_on_stream
        Or nvshmemx_uint8_or_reduce_on_stream nvshmemx_uint8_or_reducescatter_on_stream
        Xor nvshmemx_uint8_xor_reduce_on_stream nvshmemx_uint8_xor_reducescatter_on_stream;
    u16:
        Sum nvshmemx_uint16_sum_reduce_on_stream nvshmemx_uint16_sum_reducescatter_on_stream
        Prod nvshmemx_uint16_prod_reduce_on_stream nvshmemx_uint16_prod_reducescatter_on_stream
        Min nvshmemx_uint16_min_reduce_on_stream nvshmemx_uint16_min_reducescatter_on_stream
        Max nvshmemx_uint16_max_reduce_on_stream nvshmemx_uint16_max_reducescatter_on_stream
        And nvshmemx_uint16_and_reduce_on_stream nvshmemx_uint16_and_reducescatter_on_stream
        Or nvshmemx_uint16_or_reduce_on_stream nvshmemx_uint16_or_reducescatter_on_stream
        Xor nvshmemx_uint16_xor_reduce_on_stream nvshmemx_uint16_xor_reducescatter_on_stream;
    u32:
        Sum nvshmemx_uint32_sum_reduce_on_stream nvshmemx_uint32_sum_reducescatter_on_stream
        Prod nvshmemx_uint32_prod_reduce_on_stream nvshmemx_uint32_prod_reducescatter_on_stream
        Min nvshmemx_uint32_min_reduce_on_stream nvshmemx_uint32_min_reducescatter_on_stream
        Max nvshmemx_uint32_max_reduce_on_stream nvshmemx_uint32_max_reducescatter_on_stream
        And nvshmemx_uint32_and_reduce_on_stream nvshmemx_uint32_and_reducescatter_on_stream
        Or nvshmemx_uint32_or_reduce_on_stream nvshmemx_uint32_or_reducescatter_on_stream
        Xor nvshmemx_uint32_xor_reduce_on_stream nvshmemx_uint32_xor_reducescatter_on_stream;
    u64:
        Sum nvshmemx_uint64_sum_reduce_on_stream nvshmemx_uint64_sum_reducescatter_on_stream
        Prod nvshmemx_uint64_prod_reduce_on_stream nvshmemx_uint64_prod_reducescatter_on_stream
        Min nvshmemx_uint64_min_reduce_on_stream nvshmemx_uint64_min_reducescatter_on_stream
        Max nvshmemx_uint64_max_reduce_on_stream nvshmemx_uint64_max_reducescatter_on_stream
        And nvshmemx_uint64_and_reduce_on_stream nvshmemx_uint64_and_reducescatter_on_stream
        Or nvshmemx_uint64_or_reduce_on_stream nvshmemx_uint64_or_reducescatter_on_stream
        Xor nvshmemx_uint64_xor_reduce_on_stream nvshmemx_uint64_xor_reducescatter_on_stream;
    f32:
        Sum nvshmemx_float_sum_reduce_on_stream nvshmemx_float_sum_reducescatter_on_stream
        Prod nvshmemx_float_prod_reduce_on_stream nvshmemx_float_prod_reducescatter_on_stream
        Min nvshmemx_float_min_reduce_on_stream nvshmemx_float_min_reducescatter_on_stream
        Max nvshmemx_float_max_reduce_on_stream nvshmemx_float_max_reducescatter_on_stream;
    f64:
        Sum nvshmemx_double_sum_reduce_on_stream nvshmemx_double_sum_reducescatter_on_stream
        Prod nvshmemx_double_prod_reduce_on_stream nvshmemx_double_prod_reducescatter_on_stream
        Min nvshmemx_double_min_reduce_on_stream nvshmemx_double_min_reducescatter_on_stream
        Max nvshmemx_double_max_reduce_on_stream nvshmemx_double_max_reducescatter_on_stream;
}

#[cfg(feature = "half")]
reductions! {
    f16:
        Sum nvshmemx_half_sum_reduce_on_stream nvshmemx_half_sum_reducescatter_on_stream
        Prod nvshmemx_half_prod_reduce_on_stream nvshmemx_half_prod_reducescatter_on_stream
        Min nvshmemx_half_min_reduce_on_stream nvshmemx_half_min_reducescatter_on_stream
        Max nvshmemx_half_max_reduce_on_stream nvshmemx_half_max_reducescatter_on_stream;
    bf16:
        Sum nvshmemx_bfloat16_sum_reduce_on_stream nvshmemx_bfloat16_sum_reducescatter_on_stream
        Prod nvshmemx_bfloat16_prod_reduce_on_stream nvshmemx_bfloat16_prod_reducescatter_on_stream
        Min nvshmemx_bfloat16_min_reduce_on_stream nvshmemx_bfloat16_min_reducescatter_on_stream
        Max nvshmemx_bfloat16_max_reduce_on_stream nvshmemx_bfloat16_max_reducescatter_on_stream;
}
