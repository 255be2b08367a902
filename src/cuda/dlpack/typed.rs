//! Elements that DLPack has a type for.

use dlpark::ffi::DLDataType;

use crate::element::Element;

mod sealed {
    pub trait Sealed {}
}

/// An element that DLPack has a type for: integers of 8 to 64 bits, `f32`, `f64` and `bool`; with the feature `half` `f16` and `bf16`, with `float8`
/// `F8E4M3` (`float8_e4m3fn`) and `F8E5M2`.
pub trait Typed: Element + sealed::Sealed {
    /// That type.
    const TYPE: DLDataType;
}

macro_rules! typed {
    ($($(#[$attribute:meta])* $type:ty => $name:ident;)*) => {$(
        $(#[$attribute])*
        impl sealed::Sealed for $type {}

        $(#[$attribute])*
        impl Typed for $type {
            const TYPE: DLDataType = DLDataType::$name;
        }

        $(#[$attribute])*
        const _: () = assert!(size_of::<$type>() * 8 == DLDataType::$name.bits as usize);
    )*};
}

typed! {
    bool => BOOL;
    i8 => I8;
    i16 => I16;
    i32 => I32;
    i64 => I64;
    u8 => U8;
    u16 => U16;
    u32 => U32;
    u64 => U64;
    f32 => F32;
    f64 => F64;
    #[cfg(feature = "half")]
    half::f16 => F16;
    #[cfg(feature = "half")]
    half::bf16 => BF16;
    #[cfg(feature = "float8")]
    float8::F8E4M3 => F8E4M3FN;
    #[cfg(feature = "float8")]
    float8::F8E5M2 => F8E5M2;
}
