//! The host's model of reductions: random inputs that suit each of them, results, and comparisons.
//!
//! Tests compile without optimisations, which would make these loops the longest part of a run. So the loops are here, in
//! functions of each type, and the workspace compiles this crate with optimisations.

use std::fmt::Debug;

use fastrand::Rng;
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

/// A reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The sum divided by the number of ranks.
    Avg,
    /// Each rank multiplies by a scalar of its own, [`scalar_of`], before the sum.
    PreMul,
}

impl Op {
    /// All reductions.
    pub const ALL: [Self; 6] = [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Avg, Self::PreMul];

    /// Those that so many ranks can do: NCCL has no kernel that multiplies numbers of eight bits for one alone.
    pub fn of<T: Number>(ranks: usize) -> Vec<Self> {
        let multiplies = ranks > 1 || T::ROUNDOFF == 0.0 || size_of::<T>() > 1;
        Self::ALL.into_iter().filter(|op| *op != Self::PreMul || multiplies).collect()
    }
}

/// A result and how far from it an answer may be.
#[derive(Debug, Clone, Copy)]
pub struct Want<T> {
    /// The result.
    pub value: T,
    /// 0 where the answer must be exact.
    pub tolerance: f64,
}

impl<T: Number> Want<T> {
    fn accepts(&self, got: T) -> bool {
        got == self.value || self.tolerance > 0.0 && (got.to_f64() - self.value.to_f64()).abs() <= self.tolerance
    }
}

/// The scalar of a rank: another for each.
pub fn scalar_of<T: Number>(rank: usize) -> T {
    T::of(rank as u8 + 2)
}

