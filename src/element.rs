//! Element types: what device memory may hold, and what of it NCCL reduces.

#[cfg(feature = "float8")]
use float8::{F8E4M3, F8E5M2};
#[cfg(feature = "half")]
use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// The kind of an element that NCCL reduces, as a value.
///
/// ```
/// use gpucomm::ElementKind;
///
/// let bytes: usize = [ElementKind::F32, ElementKind::F16].iter().map(|kind| kind.size()).sum();
/// assert_eq!((bytes, ElementKind::F32.name()), (6, "f32"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[doc(alias("ncclDataType_t", "NcclDataType"))]
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
    /// Eight bits, four of them an exponent: up to 448, without infinities.
    F8E4M3,
    /// Eight bits, five of them an exponent: up to 57344, the upper half of a half.
    F8E5M2,
}

impl ElementKind {
    /// Every kind.
    pub const ALL: [Self; 12] = [
        Self::I8,
        Self::U8,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::F8E4M3,
        Self::F8E5M2,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::F8E4M3 | Self::F8E5M2 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Whether it is a float of eight bits.
    pub(crate) const fn is_float8(self) -> bool {
        matches!(self, Self::F8E4M3 | Self::F8E5M2)
    }

    /// The Rust name, in lower case: `f32`, `bf16`, `f8e4m3`, …
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
            Self::F8E4M3 => "f8e4m3",
            Self::F8E5M2 => "f8e5m2",
        }
    }
}

impl std::fmt::Display for ElementKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How NCCL is given elements of a type.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Carrier(Option<ElementKind>);

impl Carrier {
    /// As bytes.
    const BYTES: Self = Self(None);
}

/// Bytes that addresses of device memory are multiples of.
const MOST_ALIGNED: usize = 256;

/// A type that device memory may hold: buffers, copies, and the operations that only move data, such as `broadcast`, `all_gather`,
/// `all_to_all`, `send` and `recv`. What is reduced is [`Reduce`] as well.
///
/// Elements are the integers, `f32`, `f64`, [`f16`](struct@f16) and [`bf16`], with the feature `float8` `F8E4M3` and `F8E5M2` of the crate of
/// that name, `bool` and `char`, arrays of elements, and types of your own. One that is [`bytemuck::Pod`](https://docs.rs/bytemuck/latest/bytemuck/trait.Pod.html) becomes an element by `gpucomm::element!(Mine);`, with the
/// feature `bytemuck`; any other by an `unsafe impl`. What somebody else has defined goes as its bytes, or as an array, by
/// `bytemuck::cast_slice`.
///
/// Of a `bool` and a `char` not every bit pattern is a value. What a device, or another rank, has left in memory is looked at as it comes
/// back to the host, and is an [`InvalidArgument`](crate::Error::InvalidArgument) where it is none.
///
/// ```
/// use gpucomm::{Device, DeviceBuffer, Element, Stream};
///
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// #[repr(C)]
/// struct Particle {
///     place: [f32; 3],
///     mass: f32,
/// }
///
/// // SAFETY: four floats without padding between them, for which all bit patterns are values.
/// unsafe impl Element for Particle {}
///
/// # fn main() -> gpucomm::Result<()> {
/// # if Device::count().is_err() { return Ok(()) }
/// let stream = Stream::new(Device::new(0)?)?;
/// let particles = [Particle { place: [0.0, 1.0, 2.0], mass: 1.5 }; 100];
/// let on_device = DeviceBuffer::from_slice(&stream, &particles)?;
/// assert_eq!(on_device.to_vec(&stream)?, particles);
/// # Ok(())
/// # }
/// ```
///
/// A type without bytes is no element, nor is one whose alignment is above 256: to make a buffer of such does not compile.
///
/// ```compile_fail,E0080
/// # use gpucomm::{DeviceBuffer, Device, Stream};
/// # let stream = Stream::new(Device::new(0).unwrap()).unwrap();
/// let nothing = DeviceBuffer::<[f32; 0]>::zeroed(&stream, 10);
/// ```
///
/// ```compile_fail,E0080
/// # use gpucomm::{PinnedBuffer, Element};
/// #[derive(Clone, Copy)]
/// #[repr(C, align(512))]
/// struct Page([u8; 512]);
///
/// // SAFETY: bytes.
/// unsafe impl Element for Page {}
///
/// let pages = PinnedBuffer::<Page>::zeroed(10);
/// ```
///
/// # Safety
/// - All bytes of a value are initialised: there is no padding, as in a `#[repr(C)]` struct whose fields leave gaps.
/// - Every bit pattern is a value; or [`Element::CHECK`] tells which are, and all bits zero is one of them.
/// - Nothing is changed through a shared reference: no `Cell`, no atomic.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of device memory",
    label = "not an element",
    note = "elements are integers, f32, f64, half::f16, half::bf16, float8::F8E4M3, float8::F8E5M2, bool, char, and arrays of elements",
    note = "a struct of your own that derives `bytemuck::Pod` becomes one by `gpucomm::element!(Name);`, with the feature `bytemuck` of gpucomm",
    note = "any other by `unsafe impl gpucomm::Element for Name {{}}`, where every bit pattern is a value and there is no padding",
    note = "`String`, `Vec` and references hold addresses of the host: move what they point to, such as the bytes of a string"
)]
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// All bits zero.
    // SAFETY: that is a value, as whoever implements the trait promises.
    const ZERO: Self = unsafe { std::mem::zeroed() };

    /// Whether these bytes, of one value or of several one behind the other, are values; `None` where all are.
    const CHECK: Option<fn(&[u8]) -> bool> = None;

    #[doc(hidden)]
    const CARRIER: Carrier = Carrier::BYTES;
}

