//! Which function of the library reduces what.

#[cfg(feature = "half")]
use half::{bf16, f16};

use super::operation::{And, BySwitch, Function, How, Max, Min, Operation, Or, Prod, Sum, Xor, sealed};
use crate::sys;

macro_rules! operations {
    ($($operation:ident)*) => {$( impl sealed::Sealed for $operation {} )*};
}

operations! { Sum Prod Min Max And Or Xor }

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

/// By the number of bytes of an element. NVSHMEM adds integers as if they were `f32`, or two of them as one, and compares two of 4 bytes as one of 8.
impl BySwitch {
    const fn never(_: usize) -> Self {
        Self::Never
    }

    const fn always(_: usize) -> Self {
        Self::Right
    }

    #[cfg(feature = "half")]
    const fn pairs(_: usize) -> Self {
        Self::Pairs
    }

    const fn words(bytes: usize) -> Self {
        if bytes < 4 { Self::Never } else { Self::Right }
    }

    const fn sums(bytes: usize) -> Self {
        if bytes < 4 { Self::Never } else { Self::Wrong }
    }

    const fn extremes(bytes: usize) -> Self {
        match bytes {
            4 => Self::Wrong,
            8 => Self::Right,
            _ => Self::Never,
        }
    }
}

/// Of each type: whether NCCL has it; then of each operation: whether NCCL has it, how switches scatter it, and the two functions.
macro_rules! reductions {
    ($($type:ty, $nccl:literal:
        $($operation:ident $by_nccl:literal $by_switch:ident $reduce:ident $scatter:ident)*;)*) => {$($(
        impl Operation<$type> for $operation {
            const HOW: How = How {
                reduce: function!($reduce),
                scatter: function!($scatter),
                by_nccl: $nccl && $by_nccl,
                by_switch: BySwitch::$by_switch(size_of::<$type>()),
            };
        }
    )*)*};
}

