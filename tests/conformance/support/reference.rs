//! What reductions must give, computed on the host in the simplest way.

use super::{Case, Number, Op};

/// A result and how far from it an answer may be.
#[derive(Debug, Clone, Copy)]
pub struct Want<T> {
    pub value: T,
    /// 0 where the answer must be exact.
    pub tolerance: f64,
}

/// The reduction of one vector from each rank.
///
/// All inputs that `Number::draw` makes have exact results in every type and every order, with one exception: an average
/// over a number of ranks that is no power of two. NCCL multiplies floats by 1/ranks before it adds, see [`bound`]. Another is that of floats
/// of eight bits where each rank has a factor of its own: some have three bits, and 4 + 5 takes four.
pub fn reduce<T: Number>(inputs: &[Vec<T>], op: Op) -> Vec<Want<T>> {
    let exact = match op {
        Op::Avg => inputs.len().is_power_of_two() || T::ROUNDOFF == 0.0,
        Op::PreMul => T::KIND.size() > 1 || T::ROUNDOFF == 0.0,
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

/// Panics unless every element of `got` is what it should be.
pub fn check<T: Number>(case: &Case, rank: usize, got: &[T], want: &[Want<T>]) {
    assert_eq!(got.len(), want.len(), "{case}: rank {rank}: length");
    let right = |got: T, want: &Want<T>| {
        got == want.value || (got.to_f64() - want.value.to_f64()).abs() <= want.tolerance && want.tolerance > 0.0
    };
    let wrong = got.iter().zip(want).filter(|(got, want)| !right(**got, want)).count();
    if let Some(at) = got.iter().zip(want).position(|(got, want)| !right(*got, want)) {
        panic!("{case}: rank {rank}: {wrong} wrong, first [{at}]: got {:?}, expected {:?}", got[at], want[at]);
    }
}
