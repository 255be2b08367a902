//! Numbers of eight bits, whatever their bits: a result is one of those that some order of the ranks gives, as the host computes it.
//!
//! NCCL widens them to half precision, adds or multiplies, and rounds to eight bits at each step; which ranks it adds first is its own
//! affair. Four ranks leave so few orders that all results can be told. What is too large becomes the largest number, infinities too.

use fastrand::Rng;
use gpucomm::nccl::Reduction;
use gpucomm::{DeviceBuffer, F8E4M3, F8E5M2, InPlace, ReduceOp, f16};

use crate::support::{Case, Guarded, Number, Op, Rig, rank_counts, takes, watched};

/// One of the two types.
trait Eight: Number {
    fn of_bits(bits: u8) -> Self;
    fn bits(self) -> u8;
    fn half(self) -> f16;
}

macro_rules! eight {
    ($($type:ident)*) => {$(
        impl Eight for $type {
            fn of_bits(bits: u8) -> Self {
                Self::from_bits(bits)
            }

            fn bits(self) -> u8 {
                self.to_bits()
            }

            fn half(self) -> f16 {
                self.to_f16()
            }
        }
    )*};
}

eight! { F8E4M3 F8E5M2 }

/// The bits of a number, by which all that are no numbers are one, and so are both zeros of a minimum or maximum.
fn key<T: Eight>(value: T, op: Op) -> u8 {
    match value.bits() {
        _ if value.to_f64().is_nan() => 0x7f,
        0x80 if matches!(op, Op::Min | Op::Max) => 0,
        bits => bits,
    }
}

/// What a kernel makes of two numbers: one of half precision, then one of eight bits.
fn step<T: Eight>(a: T, b: T, op: Op) -> T {
    let (x, y) = (a.half().to_f64(), b.half().to_f64());
    let exact = match op {
        Op::Sum | Op::Avg | Op::PreMul => x + y,
        Op::Prod => x * y,
        Op::Min => x.min(y),
        Op::Max => x.max(y),
    };
    T::nearest(f16::from_f64(exact).to_f64())
}

/// The product with a factor, which is rounded before anything is added to it.
fn scaled<T: Eight>(value: T, factor: T) -> T {
    step(value, factor, Op::Prod)
}

/// The keys of all results that an order of these values can give.
fn results<T: Eight>(values: &[T], op: Op) -> Vec<u8> {
    // By the set of ranks, as bits: what they may have come to together.
    let mut all: Vec<Vec<T>> = vec![Vec::new(); 1 << values.len()];
    for set in 1..all.len() {
        let mut found = Vec::new();
        if set.is_power_of_two() {
            found.push(values[set.trailing_zeros() as usize]);
        }
        for part in (1..set).filter(|part| part & set == *part && *part < set ^ part) {
            for (a, b) in all[part].iter().flat_map(|a| all[set ^ part].iter().map(move |b| (*a, *b))) {
                found.push(step(a, b, op));
            }
        }
        found.sort_by_key(|value| value.bits());
        found.dedup_by_key(|value| value.bits());
        all[set] = found;
    }
    all.pop().expect("the set of all ranks").into_iter().map(|value| key(value, op)).collect()
}

/// Any bits, and half of the time those of numbers near one.
fn draw<T: Eight>(rng: &mut Rng) -> T {
    if rng.bool() { T::of_bits(rng.u8(..)) } else { T::nearest((rng.f64() - 0.5) * 8.0) }
}

/// The factors of the ranks, as far as `op` has some.
fn factors<T: Eight>(op: Op, ranks: usize) -> Option<Vec<T>> {
    match op {
        Op::PreMul => Some([1.5, -0.3, 2.0, 0.011][..ranks].iter().map(|factor| T::nearest(*factor)).collect()),
        // That of one rank alone is made as a sum.
        Op::Avg if ranks > 1 => Some(vec![T::nearest(1.0 / ranks as f64); ranks]),
        _ => None,
    }
}

/// The keys of all results that may come of each column of the inputs.
fn all_results<T: Eight>(op: Op, inputs: &[Vec<T>]) -> Vec<Vec<u8>> {
    let factors = factors(op, inputs.len());
    let of_column = |at: usize| {
        let column = inputs.iter().map(|input| input[at]);
        let terms: Vec<T> = match &factors {
            Some(factors) => column.zip(factors).map(|(value, factor)| scaled(value, *factor)).collect(),
            None => column.collect(),
        };
        results(&terms, op)
    };
    (0..inputs[0].len()).map(of_column).collect()
}

fn check<T: Eight>(case: &Case, op: Op, want: &[Vec<u8>], got: &[T]) {
    assert_eq!(got.len(), want.len(), "{case}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let got = key(*got, op);
        assert!(want.contains(&got), "{case}: [{at}] is {got:#x}, expected one of {want:x?}");
    }
}