reductions! {
    i8, true:
        Sum true sums nvshmemx_int8_sum_reduce_on_stream nvshmemx_int8_sum_reducescatter_on_stream
        Prod true never nvshmemx_int8_prod_reduce_on_stream nvshmemx_int8_prod_reducescatter_on_stream
        Min true extremes nvshmemx_int8_min_reduce_on_stream nvshmemx_int8_min_reducescatter_on_stream
        Max true extremes nvshmemx_int8_max_reduce_on_stream nvshmemx_int8_max_reducescatter_on_stream
        And false words nvshmemx_int8_and_reduce_on_stream nvshmemx_int8_and_reducescatter_on_stream
        Or false words nvshmemx_int8_or_reduce_on_stream nvshmemx_int8_or_reducescatter_on_stream
        Xor false words nvshmemx_int8_xor_reduce_on_stream nvshmemx_int8_xor_reducescatter_on_stream;
    i16, false:
        Sum true sums nvshmemx_int16_sum_reduce_on_stream nvshmemx_int16_sum_reducescatter_on_stream
        Prod true never nvshmemx_int16_prod_reduce_on_stream nvshmemx_int16_prod_reducescatter_on_stream
        Min true extremes nvshmemx_int16_min_reduce_on_stream nvshmemx_int16_min_reducescatter_on_stream
        Max true extremes nvshmemx_int16_max_reduce_on_stream nvshmemx_int16_max_reducescatter_on_stream
        And false words nvshmemx_int16_and_reduce_on_stream nvshmemx_int16_and_reducescatter_on_stream
        Or false words nvshmemx_int16_or_reduce_on_stream nvshmemx_int16_or_reducescatter_on_stream
        Xor false words nvshmemx_int16_xor_reduce_on_stream nvshmemx_int16_xor_reducescatter_on_stream;
    i32, true:
        Sum true sums nvshmemx_int32_sum_reduce_on_stream nvshmemx_int32_sum_reducescatter_on_stream
        Prod true never nvshmemx_int32_prod_reduce_on_stream nvshmemx_int32_prod_reducescatter_on_stream
        Min true extremes nvshmemx_int32_min_reduce_on_stream nvshmemx_int32_min_reducescatter_on_stream
        Max true extremes nvshmemx_int32_max_reduce_on_stream nvshmemx_int32_max_reducescatter_on_stream
        And false words nvshmemx_int32_and_reduce_on_stream nvshmemx_int32_and_reducescatter_on_stream
        Or false words nvshmemx_int32_or_reduce_on_stream nvshmemx_int32_or_reducescatter_on_stream
        Xor false words nvshmemx_int32_xor_reduce_on_stream nvshmemx_int32_xor_reducescatter_on_stream;
    i64, true:
        Sum true sums nvshmemx_int64_sum_reduce_on_stream nvshmemx_int64_sum_reducescatter_on_stream
        Prod true never nvshmemx_int64_prod_reduce_on_stream nvshmemx_int64_prod_reducescatter_on_stream
        Min true extremes nvshmemx_int64_min_reduce_on_stream nvshmemx_int64_min_reducescatter_on_stream
        Max true extremes nvshmemx_int64_max_reduce_on_stream nvshmemx_int64_max_reducescatter_on_stream
        And false words nvshmemx_int64_and_reduce_on_stream nvshmemx_int64_and_reducescatter_on_stream
        Or false words nvshmemx_int64_or_reduce_on_stream nvshmemx_int64_or_reducescatter_on_stream
        Xor false words nvshmemx_int64_xor_reduce_on_stream nvshmemx_int64_xor_reducescatter_on_stream;
    u8, true:
        Sum true sums nvshmemx_uint8_sum_reduce_on_stream nvshmemx_uint8_sum_reducescatter_on_stream
        Prod true never nvshmemx_uint8_prod_reduce_on_stream nvshmemx_uint8_prod_reducescatter_on_stream
        Min true extremes nvshmemx_uint8_min_reduce_on_stream nvshmemx_uint8_min_reducescatter_on_stream
        Max true extremes nvshmemx_uint8_max_reduce_on_stream nvshmemx_uint8_max_reducescatter_on_stream
        And false words nvshmemx_uint8_and_reduce_on_stream nvshmemx_uint8_and_reducescatter_on_stream
        Or false words nvshmemx_uint8_or_reduce_on_stream nvshmemx_uint8_or_reducescatter_on_stream
        Xor false words nvshmemx_uint8_xor_reduce_on_stream nvshmemx_uint8_xor_reducescatter_on_stream;
    u16, false:
        Sum true sums nvshmemx_uint16_sum_reduce_on_stream nvshmemx_uint16_sum_reducescatter_on_stream
        Prod true never nvshmemx_uint16_prod_reduce_on_stream nvshmemx_uint16_prod_reducescatter_on_stream
        Min true extremes nvshmemx_uint16_min_reduce_on_stream nvshmemx_uint16_min_reducescatter_on_stream
        Max true extremes nvshmemx_uint16_max_reduce_on_stream nvshmemx_uint16_max_reducescatter_on_stream
        And false words nvshmemx_uint16_and_reduce_on_stream nvshmemx_uint16_and_reducescatter_on_stream
        Or false words nvshmemx_uint16_or_reduce_on_stream nvshmemx_uint16_or_reducescatter_on_stream
        Xor false words nvshmemx_uint16_xor_reduce_on_stream nvshmemx_uint16_xor_reducescatter_on_stream;
    u32, true:
        Sum true sums nvshmemx_uint32_sum_reduce_on_stream nvshmemx_uint32_sum_reducescatter_on_stream
        Prod true never nvshmemx_uint32_prod_reduce_on_stream nvshmemx_uint32_prod_reducescatter_on_stream
        Min true extremes nvshmemx_uint32_min_reduce_on_stream nvshmemx_uint32_min_reducescatter_on_stream
        Max true extremes nvshmemx_uint32_max_reduce_on_stream nvshmemx_uint32_max_reducescatter_on_stream
        And false words nvshmemx_uint32_and_reduce_on_stream nvshmemx_uint32_and_reducescatter_on_stream
        Or false words nvshmemx_uint32_or_reduce_on_stream nvshmemx_uint32_or_reducescatter_on_stream
        Xor false words nvshmemx_uint32_xor_reduce_on_stream nvshmemx_uint32_xor_reducescatter_on_stream;
    u64, true:
        Sum true sums nvshmemx_uint64_sum_reduce_on_stream nvshmemx_uint64_sum_reducescatter_on_stream
        Prod true never nvshmemx_uint64_prod_reduce_on_stream nvshmemx_uint64_prod_reducescatter_on_stream
        Min true extremes nvshmemx_uint64_min_reduce_on_stream nvshmemx_uint64_min_reducescatter_on_stream
        Max true extremes nvshmemx_uint64_max_reduce_on_stream nvshmemx_uint64_max_reducescatter_on_stream
        And false words nvshmemx_uint64_and_reduce_on_stream nvshmemx_uint64_and_reducescatter_on_stream
        Or false words nvshmemx_uint64_or_reduce_on_stream nvshmemx_uint64_or_reducescatter_on_stream
        Xor false words nvshmemx_uint64_xor_reduce_on_stream nvshmemx_uint64_xor_reducescatter_on_stream;
    f32, true:
        Sum true always nvshmemx_float_sum_reduce_on_stream nvshmemx_float_sum_reducescatter_on_stream
        Prod true never nvshmemx_float_prod_reduce_on_stream nvshmemx_float_prod_reducescatter_on_stream
        Min true never nvshmemx_float_min_reduce_on_stream nvshmemx_float_min_reducescatter_on_stream
        Max true never nvshmemx_float_max_reduce_on_stream nvshmemx_float_max_reducescatter_on_stream;
    f64, true:
        Sum true always nvshmemx_double_sum_reduce_on_stream nvshmemx_double_sum_reducescatter_on_stream
        Prod true never nvshmemx_double_prod_reduce_on_stream nvshmemx_double_prod_reducescatter_on_stream
        Min true never nvshmemx_double_min_reduce_on_stream nvshmemx_double_min_reducescatter_on_stream
        Max true never nvshmemx_double_max_reduce_on_stream nvshmemx_double_max_reducescatter_on_stream;
}

#[cfg(feature = "half")]
reductions! {
    f16, true:
        Sum true pairs nvshmemx_half_sum_reduce_on_stream nvshmemx_half_sum_reducescatter_on_stream
        Prod true never nvshmemx_half_prod_reduce_on_stream nvshmemx_half_prod_reducescatter_on_stream
        Min true never nvshmemx_half_min_reduce_on_stream nvshmemx_half_min_reducescatter_on_stream
        Max true never nvshmemx_half_max_reduce_on_stream nvshmemx_half_max_reducescatter_on_stream;
    bf16, true:
        Sum true pairs nvshmemx_bfloat16_sum_reduce_on_stream nvshmemx_bfloat16_sum_reducescatter_on_stream
        Prod true never nvshmemx_bfloat16_prod_reduce_on_stream nvshmemx_bfloat16_prod_reducescatter_on_stream
        Min true never nvshmemx_bfloat16_min_reduce_on_stream nvshmemx_bfloat16_min_reducescatter_on_stream
        Max true never nvshmemx_bfloat16_max_reduce_on_stream nvshmemx_bfloat16_max_reducescatter_on_stream;
}
