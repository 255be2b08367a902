//! Reductions: many inputs, one result, written to one or more places.
//!
//! The inputs are combined in the order of their ranks, whoever does the work, so every rank gets the same bits.
//!
//! - Integers wrap. Their average is the wrapped sum divided by the number of ranks, rounded towards zero.
//! - `f16` and `bf16` are widened to `f32`, combined there and rounded once, to the nearest, ties to even.
//! - Averages of floats divide the sum once.
//! - Minimum and maximum ignore a NaN unless all inputs are NaN.
//! - PreMulSum multiplies each rank's input by that rank's scalar, in the type in which sums are kept.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::transfer::{BLOCK, Way};
use crate::emulator::nccl::basics::kind::Redop;
use crate::sys::ncclDataType_t;

/// What to compute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) datatype: ncclDataType_t,
    pub(crate) redop: Redop,
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
    let redop = reduction.redop;
    // SAFETY: the element types below have the sizes of the data types; the caller vouches for the rest.
    unsafe {
        match reduction.datatype {
            T::ncclInt8 => blocks::<i8>(redop, sources, scalars, targets, count, way),
            T::ncclUint8 => blocks::<u8>(redop, sources, scalars, targets, count, way),
            T::ncclInt32 => blocks::<i32>(redop, sources, scalars, targets, count, way),
            T::ncclUint32 => blocks::<u32>(redop, sources, scalars, targets, count, way),
            T::ncclInt64 => blocks::<i64>(redop, sources, scalars, targets, count, way),
            T::ncclUint64 => blocks::<u64>(redop, sources, scalars, targets, count, way),
            T::ncclFloat16 => blocks::<f16>(redop, sources, scalars, targets, count, way),
            T::ncclBfloat16 => blocks::<bf16>(redop, sources, scalars, targets, count, way),
            T::ncclFloat32 => blocks::<f32>(redop, sources, scalars, targets, count, way),
            T::ncclFloat64 => blocks::<f64>(redop, sources, scalars, targets, count, way),
            // Refused when the operation was issued.
            _ => {}
        }
    }
}

/// A type that sums are kept in.
trait Number: Copy + Default {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn least(self, other: Self) -> Self;
    fn greatest(self, other: Self) -> Self;
    fn divide(self, by: usize) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn sum(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn product(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn least(self, other: Self) -> Self { self.min(other) }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self { self.max(other) }
            #[inline(always)]
            fn divide(self, by: usize) -> Self {
                // More ranks than the type can count: the quotient is that of wider numbers.
                (self as i128 / by as i128) as $t
            }
        }
    )*};
}
integers!(i8 u8 i32 u32 i64 u64);

macro_rules! floats {
    ($($t:ty)*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn sum(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn product(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn least(self, other: Self) -> Self { self.min(other) }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self { self.max(other) }
            #[inline(always)]
            fn divide(self, by: usize) -> Self { self / by as $t }
        }
    )*};
}
floats!(f32 f64);

/// An element type, and how blocks of it become numbers and the other way round.
trait Kept: Copy {
    type Number: Number;
    /// Reads `into.len()` elements.
    ///
    /// # Safety
    /// `from` is readable for that many elements; it need not be aligned.
    unsafe fn load(from: *const u8, into: &mut [Self::Number]);
    /// Writes elements.
    ///
    /// # Safety
    /// `into` is writable for that many elements; it need not be aligned.
    unsafe fn store(from: &[Self::Number], into: *mut u8);
    fn scalar(bits: u64) -> Self::Number;
}

macro_rules! kept_as_is {
    ($($t:ty)*) => {$(
        impl Kept for $t {
            type Number = $t;
            #[inline(always)]
            unsafe fn load(from: *const u8, into: &mut [$t]) {
                // SAFETY: the caller vouches for the source; the target is a slice of that length.
                unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr().cast(), size_of_val(into)) };
            }
            #[inline(always)]
            unsafe fn store(from: &[$t], into: *mut u8) {
                // SAFETY: the caller vouches for the target; the source is a slice of that length.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast(), into, size_of_val(from)) };
            }
            #[inline(always)]
            fn scalar(bits: u64) -> $t {
                let mut bytes = [0u8; size_of::<$t>()];
                bytes.copy_from_slice(&bits.to_le_bytes()[..size_of::<$t>()]);
                <$t>::from_le_bytes(bytes)
            }
        }
    )*};
}
kept_as_is!(i8 u8 i32 u32 i64 u64 f32 f64);

