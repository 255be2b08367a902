//! How elements of several PEs become one.

use std::ffi::{c_int, c_void};

use crate::element::Element;
use crate::sys;

pub(super) mod sealed {
    pub trait Sealed {}
}

/// Sums. Integers wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Sum;

/// Products. Integers wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Prod;

/// Minima.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Min;

/// Maxima.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Max;

/// Bits that all have, of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct And;

/// Bits that any has, of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Or;

/// Bits that an odd number of PEs has, of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Xor;

/// An operation that NVSHMEM has for elements of type `T`: [`Sum`], [`Prod`], [`Min`] and [`Max`] of integers of 8 to 64 bits, `f32`, `f64` and, with the
/// feature `half`, `f16` and `bf16`; [`And`], [`Or`] and [`Xor`] of the integers.
#[diagnostic::on_unimplemented(
    message = "NVSHMEM does not reduce elements of type `{T}` by `{Self}`",
    label = "not for `{T}`",
    note = "`Sum`, `Prod`, `Min` and `Max` are for integers and floats; `And`, `Or` and `Xor` are for integers"
)]
pub trait Operation<T: Element>: Copy + sealed::Sealed {
    #[doc(hidden)]
    const HOW: How;
}

/// By which functions of the library.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct How {
    pub(super) reduce: Function,
    pub(super) scatter: Function,
    /// Whether NCCL does it as well.
    pub(super) by_nccl: bool,
    /// How switches scatter what they reduce.
    pub(super) by_switch: BySwitch,
}

/// Whether the library has switches reduce and scatter, for teams that they work for.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BySwitch {
    /// It does so itself.
    Never,
    Right,
    /// Two elements of 2 bytes at a time, where they lie on words.
    #[cfg_attr(not(feature = "half"), allow(dead_code))]
    Pairs,
    /// It has, and gets something else.
    Wrong,
}

/// A reduction, and its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) call: Call,
}

/// Of a team: target, source, elements, stream.
pub(super) type Call = unsafe fn(sys::nvshmem_team_t, *mut c_void, *const c_void, usize, sys::cudaStream_t) -> c_int;