/// An element that NCCL can reduce, by [`all_reduce`](crate::nccl#operations) and the like: `i8`, `u8`, `i32`, `u32`, `i64`, `u64`, [`f16`](struct@f16), [`bf16`],
/// `f32` and `f64`. Sealed.
///
/// With the feature `float8` and NCCL 2.24 or newer also `F8E4M3` and `F8E5M2` of the crate of that name, on devices of compute capability 9.0
/// or higher: on others they only move, and a reduction is [`Unsupported`](crate::Error::Unsupported). NCCL rounds such numbers at each step;
/// what is too large for the type, infinities among it, becomes its largest number. It has no kernel that multiplies them for one rank
/// alone, where a pre-multiplied sum is that error, too.
///
/// ```
/// # #[cfg(all(feature = "float8", feature = "nccl"))]
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::{Clique, Device, DeviceBuffer, F8E4M3, InPlace, ReduceOp, Stream};
///
/// # if Device::count().is_err() || Device::new(0)?.compute_capability()? < (9, 0) { return Ok(()) }
/// let clique = Clique::init_all(&Device::all()?)?;
/// clique.spmd(|comm| {
///     let stream = Stream::new(comm.device())?;
///     let mut x = DeviceBuffer::from_slice(&stream, &[F8E4M3::from_f32(1.5); 1000])?;
///     comm.all_reduce(InPlace(&mut x), ReduceOp::Max, &stream)?;
///     assert_eq!(x.to_vec(&stream)?, [F8E4M3::from_f32(1.5); 1000]);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// # #[cfg(not(all(feature = "float8", feature = "nccl")))]
/// # fn main() {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be reduced",
    label = "NCCL has no arithmetic for this type",
    note = "NCCL reduces i8, u8, i32, u32, i64, u64, half::f16, half::bf16, float8::F8E4M3, float8::F8E5M2, f32 and f64",
    note = "other elements can be moved only: by broadcast, all_gather, all_to_all, gather, scatter, send and recv"
)]
pub trait Reduce: sealed::Sealed + Element + std::fmt::Debug + PartialEq {
    /// The kind of this type, as a value.
    const KIND: ElementKind;
}

macro_rules! reduced {
    ($($type:ty => $kind:ident;)*) => {$(
        impl sealed::Sealed for $type {}

        // SAFETY: a number of the machine: no padding, and every bit pattern is a value.
        unsafe impl Element for $type {
            const CARRIER: Carrier = Carrier(Some(ElementKind::$kind));
        }

        impl Reduce for $type {
            const KIND: ElementKind = ElementKind::$kind;
        }

        const _: () = assert!(size_of::<$type>() == ElementKind::$kind.size());
    )*};
}

reduced! {
    i8 => I8;
    u8 => U8;
    i32 => I32;
    u32 => U32;
    i64 => I64;
    u64 => U64;
    f32 => F32;
    f64 => F64;
}

#[cfg(feature = "half")]
reduced! {
    f16 => F16;
    bf16 => Bf16;
}

#[cfg(all(feature = "float8", nccl_ge_2_24))]
reduced! {
    F8E4M3 => F8E4M3;
    F8E5M2 => F8E5M2;
}

macro_rules! moved {
    ($($type:ty)*) => {$(
        // SAFETY: an integer: no padding, and every bit pattern is a value.
        unsafe impl Element for $type {}
    )*};
}

moved! { i16 u16 i128 u128 isize usize }

