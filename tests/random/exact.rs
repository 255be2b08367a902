//! Which reductions of floats have one right answer, bit by bit: those of which every partial result, in any order, is a float of the type.

use gpucomm::{ElementKind, ReduceOp};

use crate::reduce::Operator;

/// What a type of floats can hold: multiples of two to the power of `least` that have so many bits, below two to the power of `most`.
struct Range {
    bits: u32,
    /// Of single and half-precision brain floats, the least normal one: a GPU may flush what is below.
    least: i32,
    most: i32,
}

fn range(kind: ElementKind) -> Option<Range> {
    let (bits, least, most) = match kind {
        ElementKind::F16 => (11, -24, 15),
        ElementKind::Bf16 => (8, -126, 127),
        ElementKind::F32 => (24, -126, 127),
        ElementKind::F64 => (53, -1022, 1023),
        // Up to 448, so that not all below 512 can be held.
        ElementKind::F8E4M3 => (4, -9, 8),
        ElementKind::F8E5M2 => (3, -16, 15),
        _ => return None,
    };
    Some(Range { bits, least, most })
}

/// A finite value that is not 0 as an odd number and a power of two.
fn parts(value: f64) -> (u64, i32) {
    let bits = value.abs().to_bits();
    let (exponent, fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    let (odd, power) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    let zeros = odd.trailing_zeros();
    (odd >> zeros, power + zeros as i32)
}

impl Range {
    /// The product, if those of all subsets of the factors can be held.
    fn product(&self, factors: &[f64]) -> Option<f64> {
        let (mut odd, mut lowest, mut highest) = (1u64, 0, 0);
        for &factor in factors.iter().filter(|factor| **factor != 0.0) {
            let (number, power) = parts(factor);
            odd = odd.checked_mul(number).filter(|odd| *odd < 1 << self.bits)?;
            lowest += power.min(0);
            highest += (power + number.ilog2() as i32 + 1).max(0);
        }
        (lowest >= self.least && highest <= self.most).then(|| factors.iter().product())
    }

    /// The sum, if those of all subsets of the terms can be held.
    fn sum(&self, terms: &[f64]) -> Option<f64> {
        let sum = || terms.iter().copied().reduce(|sum, term| sum + term);
        let Some(grid) = terms.iter().filter(|term| **term != 0.0).map(|term| parts(*term).1).min() else {
            return sum();
        };
        let reach: f64 = terms.iter().map(|term| term.abs()).sum();
        let steps = reach / 2f64.powi(grid);
        let fits = steps < 2f64.powi(self.bits as i32) && reach < 2f64.powi(self.most);
        if fits && grid >= self.least { sum() } else { None }
    }
}

/// The result of a reduction of finite values, each exactly known, if it can be no other; the factors are those of
/// [`Operator::PreMul`].
pub fn reduce(kind: ElementKind, operator: Operator, values: &[f64], factors: &[f64]) -> Option<f64> {
    let range = range(kind)?;
    match operator {
        Operator::Op(ReduceOp::Sum) => range.sum(values),
        Operator::Op(ReduceOp::Prod) => range.product(values),
        Operator::Op(ReduceOp::Avg) => {
            let ranks = values.len();
            range.sum(values)?;
            let part = ranks.is_power_of_two().then_some(1.0 / ranks as f64)?;
            range.sum(&values.iter().map(|value| value * part).collect::<Vec<_>>())
        }
        Operator::PreMul => {
            let terms: Option<Vec<f64>> =
                values.iter().zip(factors).map(|(value, factor)| range.product(&[*value, *factor])).collect();
            range.sum(&terms?)
        }
        Operator::Op(ReduceOp::Min | ReduceOp::Max) => {
            let held = |value: &f64| *value == 0.0 || value.abs() >= 2f64.powi(range.least);
            // Zeros of both signs are equal, and either may be taken.
            let zeros =
                |negative: bool| values.iter().any(|value| *value == 0.0 && value.is_sign_negative() == negative);
            let choose: fn(f64, f64) -> f64 = if operator == Operator::Op(ReduceOp::Min) { f64::min } else { f64::max };
            let one = values.iter().all(held) && !(zeros(true) && zeros(false));
            if one { values.iter().copied().reduce(choose) } else { None }
        }
        Operator::Op(other) => panic!("NCCL has no {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_exact() {
        let f16 = |operator, values: &[f64], factors: &[f64]| reduce(ElementKind::F16, operator, values, factors);
        assert_eq!(f16(Operator::Op(ReduceOp::Sum), &[1024.0, 1023.0, -5.0], &[]), None, "2052 takes 12 bits");
        assert_eq!(f16(Operator::Op(ReduceOp::Sum), &[1024.0, 1020.0, -4.0], &[]), Some(2040.0));
        assert_eq!(f16(Operator::Op(ReduceOp::Sum), &[2048.0, 0.25], &[]), None);
        assert_eq!(f16(Operator::Op(ReduceOp::Sum), &[-0.0, -0.0], &[]).map(f64::to_bits), Some((-0.0f64).to_bits()));
        assert_eq!(f16(Operator::Op(ReduceOp::Sum), &[1.0, -1.0, -0.0], &[]).map(f64::to_bits), Some(0));
        assert_eq!(f16(Operator::Op(ReduceOp::Prod), &[43.0, 47.0], &[]), Some(2021.0));
        assert_eq!(f16(Operator::Op(ReduceOp::Prod), &[47.0, 49.0], &[]), None, "2303 takes 12 bits");
        assert_eq!(f16(Operator::Op(ReduceOp::Prod), &[256.0, 256.0, 0.0], &[]), None, "65536 is infinite");
        assert_eq!(f16(Operator::Op(ReduceOp::Avg), &[1.0, 2.5], &[]), Some(1.75));
        assert_eq!(f16(Operator::Op(ReduceOp::Avg), &[1.0, 2.5, 4.0], &[]), None, "a third is rounded");
        assert_eq!(f16(Operator::PreMul, &[3.0, 5.0], &[0.5, -2.0]), Some(-8.5));
        assert_eq!(f16(Operator::Op(ReduceOp::Max), &[3.0, 5.0], &[]), Some(5.0));
        assert_eq!(f16(Operator::Op(ReduceOp::Max), &[0.0, -0.0], &[]), None);
    }

    #[test]
    fn what_a_gpu_may_flush_is_not() {
        let small = f64::from(f32::MIN_POSITIVE);
        for (values, exact) in [([small, small], true), ([small / 2.0, small], false)] {
            for operator in [Operator::Op(ReduceOp::Sum), Operator::Op(ReduceOp::Max)] {
                assert_eq!(reduce(ElementKind::F32, operator, &values, &[]).is_some(), exact, "{values:?}");
                assert_eq!(reduce(ElementKind::Bf16, operator, &values, &[]).is_some(), exact, "{values:?}");
            }
        }
    }
}