/// An element type with the arithmetic of the reference.
pub trait Number: Copy + PartialEq + Debug + Send + Sync + 'static {
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

    /// `len` elements of [`poison`](Self::poison).
    fn poisoned(len: usize) -> Vec<Self>;

    /// `len` values of [`draw`](Self::draw).
    fn draw_all(rng: &mut Rng, op: Op, len: usize) -> Vec<Self>;

    /// The reduction of one vector from each rank.
    ///
    /// All inputs that [`draw`](Self::draw) makes have exact results in every type and every order, with one exception: an
    /// average over a number of ranks that is no power of two. NCCL multiplies floats by 1/ranks before it adds, see
    /// [`bound`]. Another is that of floats of eight bits where each rank has a factor of its own: some have three bits, and
    /// 4 + 5 takes four.
    fn reduce_all(inputs: &[Vec<Self>], op: Op) -> Vec<Want<Self>>;

    /// How many elements of `got` are not what they should be, and the first one.
    fn wrong(got: &[Self], want: &[Want<Self>]) -> Option<(usize, usize)>;

    /// How many elements of two vectors of one length differ, and the first one.
    fn differences(got: &[Self], want: &[Self]) -> Option<(usize, usize)>;
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

            fn poisoned(len: usize) -> Vec<Self> {
                vec![Self::poison(); len]
            }

            fn draw_all(rng: &mut Rng, op: Op, len: usize) -> Vec<Self> {
                (0..len).map(|_| Self::draw(rng, op)).collect()
            }

            fn reduce_all(inputs: &[Vec<Self>], op: Op) -> Vec<Want<Self>> {
                reduce_all(inputs, op)
            }

            fn wrong(got: &[Self], want: &[Want<Self>]) -> Option<(usize, usize)> {
                wrong(got, want, |got, want| want.accepts(*got))
            }

            fn differences(got: &[Self], want: &[Self]) -> Option<(usize, usize)> {
                wrong(got, want, |got, want| got == want)
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

            fn poisoned(len: usize) -> Vec<Self> {
                vec![Self::poison(); len]
            }

            fn draw_all(rng: &mut Rng, op: Op, len: usize) -> Vec<Self> {
                (0..len).map(|_| Self::draw(rng, op)).collect()
            }

            fn reduce_all(inputs: &[Vec<Self>], op: Op) -> Vec<Want<Self>> {
                reduce_all(inputs, op)
            }

            fn wrong(got: &[Self], want: &[Want<Self>]) -> Option<(usize, usize)> {
                wrong(got, want, |got, want| want.accepts(*got))
            }

            fn differences(got: &[Self], want: &[Self]) -> Option<(usize, usize)> {
                wrong(got, want, |got, want| got == want)
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

float! {
    F8E4M3: 1.0 / 16.0, |bits| F8E4M3::from_bits(bits as u8), F8E4M3::from_f64, |value| F8E4M3::to_f64(&value);
    F8E5M2: 1.0 / 8.0, |bits| F8E5M2::from_bits(bits as u8), F8E5M2::from_f64, |value| F8E5M2::to_f64(&value);
}

/// The numbers of `rank` at the places `from..from + len`. They look random.
pub fn hashes(rank: usize, from: usize, len: usize) -> Vec<u32> {
    (from..from + len).map(|at| hash(rank, at)).collect()
}

/// The sums of [`hashes`] over so many ranks.
pub fn sums_of_hashes(ranks: usize, from: usize, len: usize) -> Vec<u32> {
    let sum = |at| (0..ranks).fold(0u32, |sum, rank| sum.wrapping_add(hash(rank, at)));
    (from..from + len).map(sum).collect()
}

fn hash(rank: usize, at: usize) -> u32 {
    (at as u32).wrapping_mul(2_654_435_761) ^ rank as u32
}

fn reduce_all<T: Number>(inputs: &[Vec<T>], op: Op) -> Vec<Want<T>> {
    let exact = match op {
        Op::Avg => inputs.len().is_power_of_two() || T::ROUNDOFF == 0.0,
        Op::PreMul => size_of::<T>() > 1 || T::ROUNDOFF == 0.0,
        _ => true,
    };
    let mut column = Vec::with_capacity(inputs.len());
    (0..inputs[0].len())
        .map(|at| {
            column.clear();
            column.extend(inputs.iter().map(|input| input[at]));
            let tolerance = if exact { 0.0 } else { bound(&column, op) };
            Want { value: T::reduce(&column, op), tolerance }
        })
        .collect()
}

/// How many pairs are not right, and the first one of them.
fn wrong<T, U>(got: &[T], want: &[U], right: impl Fn(&T, &U) -> bool) -> Option<(usize, usize)> {
    let first = got.iter().zip(want).position(|(got, want)| !right(got, want))?;
    let count = got[first..].iter().zip(&want[first..]).filter(|(got, want)| !right(got, want)).count();
    Some((count, first))
}

/// How far the reduction of `values` may be from the true result, for floats of any value.
///
/// With n ranks and a unit roundoff of u: a sum makes n - 1 additions, each wrong by at most u times what was added so far,
/// which is at most the sum of all magnitudes. A scalar that is itself rounded (1/n) adds u, the product with it u more,
/// and one u is for the rounding of the reference. So (n + 2) u times the sum of the magnitudes after scaling; the factor
/// 1.1 covers the terms in u squared, also for bf16 where u is 1/256. A product makes n - 1 roundings relative to itself.
pub fn bound<T: Number>(values: &[T], op: Op) -> f64 {
    let ranks = values.len() as f64;
    let magnitude = match op {
        Op::Sum => values.iter().map(|value| value.to_f64().abs()).sum(),
        Op::Avg => values.iter().map(|value| value.to_f64().abs()).sum::<f64>() / ranks,
        Op::PreMul => values.iter().enumerate().map(|(rank, value)| value.to_f64().abs() * (rank as f64 + 2.0)).sum(),
        Op::Prod => values.iter().map(|value| value.to_f64().abs()).product(),
        Op::Min | Op::Max => 0.0,
    };
    (ranks + 2.0) * T::ROUNDOFF * magnitude * 1.1
}
