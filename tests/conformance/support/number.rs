//! Element types as the host computes with them, and which random values suit which reduction.

use fastrand::Rng;
use gpucomm::{Communicator, Reduce, ReduceOp, Result, bf16, f16};
#[cfg(all(feature = "float8", nccl_ge_2_24))]
use gpucomm::{F8E4M3, F8E5M2};

/// A reduction, without the operator object that [`ReduceOp::PreMul`] borrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Sum,
    Prod,
    Min,
    Max,
    Avg,
    /// Each rank multiplies by a scalar of its own, [`scalar_of`], before the sum.
    PreMul,
}

impl Op {
    pub const ALL: [Self; 6] = [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Avg, Self::PreMul];

    /// Those that so many ranks can do: NCCL has no kernel that multiplies numbers of eight bits for one alone.
    pub fn of<T: Number>(ranks: usize) -> Vec<Self> {
        let multiplies = ranks > 1 || T::ROUNDOFF == 0.0 || T::KIND.size() > 1;
        Self::ALL.into_iter().filter(|op| *op != Self::PreMul || multiplies).collect()
    }

    /// Calls `body` with the library's form of this reduction, as `comm` needs it.
    pub fn with<T: Number, R>(self, comm: &Communicator, body: impl FnOnce(ReduceOp<'_, T>) -> Result<R>) -> Result<R> {
        match self {
            Self::Sum => body(ReduceOp::Sum),
            Self::Prod => body(ReduceOp::Prod),
            Self::Min => body(ReduceOp::Min),
            Self::Max => body(ReduceOp::Max),
            Self::Avg => body(ReduceOp::Avg),
            Self::PreMul => {
                let operator = comm.pre_mul_sum(scalar_of::<T>(comm.rank()))?;
                body(ReduceOp::PreMul(&operator))
            }
        }
    }
}

/// The scalar of a rank: another for each.
pub fn scalar_of<T: Number>(rank: usize) -> T {
    T::of(rank as u8 + 2)
}

/// An element type with the arithmetic of the reference.
pub trait Number: Reduce {
    /// The largest relative error of one rounding; 0 for integers.
    const ROUNDOFF: f64;

    /// A small number, exactly.
    fn of(value: u8) -> Self;

    /// What outputs hold before an operation: every byte 0xA5, which is not a NaN in any type.
    fn poison() -> Self;

    /// A random value for which `op` over four ranks is exact.
    ///
    /// Integers take their whole range, because sums and products wrap; only for an average they stay below an eighth of
    /// it, since the sum must not overflow. Floats take whole numbers of at most 8 for sums (four of them times 5 fit the
    /// 8 bits of bf16), powers of two for products, and anything for min and max. Those of eight bits take less, as they have three or four bits
    /// for a sum.
    fn draw(rng: &mut Rng, op: Op) -> Self;

    /// One element of the result, from one element of each rank.
    fn reduce(values: &[Self], op: Op) -> Self;

    /// Whether it holds all sums of so many small numbers, one for each rank, in any order. Floats of three bits do not hold 2 + 3 + 4.
    fn holds_sums_of(ranks: usize) -> bool {
        ranks < 4 || Self::ROUNDOFF < 0.1
    }

    /// The value as a double; exact for floats.
    fn to_f64(self) -> f64;