/// Elements of a block of a half-precision type.
const HALVES: usize = BLOCK / size_of::<f32>();

impl Kept for f16 {
    type Number = f32;

    unsafe fn load(from: *const u8, into: &mut [f32]) {
        let mut raw = [f16::ZERO; HALVES];
        let raw = &mut raw[..into.len()];
        // SAFETY: the caller vouches for the source; the target is a slice of that length.
        unsafe { std::ptr::copy_nonoverlapping(from, raw.as_mut_ptr().cast(), size_of_val(raw)) };
        raw.convert_to_f32_slice(into);
    }

    unsafe fn store(from: &[f32], into: *mut u8) {
        let mut raw = [f16::ZERO; HALVES];
        let raw = &mut raw[..from.len()];
        raw.convert_from_f32_slice(from);
        // SAFETY: the caller vouches for the target; the source is a slice of that length.
        unsafe { std::ptr::copy_nonoverlapping(raw.as_ptr().cast(), into, size_of_val(raw)) };
    }

    fn scalar(bits: u64) -> f32 {
        f16::from_bits(bits as u16).to_f32()
    }
}

impl Kept for bf16 {
    type Number = f32;

    #[inline(always)]
    unsafe fn load(from: *const u8, into: &mut [f32]) {
        let from = from.cast::<u16>();
        for (i, number) in into.iter_mut().enumerate() {
            // SAFETY: the caller vouches for this many elements.
            let bits = unsafe { from.add(i).read_unaligned() };
            *number = f32::from_bits(u32::from(bits) << 16);
        }
    }

    #[inline(always)]
    unsafe fn store(from: &[f32], into: *mut u8) {
        let into = into.cast::<u16>();
        for (i, number) in from.iter().enumerate() {
            let bits = number.to_bits();
            // Adding this carries into the upper half when the lower one is past, or on the way to, an even tie.
            let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
            let quiet = (bits >> 16) | 0x40;
            let half = if number.is_nan() { quiet } else { rounded } as u16;
            // SAFETY: the caller vouches for this many elements.
            unsafe { into.add(i).write_unaligned(half) };
        }
    }

    fn scalar(bits: u64) -> f32 {
        bf16::from_bits(bits as u16).to_f32()
    }
}

