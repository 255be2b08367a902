//! How elements of several PEs become one: which types, and by which functions of the library.

use std::ffi::{c_int, c_void};

use crate::element::{self, Element};
use crate::error::{Error, Result};
use crate::reduce_op::ReduceOp;
use crate::sys;

pub(super) mod sealed {
    pub trait Sealed {}
}

/// An element that NVSHMEM can reduce, by [`Team::reduce`](crate::nvshmem::Team::reduce) and
/// [`Team::reduce_scatter`](crate::nvshmem::Team::reduce_scatter): the integers of 8 to 64 bits, `f32`, `f64` and, with the feature `half`,
/// `f16` and `bf16`. Sealed.
///
/// [`Sum`](ReduceOp::Sum), [`Prod`](ReduceOp::Prod), [`Min`](ReduceOp::Min) and [`Max`](ReduceOp::Max) are for all of them;
/// [`And`](ReduceOp::And), [`Or`](ReduceOp::Or) and [`Xor`](ReduceOp::Xor) are for integers.
///
/// ```
/// use gpucomm::nvshmem::{SymmetricBuffer, Team, TeamReduce};
/// use gpucomm::{ReduceOp, Result};
///
/// /// The largest elements of all members.
/// fn largest<T: TeamReduce>(team: &mut Team, dest: &mut SymmetricBuffer<T>, source: &SymmetricBuffer<T>) -> Result<()> {
///     team.reduce(dest, source, ReduceOp::Max)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "NVSHMEM does not reduce elements of type `{Self}`",
    label = "a team does not reduce this type",
    note = "a team reduces i8 to i64, u8 to u64, f32, f64 and, with the feature `half`, half::f16 and half::bf16",
    note = "other elements can be moved only: by broadcast, fcollect, alltoall, put and get"
)]
pub trait TeamReduce: Element + sealed::Sealed {
    /// The functions that reduce by `op`, and reduce and scatter; `None` where the library has none.
    #[doc(hidden)]
    fn functions(op: ReduceOp) -> Option<[Function; 2]>;
}

/// A reduction of the library, and its name.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Function {
    pub(super) name: &'static str,
    pub(super) call: Call,
}

/// Of a team: target, source, elements, stream.
pub(super) type Call = unsafe fn(sys::nvshmem_team_t, *mut c_void, *const c_void, usize, sys::cudaStream_t) -> c_int;

/// By which functions of the library elements of a type are reduced.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub(super) reduce: Function,
    pub(super) scatter: Function,
    /// Whether NCCL does it as well.
    pub(super) by_nccl: bool,
    /// How switches scatter what they reduce.
    pub(super) by_switch: BySwitch,
}

/// Whether the library has switches reduce and scatter, for teams that they work for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BySwitch {
    /// It does so itself.
    Never,
    Right,
    /// Two elements of 2 bytes at a time, where they lie on words.
    Pairs,
    /// It has, and gets something else.
    Wrong,
}

impl How {
    /// How `operation` reduces elements of type `T` by `op`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the library does not have that.
    pub(super) fn new<T: TeamReduce>(operation: &'static str, op: ReduceOp) -> Result<Self> {
        let is_integer = T::functions(ReduceOp::And).is_some();
        let [reduce, scatter] = T::functions(op).ok_or_else(|| refused::<T>(operation, op, is_integer))?;
        let bytes = size_of::<T>();
        let is_bitwise = matches!(op, ReduceOp::And | ReduceOp::Or | ReduceOp::Xor);
        // NCCL has no integers of 16 bits.
        let by_nccl = !(is_bitwise || is_integer && bytes == 2);
        let by_switch = if is_integer { BySwitch::of_integers(op, bytes) } else { BySwitch::of_floats(op, bytes) };
        Ok(Self { reduce, scatter, by_nccl, by_switch })
    }
}

