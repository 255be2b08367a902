//! What reductions give, computed on the host, and how far from it an answer may be.

use gpucomm::{ElementKind, ReduceOp};

use crate::cell::{Cell, Float, float, mask, nearest, properties};
use crate::exact;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Op(ReduceOp),
    /// Each rank multiplies by a factor of its own before the sum.
    PreMul,
}

impl Operator {
    /// What NCCL has.
    pub const ALL: [Self; 6] = [
        Self::Op(ReduceOp::Sum),
        Self::Op(ReduceOp::Prod),
        Self::Op(ReduceOp::Min),
        Self::Op(ReduceOp::Max),
        Self::Op(ReduceOp::Avg),
        Self::PreMul,
    ];
}

/// One element of the result, from one element of each rank, and for [`Operator::PreMul`] the factor of each rank.
pub fn reduce(kind: ElementKind, operator: Operator, values: &[Cell], factors: &[Cell]) -> Cell {
    if !values.iter().chain(factors).all(|cell| cell.is_known()) {
        return Cell::UNKNOWN;
    }
    match properties(kind) {
        None => Cell::exact(integer(kind, operator, values, factors)),
        Some(properties) => inexact(kind, &properties, operator, values, factors),
    }
}

/// Sums and products wrap; an average divides the wrapped sum and truncates towards zero, as NCCL does.
fn integer(kind: ElementKind, operator: Operator, values: &[Cell], factors: &[Cell]) -> u64 {
    let signed = matches!(kind, ElementKind::I8 | ElementKind::I32 | ElementKind::I64);
    let (mask, sign) = (mask(kind), 1 << (8 * kind.size() - 1));
    let wrap = |value: i128| value as u64 & mask;
    let wide = |bits: u64| i128::from(bits) - if signed && bits & sign != 0 { i128::from(mask) + 1 } else { 0 };
    let values = values.iter().map(|cell| wide(cell.bits));
    match operator {
        Operator::Op(ReduceOp::Sum) => wrap(values.sum()),
        Operator::Op(ReduceOp::Prod) => values.fold(1, |product, value| wrap(wide(product).wrapping_mul(value))),
        Operator::Op(ReduceOp::Min) => wrap(values.min().unwrap_or_default()),
        Operator::Op(ReduceOp::Max) => wrap(values.max().unwrap_or_default()),
        Operator::Op(ReduceOp::Avg) => {
            let ranks = values.len() as i128;
            wrap(wide(wrap(values.sum())) / ranks)
        }
        Operator::PreMul => {
            let factors = factors.iter().map(|cell| wide(cell.bits));
            wrap(values.zip(factors).map(|(value, factor)| wide(wrap(value.wrapping_mul(factor)))).sum())
        }
        Operator::Op(other) => panic!("NCCL has no {other}"),
    }
}

/// Floats are added and multiplied in any order, and rounded after each step or once. Where no step can round, the answer is exact.
///
/// With n ranks and a unit roundoff of u, a sum makes n - 1 additions, each wrong by at most u times what was added so far,
/// which is at most the sum of all magnitudes; a scalar that is itself rounded (1/n) adds u, the product with it u more, and one
/// u is for the rounding of the reference. So (n + 2) u times the sum of the magnitudes after scaling; the factor 1.1 covers the
/// terms in u squared, also for bf16 where u is 1/256; of types with less bits all terms are counted. A product makes n - 1 roundings relative to itself. What may be off in the
/// inputs is added, and the least value of the type for each step that may end near zero. Where a step may leave the range of
/// the type, or an input is infinite or not a number, the answer may be anything.
fn inexact(kind: ElementKind, float_type: &Float, operator: Operator, values: &[Cell], factors: &[Cell]) -> Cell {
    let open =
        |cells: &[Cell]| -> Vec<(f64, f64)> { cells.iter().map(|cell| (float(kind, cell.bits), cell.slack)).collect() };
    let (values, ranks) = (open(values), values.len() as f64);
    let weights = match operator {
        Operator::PreMul => open(factors),
        Operator::Op(ReduceOp::Avg) => vec![(1.0 / ranks, 0.0); values.len()],
        _ => vec![(1.0, 0.0); values.len()],
    };
    if !values.iter().chain(&weights).all(|(value, _)| value.is_finite()) {
        return Cell::UNKNOWN;
    }
    if values.iter().chain(&weights).all(|(_, slack)| *slack == 0.0) {
        let plain = |cells: &[(f64, f64)]| cells.iter().map(|(value, _)| *value).collect::<Vec<_>>();
        if let Some(value) = exact::reduce(kind, operator, &plain(&values), &plain(&weights)) {
            return Cell::exact(nearest(kind, value));
        }
    }
    let magnitude = |&(value, slack): &(f64, f64)| value.abs() + slack;
    let only = |value: fn(f64, f64) -> f64| values.iter().map(|(value, _)| *value).reduce(value).unwrap_or_default();
    let (value, top, slack) = match operator {
        Operator::Op(ReduceOp::Sum | ReduceOp::Avg) | Operator::PreMul => {
            let pairs = || values.iter().zip(&weights);
            let value: f64 = pairs().map(|(value, weight)| value.0 * weight.0).sum();
            let size: f64 = pairs().map(|(value, weight)| (value.0 * weight.0).abs()).sum();
            let reach: f64 = pairs().map(|(value, weight)| magnitude(value) * magnitude(weight)).sum();
            let weight: f64 = weights.iter().map(magnitude).sum();
            let near_zero = float_type.least * (2.0 * ranks + weight);
            let rounding = roundings(ranks + 2.0, float_type) * reach;
            (value, reach.max(values.iter().map(magnitude).sum()), reach - size + rounding + near_zero)
        }
        Operator::Op(ReduceOp::Prod) => {
            let value: f64 = values.iter().map(|(value, _)| value).product();
            let reach: f64 = values.iter().map(magnitude).product();
            let top: f64 = values.iter().map(|value| magnitude(value).max(1.0)).product();
            let rounding = roundings(ranks + 1.0, float_type) * reach;
            (value, top, reach - value.abs() + rounding + float_type.least * ranks * top)
        }
        Operator::Op(ReduceOp::Min | ReduceOp::Max) => {
            let value = only(if operator == Operator::Op(ReduceOp::Min) { f64::min } else { f64::max });
            let slack = values.iter().map(|(_, slack)| *slack).fold(0.0, f64::max);
            (value, 0.0, slack + float_type.least)
        }
        Operator::Op(other) => panic!("NCCL has no {other}"),
    };
    if !(top < 0.9 * float_type.largest && slack.is_finite()) {
        return Cell::UNKNOWN;
    }
    Cell { bits: nearest(kind, value), slack }
}