    /// The nearest value of this type.
    fn nearest(value: f64) -> Self;
}

macro_rules! integer {
    ($($type:ident)*) => {$(
        impl Number for $type {
            const ROUNDOFF: f64 = 0.0;

            fn of(value: u8) -> Self {
                value as $type
            }

            fn poison() -> Self {
                Self::from_ne_bytes([0xa5; size_of::<Self>()])
            }

            fn draw(rng: &mut Rng, op: Op) -> Self {
                match op {
                    Op::Avg => rng.$type(Self::MIN / 8..=Self::MAX / 8),
                    _ => rng.$type(..),
                }
            }

            fn reduce(values: &[Self], op: Op) -> Self {
                let mut result = match op {
                    Op::PreMul => values[0].wrapping_mul(scalar_of(0)),
                    _ => values[0],
                };
                for (rank, &value) in values.iter().enumerate().skip(1) {
                    result = match op {
                        Op::Sum | Op::Avg => result.wrapping_add(value),
                        Op::Prod => result.wrapping_mul(value),
                        Op::Min => result.min(value),
                        Op::Max => result.max(value),
                        Op::PreMul => result.wrapping_add(value.wrapping_mul(scalar_of(rank))),
                    };
                }
                // Division truncates towards zero, here as in NCCL.
                if op == Op::Avg { result / values.len() as $type } else { result }
            }

            fn to_f64(self) -> f64 {
                self as f64
            }

            fn nearest(value: f64) -> Self {
                value as $type
            }
        }
    )*};
}

integer! { i8 u8 i32 u32 i64 u64 }

/// The reduction of numbers that are exact as doubles, computed in doubles.
fn reduce_exactly(values: impl ExactSizeIterator<Item = f64>, op: Op) -> f64 {
    let ranks = values.len() as f64;
    let scaled = values.enumerate().map(|(rank, value)| match op {
        Op::PreMul => value * (rank as f64 + 2.0),
        _ => value,
    });
    let result = scaled.reduce(|a, b| match op {
        Op::Sum | Op::Avg | Op::PreMul => a + b,
        Op::Prod => a * b,
        Op::Min => a.min(b),
        Op::Max => a.max(b),
    });
    let result = result.expect("at least one rank");
    if op == Op::Avg { result / ranks } else { result }
}

/// A double that suits `op`.
fn draw_float(rng: &mut Rng, op: Op, bytes: usize) -> f64 {
    match op {
        Op::Sum | Op::Avg if bytes == 1 => f64::from(rng.i8(-2..=2)),
        Op::PreMul if bytes == 1 => f64::from(rng.i8(-1..=1)),
        Op::Sum | Op::Avg | Op::PreMul => f64::from(rng.i8(-8..=8)),
        Op::Prod => [0.5, 1.0, 2.0, -0.5, -1.0, -2.0][rng.usize(0..6)],
        Op::Min | Op::Max => (rng.f64() - 0.5) * 1000.0,
    }
}

macro_rules! float {
    ($($type:ident: $roundoff:expr, $of_bits:expr, $from_f64:expr, $to_f64:expr;)*) => {$(
        impl Number for $type {
            const ROUNDOFF: f64 = $roundoff;

            fn of(value: u8) -> Self {
                Self::nearest(f64::from(value))
            }

            fn poison() -> Self {
                let number: fn(u64) -> Self = $of_bits;
                number(0xa5a5_a5a5_a5a5_a5a5)
            }

            fn draw(rng: &mut Rng, op: Op) -> Self {
                Self::nearest(draw_float(rng, op, size_of::<Self>()))
            }

            fn reduce(values: &[Self], op: Op) -> Self {
                Self::nearest(reduce_exactly(values.iter().map(|value| value.to_f64()), op))
            }

            fn to_f64(self) -> f64 {
                let number: fn(Self) -> f64 = $to_f64;
                number(self)
            }

            fn nearest(value: f64) -> Self {
                $from_f64(value)
            }
        }
    )*};
}

float! {
    f16: 1.0 / 2048.0, |bits| f16::from_bits(bits as u16), f16::from_f64, f64::from;
    bf16: 1.0 / 256.0, |bits| bf16::from_bits(bits as u16), bf16::from_f64, f64::from;
    f32: f32::EPSILON as f64 / 2.0, |bits| f32::from_bits(bits as u32), |value| value as f32, f64::from;
    f64: f64::EPSILON / 2.0, f64::from_bits, |value| value, |value| value;
}

#[cfg(all(feature = "float8", nccl_ge_2_24))]
float! {
    F8E4M3: 1.0 / 16.0, |bits| F8E4M3::from_bits(bits as u8), F8E4M3::from_f64, |value| F8E4M3::to_f64(&value);
    F8E5M2: 1.0 / 8.0, |bits| F8E5M2::from_bits(bits as u8), F8E5M2::from_f64, |value| F8E5M2::to_f64(&value);
}
