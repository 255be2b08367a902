//! Elements as numbers: how they are read and written, added and multiplied, and where a GPU rounds.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::transfer::BLOCK;

/// A type that sums are kept in.
pub(super) trait Number: Copy + Default {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn least(self, other: Self) -> Self;
    fn greatest(self, other: Self) -> Self;
    /// Of integers.
    fn divide(self, by: usize) -> Self;
    /// Zero where the number is that small that its type has no normal number for it.
    fn flush(self) -> Self;
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
            #[inline(always)]
            fn flush(self) -> Self { self }
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
            fn least(self, other: Self) -> Self {
                // As PTX has it, -0 is less than +0, whatever comes first.
                if self == other { Self::from_bits(self.to_bits() | other.to_bits()) } else { self.min(other) }
            }
            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                if self == other { Self::from_bits(self.to_bits() & other.to_bits()) } else { self.max(other) }
            }
            #[inline(always)]
            fn divide(self, by: usize) -> Self { self / by as $t }
            #[inline(always)]
            fn flush(self) -> Self { if self.abs() < <$t>::MIN_POSITIVE { self * 0.0 } else { self } }
        }
    )*};
}
floats!(f32 f64);

/// An element type, and how blocks of it become numbers and the other way round.
pub(super) trait Element: Copy {
    type Number: Number;
    /// Whether a GPU may set numbers to zero that are too small to be normal.
    const FLUSHED: bool = false;
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
    /// The bits of one over `ranks`, as NCCL gives it to its kernels; `None` for integers.
    fn share(ranks: usize) -> Option<u64>;
    /// Rounds to what the type can hold.
    fn round(numbers: &mut [Self::Number]);
    /// Adds `factor` times each input. What comes out is exact enough that [`Self::round`] gives what a fused multiplication and addition
    /// gives, which rounds once.
    fn add_scaled(sums: &mut [Self::Number], inputs: &[Self::Number], factor: Self::Number);
}

macro_rules! as_they_are {
    ($($t:ident: $flushed:literal, $share:expr, $fused:expr;)*) => {$(
        impl Element for $t {
            type Number = $t;
            const FLUSHED: bool = $flushed;
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
            fn share(ranks: usize) -> Option<u64> {
                let share: fn(f64) -> Option<u64> = $share;
                share(1.0 / ranks as f64)
            }
            #[inline(always)]
            fn round(_: &mut [$t]) {}
            #[inline(always)]
            fn add_scaled(sums: &mut [$t], inputs: &[$t], factor: $t) {
                let fused: fn($t, $t, $t) -> $t = $fused;
                sums.iter_mut().zip(inputs).for_each(|(sum, input)| *sum = fused(*input, factor, *sum));
            }
        }
    )*};
}
as_they_are! {
    i8: false, |_| None, |input, factor, sum| input.product(factor).sum(sum);
    u8: false, |_| None, |input, factor, sum| input.product(factor).sum(sum);
    i32: false, |_| None, |input, factor, sum| input.product(factor).sum(sum);
    u32: false, |_| None, |input, factor, sum| input.product(factor).sum(sum);
    i64: false, |_| None, |input, factor, sum| input.product(factor).sum(sum);
    u64: false, |_| None, |input, factor, sum| input.product(factor).sum(sum);
    f32: true, |share| Some(u64::from((share as f32).to_bits())), f32::mul_add;
    f64: false, |share| Some(share.to_bits()), f64::mul_add;
}

/// Elements of a block of a half-precision type.
const HALVES: usize = BLOCK / size_of::<f32>();

/// What [`Element::add_scaled`] is for two-byte types: the product of two of them is exact in an f32, and the sum is rounded to odd there,
/// so that it can be rounded once more.
#[inline(always)]
fn add_products(sums: &mut [f32], inputs: &[f32], factor: f32) {
    for (sum, input) in sums.iter_mut().zip(inputs) {
        let (product, other) = (input * factor, *sum);
        let near = product + other;
        // What is left of both is exact.
        let part = near - product;
        let left = (product - (near - part)) + (other - part);
        let bits = near.to_bits();
        // Towards what is left, where that is something, and the last bit does not say so yet.
        let up = (left > 0.0) == (near > 0.0);
        let odd = if up { bits + 1 } else { bits.wrapping_sub(1) };
        let inexact = left != 0.0 && near.is_finite() && left.is_finite() && bits & 1 == 0 && near != 0.0;
        *sum = if inexact { f32::from_bits(odd) } else { near };
    }
}

impl Element for f16 {
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

    fn share(ranks: usize) -> Option<u64> {
        Some(u64::from(f16::from_f32((1.0 / ranks as f64) as f32).to_bits()))
    }

    fn round(numbers: &mut [f32]) {
        let mut raw = [f16::ZERO; HALVES];
        let raw = &mut raw[..numbers.len()];
        raw.convert_from_f32_slice(numbers);
        raw.convert_to_f32_slice(numbers);
    }

    #[inline(always)]
    fn add_scaled(sums: &mut [f32], inputs: &[f32], factor: f32) {
        add_products(sums, inputs, factor);
    }
}