#[cfg(all(feature = "float8", not(nccl_ge_2_24)))]
// SAFETY: one byte, of which every bit pattern is a value.
unsafe impl Element for F8E4M3 {}
#[cfg(all(feature = "float8", not(nccl_ge_2_24)))]
// SAFETY: as the one above.
unsafe impl Element for F8E5M2 {}

// SAFETY: one byte, of which the check lets those pass that are values; zero is `false`.
unsafe impl Element for bool {
    const CHECK: Option<fn(&[u8]) -> bool> = Some(|bytes| bytes.iter().all(|byte| *byte < 2));
}

// SAFETY: four bytes, of which the check lets those pass that are values, among them zero.
unsafe impl Element for char {
    const CHECK: Option<fn(&[u8]) -> bool> = Some(|bytes| {
        bytes
            .chunks_exact(size_of::<Self>())
            .all(|value| value.try_into().is_ok_and(|value| Self::from_u32(u32::from_ne_bytes(value)).is_some()))
    });
}

// SAFETY: elements one behind the other, as which their bytes are checked.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    const CHECK: Option<fn(&[u8]) -> bool> = T::CHECK;
}

/// Makes elements of types that are [`bytemuck::Pod`](https://docs.rs/bytemuck/latest/bytemuck/trait.Pod.html), without `unsafe`. With the feature `bytemuck`.
///
/// ```
/// #![forbid(unsafe_code)]
/// use gpucomm::{Device, DeviceBuffer, Stream};
///
/// #[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(C)]
/// struct Token {
///     id: u32,
///     expert: u16,
///     rank: u16,
/// }
///
/// gpucomm::element!(Token);
///
/// # fn main() -> gpucomm::Result<()> {
/// # if Device::count().is_err() { return Ok(()) }
/// let stream = Stream::new(Device::new(0)?)?;
/// let tokens = [Token { id: 7, expert: 3, rank: 1 }; 5];
/// assert_eq!(DeviceBuffer::from_slice(&stream, &tokens)?.to_vec(&stream)?, tokens);
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "bytemuck")]
#[macro_export]
macro_rules! element {
    ($($type:ty),+ $(,)?) => {$(
        const _: () = {
            const fn is_plain<T: $crate::bytemuck::Pod>() {}
            is_plain::<$type>();
            assert!(size_of::<$type>() > 0, "an element of device memory has at least one byte");
            assert!(align_of::<$type>() <= 256, "an element of device memory is aligned to at most 256 bytes");
        };

        // SAFETY: `Pod` promises just that: no padding, every bit pattern a value, no interior mutability.
        unsafe impl $crate::Element for $type {}
    )+};
}

/// Refuses what has no bytes, and what has to lie at addresses that device memory need not have.
pub(crate) const fn must_fit<T: Element>() {
    const {
        assert!(size_of::<T>() > 0, "an element of device memory has at least one byte");
        assert!(align_of::<T>() <= MOST_ALIGNED, "an element of device memory is aligned to at most 256 bytes");
    }
}

/// The name of a type, for people.
pub(crate) fn name<T: Element>() -> &'static str {
    match T::CARRIER {
        Carrier(Some(kind)) => kind.name(),
        Carrier(None) => std::any::type_name::<T>(),
    }
}

/// The kind of what is reduced.
#[inline]
pub(crate) const fn kind<T: Element>() -> Option<ElementKind> {
    T::CARRIER.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_let_values_pass_and_nothing_else() {
        let check = <[bool; 3] as Element>::CHECK.unwrap();
        assert!(check(&[0, 1, 1]) && check(&[]) && !check(&[0, 1, 2]) && !check(&[255, 0, 0]));
        let check = <[[char; 1]; 2] as Element>::CHECK.unwrap();
        let bytes = |values: [u32; 2]| values.map(u32::to_ne_bytes).concat();
        assert!(check(&bytes([0, 0x10_ffff])) && check(&bytes(['ä'.into(), 0xd7ff])));
        assert!(!check(&bytes([0, 0x11_0000])) && !check(&bytes([0xd800, 0])));
        assert!(<[u16; 4] as Element>::CHECK.is_none());
    }

    #[cfg(feature = "half")]
    #[test]
    fn what_is_reduced_is_carried_as_it_is() {
        assert_eq!((kind::<bf16>(), name::<bf16>()), (Some(ElementKind::Bf16), "bf16"));
        assert_eq!((kind::<[u16; 3]>(), name::<[u16; 3]>()), (None, "[u16; 3]"));
        assert_eq!((f16::ZERO, <[f64; 2]>::ZERO, <bool as Element>::ZERO), (f16::from_f32(0.0), [0.0; 2], false));
    }
}
