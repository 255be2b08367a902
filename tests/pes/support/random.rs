//! Random inputs: the same for the same seed, PE and case.

use fastrand::Rng;
use gpucomm::Element;

pub use super::seed::{rng, seed};

/// An element whose bits can be drawn and compared.
pub trait Bits: Element + std::fmt::Debug {
    const NAME: &'static str;

    /// Of the low bits.
    fn of_bits(bits: u64) -> Self;

    fn bits(self) -> u64;

    /// What outputs hold before: every byte 0xA5.
    fn poison() -> Self {
        Self::of_bits(0xa5a5_a5a5_a5a5_a5a5)
    }

    /// Any value, also one that is not a number.
    fn any(rng: &mut Rng) -> Self {
        Self::of_bits(rng.u64(..))
    }

    /// So many.
    fn vector(rng: &mut Rng, len: usize) -> Vec<Self> {
        (0..len).map(|_| Self::any(rng)).collect()
    }
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl Bits for $type {
            const NAME: &'static str = stringify!($type);

            fn of_bits(bits: u64) -> Self {
                bits as Self
            }

            fn bits(self) -> u64 {
                self as u64 & (u64::MAX >> (64 - Self::BITS))
            }
        }
    )*};
}

integers! { i8 u8 i16 u16 i32 u32 i64 u64 }

macro_rules! floats {
    ($($type:ident of $bits:ident: $path:ty;)*) => {$(
        impl Bits for $path {
            const NAME: &'static str = stringify!($type);

            fn of_bits(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }

            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
        }
    )*};
}

floats! {
    f16 of u16: gpucomm::f16;
    bf16 of u16: gpucomm::bf16;
    f32 of u32: f32;
    f64 of u64: f64;
}

/// Panics unless `got` is, bit by bit, `want`.
#[track_caller]
pub fn same<T: Bits>(what: &str, got: &[T], want: &[T]) {
    assert_eq!(got.len(), want.len(), "{what} of {}: length", T::NAME);
    let differ = |(got, want): (&T, &T)| got.bits() != want.bits();
    if let Some(at) = got.iter().zip(want).position(differ) {
        let wrong = got.iter().zip(want).filter(|(got, want)| differ((got, want))).count();
        panic!(
            "{what} of {} {}: {wrong} wrong, first [{at}]: got {:?} ({:#x}), expected {:?} ({:#x}) (GPUCOMM_TEST_SEED={})",
            got.len(),
            T::NAME,
            got[at],
            got[at].bits(),
            want[at],
            want[at].bits(),
            seed()
        );
    }
}

/// Lengths: nothing, one, odd, large.
pub fn lengths() -> [usize; 4] {
    [0, 1, 1021, if gpucomm::backend() == gpucomm::Backend::Nvidia { 200_003 } else { 10_007 }]
}
