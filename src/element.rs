//! Element types: what device memory may hold.

use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// The kind of an element, as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ElementKind {
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of a single.
    Bf16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
}

impl ElementKind {
    /// Every kind.
    pub const ALL: [Self; 10] =
        [Self::I8, Self::U8, Self::I32, Self::U32, Self::I64, Self::U64, Self::F16, Self::Bf16, Self::F32, Self::F64];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The Rust name: `f32`, `bf16`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

impl std::fmt::Display for ElementKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A type that device memory may hold and NCCL can reduce.
///
/// Sealed: every bit pattern of an element is a valid value, so that whatever a device or another rank left in memory can
/// be copied to the host and looked at.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of device memory",
    note = "elements are i8, u8, i32, u32, i64, u64, half::f16, half::bf16, f32 and f64"
)]
pub trait Element: sealed::Sealed + Copy + Send + Sync + std::fmt::Debug + PartialEq + 'static {
    /// The kind of this type, as a value.
    const KIND: ElementKind;
    /// All bits zero.
    const ZERO: Self;
}

macro_rules! element {
    ($($type:ty => $kind:ident, $zero:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const KIND: ElementKind = ElementKind::$kind;
            const ZERO: Self = $zero;
        }
        const _: () = assert!(size_of::<$type>() == ElementKind::$kind.size());
    )*};
}

element! {
    i8 => I8, 0;
    u8 => U8, 0;
    i32 => I32, 0;
    u32 => U32, 0;
    i64 => I64, 0;
    u64 => U64, 0;
    f16 => F16, f16::ZERO;
    bf16 => Bf16, bf16::ZERO;
    f32 => F32, 0.0;
    f64 => F64, 0.0;
}