unsafe fn blocks<K: Kept>(
    redop: Redop,
    sources: &[*const u8],
    scalars: &[u64],
    targets: &[*mut u8],
    count: usize,
    way: Way,
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature is there; the caller vouches for the rest.
        return unsafe { blocks_avx2::<K>(redop, sources, scalars, targets, count, way) };
    }
    // SAFETY: the caller vouches for it.
    unsafe { blocks_plain::<K>(redop, sources, scalars, targets, count, way) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn blocks_avx2<K: Kept>(
    redop: Redop,
    sources: &[*const u8],
    scalars: &[u64],
    targets: &[*mut u8],
    count: usize,
    way: Way,
) {
    // SAFETY: the caller vouches for it.
    unsafe { blocks_plain::<K>(redop, sources, scalars, targets, count, way) }
}

#[inline(always)]
unsafe fn blocks_plain<K: Kept>(
    redop: Redop,
    sources: &[*const u8],
    scalars: &[u64],
    targets: &[*mut u8],
    count: usize,
    way: Way,
) {
    let Some(&first) = sources.first() else { return };
    let step = BLOCK / size_of::<K::Number>();
    let mut sums = vec![K::Number::default(); step.min(count)];
    let mut inputs = sums.clone();
    let mut at = 0;
    while at < count {
        let length = step.min(count - at);
        let (sums, inputs) = (&mut sums[..length], &mut inputs[..length]);
        let offset = at * size_of::<K>();
        // SAFETY: `at + length` is at most `count`, for which the caller vouches. All sources of a block are read before
        // any target of it is written.
        unsafe {
            K::load(first.add(offset), sums);
            if redop == Redop::PreMulSum {
                let scalar = K::scalar(scalars.first().copied().unwrap_or(0));
                sums.iter_mut().for_each(|sum| *sum = sum.product(scalar));
            }
            for (source, scalar) in sources.iter().zip(scalars).skip(1) {
                K::load(source.add(offset), inputs);
                let pairs = sums.iter_mut().zip(inputs.iter());
                match redop {
                    Redop::Sum | Redop::Avg => pairs.for_each(|(sum, input)| *sum = sum.sum(*input)),
                    Redop::Prod => pairs.for_each(|(sum, input)| *sum = sum.product(*input)),
                    Redop::Min => pairs.for_each(|(sum, input)| *sum = sum.least(*input)),
                    Redop::Max => pairs.for_each(|(sum, input)| *sum = sum.greatest(*input)),
                    Redop::PreMulSum => {
                        let scalar = K::scalar(*scalar);
                        pairs.for_each(|(sum, input)| *sum = sum.sum(input.product(scalar)));
                    }
                }
            }
            if redop == Redop::Avg {
                sums.iter_mut().for_each(|sum| *sum = sum.divide(sources.len()));
            }
            // Sums of full width are what is written; others are narrowed first.
            let result = if size_of::<K>() == size_of::<K::Number>() {
                sums.as_ptr().cast::<u8>()
            } else {
                let narrow = inputs.as_mut_ptr().cast::<u8>();
                K::store(sums, narrow);
                narrow.cast_const()
            };
            for target in targets {
                way.copy(result, target.add(offset), length * size_of::<K>());
            }
        }
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce<K: Kept>(datatype: ncclDataType_t, redop: Redop, inputs: &[Vec<K>], scalars: &[u64]) -> Vec<K> {
        let [cached, streamed] =
            [Way::Cached, Way::Streamed].map(|way| reduce_in(way, datatype, redop, inputs, scalars));
        assert_eq!(bytes(&cached), bytes(&streamed), "both ways write the same");
        cached
    }

    fn bytes<K>(values: &[K]) -> Vec<u8> {
        // SAFETY: the slice holds plain numbers.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }.to_vec()
    }

    fn reduce_in<K: Kept>(
        way: Way,
        datatype: ncclDataType_t,
        redop: Redop,
        inputs: &[Vec<K>],
        scalars: &[u64],
    ) -> Vec<K> {
        let count = inputs[0].len();
        let mut outs = [inputs[0].clone(), inputs[0].clone()];
        let sources: Vec<_> = inputs.iter().map(|input| input.as_ptr().cast::<u8>()).collect();
        let targets: Vec<_> = outs.iter_mut().map(|out| out.as_mut_ptr().cast::<u8>()).collect();
        // SAFETY: all vectors have `count` elements of the type.
        unsafe { run(Reduction { datatype, redop }, &sources, scalars, &targets, count, way) };
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
    fn halves_are_rounded_once() {
        // 1 + 2^-11 + 2^-11 is 1 + 2^-10 exactly, but each step rounded to half precision would stay at 1.
        let small = f16::from_f32(2f32.powi(-11));
        let inputs = [vec![f16::ONE], vec![small], vec![small]];
        let sum = reduce(ncclDataType_t::ncclFloat16, Redop::Sum, &inputs, &[0; 3]);
        assert_eq!(sum[0].to_f32(), 1.0 + 2f32.powi(-10));
        let small = bf16::from_f32(2f32.powi(-8));
        let inputs = [vec![bf16::ONE], vec![small], vec![small]];
        let sum = reduce(ncclDataType_t::ncclBfloat16, Redop::Sum, &inputs, &[0; 3]);
        assert_eq!(sum[0].to_f32(), 1.0 + 2f32.powi(-7));
    }

    #[test]
    fn bfloat_rounding_is_that_of_half() {
        let numbers: Vec<f32> = (0..200_000u32)
            .map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b1)))
            .chain([f32::NAN, f32::INFINITY, f32::MAX, -0.0])
            .collect();
        let mut bits = vec![0u16; numbers.len()];
        // SAFETY: the target has as many elements.
        unsafe { bf16::store(&numbers, bits.as_mut_ptr().cast()) };
        for (number, bits) in numbers.iter().zip(bits) {
            assert_eq!(bits, bf16::from_f32(*number).to_bits(), "{number:e}");
        }
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
