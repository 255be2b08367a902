//! Reductions: many inputs, one result, written to one or more places.
//!
//! The inputs are combined in the order in which they come, that of their ranks, whoever does the work, so every rank gets the same bits. NCCL gives all ranks the
//! same bits, too, but its order is that of a ring, which begins at another rank for each part of the data, or of a tree; which of them
//! it takes depends on the machine, the operation and its size. So where a step rounds, a result here is one of those that a GPU may
//! give, and not the one that it gives.
//!
//! - Integers wrap. Their average is the wrapped sum divided by the number of ranks, rounded towards zero.
//! - Floats are rounded to their type at each step: each sum, product and so on of two.
//! - PreMulSum multiplies each rank's input by that rank's scalar. That product is rounded only for the first rank: the others' is fused
//!   with the addition.
//! - An average of floats is that, where each rank's scalar is one over the number of ranks, rounded to the type.
//! - Sums of floats of one and two bytes between symmetric windows are kept in `f32` and rounded once.
//! - Floats of one byte are as `float8` tells: what is too large for them becomes their largest number, and products are rounded before they
//!   are added. One rank alone gets its bits as they are.
//! - Minimum and maximum ignore a NaN unless all inputs are NaN.
//!
//! All of this is from the source of NCCL 2.28.9 (`reduce_kernel.h`, `enqueue.cc`, `symmetric/`), but for the fusion, which is what the
//! compiler made of it: the code for compute capability 9.0 in NVIDIA's build of 2.28.9 for CUDA 13 multiplies and adds in one
//! instruction in all of its rings, for all four types. None of that code's additions and multiplications flushes small numbers to zero, and
//! none did on H200s, where an average of subnormal `f32` showed the fusion as well (docs/measurements/2026-11-22-h200-differential.md). What NVLink
//! switches do, which add up themselves where NVLS is used, stands in no document: sums of two-byte types are kept in `f32` there, and
//! atomic additions of `f32` in memory are known to flush. Hence the options of `GPUCOMM_EMULATOR_FLOATS`: `wide-sums` keeps all
//! sums of floats of one and two bytes in `f32`, and `flush-denormals` takes each `f32` that is no normal number for zero, in and out. Their order
//! is not known either: with `any-order` whoever calls this puts the inputs in another one each time (`run::share`).

use half::{bf16, f16};

use super::element::{Element, Number};
use super::float8::{E4m3, E5m2};
use super::transfer::{BLOCK, Way};
use crate::nccl::basics::kind::Redop;
use crate::sys::ncclDataType_t;

/// What to compute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) datatype: ncclDataType_t,
    pub(crate) redop: Redop,
    /// Sums of floats of one and two bytes are kept in `f32`.
    pub(crate) wide: bool,
    /// Numbers of `f32` that are not normal are zero.
    pub(crate) flush: bool,
}

/// Combines `count` elements of every source and writes the result to every target.
///
/// # Safety
/// Sources are readable and targets writable for `count` elements. A target may be the same place as a source, but must not
/// overlap one otherwise.
pub(crate) unsafe fn run(
    reduction: Reduction,
    sources: &[*const u8],
    scalars: &[u64],
    targets: &[*mut u8],
    count: usize,
    way: Way,
) {
    use ncclDataType_t as T;
    // SAFETY: the element types below have the sizes of the data types; the caller vouches for the rest.
    unsafe {
        match reduction.datatype {
            T::ncclInt8 => blocks::<i8>(reduction, sources, scalars, targets, count, way),
            T::ncclUint8 => blocks::<u8>(reduction, sources, scalars, targets, count, way),
            T::ncclInt32 => blocks::<i32>(reduction, sources, scalars, targets, count, way),
            T::ncclUint32 => blocks::<u32>(reduction, sources, scalars, targets, count, way),
            T::ncclInt64 => blocks::<i64>(reduction, sources, scalars, targets, count, way),
            T::ncclUint64 => blocks::<u64>(reduction, sources, scalars, targets, count, way),
            T::ncclFloat16 => blocks::<f16>(reduction, sources, scalars, targets, count, way),
            T::ncclBfloat16 => blocks::<bf16>(reduction, sources, scalars, targets, count, way),
            T::ncclFloat32 => blocks::<f32>(reduction, sources, scalars, targets, count, way),
            T::ncclFloat64 => blocks::<f64>(reduction, sources, scalars, targets, count, way),
            T::ncclFloat8e4m3 => blocks::<E4m3>(reduction, sources, scalars, targets, count, way),
            T::ncclFloat8e5m2 => blocks::<E5m2>(reduction, sources, scalars, targets, count, way),
            // Refused when the operation was issued.
            _ => {}
        }
    }
}

