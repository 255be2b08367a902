//! Elements of any type under one name: what a program names by kind and bits, as buffers, views and factors of Rust types.

use std::any::Any;
use std::ops::Range;
use std::sync::OnceLock;

use gpucomm::Device;
use gpucomm::cuda::{Slice, SliceMut};
use gpucomm::nccl::PreMulSum;
use gpucomm::{CommBuffer, DeviceBuffer, ElementKind, Reduce, bf16, f16};
#[cfg(all(feature = "float8", nccl_ge_2_24))]
use gpucomm::{F8E4M3, F8E5M2};

use crate::cell::is_float8;

/// A buffer of either kind of memory.
pub enum Buffer<'c, T: Reduce> {
    Device(DeviceBuffer<T>),
    Comm(CommBuffer<'c, T>),
}

impl<T: Reduce> Buffer<'_, T> {
    pub fn len(&self) -> usize {
        match self {
            Self::Device(buffer) => buffer.len(),
            Self::Comm(buffer) => buffer.len(),
        }
    }

    pub fn slice(&self, range: Range<usize>) -> Slice<'_, T> {
        match self {
            Self::Device(buffer) => buffer.slice(range),
            Self::Comm(buffer) => buffer.slice(range),
        }
    }

    pub fn slice_mut(&mut self, range: Range<usize>) -> SliceMut<'_, T> {
        match self {
            Self::Device(buffer) => buffer.slice_mut(range),
            Self::Comm(buffer) => buffer.slice_mut(range),
        }
    }

    pub fn split_at_mut(&mut self, mid: usize) -> (SliceMut<'_, T>, SliceMut<'_, T>) {
        match self {
            Self::Device(buffer) => buffer.split_at_mut(mid),
            Self::Comm(buffer) => buffer.split_at_mut(mid),
        }
    }
}

/// An element type, in and out of the enums over all types.
pub trait Number: Reduce {
    fn of_bits(bits: u64) -> Self;
    fn bits(self) -> u64;