fn every_operation_of<T: Eight>(rig: &Rig) {
    let ranks = rig.size();
    for op in Op::of::<T>(ranks) {
        for len in [0, 1, 3, 255, 2051].into_iter().filter(|len| takes(("any bits", T::KIND, ranks, op, len))) {
            let case = Case::reducing::<T>("reductions of any bits", op, ranks, len, false);
            let inputs: Vec<Vec<T>> = (0..ranks)
                .map(|rank| {
                    let mut rng = case.rng(rank);
                    (0..len * ranks).map(|_| draw(&mut rng)).collect()
                })
                .collect();
            let want = all_results(op, &inputs);
            let results = rig.run(|comm, stream| {
                let rank = comm.rank();
                let mine = &inputs[rank];
                let factor = factors::<T>(op, ranks).filter(|_| op == Op::PreMul).map(|factors| factors[rank]);
                let operator = factor.map(|factor| comm.pre_mul_sum(factor)).transpose()?;
                let op_here: Reduction<'_, T> = match op {
                    Op::Sum => ReduceOp::Sum.into(),
                    Op::Prod => ReduceOp::Prod.into(),
                    Op::Min => ReduceOp::Min.into(),
                    Op::Max => ReduceOp::Max.into(),
                    Op::Avg => ReduceOp::Avg.into(),
                    Op::PreMul => operator.as_ref().expect("an operator").into(),
                };
                let send = Guarded::holding(stream, mine)?;
                let mut all = Guarded::poisoned(stream, len * ranks)?;
                comm.all_reduce((send.inner(), all.inner_mut()), op_here, stream)?;
                let mut in_place = DeviceBuffer::from_slice(stream, mine)?;
                comm.all_reduce(InPlace(&mut in_place), op_here, stream)?;
                let mut part = Guarded::poisoned(stream, len)?;
                comm.reduce_scatter((send.inner(), part.inner_mut()), op_here, stream)?;
                let all = all.read(stream)?;
                check(&case, op, &want, &all);
                check(&case, op, &want, &in_place.to_vec(stream)?);
                check(&case, op, &want[rank * len..][..len], &part.read(stream)?);
                Ok(all)
            });
            for result in &results {
                let keys = |of: &[T]| of.iter().map(|value| key(*value, op)).collect::<Vec<_>>();
                assert_eq!(keys(result), keys(&results[0]), "{case}: ranks differ");
            }
            if ranks == 1 {
                let bits = |of: &[T]| of.iter().map(|value| value.bits()).collect::<Vec<_>>();
                assert_eq!(bits(&results[0]), bits(&inputs[0]), "{case}: one rank alone gets its bits");
            }
        }
    }
}

#[test]
fn reductions_of_any_bits() {
    watched(120.0, || {
        if !crate::support::harness::reduces_float8() {
            return;
        }
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            every_operation_of::<F8E4M3>(&rig);
            every_operation_of::<F8E5M2>(&rig);
            rig.close();
        }
    });
}

#[test]
fn the_host_tells_orders_apart() {
    let of = |values: &[f64], op| {
        let values: Vec<_> =
            values.iter().map(|value| <F8E4M3 as gpucomm_reference::Number>::nearest(*value)).collect();
        let mut all: Vec<_> = results(&values, op).into_iter().map(|bits| F8E4M3::from_bits(bits).to_f64()).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    assert_eq!(of(&[16.0, 1.0, 1.0], Op::Sum), [16.0, 18.0], "17 is a tie between 16 and 18");
    assert_eq!(of(&[448.0, 448.0, -448.0], Op::Sum), [0.0, 448.0], "there is no infinity");
    assert_eq!(of(&[1.5, -2.0, 0.5], Op::Min), [-2.0]);
}

/// Sums between windows are kept in wider numbers: the answer is the nearest to the exact one.
#[test]
fn sums_between_windows() {
    fn of<T: Eight>(rig: &Rig) {
        let case = Case::reducing::<T>("all_reduce between windows", Op::Sum, rig.size(), 1021, true);
        let inputs: Vec<Vec<T>> = (0..rig.size())
            .map(|rank| {
                let mut rng = case.rng(rank);
                (0..1021).map(|_| T::nearest((rng.f64() - 0.5) * 64.0)).collect()
            })
            .collect();
        rig.run(|comm, stream| {
            let mut window = comm.alloc_from(stream, &inputs[comm.rank()])?;
            comm.all_reduce(InPlace(&mut window), ReduceOp::Sum, stream)?;
            for (at, got) in window.to_vec(stream)?.into_iter().enumerate() {
                let column: Vec<T> = inputs.iter().map(|input| input[at]).collect();
                let exact = T::nearest(column.iter().map(|value| value.to_f64()).sum());
                // Where kernels for windows are not used, as those of the switch, it is one of the others.
                let narrow = || results(&column, Op::Sum).contains(&key(got, Op::Sum));
                let is_gpu = gpucomm::backend() == gpucomm::Backend::Nvidia;
                assert!(got == exact || is_gpu && narrow(), "{case}: [{at}] is {got:?}, expected {exact:?}");
            }
            Ok(())
        });
    }
    watched(60.0, || {
        if !crate::support::harness::reduces_float8() {
            return;
        }
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            of::<F8E4M3>(&rig);
            of::<F8E5M2>(&rig);
            rig.close();
        }
    });
}
