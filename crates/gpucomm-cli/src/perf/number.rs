//! Element types as the host computes with them.

#[cfg(nccl_ge_2_24)]
use gpucomm::{F8E4M3, F8E5M2};
use gpucomm::{Reduce, bf16, f16};

/// An element that can be made from a small number and compared with one.
pub trait Number: Reduce {
    /// What fills memory that nothing may write: never a result of a check.
    const POISON: Self;
    /// From an integer that the type can hold, else modulo its range.
    fn of(value: i64) -> Self;
    /// From a real number, rounded to nearest.
    fn of_real(value: f64) -> Self;
    fn to_real(self) -> f64;
}

macro_rules! integer {
    ($($type:ty: $poison:expr;)*) => {$(
        impl Number for $type {
            const POISON: Self = $poison;
            fn of(value: i64) -> Self {
                value as $type
            }
            fn of_real(value: f64) -> Self {
                value as i64 as $type
            }
            fn to_real(self) -> f64 {
                self as f64
            }
        }
    )*};
}

integer! {
    i8: -128;
    u8: 255;
    i32: i32::MIN + 77;
    u32: u32::MAX - 77;
    i64: i64::MIN + 77;
    u64: u64::MAX - 77;
}

macro_rules! real {
    ($($type:ty: $poison:expr, $of:expr, $to:expr;)*) => {$(
        impl Number for $type {
            const POISON: Self = $poison;
            fn of(value: i64) -> Self {
                $of(value as f64)
            }
            fn of_real(value: f64) -> Self {
                $of(value)
            }
            fn to_real(self) -> f64 {
                let to: fn(Self) -> f64 = $to;
                to(self)
            }
        }
    )*};
}

real! {
    f16: f16::from_f32_const(-30000.0), f16::from_f64, f16::to_f64;
    bf16: bf16::from_f32_const(-1.0e30), bf16::from_f64, bf16::to_f64;
    f32: -1.0e30, |value| value as f32, f64::from;
    f64: -1.0e30, |value| value, |value| value;
}

#[cfg(nccl_ge_2_24)]
real! {
    F8E4M3: F8E4M3::from_f64(-448.0), F8E4M3::from_f64, |value| F8E4M3::to_f64(&value);
    F8E5M2: F8E5M2::from_f64(-57344.0), F8E5M2::from_f64, |value| F8E5M2::to_f64(&value);
}