/// The relative error of so many roundings.
fn roundings(times: f64, float_type: &Float) -> f64 {
    let u = float_type.roundoff;
    if u > 0.01 { (1.0 + u).powf(times) - 1.0 } else { 1.1 * times * u }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(kind: ElementKind, values: &[f64]) -> Vec<Cell> {
        values.iter().map(|value| Cell::exact(nearest(kind, *value))).collect()
    }

    #[test]
    fn integers_wrap() {
        let of = |values: [i8; 2]| values.map(|value| Cell::exact(u64::from(value as u8)));
        let reduce =
            |operator, values, factors| reduce(ElementKind::I8, operator, &of(values), &of(factors)).bits as i8;
        assert_eq!(reduce(Operator::Op(ReduceOp::Sum), [100, 100], [0, 0]), -56);
        assert_eq!(reduce(Operator::Op(ReduceOp::Prod), [-128, -1], [0, 0]), -128);
        assert_eq!(reduce(Operator::Op(ReduceOp::Min), [-1, 1], [0, 0]), -1);
        assert_eq!(reduce(Operator::Op(ReduceOp::Max), [-1, 1], [0, 0]), 1);
        assert_eq!(reduce(Operator::Op(ReduceOp::Avg), [-2, -1], [0, 0]), -1);
        assert_eq!(reduce(Operator::PreMul, [100, -3], [2, 5]), -71);
        let bytes = [Cell::exact(255), Cell::exact(255)];
        assert_eq!(super::reduce(ElementKind::U8, Operator::Op(ReduceOp::Avg), &bytes, &[]).bits, 127);
    }

    #[test]
    fn a_wrong_element_is_out_of_tolerance() {
        for kind in [ElementKind::F16, ElementKind::Bf16, ElementKind::F32, ElementKind::F64] {
            let sum = reduce(kind, Operator::Op(ReduceOp::Sum), &cells(kind, &[1.0, 2.5, -0.5, 4.0]), &[]);
            assert!(sum.admits(kind, nearest(kind, 7.0)));
            // Without one of the inputs.
            for wrong in [6.0, 4.5, 7.5, 3.0, f64::NAN, f64::INFINITY] {
                assert!(!sum.admits(kind, nearest(kind, wrong)), "{kind} {wrong}");
            }
        }
    }

    #[test]
    fn what_may_overflow_may_be_anything() {
        let kind = ElementKind::F16;
        assert!(
            !reduce(kind, Operator::Op(ReduceOp::Sum), &cells(kind, &[60_000.0, 60_000.0, -60_000.0]), &[]).is_known()
        );
        assert!(!reduce(kind, Operator::Op(ReduceOp::Prod), &cells(kind, &[300.0, 300.0, 0.001]), &[]).is_known());
        assert!(reduce(kind, Operator::Op(ReduceOp::Max), &cells(kind, &[60_000.0, 60_000.0]), &[]).is_known());
    }
}