unsafe fn blocks<E: Element>(
    mut reduction: Reduction,
    sources: &[*const u8],
    scalars: &[u64],
    targets: &[*mut u8],
    count: usize,
    way: Way,
) {
    let shares: Vec<u64>;
    let scalars = match E::share(sources.len()).filter(|_| reduction.redop == Redop::Avg) {
        None => scalars,
        Some(share) => {
            reduction.redop = Redop::PreMulSum;
            shares = vec![share; sources.len()];
            &shares
        }
    };
    if let ([source], true) = (sources, reduction.redop != Redop::PreMulSum) {
        // SAFETY: the caller vouches for it.
        return unsafe { way.copy_to_all(*source, targets, count * size_of::<E>()) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there; the caller vouches for the rest.
        return unsafe { blocks_avx2::<E>(reduction, sources, scalars, targets, count, way) };
    }
    // SAFETY: the caller vouches for it.
    unsafe { blocks_plain::<E>(reduction, sources, scalars, targets, count, way) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn blocks_avx2<E: Element>(
    reduction: Reduction,
    sources: &[*const u8],
    scalars: &[u64],
    targets: &[*mut u8],
    count: usize,
    way: Way,
) {
    // SAFETY: the caller vouches for it.
    unsafe { blocks_plain::<E>(reduction, sources, scalars, targets, count, way) }
}

#[inline(always)]
unsafe fn blocks_plain<E: Element>(
    reduction: Reduction,
    sources: &[*const u8],
    scalars: &[u64],
    targets: &[*mut u8],
    count: usize,
    way: Way,
) {
    let Reduction { redop, wide, flush, .. } = reduction;
    let flush = |numbers: &mut [E::Number]| {
        if E::FLUSHED && flush {
            numbers.iter_mut().for_each(|number| *number = number.flush());
        }
    };
    let Some(&first) = sources.first() else { return };
    let step = BLOCK / size_of::<E::Number>();
    let mut sums = vec![E::Number::default(); step.min(count)];
    let mut inputs = sums.clone();
    let mut at = 0;
    while at < count {
        let length = step.min(count - at);
        let (sums, inputs) = (&mut sums[..length], &mut inputs[..length]);
        let offset = at * size_of::<E>();
        // SAFETY: `at + length` is at most `count`, for which the caller vouches. All sources of a block are read before
        // any target of it is written.
        unsafe {
            E::load(first.add(offset), sums);
            flush(sums);
            if redop == Redop::PreMulSum {
                let scalar = E::scalar(scalars.first().copied().unwrap_or(0));
                sums.iter_mut().for_each(|sum| *sum = sum.product(scalar));
                E::round(sums);
                flush(sums);
            }
            for (source, scalar) in sources.iter().zip(scalars).skip(1) {
                E::load(source.add(offset), inputs);
                flush(inputs);
                let pairs = sums.iter_mut().zip(inputs.iter());
                match redop {
                    Redop::Sum | Redop::Avg => pairs.for_each(|(sum, input)| *sum = sum.sum(*input)),
                    Redop::Prod => pairs.for_each(|(sum, input)| *sum = sum.product(*input)),
                    Redop::Min => pairs.for_each(|(sum, input)| *sum = sum.least(*input)),
                    Redop::Max => pairs.for_each(|(sum, input)| *sum = sum.greatest(*input)),
                    Redop::PreMulSum => E::add_scaled(sums, inputs, E::scalar(*scalar)),
                }
                let kept = matches!(redop, Redop::Min | Redop::Max) || wide && redop == Redop::Sum;
                if !kept {
                    E::round(sums);
                }
                flush(sums);
            }
            if redop == Redop::Avg {
                sums.iter_mut().for_each(|sum| *sum = sum.divide(sources.len()));
            }
            // Sums of full width are what is written; others are narrowed first.
            let result = if size_of::<E>() == size_of::<E::Number>() {
                sums.as_ptr().cast::<u8>()
            } else {
                let narrow = inputs.as_mut_ptr().cast::<u8>();
                E::store(sums, narrow);
                narrow.cast_const()
            };
            for target in targets {
                way.copy(result, target.add(offset), length * size_of::<E>());
            }
        }
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(datatype: ncclDataType_t, redop: Redop) -> Reduction {
        Reduction { datatype, redop, wide: false, flush: false }
    }

    fn reduce<E: Element>(datatype: ncclDataType_t, redop: Redop, inputs: &[Vec<E>], scalars: &[u64]) -> Vec<E> {
        reduce_as(plain(datatype, redop), inputs, scalars)
    }

    fn reduce_as<E: Element>(reduction: Reduction, inputs: &[Vec<E>], scalars: &[u64]) -> Vec<E> {
        let [cached, streamed] = [Way::Cached, Way::Streamed].map(|way| reduce_in(way, reduction, inputs, scalars));
        assert_eq!(bytes(&cached), bytes(&streamed), "both ways write the same");
        cached
    }

    fn bytes<E>(values: &[E]) -> Vec<u8> {
        // SAFETY: the slice holds plain numbers.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }.to_vec()
    }

    fn reduce_in<E: Element>(way: Way, reduction: Reduction, inputs: &[Vec<E>], scalars: &[u64]) -> Vec<E> {
        let count = inputs[0].len();
        let mut outs = [inputs[0].clone(), inputs[0].clone()];
        let sources: Vec<_> = inputs.iter().map(|input| input.as_ptr().cast::<u8>()).collect();
        let targets: Vec<_> = outs.iter_mut().map(|out| out.as_mut_ptr().cast::<u8>()).collect();
        // SAFETY: all vectors have `count` elements of the type.
        unsafe { run(reduction, &sources, scalars, &targets, count, way) };
        let [first, second] = outs;
        way.finish();
        assert_eq!(bytes(&first), bytes(&second), "every target gets the same");
        first
    }

    #[test]
    fn integers_wrap_and_average_towards_zero() {
        let t = ncclDataType_t::ncclInt8;
        let inputs = [vec![100i8, -100, 7, -7], vec![100, -100, 0, 0], vec![0, 0, 1, -1]];
        let none = [0; 3];
        assert_eq!(reduce(t, Redop::Sum, &inputs, &none), [-56, 56, 8, -8]);
        assert_eq!(reduce(t, Redop::Avg, &inputs, &none), [-18, 18, 2, -2]);
        assert_eq!(reduce(t, Redop::Min, &inputs, &none), [0, -100, 0, -7]);
        assert_eq!(reduce(t, Redop::Max, &inputs, &none), [100, 0, 7, 0]);
        let wide = [vec![u64::MAX, 3], vec![2, 5]];
        assert_eq!(reduce(ncclDataType_t::ncclUint64, Redop::Sum, &wide, &[0; 2]), [1, 8]);
        assert_eq!(reduce(ncclDataType_t::ncclUint64, Redop::Avg, &wide, &[0; 2]), [0, 4]);
        assert_eq!(reduce(ncclDataType_t::ncclUint64, Redop::PreMulSum, &wide, &[2, 3]), [4, 21]);
    }

    #[test]
    fn sums_of_small_floats_are_rounded_at_each_step_unless_they_are_kept_wide() {
        // 1 + 2^-11 + 2^-11 is 1 + 2^-10 exactly, but each step rounded to half precision stays at 1.
        let small = f16::from_f32(2f32.powi(-11));
        let inputs = [vec![f16::ONE], vec![small], vec![small]];
        let half = |wide| {
            let reduction = Reduction { wide, ..plain(ncclDataType_t::ncclFloat16, Redop::Sum) };
            reduce_as(reduction, &inputs, &[0; 3])[0].to_f32()
        };
        assert_eq!([half(false), half(true)], [1.0, 1.0 + 2f32.powi(-10)]);
        let small = bf16::from_f32(2f32.powi(-8));
        let inputs = [vec![bf16::ONE], vec![small], vec![small]];
        let half = |wide| {
            let reduction = Reduction { wide, ..plain(ncclDataType_t::ncclBfloat16, Redop::Sum) };
            reduce_as(reduction, &inputs, &[0; 3])[0].to_f32()
        };
        assert_eq!([half(false), half(true)], [1.0, 1.0 + 2f32.powi(-7)]);
        // 16 + 1 is a tie between 16 and 18.
        let inputs = [vec![E4m3::of(0x58)], vec![E4m3::of(0x38)], vec![E4m3::of(0x38)]];
        let eighth = |wide| {
            let reduction = Reduction { wide, ..plain(ncclDataType_t::ncclFloat8e4m3, Redop::Sum) };
            bytes(&reduce_as(reduction, &inputs, &[0; 3]))
        };
        assert_eq!([eighth(false), eighth(true)], [[0x58], [0x59]]);
        // Past the largest number on the way.
        let large = [60_000.0, 60_000.0, -60_000.0].map(|value| vec![f16::from_f32(value)]);
        assert!(reduce(ncclDataType_t::ncclFloat16, Redop::Sum, &large, &[0; 3])[0].is_infinite());
    }

    #[test]
    fn averages_of_floats_are_sums_of_shares() {
        let inputs = [vec![1.0f32], vec![1.0], vec![1.0]];
        let third = 1.0f32 / 3.0;
        let fused = third.mul_add(1.0, third.mul_add(1.0, third));
        assert_eq!(reduce(ncclDataType_t::ncclFloat32, Redop::Avg, &inputs, &[0; 3]), [fused]);
        let inputs = [0.1f32, 0.2, 0.7, 5.0].map(|value| vec![value]);
        let all = inputs.iter().fold(0.0f32, |sum, input| input[0].mul_add(0.25, sum));
        assert_eq!(reduce(ncclDataType_t::ncclFloat32, Redop::Avg, &inputs, &[0; 4]), [all]);
        // No sum leaves the range where the average does not.
        let large = [vec![f16::MAX], vec![f16::MAX]];
        assert_eq!(reduce(ncclDataType_t::ncclFloat16, Redop::Avg, &large, &[0; 2]), [f16::MAX]);
        let thirds = [0.333_251_95f32; 3];
        let inputs = [vec![f16::ONE], vec![f16::ONE], vec![f16::ONE]];
        let want = thirds.iter().fold(0.0, |sum, share| f16::from_f32(sum + share).to_f32());
        assert_eq!(reduce(ncclDataType_t::ncclFloat16, Redop::Avg, &inputs, &[0; 3])[0].to_f32(), want);
    }

    #[test]
    fn a_scaled_product_is_not_rounded_before_it_is_added() {
        let inputs = [vec![-1.0f32], vec![1.0 + f32::EPSILON]];
        let scalars = [1.0f32, 1.0 - f32::EPSILON].map(|scalar| u64::from(scalar.to_bits()));
        let sum = reduce(ncclDataType_t::ncclFloat32, Redop::PreMulSum, &inputs, &scalars);
        assert_eq!(sum, [-f32::EPSILON * f32::EPSILON]);
    }

    #[test]
    fn small_numbers_stay_unless_they_are_flushed() {
        let tiny = f32::MIN_POSITIVE / 4.0;
        let inputs = [vec![tiny, -tiny, f32::MIN_POSITIVE], vec![tiny, -tiny, tiny - f32::MIN_POSITIVE]];
        let sums = |flush| {
            let reduction = Reduction { flush, ..plain(ncclDataType_t::ncclFloat32, Redop::Sum) };
            reduce_as(reduction, &inputs, &[0; 2])
        };
        assert_eq!(sums(false), [2.0 * tiny, -2.0 * tiny, tiny]);
        assert_eq!(sums(true), [0.0, 0.0, f32::MIN_POSITIVE]);
    }

    #[test]
    fn minimum_and_maximum_ignore_nan() {
        let inputs = [vec![f32::NAN, 1.0, f32::NAN], vec![2.0, f32::NAN, f32::NAN]];
        let least = reduce(ncclDataType_t::ncclFloat32, Redop::Min, &inputs, &[0; 2]);
        assert_eq!(least[..2], [2.0, 1.0]);
        assert!(least[2].is_nan());
        let greatest = reduce(ncclDataType_t::ncclFloat32, Redop::Max, &inputs, &[0; 2]);
        assert_eq!(greatest[..2], [2.0, 1.0]);
    }

    #[test]
    fn long_inputs_are_reduced_to_the_last_element() {
        let count = 3 * BLOCK + 17;
        let inputs: Vec<Vec<f32>> = (0..3).map(|r| (0..count).map(|i| (i % 1000 + r) as f32).collect()).collect();
        let sum = reduce(ncclDataType_t::ncclFloat32, Redop::Sum, &inputs, &[0; 3]);
        for (i, value) in sum.iter().enumerate() {
            assert_eq!(*value, (3 * (i % 1000) + 3) as f32);
        }
        let scalars = [0.5f32, 2.0, 0.0].map(|s| u64::from(s.to_bits()));
        let sum = reduce(ncclDataType_t::ncclFloat32, Redop::PreMulSum, &inputs, &scalars);
        for (i, value) in sum.iter().enumerate() {
            assert_eq!(*value, (i % 1000) as f32 * 2.5 + 2.0);
        }
    }
}