impl BySwitch {
    /// NVSHMEM adds integers as if they were `f32`, or two of them as one, and compares two of 4 bytes as one of 8.
    fn of_integers(op: ReduceOp, bytes: usize) -> Self {
        match (op, bytes) {
            (ReduceOp::Sum, 4..) => Self::Wrong,
            (ReduceOp::Min | ReduceOp::Max, 4) => Self::Wrong,
            (ReduceOp::Min | ReduceOp::Max, 8) => Self::Right,
            (ReduceOp::And | ReduceOp::Or | ReduceOp::Xor, 4..) => Self::Right,
            _ => Self::Never,
        }
    }

    fn of_floats(op: ReduceOp, bytes: usize) -> Self {
        match (op, bytes) {
            (ReduceOp::Sum, 2) => Self::Pairs,
            (ReduceOp::Sum, _) => Self::Right,
            _ => Self::Never,
        }
    }
}

#[cold]
fn refused<T: TeamReduce>(operation: &'static str, op: ReduceOp, is_integer: bool) -> Error {
    let has = if is_integer { "Sum, Prod, Min, Max, And, Or or Xor" } else { "Sum, Prod, Min or Max" };
    let expected = format!("{has}, which NVSHMEM has for {}", element::name::<T>());
    Error::argument(operation, "op", expected, format_args!("{op:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how<T: TeamReduce>() -> Vec<(bool, BySwitch)> {
        let all = ReduceOp::ALL.into_iter().filter_map(|op| How::new::<T>("test", op).ok());
        all.map(|how| (how.by_nccl, how.by_switch)).collect()
    }

    #[test]
    fn what_nccl_and_switches_do_for_the_library() {
        use BySwitch::{Never, Right, Wrong};
        let [sum, prod, min, max] = [(true, Never); 4];
        let bits = (false, Never);
        assert_eq!(how::<i8>(), [sum, prod, min, max, bits, bits, bits]);
        assert_eq!(how::<u8>(), how::<i8>());
        assert_eq!(how::<i16>(), [bits; 7]);
        assert_eq!(how::<u16>(), how::<i16>());
        let (wrong, bits) = ((true, Wrong), (false, Right));
        assert_eq!(how::<i32>(), [wrong, prod, wrong, wrong, bits, bits, bits]);
        assert_eq!(how::<u32>(), how::<i32>());
        assert_eq!(how::<i64>(), [wrong, prod, (true, Right), (true, Right), bits, bits, bits]);
        assert_eq!(how::<u64>(), how::<i64>());
        assert_eq!(how::<f32>(), [(true, Right), prod, min, max]);
        assert_eq!(how::<f64>(), how::<f32>());
    }

    #[cfg(feature = "half")]
    #[test]
    fn floats_of_two_bytes_are_added_in_pairs() {
        let rest = (true, BySwitch::Never);
        assert_eq!(how::<half::f16>(), [(true, BySwitch::Pairs), rest, rest, rest]);
        assert_eq!(how::<half::bf16>(), how::<half::f16>());
    }

    /// The names of the functions say what they reduce, and by what.
    #[test]
    fn functions_belong_to_their_operations() {
        fn check<T: TeamReduce>(name: &str) {
            for op in ReduceOp::ALL {
                if let Some([reduce, scatter]) = T::functions(op) {
                    assert_eq!(reduce.name, format!("nvshmemx_{name}_{op}_reduce_on_stream"));
                    assert_eq!(scatter.name, format!("nvshmemx_{name}_{op}_reducescatter_on_stream"));
                }
            }
        }
        check::<i8>("int8");
        check::<i16>("int16");
        check::<i32>("int32");
        check::<i64>("int64");
        check::<u8>("uint8");
        check::<u16>("uint16");
        check::<u32>("uint32");
        check::<u64>("uint64");
        check::<f32>("float");
        check::<f64>("double");
        #[cfg(feature = "half")]
        check::<half::f16>("half");
        #[cfg(feature = "half")]
        check::<half::bf16>("bfloat16");
    }
}