    fn into_memory(buffer: Buffer<'_, Self>) -> Memory<'_>;
    fn from_memory(memory: Memory<'_>) -> Buffer<'_, Self>;
    fn of<'a, 'c>(memory: &'a Memory<'c>) -> &'a Buffer<'c, Self>;
    fn of_mut<'a, 'c>(memory: &'a mut Memory<'c>) -> &'a mut Buffer<'c, Self>;

    fn into_view(slice: SliceMut<'_, Self>) -> ViewMut<'_>;
    fn of_view(view: ViewMut<'_>) -> SliceMut<'_, Self>;
    fn of_view_mut<'a, 'v>(view: &'a mut ViewMut<'v>) -> &'a mut SliceMut<'v, Self>;

    fn into_factor(factor: PreMulSum<'_, Self>) -> Factor<'_>;
    fn of_factor<'a, 'f>(factor: &'a Factor<'f>) -> &'a PreMulSum<'f, Self>;

    fn values(bits: &[u64]) -> Vec<Self> {
        bits.iter().map(|&bits| Self::of_bits(bits)).collect()
    }
}

macro_rules! numbers {
    ($($(#[$here:meta])? $kind:ident $type:ident: $of_bits:expr, $bits:expr;)*) => {
        /// A buffer of any type.
        pub enum Memory<'c> {
            $($(#[$here])? $kind(Buffer<'c, $type>),)*
        }

        /// A part of a buffer of any type, to be written.
        pub enum ViewMut<'a> {
            $($(#[$here])? $kind(SliceMut<'a, $type>),)*
        }

        /// A pre-multiplied sum of any type.
        pub enum Factor<'a> {
            $($(#[$here])? $kind(PreMulSum<'a, $type>),)*
        }

        impl Memory<'_> {
            pub fn kind(&self) -> ElementKind {
                match self {
                    $($(#[$here])? Self::$kind(_) => ElementKind::$kind,)*
                }
            }
        }

        impl ViewMut<'_> {
            fn kind(&self) -> ElementKind {
                match self {
                    $($(#[$here])? Self::$kind(_) => ElementKind::$kind,)*
                }
            }
        }

        $($(#[$here])? impl Number for $type {
            fn of_bits(bits: u64) -> Self {
                let of_bits: fn(u64) -> $type = $of_bits;
                of_bits(bits)
            }

            fn bits(self) -> u64 {
                let bits: fn($type) -> u64 = $bits;
                bits(self)
            }

            fn into_memory(buffer: Buffer<'_, Self>) -> Memory<'_> {
                Memory::$kind(buffer)
            }

            fn from_memory(memory: Memory<'_>) -> Buffer<'_, Self> {
                match memory {
                    Memory::$kind(buffer) => buffer,
                    other => panic!("{} where {} was meant", other.kind(), Self::KIND),
                }
            }

            fn of<'a, 'c>(memory: &'a Memory<'c>) -> &'a Buffer<'c, Self> {
                match memory {
                    Memory::$kind(buffer) => buffer,
                    other => panic!("{} where {} was meant", other.kind(), Self::KIND),
                }
            }

            fn of_mut<'a, 'c>(memory: &'a mut Memory<'c>) -> &'a mut Buffer<'c, Self> {
                match memory {
                    Memory::$kind(buffer) => buffer,
                    other => panic!("{} where {} was meant", other.kind(), Self::KIND),
                }
            }

            fn into_view(slice: SliceMut<'_, Self>) -> ViewMut<'_> {
                ViewMut::$kind(slice)
            }

            fn of_view(view: ViewMut<'_>) -> SliceMut<'_, Self> {
                match view {
                    ViewMut::$kind(slice) => slice,
                    other => panic!("a view of {} where {} was meant", other.kind(), Self::KIND),
                }
            }

            fn of_view_mut<'a, 'v>(view: &'a mut ViewMut<'v>) -> &'a mut SliceMut<'v, Self> {
                match view {
                    ViewMut::$kind(slice) => slice,
                    other => panic!("a view of {} where {} was meant", other.kind(), Self::KIND),
                }
            }

            fn into_factor(factor: PreMulSum<'_, Self>) -> Factor<'_> {
                Factor::$kind(factor)
            }

            fn of_factor<'a, 'f>(factor: &'a Factor<'f>) -> &'a PreMulSum<'f, Self> {
                match factor {
                    Factor::$kind(factor) => factor,
                    _ => panic!("a factor that is not of {}", Self::KIND),
                }
            }
        })*
    };
}

numbers! {
    I8 i8: |bits| bits as i8, |value| u64::from(value as u8);
    U8 u8: |bits| bits as u8, u64::from;
    I32 i32: |bits| bits as i32, |value| u64::from(value as u32);
    U32 u32: |bits| bits as u32, u64::from;
    I64 i64: |bits| bits as i64, |value| value as u64;
    U64 u64: |bits| bits, |value| value;
    F16 f16: |bits| f16::from_bits(bits as u16), |value| u64::from(value.to_bits());
    Bf16 bf16: |bits| bf16::from_bits(bits as u16), |value| u64::from(value.to_bits());
    F32 f32: |bits| f32::from_bits(bits as u32), |value| u64::from(value.to_bits());
    F64 f64: f64::from_bits, f64::to_bits;
    #[cfg(all(feature = "float8", nccl_ge_2_24))]
    F8E4M3 F8E4M3: |bits| F8E4M3::from_bits(bits as u8), |value| u64::from(value.to_bits());
    #[cfg(all(feature = "float8", nccl_ge_2_24))]
    F8E5M2 F8E5M2: |bits| F8E5M2::from_bits(bits as u8), |value| u64::from(value.to_bits());
}

/// The kinds of elements that programs draw from.
pub fn kinds() -> &'static [ElementKind] {
    static KINDS: OnceLock<Vec<ElementKind>> = OnceLock::new();
    KINDS.get_or_init(|| {
        let can = |device: &Device| device.compute_capability().expect("the compute capability") >= (9, 0);
        let has = cfg!(all(feature = "float8", nccl_ge_2_24)) && Device::all().expect("devices").iter().all(can);
        ElementKind::ALL.into_iter().filter(|kind| has || !is_float8(*kind)).collect()
    })
}

/// Evaluates an expression with `$type` as the type of a kind.
macro_rules! typed {
    ($kind:expr, $type:ident => $body:expr) => {
        $crate::number::typed!(@ $kind, $type, $body,
            I8 i8, U8 u8, I32 i32, U32 u32, I64 i64, U64 u64, F16 gpucomm::f16, Bf16 gpucomm::bf16, F32 f32, F64 f64,
            #[cfg(all(feature = "float8", nccl_ge_2_24))] F8E4M3 gpucomm::F8E4M3, #[cfg(all(feature = "float8", nccl_ge_2_24))] F8E5M2 gpucomm::F8E5M2)
    };
    (@ $kind:expr, $type:ident, $body:expr, $($(#[$here:meta])? $name:ident $of:ty),*) => {
        match $kind {
            $($(#[$here])? gpucomm::ElementKind::$name => {
                type $type = $of;
                $body
            })*
            other => panic!("an element type of which the programs know nothing: {other}"),
        }
    };
}
pub(crate) use typed;

impl Memory<'_> {
    /// What borrows no communicator, and so may go anywhere.
    pub fn into_owned(self) -> Result<Box<dyn Any + Send>, Self> {
        typed!(self.kind(), T => match T::from_memory(self) {
            Buffer::Device(buffer) => Ok(Box::new(buffer)),
            buffer => Err(T::into_memory(buffer)),
        })
    }

    pub fn len(&self) -> usize {
        typed!(self.kind(), T => T::of(self).len())
    }

    /// All elements.
    pub fn whole(&mut self) -> ViewMut<'_> {
        let len = self.len();
        typed!(self.kind(), T => T::into_view(T::of_mut(self).slice_mut(0..len)))
    }

    /// The elements before `mid`, and those from it on.
    pub fn halves(&mut self, mid: usize) -> [ViewMut<'_>; 2] {
        typed!(self.kind(), T => {
            let (front, back) = T::of_mut(self).split_at_mut(mid);
            [T::into_view(front), T::into_view(back)]
        })
    }
}

impl ViewMut<'_> {
    /// A part of it.
    pub fn part(&mut self, range: Range<usize>) -> ViewMut<'_> {
        typed!(self.kind(), T => T::into_view(T::of_view_mut(self).slice_mut(range)))
    }
}