/// The upper half of an f32 that is nearest, ties to even.
#[inline(always)]
fn upper_half(number: f32) -> u32 {
    let bits = number.to_bits();
    // Adding this carries into the upper half when the lower one is past, or on the way to, an even tie.
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    if number.is_nan() { quiet } else { rounded }
}

impl Element for bf16 {
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
            // SAFETY: the caller vouches for this many elements.
            unsafe { into.add(i).write_unaligned(upper_half(*number) as u16) };
        }
    }

    fn scalar(bits: u64) -> f32 {
        bf16::from_bits(bits as u16).to_f32()
    }

    fn share(ranks: usize) -> Option<u64> {
        Some(u64::from(bf16::from_f32((1.0 / ranks as f64) as f32).to_bits()))
    }

    #[inline(always)]
    fn round(numbers: &mut [f32]) {
        numbers.iter_mut().for_each(|number| *number = f32::from_bits(upper_half(*number) << 16));
    }

    #[inline(always)]
    fn add_scaled(sums: &mut [f32], inputs: &[f32], factor: f32) {
        add_products(sums, inputs, factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers that keep to the seed.
    fn numbers(count: u32) -> impl Iterator<Item = u32> {
        let mut state = 0x1234_5678u32;
        (0..count).map(move |_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.wrapping_mul(0x9e37_79b1)
        })
    }

    #[test]
    fn bfloat_rounding_is_that_of_half() {
        let numbers: Vec<f32> =
            numbers(200_000).map(f32::from_bits).chain([f32::NAN, f32::INFINITY, f32::MAX, -0.0]).collect();
        let mut bits = vec![0u16; numbers.len()];
        // SAFETY: the target has as many elements.
        unsafe { bf16::store(&numbers, bits.as_mut_ptr().cast()) };
        for (number, bits) in numbers.iter().zip(bits) {
            assert_eq!(bits, bf16::from_f32(*number).to_bits(), "{number:e}");
        }
    }

    /// The element next to `value`, ties to even; found by trying, as a conversion may round twice.
    fn nearest<E: Element<Number = f32>>(guess: u16, value: f64) -> u16 {
        let distance = |bits: u16| (f64::from(E::scalar(u64::from(bits))) - value).abs();
        let candidates = [guess.wrapping_sub(1), guess, guess.wrapping_add(1)];
        let key = |bits: &u16| (distance(*bits), bits & 1);
        candidates.into_iter().min_by(|a, b| key(a).partial_cmp(&key(b)).unwrap()).unwrap()
    }

    /// Of numbers whose exponents are that near each other that f64 has their products and sums exactly.
    fn is_fused<E: Element<Number = f32>>(mantissa: u32, guess: fn(f64) -> u16) {
        let one = |bits: u32| {
            let (sign, size) = (if bits & 1 == 0 { 1.0 } else { -1.0 }, 1 << mantissa);
            sign * (1.0 + (bits >> 8 & (size - 1)) as f32 / size as f32) * 2f32.powi((bits >> 1 & 15) as i32 - 11)
        };
        let all: Vec<f32> = numbers(600_000).map(one).collect();
        let mut twice = 0;
        for three in all.chunks_exact(3) {
            let mut sum = [three[0]];
            E::add_scaled(&mut sum, &three[1..2], three[2]);
            E::round(&mut sum);
            let exact = f64::from(three[1]) * f64::from(three[2]) + f64::from(three[0]);
            if exact.abs() < 1e-3 {
                continue;
            }
            let want = E::scalar(u64::from(nearest::<E>(guess(exact), exact)));
            assert_eq!(sum[0], want, "{three:?}");
            let mut rounded = [three[1] * three[2]];
            E::round(&mut rounded);
            rounded[0] += three[0];
            E::round(&mut rounded);
            twice += usize::from(rounded != sum);
        }
        assert!(twice > 1000, "rounding twice would be the same");
        let mut sum = [1.0; 3];
        E::add_scaled(&mut sum, &[f32::INFINITY, f32::NAN, 0.0], 1.0);
        E::round(&mut sum);
        assert!(sum[0] == f32::INFINITY && sum[1].is_nan() && sum[2] == 1.0);
    }

    #[test]
    fn a_scaled_sum_of_halves_is_rounded_once() {
        is_fused::<f16>(10, |value| f16::from_f64(value).to_bits());
        is_fused::<bf16>(7, |value| bf16::from_f64(value).to_bits());
        // The sum is a tie but for a bit at 2^-26, for which an f32 has no place.
        let (small, factor) = (2f32.powi(-11) * (1.0 + 32.0 / 1024.0), 1.0 - 31.0 / 1024.0);
        let mut tie = [1.0];
        f16::add_scaled(&mut tie, &[small], factor);
        f16::round(&mut tie);
        assert_eq!(tie[0], 1.0 + 2f32.powi(-10));
    }

    #[test]
    fn shares_are_rounded_to_their_type() {
        assert_eq!(f32::share(3), Some(u64::from((1.0f32 / 3.0).to_bits())));
        assert_eq!(f16::share(3).map(f16::scalar), Some(0.333_251_95));
        assert_eq!(bf16::share(3).map(bf16::scalar), Some(0.333_984_38));
        assert_eq!(f64::share(3).map(f64::scalar), Some(1.0 / 3.0));
        assert_eq!(i8::share(3), None);
    }
}
